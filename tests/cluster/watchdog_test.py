"""Who is at fault, told from what processes say of themselves."""

from dawnjax.cluster import launched
from dawnjax.cluster.watchdog import Heard, Note, is_broken_connection, judge

SILENCE_SECONDS = 10.0
DEADLINE_SECONDS = 100.0


def heard(beat: int = 0, now: float = 0.0, **fields) -> Heard:
    note = {"step": -1, "phase": "start", "reports": 0} | fields
    one = Heard(0.0, 0.0)
    one.hear(Note(hostname="h", beat=beat, **note), now)
    return one


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
