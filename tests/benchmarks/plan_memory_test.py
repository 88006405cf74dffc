"""The table of predicted memory beside XLA's: ratios, reasons, and which rows count."""

import json

from benchmarks import harness, plan_memory
from benchmarks.result_tables.programs import plan_memory as rows_of
from benchmarks.result_tables.programs import plan_other_steps


def row(name, predicted=None, xla=None, **more):
    sides = {"predicted": predicted, "xla": xla}
    sizes = {side: size and {"num_bytes": size} for side, size in sides.items()}
    return {"experiment": name, "system": "h100:8", "flags": [], **sizes, **more}


def test_a_row_without_a_compiled_step_says_why_and_counts_nowhere():
    record = {
        "rows": [
            row("a", 1.02e9, 1e9),
            row("b", 0.5e9, 1e9),
            row("c", 1e9, reason="no compiler"),
            row("d", reason="no data"),
            {"experiment": "e", "system": "", "flags": []},
        ]
    }
    other = {"rows": [row("a", 1.2e9, 1e9)]}
    head, *cells = rows_of([("plan_memory_h100", record), ("plan_memory_v5p", other)])
    assert head[3:] == ["h100: compiled", "h100: ratio", "v5p: compiled", "v5p: ratio"]
    assert cells[0] == ["`a`", "8", "", "1 GB", "1.02", "1 GB", "1.20"]
    assert [line[4] for line in cells[1:]] == [
        "0.50",
        "not compiled: no compiler",
        "not compiled: no data",
        "not compiled: not tried",
        "1 of 2",
        "1 of 2",
    ]
    assert [line[-1] for line in cells[1:]] == 4 * ["not compiled: not tried"] + 2 * ["0 of 1"]


def test_rows_of_other_versions_are_not_kept(tmp_path, monkeypatch):
    monkeypatch.setenv(harness.RESULTS_VARIABLE, str(tmp_path))
    file = tmp_path / "plan_memory_h100.json"
    assert plan_memory.earlier_rows(file.stem) == {}
    record = {"packages": plan_memory.packages(), "rows": [row("a", 1, 1)]}
    file.write_text(json.dumps(record))
    assert plan_memory.earlier_rows(file.stem)["a"]["xla"] == {"num_bytes": 1}
    file.write_text(json.dumps({**record, "packages": {"jax": "0.0"}}))
    assert plan_memory.earlier_rows(file.stem) == {}


def test_other_steps_are_counted_by_whether_they_decided_a_rule():
    rows = [
        row("a", 1.02e9, 1e9, devices=8, batch=64, is_held_out=False),
        row("a", 0.5e9, 1e9, devices=1, batch=2048, is_held_out=False),
        row("b", 1.2e9, 1e9, devices=8, batch=64, is_held_out=True),
        row("c", 1.0e9, None, devices=8, batch=64, is_held_out=True),
    ]
    _, decided, held_out = plan_other_steps([("plan_other_steps_h100", {"rows": rows})])
    least, most = "0.50, `a`, batch 2,048 on 1", "1.02, `a`, batch 64 on 8"
    assert decided == ["2 that decided a rule", "1", "1", least, most]
    assert held_out[:3] == ["1 held out", "0", "0"]
