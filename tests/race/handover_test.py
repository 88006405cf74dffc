"""The handover of the data, which starts the judge's clock."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from dawnjax.input_pipeline.datasets.digits import Digits
from dawnjax.input_pipeline.reading.renamed import new_names, renamed
from dawnjax.race.handover import Handover, withheld


def test_examples_come_when_the_clock_starts_and_those_to_evaluate_never(tmp_path):
    data, moments = Digits(), []
    handover = Handover(data, data.spec(), tmp_path / "closed")
    seed = handover.new_round()
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
    assert sorted(pairs(train, seed)) == sorted(pairs(data.load("train")))
    with pytest.raises(ValueError, match="read-only|readonly"):
        train["label"][0] = 1


def pairs(arrays, seed=None):
    """Images with their true labels, of arrays of a round or as they are."""
    labels = arrays["label"]
    if seed is not None:
        labels = np.argsort(new_names(Digits().spec(), seed)[1])[labels]
    images = map(np.ndarray.tobytes, arrays["image"])
    return list(zip(images, labels.tolist(), strict=True))


def test_each_round_has_an_order_and_names_of_its_own(tmp_path):
    data = Digits()
    handover = Handover(data, data.spec(), tmp_path / "closed")
    rounds, seeds = [], []
    for name in ("first", "second"):
        seeds.append(handover.new_round())
        handover.describe(tmp_path / name)
        handover.hand_over(tmp_path / name, with_inputs=name == "second")
        rounds.append(withheld(data, tmp_path / name, lambda: None).load("train"))
    real = pairs(data.load("train"))
    first, second = (pairs(arrays, seed) for arrays, seed in zip(rounds, seeds, strict=True))
    assert first != second != real and sorted(first) == sorted(second) == sorted(real)
    assert pairs(rounds[0]) != first and pairs(rounds[1]) != second  # the names are others
    assert not list((tmp_path / "first").glob("eval_*"))
    assert [path.name for path in (tmp_path / "second").glob("eval_*")] == ["eval_image.npy"]
    inputs = np.load(tmp_path / "second" / "eval_image.npy")
    answered = pairs({"image": inputs, "label": handover.true_classes()}, seeds[1])
    assert sorted(answered) == sorted(pairs(data.load("eval")))


def test_tokens_change_names_with_those_of_as_many_bytes_and_the_separator_with_none():
    spec = SimpleNamespace(vocabulary_size=8, separator=7, bytes_of_token=(1, 1, 1, 2, 2, 2, 2, 0))
    drawn = {tuple(new_names(spec, seed)[1]) for seed in range(20)}
    assert len(drawn) > 10
    for names in drawn:
        assert {*names[:3]} == {0, 1, 2} and {*names[3:7]} == {3, 4, 5, 6} and names[7] == 7
    name, names = new_names(spec, 3)
    assert name == "tokens"
    tokens = np.array([[0, 7], [6, 3]], np.uint16)
    changed = renamed(tokens, names)
    assert changed.dtype == np.uint16
    np.testing.assert_array_equal(np.argsort(names)[changed], tokens)
