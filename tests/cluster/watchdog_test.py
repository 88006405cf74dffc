"""Who is at fault, told from what processes say of themselves."""

import pytest

from dawnjax.cluster import launched
from dawnjax.cluster.watchdog import Heard, Note, is_broken_connection, judge

SILENCE_SECONDS = 10.0
DEADLINE_SECONDS = 100.0


def heard(beat: int = 0, now: float = 0.0, **fields) -> Heard:
    note = {"step": -1, "phase": "start", "reports": 0} | fields
    one = Heard(0.0, 0.0)
    one.hear(Note(hostname="h", beat=beat, **note), now)
    return one


def test_one_that_says_nothing_new_is_at_fault_after_the_silence():
    group, fault = [Heard(0.0, 0.0), Heard(0.0, 0.0)], None
    for second in range(30):
        group[0].hear(Note("h", second + 1, second, "train", second), float(second))
        # What process 1 said at second 5 stays in the store.
        group[1].hear(Note("h", min(second, 5) + 1, 1, "train", 1), float(second))
        fault = judge(group, float(second), SILENCE_SECONDS, DEADLINE_SECONDS)
        assert (fault is not None) == (second > 5 + SILENCE_SECONDS)
    assert fault == (1, "gave no sign of life for 24 s (killed, stopped or cut off)")
    # One that was never heard is silent since the start.
    assert judge([heard(1, 11.0), Heard(0.0, 0.0)], 11.0, SILENCE_SECONDS, 0.0) is not None


@pytest.mark.parametrize(
    ("first", "second", "at_fault"),
    [
        # The others ran ahead of it.
        ({"step": 9, "reports": 9}, {"step": 5, "reports": 12}, 1),
        # Before step 1: the other is in the next phase.
        ({"step": 0, "reports": 3}, {"step": 0, "reports": 2}, 1),
        # Nothing tells them apart but who stood still first.
        ({"step": 0, "reports": 3, "now": 1.0}, {"step": 0, "reports": 3}, 1),
    ],
)
def test_the_one_behind_is_at_fault_when_none_makes_progress(first, second, at_fault):
    group = [heard(1, **first), heard(1, **second)]
    for one in group:
        one.heard_at = 100.5  # they live
    assert judge(group, 100.0, SILENCE_SECONDS, DEADLINE_SECONDS) is None
    found = judge(group, 102.0, SILENCE_SECONDS, DEADLINE_SECONDS)
    assert found is not None
    assert found[0] == at_fault and found[1].startswith("made no progress for 10")


def test_any_progress_puts_the_deadline_off_and_none_is_no_deadline():
    moved = heard(2, 90.0, step=7, reports=4)
    still = heard(2, step=7, reports=1)
    moved.heard_at = still.heard_at = 150.0
    assert judge([still, moved], 150.0, SILENCE_SECONDS, DEADLINE_SECONDS) is None
    alive = heard(500, 500.0)
    assert judge([alive], 500.0, SILENCE_SECONDS, DEADLINE_SECONDS) is None  # reports nothing
    assert judge([heard(500, 500.0, reports=1, step=1)], 700.0, float("inf"), 0.0) is None


def test_a_broken_connection_is_told_from_a_failure_of_its_own():
    gloo = ValueError(
        "UNKNOWN: Gloo all-reduce failed: [external/gloo/gloo/transport/tcp/pair.cc:547] "
        "Connection closed by peer [127.0.0.1]:6562"
    )
    assert is_broken_connection(gloo)
    wrapped = RuntimeError("the evaluation failed")
    wrapped.__cause__ = gloo
    assert is_broken_connection(wrapped)
    assert not is_broken_connection(ValueError("shapes differ"))


def test_the_resume_command_names_the_launcher():
    command = "dawnjax train --run_dir=there"
    assert launched.resume_command(command, {}) == command
    environment = {launched.LAUNCH_COMMAND: "dawnjax launch --processes=2 --"}
    assert launched.resume_command(command, environment) == (
        "dawnjax launch --processes=2 -- train --run_dir=there"
    )
    assert launched.resume_command("", environment) == ""
