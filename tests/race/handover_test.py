"""The handover of the data, which starts the judge's clock."""

import dataclasses

import numpy as np
import pytest

from dawnjax.errors import RunError
from dawnjax.input_pipeline.datasets.digits import Digits
from dawnjax.race.handover import Handover, withheld


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


def test_each_round_has_an_order_of_its_own(tmp_path):
    data = Digits()
    handover = Handover.prepare(data, data.spec(), tmp_path / "closed")
    rounds = []
    for name in ("first", "second"):
        handover.shuffle()
        handover.describe(tmp_path / name)
        handover.hand_over(tmp_path / name)
        rounds.append(withheld(data, tmp_path / name, lambda: None).load("train"))
    real = data.load("train")

    def pairs(arrays):
        images = map(np.ndarray.tobytes, arrays["image"])
        return list(zip(images, arrays["label"].tolist(), strict=True))

    assert pairs(rounds[0]) != pairs(rounds[1]) != pairs(real)
    assert sorted(pairs(rounds[0])) == sorted(pairs(rounds[1])) == sorted(pairs(real))
    with pytest.raises(RunError, match="cannot hand the data over"):
        handover.hand_over(tmp_path / "second")
