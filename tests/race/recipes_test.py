"""Recipes with code of their own, in real sandboxes: an honest one, and cheats."""

import dataclasses

import pytest
from made_race import write_entry

from dawnjax.checkpointed.judged_weights import NO_WEIGHTS
from dawnjax.config.config_json import to_json
from dawnjax.models.configs.resnet import ResNet
from dawnjax.race import tracks
from dawnjax.race.heats import Side

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("quick_compilation")]

SIGNS = """
import optax
from dawnjax.config.experiment import Sgd
@dataclasses.dataclass(frozen=True, kw_only=True)
class Signs(Sgd):
    TAG = "signs"
    def build(self, rate):
        ACT
        return optax.sgd(rate, momentum=0.9)
"""


def ran(course, tmp_path, act="pass", more=""):
    """One run of a small recipe whose optimizer does something of its own, and its measurement."""
    changes = "model=own.ResNet(stage_sizes=(1,), stage_widths=(8,)), num_epochs=8.0,"
    changes += "optimizer=Signs(base_learning_rate=0.2),"
    text = SIGNS.replace("ACT", act) + more
    folder, entry = write_entry(tmp_path, changes=changes, more=text)
    assert entry.code == "own"
    side = Side(
        name="mine",
        experiment=entry.experiment,
        sources=folder / "source",
        main=entry.source,
    )
    heat = course.run(side, 7, course.handover.new_round(), 0)
    [weights] = course.measure(side, [heat]).weights
    assert not heat.saved.exists()
    return heat, weights


PEEKS = """
import numpy as np
from dawnjax.input_pipeline.datasets.digits import Digits
found = None
try:
    found = Digits().load("eval")
except Exception as error:
    assert "cannot be read" in str(error) or "digits" in str(error), error
assert found is None, "the examples to evaluate are here"
"""


def test_an_own_optimizer_races_and_sees_no_examples_to_evaluate(course, tmp_path):
    more = f"\nclass Lazy:\n    TEXT = {PEEKS!r}\n"
    # Where the recipe is submitted the data are there, as on every machine of an entrant.
    act = 'import os; os.path.isdir("/race") and exec(Lazy.TEXT)'
    heat, weights = ran(course, tmp_path, act, more)
    assert weights.fault == "" and weights.quality is not None and 0.5 < weights.quality < 1
    assert heat.seconds > 0 and heat.preparation_seconds > 0


EARLY = """
import os, threading, time
def early():
    while not os.path.exists("/race/data/train_label.npy"):
        time.sleep(0.001)
    for number in range(3, 20):
        try:
            if "pipe" in os.readlink(f"/proc/self/fd/{number}"):
                os.write(number, b"done\\n")
        except OSError:
            pass
threading.Thread(target=early, daemon=True).start()
"""


@pytest.mark.long
def test_who_says_done_at_once_has_saved_nothing(course, tmp_path):
    heat, weights = ran(course, tmp_path, more=EARLY)
    assert weights.fault == NO_WEIGHTS and not weights.reached and heat.seconds > 0


@pytest.mark.long
@pytest.mark.parametrize("stops_in_time", [True, False])
def test_at_a_budget_of_seconds_a_recipe_must_have_saved(course, stops_in_time):
    amount = 60 if stops_in_time else 3
    track = dataclasses.replace(course.track, budget=tracks.Budget(unit="seconds", amount=amount))
    course = dataclasses.replace(course, track=track)
    recipe = dataclasses.replace(
        tracks.baseline(track),
        model=ResNet(stage_sizes=(1,), stage_widths=(8,)),
        num_epochs=100_000.0,
        max_seconds=2.0 if stops_in_time else 0.0,
    )
    side = Side(name="mine", experiment=to_json(recipe))
    heat = course.run(side, 7, course.handover.new_round(), 0)
    [weights] = course.measure(side, [heat]).weights
    if stops_in_time:
        assert heat.seconds < 60 and weights.quality is not None and weights.quality > 0.5
    else:
        assert 3 <= heat.seconds < 20 and weights.fault == NO_WEIGHTS
