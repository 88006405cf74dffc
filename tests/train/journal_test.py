"""The record of an attempt on the screen, beside its log."""

from types import SimpleNamespace
from typing import Any, cast

from dawnjax.journal import Journal


def test_the_screen_tells_an_evaluations_moment_and_not_that_of_its_sync_to_disk(tmp_path):
    clock = SimpleNamespace(seconds=5.0, now=lambda: clock.seconds)
    logged, shown = [], []

    def append(name: str, **fields: Any) -> None:
        logged.append(clock.seconds)
        clock.seconds += 30.0  # a busy disk

    experiment = SimpleNamespace(
        targets=(), epoch_of_step=lambda step, spec: 1.0, recipe_fields=dict
    )
    options = SimpleNamespace(tracker=(), tensorboard=False)
    run = SimpleNamespace(
        log=SimpleNamespace(append=append),
        clock=clock,
        request=SimpleNamespace(experiment=experiment, options=options),
        spec=None,
        directory=SimpleNamespace(path=tmp_path),
        record={"run_id": "r"},
    )
    display = SimpleNamespace(is_live=False, evaluation=lambda *told: shown.append(told[-1]))
    journal = Journal(cast(Any, run), cast(Any, display), is_first=False)
    assert journal.record_evaluation(10, {"top_1_accuracy": 0.5})
    assert shown == logged == [5.0]
