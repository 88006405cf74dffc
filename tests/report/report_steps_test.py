"""The report's section on where the time of a step went: from logs, which may hold anything."""

import json
from pathlib import Path

import pytest
from made_runs import write_run

from dawnjax.report import contents, inputs, rooflines
from dawnjax.runs.log import encode_line
from dawnjax.trials.hosts import Op

PARTS = {"compute": 0.006, "exposed_wire": 0.003, "idle": 0.001}
LOSSES = [
    {"op": op, "layer": layer, "line": line, "seconds_per_step": seconds,
     "lost_seconds_per_step": lost}
    for op, layer, line, seconds, lost in (
        ("dot.1", "", "", 4e-3, 1e-3),
        ("fusion.2", "stage_1/conv", "models/resnet.py:7", 3e-3, 2e-3),
    )
]  # fmt: skip


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


def test_ops_stand_below_their_roofline(tmp_path):
    used = {"parts_seconds": PARTS, "roofline": ROOFLINE}
    report = report_of(tmp_path / "run", [host(0, utilization=used)])
    ops = table(report, "roofline").records()
    assert [(row["op"], row["flops_per_second"]) for row in ops] == [
        ("stem", 5e11),
        ("fusion.2", 1e10),
    ]
    for text in (
        "Roofline of the ops, run",
        "stem: 4 ms a step, 20 FLOP a byte, 500 GFLOP/s",
        "peak, measured on this machine",
    ):
        assert text in report.html, text


@pytest.mark.parametrize(
    "broken",
    [
        {"parts_seconds": {"compute": "NaN"}},
        {"parts_seconds": PARTS, "largest_losses": [1, {"op": 2}, {"seconds_per_step": -1}]},
        {"parts_seconds": PARTS, "roofline": {"ops": [None, {"op": "x", "seconds_per_step": -1}]}},
        {"parts_seconds": PARTS, "roofline": {**ROOFLINE, "peak_bytes_per_second": 0}},
    ],
)
def test_a_damaged_profile_breaks_no_page_and_draws_no_roof(tmp_path, broken):
    report = report_of(tmp_path / "run", [host(0, utilization=broken)])
    assert "Your run" in report.html and "peak, measured" not in report.html


def test_ops_of_one_layer_are_told_apart_and_what_all_share_is_left_out():
    ops = [
        Op(op="dot.1", layer="jit(step)/net/block_1/conv"),
        Op(op="dot.2", layer="jit(step)/net/block_1/conv"),
        Op(op="fusion.3", layer="jit(step)/net/block_2", line="models/net.py:7"),
        Op(op="copy.4"),
    ]
    assert rooflines.op_names(ops) == [
        "block_1/conv (dot.1)",
        "block_1/conv (dot.2)",
        "block_2 (models/net.py:7)",
        "copy.4",
    ]


def test_the_page_of_one_run_answers_on_its_first_screen(tmp_path):
    used = {"parts_seconds": PARTS, "roofline": ROOFLINE, "largest_losses": LOSSES}
    page = report_of(tmp_path / "run", [host(0, utilization=used)]).html
    top = page[: page.index("<section")]
    assert "<dd>reached</dd>" in top and "<dd>10 s</dd>" in top
    assert "one trial: its variation is not known" in top
