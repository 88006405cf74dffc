"""The timeline of all hosts: clocks aligned by collectives, damaged traces named."""

import gzip
import json
from pathlib import Path

import pytest

from dawnjax.errors import RunError
from dawnjax.profile import timeline


def write_trace(folder: Path, events) -> Path:
    path = folder / "plugins" / "profile" / "now"
    path.mkdir(parents=True)
    text = json.dumps({"traceEvents": events}).encode()
    (path / "vm.trace.json.gz").write_bytes(gzip.compress(text))
    return folder


def op(name, start, duration, pid=7, tid=1):
    return {"ph": "X", "pid": pid, "tid": tid, "name": name, "ts": start, "dur": duration}


def host(shift: float, wait: float, num_steps: int = 6):
    """A host whose clock reads `shift` us more; its collectives begin `wait` us later."""
    events = [{"ph": "M", "pid": 7, "name": "process_name", "args": {"name": "/host:CPU"}}]
    events.append(op("dawnjax.window", shift, 1e4))
    for step in range(num_steps):
        end = 1000.0 * (step + 1) + shift
        events.append(op("all-reduce.1", end - 100 + wait, 100 - wait))
        events.append(op("end: all-reduce.1", end, 1))
    return events


def test_hosts_are_moved_onto_one_clock_by_the_ends_of_their_collectives(tmp_path):
    folders = [
        write_trace(tmp_path / "0", host(0.0, 0.0)),
        write_trace(tmp_path / "1", host(250.0, 60.0)),
    ]
    merged = timeline.merged(folders)
    assert merged.offsets == [0.0, pytest.approx(-250.0)]
    assert merged.spread_microseconds[1] == pytest.approx(0.0)
    ends = [
        [e["ts"] + e["dur"] for e in merged.events if e["pid"] == pid and "reduce" in e["name"]]
        for pid in (0, 10_000)
    ]
    assert ends[0] == pytest.approx(ends[1])
    names = [e["args"]["name"] for e in merged.events if e["name"] == "process_name"]
    assert names == ["host 0 /host:CPU", "host 1 /host:CPU"]
    assert not any(e["name"].startswith("end: ") for e in merged.events)
    file = tmp_path / "timeline.json.gz"
    timeline.write(merged, file)
    assert json.loads(gzip.decompress(file.read_bytes()))["traceEvents"] == merged.events


def test_without_collectives_the_windows_are_laid_on_each_other(tmp_path):
    folders = [
        write_trace(tmp_path / str(index), [op("dawnjax.window", start, 5.0)])
        for index, start in enumerate((10.0, 35.0))
    ]
    merged = timeline.merged(folders)
    assert merged.offsets == [0.0, -25.0] and merged.spread_microseconds[1] is None


@pytest.mark.parametrize(
    "data",
    [b"", b"no gzip", gzip.compress(b"[1, 2]"), gzip.compress(b"{}")],
    ids=["empty", "no gzip", "a list", "no events"],  # a compressed text holds the time
)
def test_a_damaged_trace_is_named(tmp_path, data):
    folder = write_trace(tmp_path / "0", [])
    next(folder.rglob("*.json.gz")).write_bytes(data)
    with pytest.raises(RunError, match="it is no trace"):
        timeline.merged([folder])


def test_a_window_without_a_trace_is_named(tmp_path):
    with pytest.raises(RunError, match="was not traced to its end"):
        timeline.merged([tmp_path])


def test_odd_events_are_left_out(tmp_path):
    odd = [3, {"name": 4}, {"name": "a", "ts": "soon"}, {"name": "b", "ts": True}, {"ph": "X"}]
    folder = write_trace(tmp_path / "0", [*odd, op("kept", 1.0, 2.0)])
    assert [event["name"] for event in timeline.merged([folder]).events] == ["kept"]
