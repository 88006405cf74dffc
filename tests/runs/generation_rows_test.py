"""Generations of a run that plays to make its examples: their seconds, and what of them counts."""

import pytest
from made_logs import Log

from dawnjax.runs.goodput import share, wall_seconds
from dawnjax.runs.logged_run import LoggedRun
from dawnjax.runs.summary import summarize


def two_generations(log: Log) -> Log:
    """Generation 0 in 4 s and 10 steps in 1 s; a match of 2 s, generation 1 in 3 s, 10 steps."""
    log.begin(0.0).add("phase", 1.0, name="compile").add("run_start", 2.0)
    log.add("phase", 2.0, name="self_play")
    log.add("generation", 6.0, step=0, number=0, figures={"games": 8.0})
    log.add("phase", 6.0, name="train").train(7.0, 10, 10)
    log.add("phase", 7.0, name="gating").add("phase", 9.0, name="self_play")
    log.add("generation", 12.0, step=10, number=1, figures={"games": 6.0})
    return log.add("phase", 12.0, name="train").train(13.0, 20, 10)


def test_a_generation_has_its_seconds_and_figures():
    result = summarize(
        two_generations(Log()).add("attempt_end", 13.0, status="not_reached", step=20).events
    )
    assert result.generations == [
        {"generation": 0, "step": 0, "gating_seconds": 0.0, "self_play_seconds": 4.0, "games": 8.0},
        {"generation": 1, "step": 10, "gating_seconds": 2.0, "self_play_seconds": 3.0,
         "games": 6.0},
    ]  # fmt: skip
    assert result.phases["self_play"] == 7.0 and result.phases["gating"] == 2.0
    assert sum(result.phases.values()) == result.total_seconds == 13.0
    assert result.goodput == pytest.approx((2 + 7 + 2) / 13, abs=1e-6)


@pytest.mark.parametrize(
    ("step", "saved_at", "played", "matched"),
    [
        pytest.param(20, 13.0, 7.0, 2.0, id="at the end"),
        pytest.param(15, 12.5, 7.0, 2.0, id="between the steps of generation 1"),
        pytest.param(10, 10.0, 5.0, 2.0, id="in the self-play of generation 1"),
        pytest.param(10, 7.0, 4.0, 0.0, id="before it"),
        pytest.param(0, 5.0, 3.0, 0.0, id="in the self-play of generation 0"),
        pytest.param(0, None, 0.0, 0.0, id="never"),
    ],
)
def test_games_after_the_save_that_was_restored_are_lost(step, saved_at, played, matched):
    log = two_generations(Log())
    if saved_at is not None:
        log.add("checkpoint", saved_at, step=step)
        log.events.sort(key=lambda event: event["t"])
    log.begin(50.0).add("restored", 1.0, step=step).add("phase", 1.0, name="train")
    log.train(2.0, 21, 21 - step)
    seconds, _ = wall_seconds(LoggedRun.from_events(log.read()))
    assert seconds["self_play"] == pytest.approx(played)
    assert seconds["gating"] == pytest.approx(matched)
    assert seconds["lost_steps"] == pytest.approx(9.0 - played - matched + 2.0 * (20 - step) / 20)
    assert sum(seconds.values()) == pytest.approx(52.0)
    assert share(seconds) == pytest.approx((played + matched + seconds["steps"]) / 52.0)


def test_other_tasks_have_no_such_phases():
    log = Log().begin(0.0).add("run_start", 1.0).add("phase", 1.0, name="train").train(2.0, 10, 10)
    result = summarize(log.add("attempt_end", 2.0, status="not_reached", step=10).events)
    assert result.generations == []
    assert not {"gating", "self_play"} & (result.phases.keys() | result.wall_seconds.keys())


def test_a_generation_that_two_attempts_made_has_the_seconds_of_both():
    log = Log().begin(0.0).add("run_start", 1.0).add("phase", 1.0, name="self_play")
    log.add("host_sample", 4.0)
    log.begin(9.0).add("restored", 1.0, step=0).add("phase", 2.0, name="self_play")
    log.add("generation", 4.5, step=0, number=0, figures={})
    result = summarize(log.add("attempt_end", 5.0, status="failed", step=0).events)
    assert [row["self_play_seconds"] for row in result.generations] == [3.0 + 2.5]
