"""Who is at fault, told from what processes say of themselves."""

import dataclasses
import json
import os
import socket
import threading

import pytest

from dawnjax.cluster import launched, watchdog
from dawnjax.cluster.key_value_store import KeyValueStore
from dawnjax.cluster.roll_call import Fault, Progress, RollCall
from dawnjax.cluster.watchdog import Watchdog, is_broken_connection

SILENCE_SECONDS = 10.0
DEADLINE_SECONDS = 100.0


def said(beat: int, **fields) -> Progress:
    return Progress(hostname="h", beat=beat, **fields)


def roll_call(num_processes: int, deadline_seconds: float = DEADLINE_SECONDS) -> RollCall:
    return RollCall(num_processes, SILENCE_SECONDS, deadline_seconds)


def test_one_that_says_nothing_new_is_at_fault_after_the_silence():
    roll, fault = roll_call(2), None
    for second in range(30):
        roll.hear(0, said(second + 1, step=second, reports=second), float(second))
        # What process 1 said at second 5 stays in the store.
        beat = min(second, 5) + 1
        roll.hear(1, said(beat, step=beat, phase="train", reports=beat), float(second))
        fault = roll.fault(float(second))
        assert (fault is not None) == (second > 5 + SILENCE_SECONDS)
    assert fault == Fault(
        process_index=1,
        hostname="h",
        what="gave no sign of life for 24 s (killed, stopped or cut off)",
        step=6,
        phase="train",
        is_silent=True,
    )


def test_one_that_was_never_heard_is_at_fault_too():
    roll = roll_call(3)
    for second in range(12):
        for process_index in (0, 2):
            roll.hear(process_index, said(second + 1), float(second))
    fault = roll.fault(11.0)
    assert fault is not None
    assert (fault.process_index, fault.step) == (1, -1)
    assert fault.line("") == (
        "host 1 (not heard of) gave no sign of life for 11 s (killed, stopped or cut off) "
        "at the start"
    )


def stand_still(roll: RollCall, *stands: Progress, seconds: int) -> Fault | None:
    """Lets processes live on without a report; returns the fault at the end."""
    for second in range(seconds + 1):
        for process_index, stand in enumerate(stands):
            alive = Progress(**{**stand.__dict__, "beat": second + 1})
            roll.hear(process_index, alive, float(second))
    return roll.fault(float(seconds))


def test_the_one_behind_is_at_fault_when_none_makes_progress():
    ahead = said(0, step=9, phase="train", reports=9)
    behind = said(0, step=5, phase="input", reports=12, where="read (disk.py:3)")
    assert stand_still(roll_call(3), ahead, behind, ahead, seconds=100) is None
    fault = stand_still(roll_call(3), ahead, behind, ahead, seconds=101)
    assert fault is not None
    assert fault.process_index == 1
    assert fault.line("dawnjax train") == (
        "host 1 (h) made no progress for 101 s in read (disk.py:3) at step 5 (input); "
        "resume with: dawnjax train"
    )


@pytest.mark.parametrize(
    ("first", "second", "at_fault"),
    [
        # Before step 1: the other has gone on to the next phase.
        ({"reports": 3}, {"reports": 2}, 1),
        # The same reports: one waits in a collective, the other reads a disk.
        ({"reports": 3, "waits": True}, {"reports": 3}, 1),
        ({"reports": 3}, {"reports": 3, "waits": True}, 0),
        # Nothing tells them apart but who fell silent first.
        ({"reports": 3, "idle_seconds": 100.0}, {"reports": 3, "idle_seconds": 101.0}, 1),
    ],
)
def test_ties_in_steps_are_told_apart(first, second, at_fault):
    stands = [said(0, step=0, **fields) for fields in (first, second)]
    fault = stand_still(roll_call(2), *stands, seconds=101)
    assert fault is not None
    assert fault.process_index == at_fault


def test_the_deadline_waits_while_any_process_makes_progress():
    roll = roll_call(2)
    for second in range(500):
        # Process 0 writes a long report; process 1 waits for it, and is not to blame.
        roll.hear(0, said(second + 1, step=7, reports=second // 50), float(second))
        roll.hear(1, said(second + 1, step=7, reports=1), float(second))
        assert roll.fault(float(second)) is None


def test_a_command_without_reports_or_a_deadline_of_0_has_no_deadline():
    assert stand_still(roll_call(1), said(0), seconds=500) is None
    assert stand_still(roll_call(1, 0.0), said(0, step=1, reports=1), seconds=500) is None


def test_a_step_that_the_loop_sets_is_progress_as_much_as_a_report():
    roll = roll_call(1)
    for second in range(300):
        roll.hear(0, said(second + 1, step=second // 90, reports=1), float(second))
        assert roll.fault(float(second)) is None


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
    looped = ValueError("a")
    looped.__context__ = second = ValueError("b")
    second.__context__ = looped
    assert not is_broken_connection(looped)


class Client:
    """The client of the coordination service, in this process."""

    def __init__(self):
        self.store = {}

    def key_value_set(self, key: str, value: str, allow_overwrite: bool) -> None:
        if key in self.store and not allow_overwrite:
            raise RuntimeError("ALREADY_EXISTS")
        self.store[key] = value

    def key_value_dir_get(self, prefix: str) -> list[tuple[str, str]]:
        return [(key, value) for key, value in self.store.items() if key.startswith(prefix)]


class Ended(BaseException):
    """In place of the end of the process."""


@pytest.mark.parametrize("is_found", [True, False])
def test_a_broken_connection_waits_for_the_name_longer_than_a_short_heartbeat_timeout(
    monkeypatch, capfd, is_found
):
    # Process 0 tells who is silent only after the heartbeat timeout of 0.2 s has passed.
    for name, seconds in {
        "EXCHANGE_SECONDS": 0.05,
        "JUDGE_SECONDS": 0.05,
        "SHORT_SILENCE_SECONDS": 0.5,
        "NEWS_SECONDS": 60.0 if is_found else 0.5,
    }.items():
        monkeypatch.setattr(watchdog, name, seconds)

    def end(_: int) -> None:
        raise Ended

    monkeypatch.setattr(watchdog.os, "_exit", end)
    store = KeyValueStore(2, 3, "127.0.0.1:1", Client())
    survivor = Watchdog(store, heartbeat_timeout_seconds=0.2, progress_deadline_seconds=0.0)
    survivor.report("train", 7)

    def news() -> None:
        silent = Fault(1, "b", "gave no sign of life", 6, "train", is_silent=True)
        store.put(
            "dawnjax/watchdog/group/first",
            json.dumps(dataclasses.asdict(Progress("a", beat=9))),
        )
        store.put("dawnjax/watchdog/group/suspect", json.dumps(dataclasses.asdict(silent)))
        survivor.exchange()

    timer = threading.Timer(0.5, news)
    if is_found:
        timer.start()
    with pytest.raises(Ended):
        survivor.explain(ValueError("Gloo all-reduce failed"))
    timer.cancel()
    expected = (
        "dawnjax: host 1 (b) gave no sign of life at step 6 (train)\n"
        if is_found
        else f"dawnjax: host 2 ({socket.gethostname()}) lost another host "
        "(Gloo all-reduce failed) at step 7 (train)\n"
    )
    assert capfd.readouterr().err == expected


def test_a_status_goes_up_to_the_launcher(tmp_path):
    environment = {launched.STATUS_DIR: str(tmp_path), launched.PROCESS_ID: "3"}
    status = launched.Status(7, "train", "dawnjax train", "")
    assert not launched.has_joined(tmp_path, 3)
    launched.write_status(status, environment)
    assert launched.has_joined(tmp_path, 3)
    assert launched.read_status(tmp_path, 3) == status
    launched.write_status(status, {launched.STATUS_DIR: str(tmp_path)})  # whose, is not said
    assert os.listdir(tmp_path) == ["3.json"]
    assert launched.read_status(tmp_path, 2) == launched.Status()
    (tmp_path / "2.json").write_text(json.dumps({"step": 1})[:-3])
    assert launched.read_status(tmp_path, 2) == launched.Status()
    launched.write_status(status, {})  # no launcher, nothing to do


def test_who_was_killed_goes_down_from_the_launcher(tmp_path):
    environment = {launched.STATUS_DIR: str(tmp_path)}
    assert launched.read_killed(environment) is None and launched.read_killed({}) is None
    launched.tell_killed(tmp_path, 1, "was killed by SIGKILL")
    assert launched.read_killed(environment) == (1, "was killed by SIGKILL")
    launched.tell_killed(tmp_path / "absent", 1, "was killed by SIGKILL")


def test_the_resume_command_names_the_launcher():
    command = "dawnjax train --run_dir=there"
    assert launched.resume_command(command, {}) == command
    environment = {launched.LAUNCH_COMMAND: "dawnjax launch --processes=2 --"}
    assert launched.resume_command(command, environment) == (
        "dawnjax launch --processes=2 -- train --run_dir=there"
    )
    assert launched.resume_command("", environment) == ""
