"""The event log: whole lines, torn lines, one writer, and what a checkpoint gives back of it."""

import errno
import os
import threading

import pytest

from dawnjax.errors import RunError
from dawnjax.runs.clock import RunClock
from dawnjax.runs.log import SCHEMA_VERSION, RunLog, encode_line, read_events

START = {"schema_version": SCHEMA_VERSION, "run_id": "r", "boot_id": "b", "versions": {}}


def write(path, *steps: int) -> bytes:
    """Appends an event for each step; returns the whole file."""
    log = RunLog(path, RunClock())
    for step in steps:
        log.append("checkpoint", step=step)
    log.close()
    return path.read_bytes()


def steps_in(path) -> list[int]:
    return [event["step"] for event in read_events(path)]


def test_a_log_of_another_version_is_refused(tmp_path):
    path = tmp_path / "log.jsonl"
    record = {"event": "attempt_start", "attempt": 1, "t": 0.5, **START}
    path.write_bytes(encode_line(record))
    assert len(read_events(path)) == 1
    path.write_bytes(encode_line({**record, "schema_version": 99}))
    with pytest.raises(RunError, match="log of schema 99 and this version reads 2"):
        read_events(path)


def test_a_torn_last_line_is_dropped_at_every_byte(tmp_path):
    path = tmp_path / "log.jsonl"
    whole = write(path, 1, 2)
    for size in range(whole.index(b"\n") + 1, len(whole)):
        path.write_bytes(whole[:size])
        assert steps_in(path) == [1]
        log = RunLog(path, RunClock())
        assert [event["step"] for event in log.earlier("")[0]] == [1]
        log.append("checkpoint", step=3)  # not glued to the rest of the torn line
        log.close()
        assert steps_in(path) == [1, 3]


@pytest.mark.parametrize(
    "line",
    [
        b"damaged\n",
        b"[]\n",
        b'{"attempt":1,"t":1.0}\n',
        b'{"event":"checkpoint","attempt":1,"t":"soon","step":2}\n',
        b'{"event":"checkpoint","attempt":1,"t":1.0}\n',
        b'{"event":"checkpoint","attempt":1,"t":1.0,"step":"2"}\n',
        b'{"event":{},"attempt":1,"t":1.0}\n',
    ],
)
def test_any_other_damaged_line_is_named(tmp_path, line):
    path = tmp_path / "log.jsonl"
    first, last = write(path, 1, 3).splitlines(keepends=True)
    path.write_bytes(first + line + last)
    with pytest.raises(RunError, match="log.jsonl: line 2 is damaged, and no time"):
        read_events(path)
    log = RunLog(path, RunClock())
    with pytest.raises(RunError, match="line 2 is damaged"):
        log.earlier("")
    log.close()


def test_nan_and_infinities_stay_json(tmp_path):
    log = RunLog(tmp_path / "log.jsonl", RunClock())
    log.append("losses", at_steps=[1, 2], losses=[float("nan"), float("-inf")])
    log.close()
    assert [event["losses"] for event in read_events(log.path)] == [["NaN", "-Infinity"]]


def test_two_writers_never_share_a_log(tmp_path):
    path = tmp_path / "log.jsonl"
    log = RunLog(path, RunClock())
    with pytest.raises(RunError, match="in use"):
        RunLog(path, RunClock())
    log.close()
    RunLog(path, RunClock()).close()


def test_threads_do_not_mix_their_lines(tmp_path):
    log = RunLog(tmp_path / "log.jsonl", RunClock())

    def append(step):
        for _ in range(50):
            log.append("checkpoint", step=step)

    threads = [threading.Thread(target=append, args=(step,)) for step in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    assert sorted(steps_in(log.path)) == sorted(list(range(4)) * 50)


def test_a_full_disk_leaves_whole_lines(tmp_path, monkeypatch):
    log, write_part, room = RunLog(tmp_path / "log.jsonl", RunClock()), os.write, [40]

    def write_what_fits(fd: int, data: bytes) -> int:
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_part(fd, data[: room.pop()])

    log.append("checkpoint", step=1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write_what_fits)
        with pytest.raises(RunError, match="cannot write .*: No space left .* to resume"):
            log.append("checkpoint", step=2)
    log.append("checkpoint", step=3)
    log.close()
    assert steps_in(tmp_path / "log.jsonl") == [1, 3]


def test_of_heartbeats_in_a_row_the_last_is_read(tmp_path):
    path = tmp_path / "log.jsonl"
    beats = [{"event": "host_sample", "attempt": 1, "t": 1.0 * n} for n in range(5)]
    fields = {"cpu_seconds": 0.0, "memory_bytes": 0}
    lines = [encode_line({**beat, **fields}) for beat in beats]
    path.write_bytes(b"".join(lines))
    write(path, 1)
    assert [event["event"] for event in read_events(path)] == ["host_sample", "checkpoint"]
    assert read_events(path)[0]["t"] == 4.0


@pytest.mark.parametrize("kept", [0, 1, 2, 3])
def test_what_a_log_lost_is_written_back_from_the_checkpoint(tmp_path, kept):
    """A checkpoint holds two lines of the three that were written."""
    path = tmp_path / "log.jsonl"
    lines = write(path, 1, 2, 3).splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:kept]) + b'{"event":"che')
    log = RunLog(path, RunClock())
    events, is_lost = log.earlier(b"".join(lines[:2]).decode())
    assert is_lost == (kept < 2) and log.attempt == 2
    assert [event["step"] for event in events] == [1, 2, 3][: max(kept, 2)]
    assert path.read_bytes() == b"".join(lines[: max(kept, 2)]) == log.text().encode()
    log.close()


def test_a_log_that_is_not_the_checkpoint_s_is_left_as_it_is(tmp_path):
    whole = write(tmp_path / "log.jsonl", 1, 2)
    saved = write(tmp_path / "other.jsonl", 7).decode()
    log = RunLog(tmp_path / "log.jsonl", RunClock())
    with pytest.raises(RunError, match="is not the log that the checkpoints hold"):
        log.earlier(saved)
    log.close()
    assert log.path.read_bytes() == whole
