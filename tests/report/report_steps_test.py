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


ROOFLINE = {
    "peak_flops_per_second": 1e12,
    "peak_bytes_per_second": 1e11,
    "peak_source": "measured on this machine",
    "ops": [
        {"op": "dot.1", "layer": "stem", "seconds_per_step": 4e-3, "flops_per_byte": 20.0,
         "flops_per_second": 5e11, "has_products": True},
        {"op": "fusion.2", "layer": "", "seconds_per_step": 1e-3, "flops_per_byte": 0.25,
         "flops_per_second": 1e10, "has_products": False},
    ],
    "peak_use_cdf": [[0.0, 0.2], [0.5, 1.0]],
    "throughput_cdf": [[1e10, 0.2], [5e11, 1.0]],
}  # fmt: skip


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
    log = run / "log.jsonl"
    events = [json.loads(line) for line in log.read_text().splitlines()]
    kept = [event for event in events if event["event"] != "host_summary"]
    end = kept.pop()
    summary = {**end, "event": "host_summary", "hosts": hosts, "straggler": straggler}
    with log.open("wb") as file:
        for event in (*kept, summary, end):
            event = {name: value for name, value in event.items() if name not in ("status", "seal")
                     or event["event"] == "attempt_end"}  # fmt: skip
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
    assert "954 MiB" in report.html  # 10**9 bytes
    assert report.html.count('id="figure-op_losses-1"') == 1


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


def test_ops_stand_below_their_roofline_and_over_the_time_of_computation(tmp_path):
    used = {"parts_seconds": PARTS, "roofline": ROOFLINE}
    report = report_of(tmp_path / "run", [host(0, utilization=used)])
    ops = table(report, "roofline").records()
    assert [(row["op"], row["flops_per_second"]) for row in ops] == [
        ("stem", 5e11),
        ("fusion.2", 1e10),
    ]
    shares = table(report, "throughput_cdf").records()
    assert [(row["value"], row["fraction_of_time"]) for row in shares] == [(1e10, 0.2), (5e11, 1.0)]
    for text in (
        "Roofline of the ops, run",
        "stem: 4 ms a step, 20 FLOP a byte, 500 GFLOP/s",
        "peak, measured on this machine",
        "run: half of the time at 50% or less",
        "run: half of the time at 500 GFLOP/s or less",
    ):
        assert text in report.html, text


@pytest.mark.parametrize(
    ("broken", "lacks"),
    [
        ({"ops": 3}, "What the ops reached"),
        ({"ops": [None, {"op": "x", "seconds_per_step": -1}]}, "What the ops reached"),
        ({**ROOFLINE, "peak_flops_per_second": "fast"}, "peak, measured"),
        ({**ROOFLINE, "peak_bytes_per_second": 0}, "peak, measured"),
        ({**ROOFLINE, "peak_use_cdf": [[0.5, 0.9], [0.1, 1.0]]}, "Use of the peak by the op"),
        ({**ROOFLINE, "peak_use_cdf": [["NaN", 1]]}, "Use of the peak by the op"),
        ({**ROOFLINE, "throughput_cdf": [[1, 2, 3]]}, "Throughput of the op"),
        ({**ROOFLINE, "throughput_cdf": [[1e10, 0.2]]}, "Throughput of the op"),
    ],
)
def test_a_damaged_roofline_breaks_no_page(tmp_path, broken, lacks):
    used = {"parts_seconds": PARTS, "roofline": broken}
    report = report_of(tmp_path / "run", [host(0, utilization=used)])
    assert "Our runs" in report.html and lacks not in report.html
