"""The event log: whole lines, torn lines, one writer."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dawnjax.errors import RunError
from dawnjax.runs.clock import RunClock
from dawnjax.runs.log import RunLog, condense, decode_line, encode_line, read_events

START = {"schema_version": 1, "run_id": "r", "process_index": 0, "boot_id": "b", "versions": {}}


def test_events_come_back_in_order_with_their_attempt(tmp_path):
    path = tmp_path / "log" / "process_00000.jsonl"
    for _ in range(2):
        log = RunLog(path, RunClock())
        log.append("attempt_start", **START)
        log.append("checkpoint", step=3)
        log.close()
    events, damaged = read_events(path)
    assert damaged == []
    assert [(event["event"], event["attempt"]) for event in events] == [
        ("attempt_start", 1),
        ("checkpoint", 1),
        ("attempt_start", 2),
        ("checkpoint", 2),
    ]


def test_a_log_of_another_version_is_refused(tmp_path):
    path = tmp_path / "log.jsonl"
    record = {"event": "attempt_start", "attempt": 1, "sequence": 1, "t": 0.5, **START}
    path.write_bytes(encode_line(record))
    assert len(read_events(path)[0]) == 1
    path.write_bytes(encode_line({**record, "schema_version": 99}))
    with pytest.raises(RunError, match="log of schema 99 and this version reads 1"):
        read_events(path)


def test_a_torn_last_line_is_found_and_spoils_no_other(tmp_path):
    path = tmp_path / "log.jsonl"
    log = RunLog(path, RunClock())
    log.append("checkpoint", step=1)
    log.append("checkpoint", step=2)
    log.close()
    whole = path.read_bytes()
    first_length = whole.index(b"\n") + 1
    # A kill may end the file at any byte of the last line.
    for size in range(first_length, len(whole)):
        path.write_bytes(whole[:size])
        log = RunLog(path, RunClock())
        log.append("checkpoint", step=3)
        log.close()
        events, damaged = read_events(path)
        is_whole = size == len(whole) - 1  # only the newline is missing
        assert [event["step"] for event in events] == ([1, 2, 3] if is_whole else [1, 3])
        assert damaged == ([] if is_whole or size == first_length else [(2, "torn")])


def test_every_flipped_bit_of_a_line_is_detected():
    event = {"event": "checkpoint", "attempt": 1, "sequence": 1, "t": 1.5, "step": 7}
    line = encode_line(event).rstrip(b"\n")
    assert decode_line(line) == event
    for position in range(len(line)):
        for bit in range(8):
            flipped = bytearray(line)
            flipped[position] ^= 1 << bit
            assert decode_line(bytes(flipped)) is None, (position, bit)


def test_a_line_without_a_number_is_damaged(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(encode_line({"event": "checkpoint", "attempt": 1, "t": 1.5, "step": 7}))
    assert read_events(path) == ([], [(1, "damaged")])


def test_nan_and_infinities_stay_json(tmp_path):
    log = RunLog(tmp_path / "log.jsonl", RunClock())
    log.append("first_losses", start_step=0, losses=[float("nan"), float("-inf")])
    log.close()
    events, _ = read_events(log.path)
    assert [event["losses"] for event in events] == [["NaN", "-Infinity"]]
    assert log.events == events  # what is summarized is what was written


def test_two_writers_never_share_a_log(tmp_path):
    path = tmp_path / "log.jsonl"
    log = RunLog(path, RunClock())
    with pytest.raises(RunError, match="in use"):
        RunLog(path, RunClock())
    log.close()
    RunLog(path, RunClock()).close()


def test_threads_do_not_mix_their_lines(tmp_path):
    path = tmp_path / "log.jsonl"
    log = RunLog(path, RunClock())

    def write(step):
        for _ in range(50):
            log.append("checkpoint", step=step)

    threads = [threading.Thread(target=write, args=(step,)) for step in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    events, damaged = read_events(path)
    assert damaged == []
    assert sorted(event["step"] for event in events) == sorted(list(range(4)) * 50)


@pytest.mark.faults
@pytest.mark.parametrize(("before", "torn"), [("", []), ("os.ftruncate = fail", [(2, "torn")])])
def test_a_full_disk_leaves_whole_lines(tmp_path, before, torn):
    # A file-size limit fails a write in its middle, as a disk that fills up does. Where the part
    # that fitted cannot be cut off again, it spoils itself alone.
    script = f"""
import os, resource, sys
def fail(*_):
    raise OSError(5, "Input/output error")
{before}
from pathlib import Path
from dawnjax.runs.clock import RunClock
from dawnjax.errors import RunError
from dawnjax.runs.log import RunLog
path = Path(sys.argv[1])
log = RunLog(path, RunClock())
log.append("checkpoint", step=1)
size = path.stat().st_size
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 40, hard))
try:
    log.append("checkpoint", step=2)
except RunError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
log.append("checkpoint", step=3)
"""
    path = tmp_path / "log.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    )
    assert "cannot write" in done.stdout and "resume" in done.stdout
    events, faults = read_events(path)
    assert [event["step"] for event in events] == [1, 3]
    assert faults == torn


def test_no_space_left_is_one_clear_error(tmp_path):
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    path = tmp_path / "log.jsonl"
    log = RunLog(path, RunClock())
    full = os.open("/dev/full", os.O_WRONLY)
    held = (int(fd.name) for fd in Path("/proc/self/fd").iterdir() if fd.resolve() == path)
    os.dup2(full, next(held))
    with pytest.raises(RunError, match="No space left on device"):
        log.append("checkpoint", step=1)


def test_condensed_events_keep_the_last_moment_and_the_sum_of_steps():
    def event(name, t, **fields):
        return {"event": name, "attempt": 1, "t": t, **fields}

    events = [
        event("host_sample", 1.0),
        event("train", 1.5, steps=10),
        event("host_sample", 2.0),
        event("train", 2.5, steps=5),
        event("host_sample", 3.0),
    ]
    kept = condense(events)
    assert [(e["event"], e["t"]) for e in kept] == [("train", 2.5), ("host_sample", 3.0)]
    assert kept[0]["steps"] == 15
