"""Generations of a run that plays to make its examples: their seconds, and what of them counts."""

import pytest
from made_logs import Log

from dawnjax.runs.goodput import share, wall_seconds
from dawnjax.runs.logged_run import LoggedRun
from dawnjax.trials.from_log import trial_of


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
    result = trial_of(
        two_generations(Log()).add("attempt_end", 13.0, status="not_reached", step=20).events
    )
    assert result.generations == (
        {"generation": 0, "step": 0, "gating_seconds": 0.0, "self_play_seconds": 4.0, "games": 8.0},
        {"generation": 1, "step": 10, "gating_seconds": 2.0, "self_play_seconds": 3.0,
         "games": 6.0},
    )  # fmt: skip
    assert result.phases["self_play"] == 7.0 and result.phases["gating"] == 2.0
    assert sum(result.phases.values()) == result.total_seconds == 13.0
    assert result.goodput == pytest.approx((2 + 7 + 2) / 13, abs=1e-6)


@pytest.mark.parametrize(
    ("saved", "saved_at", "played", "matched"),
    [
        pytest.param({"step": 15}, 12.5, 7.0, 2.0, id="between the steps of generation 1"),
        pytest.param(
            {"step": 10, "calls": 4}, 10.0, 5.0, 2.0, id="in the self-play of generation 1"
        ),
        pytest.param({"step": 10}, 7.0, 4.0, 0.0, id="before it"),
        pytest.param({"step": 0}, None, 0.0, 0.0, id="never"),
    ],
)
def test_games_after_the_save_that_was_restored_are_lost(saved, saved_at, played, matched):
    log, step = two_generations(Log()), saved["step"]
    # Another save of the same step, from which nothing began.
    log.add("checkpoint", 7.0, step=10)
    if saved_at is not None:
        log.add("checkpoint", saved_at, **saved)
        log.events.sort(key=lambda event: event["t"])
    log.begin(50.0).add("restored", 1.0, **saved).add("phase", 1.0, name="train")
    log.train(2.0, 21, 21 - step)
    seconds, _ = wall_seconds(LoggedRun.from_events(log.events))
    assert seconds["self_play"] == pytest.approx(played)
    assert seconds["gating"] == pytest.approx(matched)
    assert seconds["lost_steps"] == pytest.approx(9.0 - played - matched + 2.0 * (20 - step) / 20)
    assert sum(seconds.values()) == pytest.approx(52.0)
    assert share(seconds) == pytest.approx((played + matched + seconds["steps"]) / 52.0)


@pytest.mark.parametrize(
    ("saved", "restored", "seconds"),
    [
        # Self-play from 1 s until the kill at 4 s, then from 2 s to 4.5 s of the next attempt.
        pytest.param({"step": 0, "calls": 3}, {"step": 0, "calls": 3}, 2.0 + 2.5, id="in it"),
        pytest.param({"step": 0, "calls": 3}, {"step": 0}, 2.5, id="not the one restored"),
        pytest.param(None, None, 2.5, id="begun anew"),
    ],
)
def test_a_generation_that_two_attempts_made_has_the_seconds_that_count(saved, restored, seconds):
    log = Log().begin(0.0).add("run_start", 1.0).add("phase", 1.0, name="self_play")
    if saved is not None:
        log.add("phase", 3.0, name="checkpoint").add("checkpoint", 3.0, **saved)
        log.add("phase", 3.0, name="self_play")
    log.add("host_sample", 4.0)
    log.begin(9.0)
    if restored is not None:
        log.add("restored", 1.0, **restored)
    log.add("phase", 2.0, name="self_play")
    log.add("generation", 4.5, step=0, number=0, figures={})
    result = trial_of(log.add("attempt_end", 5.0, status="failed", step=0).events)
    assert [row["self_play_seconds"] for row in result.generations] == [seconds]
