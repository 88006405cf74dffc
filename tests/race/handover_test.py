"""The handover of the data, which starts the judge's clock."""

import dataclasses

import numpy as np
import pytest

from dawnjax.errors import RunError
from dawnjax.input_pipeline.datasets.digits import Digits
from dawnjax.input_pipeline.datasets.token_shards import token_spec
from dawnjax.input_pipeline.reading.dataset import Declaration
from dawnjax.input_pipeline.reading.token_words import KNOWN_WORDS
from dawnjax.race.handover import Handover, learnt_of, withheld


def test_examples_come_when_the_clock_starts_and_those_to_evaluate_never(tmp_path):
    data, moments = Digits(), []
    handover = Handover.prepare(data, data.spec(), tmp_path / "closed")
    handover.describe(tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["data.json"]

    def wait():
        moments.append("asked")
        handover.hand_over(tmp_path / "run")

    seen = withheld(data, tmp_path / "run", wait)
    assert seen.spec() == data.spec() and moments == []
    assert dataclasses.asdict(seen) == dataclasses.asdict(data) and seen.TAG == data.TAG
    evaluated, real = seen.load("eval"), data.load("eval")
    assert moments == [] and {n: a.shape for n, a in evaluated.items()} == {
        name: array.shape for name, array in real.items()
    }
    assert all((array == 1).all() for array in evaluated.values())
    train = seen.load("train")
    assert moments == ["asked"]
    for name, array in data.load("train").items():
        np.testing.assert_array_equal(train[name], array)
    with pytest.raises(ValueError, match="read-only|readonly"):
        train["label"][0] = 1


def test_each_round_has_an_order_and_names_of_its_own(tmp_path):
    data = Digits()
    handover = Handover.prepare(data, data.spec(), tmp_path / "closed")
    rounds, seen = [], []
    for name in ("first", "second"):
        handover.shuffle()
        handover.describe(tmp_path / name)
        handover.hand_over(tmp_path / name)
        arrays = dict(withheld(data, tmp_path / name, lambda: None).load("train"))
        assert sorted(handover.names) == list(range(10))
        seen.append(handover.names.tolist())
        # The old name of each new one.
        arrays["label"] = np.argsort(handover.names)[arrays["label"]]
        rounds.append(arrays)
    real = data.load("train")
    assert list(range(10)) not in seen and seen[0] != seen[1]

    def pairs(arrays):
        images = map(np.ndarray.tobytes, arrays["image"])
        return list(zip(images, arrays["label"].tolist(), strict=True))

    assert pairs(rounds[0]) != pairs(rounds[1]) != pairs(real)
    assert sorted(pairs(rounds[0])) == sorted(pairs(rounds[1])) == sorted(pairs(real))
    with pytest.raises(RunError, match="cannot hand the data over"):
        handover.hand_over(tmp_path / "second")


def test_tokens_keep_their_bytes_and_a_separator_its_place():
    spec = token_spec(600, 100, 8, KNOWN_WORDS["bytes"], "f" * 16, Declaration(name="text"))
    learnt, random = learnt_of(spec), np.random.default_rng(0)
    names = learnt.renamed(random)
    assert learnt.array == "tokens" and names[spec.separator] == spec.separator
    assert sorted(names) == list(range(257)) and (names != np.arange(257)).sum() > 240
    lengths = (1, 2, 2, 1, 3, 0)
    other = dataclasses.replace(spec, vocabulary_size=6, separator=5, bytes_of_token=lengths)
    for _ in range(9):
        names = learnt_of(other).renamed(random)
        assert [lengths[name] for name in names] == list(lengths)
