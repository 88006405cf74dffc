"""Calls that make examples between two steps: the next one, and how many a checkpoint counts."""

from types import SimpleNamespace

import pytest

from dawnjax.generations import Generations
from dawnjax.tasks.generation import CALLS
from dawnjax.tasks.self_play import SelfPlay


@pytest.mark.parametrize(
    ("step", "done", "phase", "since"),
    [
        # Four steps a generation, which takes a match and three moves; the first has no match.
        (0, 1, "self_play", 0),
        (0, 3, "self_play", 2),
        (0, 4, "", 3),
        (1, 4, "", 0),
        (4, 4, "gating", 0),
        (4, 5, "self_play", 1),
        (4, 8, "", 4),
        (5, 8, "", 0),
    ],
)
def test_calls_are_counted_since_the_newest_step(step, done, phase, since):
    task = SelfPlay(gating_games=2, moves=3)
    experiment = SimpleNamespace(task=task, epoch_of_step=lambda step, spec: step / 4)
    recipe = SimpleNamespace(experiment=experiment, spec=None)
    generations = Generations(recipe, {}, {CALLS: done})  # pyright: ignore[reportArgumentType]
    assert generations.next_phase(step) == phase
    assert generations.calls_since(step) == since


def test_other_tasks_make_no_calls():
    recipe = SimpleNamespace(
        experiment=SimpleNamespace(task=None, epoch_of_step=lambda step, spec: step / 4), spec=None
    )
    generations = Generations(recipe, {}, {})  # pyright: ignore[reportArgumentType]
    assert [generations.next_phase(step) for step in (0, 4)] == ["", ""]
    assert [generations.calls_since(step) for step in (0, 5)] == [0, 0]
