"""The record of an attempt on the screen, beside its log."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from dawnjax.journal import Journal
from dawnjax.run_record import Earlier


def journal_of(tmp_path, clock: Any, append: Any, shown: list[Any], **earlier: Any) -> Journal:
    experiment = SimpleNamespace(
        targets=(), epoch_of_step=lambda step, spec: 1.0, recipe_fields=dict, xla_options=()
    )
    options = SimpleNamespace(
        tracker=(), tensorboard=False, price_per_hour_usd=earlier.pop("price", None)
    )
    run = SimpleNamespace(
        log=SimpleNamespace(append=append),
        clock=clock,
        request=SimpleNamespace(experiment=experiment, options=options),
        spec=None,
        directory=SimpleNamespace(path=tmp_path),
        record={"run_id": "r"},
        earlier=Earlier(**earlier),
    )
    display = SimpleNamespace(is_live=False, evaluation=lambda *told: shown.append(told[-2:]))
    return Journal(cast(Any, run), cast(Any, display), is_first=False, num_hosts=2)


def test_the_screen_tells_an_evaluations_moment_and_not_that_of_its_sync_to_disk(tmp_path):
    clock = SimpleNamespace(seconds=5.0, now=lambda: clock.seconds)
    logged: list[Any] = []
    shown: list[Any] = []

    def append(name: str, **fields: Any) -> None:
        logged.append(clock.seconds)
        clock.seconds += 30.0  # a busy disk

    journal = journal_of(tmp_path, clock, append, shown)
    assert journal.record_evaluation(10, {"top_1_accuracy": 0.5})
    assert shown == [(5.0, None)] and logged == [5.0]


def test_the_cost_so_far_is_of_all_hosts_and_attempts(tmp_path):
    clock = SimpleNamespace(seconds=100.0, now=lambda: clock.seconds)
    shown: list[Any] = []
    earlier = {"clock_seconds": 1000.0, "cost_usd": 0.5}
    for price, attempts, wanted in (
        # Two hosts at 18 USD an hour: a cent a second, from the second 60 of this process on.
        (18.0, {}, 0.4),
        # A resumed run counts all of this process, after what the other price came to.
        (18.0, earlier, 0.5 + 1.0),
        (18.0, earlier | {"cost_usd": None}, None),
        (None, earlier, None),
    ):
        journal = journal_of(tmp_path, clock, lambda *_, **__: None, shown, price=price, **attempts)
        clock.seconds = 60.0
        journal.start_clock(attempts.get("clock_seconds"))
        clock.seconds = 100.0
        journal.record_evaluation(10, {})
        assert shown.pop()[-1] == (wanted and pytest.approx(wanted))
