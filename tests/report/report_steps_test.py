"""The report's section on where the time of a step went: from logs, which may hold anything."""

import json
from pathlib import Path

import pytest
from made_runs import write_run

from dawnjax.report import contents, inputs
from dawnjax.runs.log import encode_line

PARTS = {"compute": 0.006, "exposed_wire": 0.003, "idle": 0.001}
LOSSES = [
    {
        "op": "dot.1",
        "layer": "",
        "line": "",
        "seconds_per_step": 4e-3,
        "lost_seconds_per_step": 1e-3,
    },
    {
        "op": "fusion.2",
        "layer": "stage_1/conv",
        "line": "models/resnet.py:7",
        "seconds_per_step": 3e-3,
        "lost_seconds_per_step": 2e-3,
    },
]


def host(index, utilization=None, communication=None):
    return {
        "process_index": index,
        "cpu_fraction": 0.5,
        "memory_bytes": 10**9,
        "utilization": {"parts_seconds": PARTS, "mfu": 0.4, "traced_step_seconds": 0.01,
                        "largest_losses": LOSSES, "reasons": {"hfu": "no program"}}
        if utilization is None
        else utilization,
        "communication": {"fraction": 0.5, "exposed_fraction": 0.3}
        if communication is None
        else communication,
    }  # fmt: skip


def report_of(path: Path, hosts, straggler=None):
    run = write_run(path)
    log = run / "log" / "process_00000.jsonl"
    events = [json.loads(line) for line in log.read_text().splitlines()]
    kept = [event for event in events if event["event"] != "host_summary"]
    end = kept.pop()
    summary = {**end, "event": "host_summary", "hosts": hosts, "straggler": straggler}
    with log.open("wb") as file:
        for number, event in enumerate([*kept, summary, end]):
            event = {name: value for name, value in event.items() if name not in ("status", "seal")
                     or event["event"] == "attempt_end"}  # fmt: skip
            if "n" in event:
                event["n"] = number
            file.write(encode_line(event))
    return contents.make(inputs.read([run]))


def table(report, name):
    [found] = [table for table in report.tables if table.name == name]
    return found


def test_each_host_has_its_parts_and_its_losses(tmp_path):
    report = report_of(
        tmp_path / "run", [host(0), host(1)], {"message": "host 1 costs the others 3.0 ms a step"}
    )
    used = table(report, "hosts").records()
    assert [row["host"] for row in used] == [0, 1]
    assert used[0]["mfu"] == 0.4 and used[0]["communication_fraction"] == 0.5
    assert used[0]["hfu"] is None and "no program" in str(used[0]["why"])
    lost = table(report, "losses_of_ops").records()
    assert [row["op"] for row in lost[:2]] == ["stage_1/conv (models/resnet.py:7)", "dot.1"]
    assert "Where the time of a step went" in report.html
    assert "host 1 costs the others 3.0 ms a step" in report.html
    assert "computing 60.0 %, communication, on the wire 30.0 %" in report.html


@pytest.mark.parametrize(
    "broken",
    [
        {"parts_seconds": "none"},
        {"parts_seconds": {"compute": "NaN"}},
        {"parts_seconds": PARTS, "largest_losses": [1, {"op": 2}, {"seconds_per_step": -1}]},
        {"parts_seconds": PARTS, "reasons": []},
    ],
)
def test_a_profile_of_another_kind_breaks_no_page(tmp_path, broken):
    report = report_of(tmp_path / "run", [host(0, utilization=broken), 3])
    assert "Our runs" in report.html


def test_without_a_profile_there_is_no_section(tmp_path):
    report = report_of(tmp_path / "run", [{"process_index": 0}])
    assert "Where the time of a step went" not in report.html
