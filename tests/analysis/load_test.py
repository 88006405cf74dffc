"""`dawnjax.analysis.load` and the tables that go out."""

import csv
import dataclasses
import io
import json
import math
import sys
import time
import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_entries import entry_of, make_entry, make_trial
from made_runs import write_run

from dawnjax import analysis
from dawnjax.errors import ConfigError, RunError
from dawnjax.page.table import Column, Table, of_words
from dawnjax.report import writing
from dawnjax.report.contents import Report
from dawnjax.text import escaped
from dawnjax.trials.group import Entry, read_entries


def test_everything_comes_as_one_list(tmp_path):
    write_run(tmp_path / "runs" / "a")
    write_run(tmp_path / "runs" / "b", seed=1)
    single = write_run(tmp_path / "c", seed=2)
    analysis.Entries([entry_of([1.0], source="official")]).save(tmp_path / "file.jsonl")
    entries = analysis.load(tmp_path / "file.jsonl", tmp_path / "runs", str(single))
    assert [len(entry.trials) for entry in entries] == [1, 3]
    assert repr(entries) == "<2 entries of dawnbench, dawnjax>"
    assert entries.problems == ()
    assert [entry.source for entry in entries.where(suite="dawnbench")] == ["official"]
    assert isinstance(entries[0], Entry) and len(entries[:1]) == 1
    with pytest.raises(ConfigError, match="no field 'sweet'"):
        entries.where(sweet=1)


def test_official_files_are_read_too(tmp_path):
    folder = tmp_path / "ImageNet" / "train"
    folder.mkdir(parents=True)
    (folder / "made.json").write_text(
        json.dumps(
            {
                "version": "v1.0",
                "author": "A",
                "authorEmail": "a@example.org",
                "framework": "TensorFlow 1.8",
                "codeURL": "https://example.org",
                "model": "ResNet-50",
                "hardware": "8 * V100 (AWS p3.16xlarge)",
                "costPerHour": 36.0,
                "timestamp": "2018-04-20",
                "misc": {},
            }
        )
    )
    (folder / "made.tsv").write_text(
        "epoch\thours\ttop1Accuracy\ttop5Accuracy\n1\t0.5\t50\t80\n2\t1.0\t76\t93.1\n"
    )
    (entry,) = analysis.load(tmp_path)
    assert entry.suite == "dawnbench" and entry.benchmark == "ImageNet"
    assert entry.figures.mean_seconds == pytest.approx(3600) and entry.figures.cost_usd == 36.0


def test_what_cannot_be_read_is_told(tmp_path):
    write_run(tmp_path / "good")
    bad = write_run(tmp_path / "bad")
    (bad / "log.jsonl").write_bytes(b"")
    with pytest.warns(UserWarning, match="1 files, runs or entries were left out"):
        entries = analysis.load(tmp_path)
    assert len(entries) == 1 and "bad" in entries.problems[0]
    with pytest.raises(RunError, match="nothing could be read: .*bad"):
        analysis.load(bad)
    with pytest.raises(ConfigError, match="there is nothing at"):
        analysis.load(tmp_path / "absent")
    with pytest.raises(ConfigError, match="nothing to load"):
        analysis.load()
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match="no results in"):
        analysis.load(tmp_path / "empty")
    (tmp_path / "log.jsonl").write_text('{"event": "train"}\n')
    with pytest.raises(RunError, match="log.jsonl:1"):
        analysis.load(tmp_path / "log.jsonl")


def test_entries_survive_their_file(tmp_path):
    entry = make_entry(
        [make_trial(2.0, 3.0, curve=[(1, None, 0.5), (None, 2.0, 94.0)])],
        warnings=("odd",),
        reasons={"model": "not said"},
        identity="i",
    )
    analysis.Entries([entry]).save(tmp_path / "new" / "file.jsonl")
    assert list(read_entries(tmp_path / "new" / "file.jsonl")) == [entry]


def test_an_entry_that_is_given_twice_counts_once(tmp_path):
    analysis.Entries([entry_of([1.0]), entry_of([2.0])]).save(tmp_path / "a.jsonl")
    copied = entry_of([2.0], source="elsewhere/entry", warnings=("a/b.txt: odd",))
    renamed = tuple(dataclasses.replace(trial, name="a/b.txt") for trial in copied.trials)
    copied = dataclasses.replace(copied, trials=renamed)
    analysis.Entries([copied, entry_of([3.0])]).save(tmp_path / "b.jsonl")
    with pytest.warns(UserWarning, match="1 files, runs or entries"):
        entries = analysis.load(tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    assert [entry.trials[0].time_to_accuracy_seconds for entry in entries] == [1.0, 2.0, 3.0]
    assert "are copies of others given" in entries.problems[0]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("time_to_accuracy_seconds", -5.0),
        ("time_to_accuracy_seconds", math.nan),
        ("clock_seconds", math.inf),
        ("compile_seconds_before_run_start", -1.0),
        ("epochs", -1.0),
        ("evaluations", [{"epoch": 1.0, "seconds_since_run_start": -1.0, "value": 0.5}]),
    ],
)
def test_a_time_that_is_none_is_refused(field, value, tmp_path):
    entry = entry_of([1.0, 2.0]).to_json()
    entry["trials"][1][field] = value
    (tmp_path / "a.jsonl").write_text(json.dumps(entry))
    # NaN and Infinity are refused where the file is read: they are not JSON.
    named = rf"trials\[1\]\.{field}.* is |:1 is not JSON: has (NaN|Infinity), which is not JSON"
    with pytest.raises(RunError, match=named):
        analysis.load(tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        # At a listed price a host, such an entry would cost less than nothing, and lead by cost.
        ({"num_hosts": -4}, "num_hosts is '-4'; it must not be negative"),
        ({"num_accelerators": -8}, "num_accelerators is '-8'; it must not be negative"),
        ({"reached": False}, r"trials\[0\].reached is False, its time to accuracy 1.0"),
        ({"run_id": "of the second too"}, "two of its trials are one run"),
    ],
)
def test_an_entry_that_would_be_counted_wrong_is_refused(changes, said, tmp_path):
    value = entry_of([1.0, 2.0]).to_json()
    for name, changed in changes.items():
        part = value if name.startswith("num_") else value["trials"][0]
        part[name] = changed
    value["trials"][1]["run_id"] = "of the second too"
    (tmp_path / "a.jsonl").write_text(json.dumps(value))
    with pytest.raises(RunError, match=said):
        analysis.load(tmp_path / "a.jsonl")


def test_entries_of_one_source_are_told_apart(tmp_path):
    first, second, third = (entry_of([float(n)], suite="dawnjax") for n in (1, 2, 3))
    analysis.Entries([first, second]).save(tmp_path / "a.jsonl")
    analysis.Entries([third]).save(tmp_path / "b.jsonl")
    entries = analysis.load(tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    assert [(entry.source, entry.distinction) for entry in entries] == [
        ("folder/entry", ""),
        ("folder/entry (from a.jsonl)", "from a.jsonl"),
        ("folder/entry (from b.jsonl)", "from b.jsonl"),
    ]


def test_the_same_trials_in_two_entries_are_said(tmp_path):
    for seed in (0, 1, 2):
        write_run(tmp_path / "runs" / f"s{seed}", seed=seed, seconds=10.0 + 5 * seed)
    folders = [tmp_path / "runs" / f"s{seed}" for seed in (0, 1)]
    analysis.load(*folders).save(tmp_path / "two.jsonl")
    saved, runs = analysis.load(tmp_path / "two.jsonl", tmp_path / "runs")
    assert saved.source == f"{runs.source} (from two.jsonl)"
    assert saved.warnings == (
        "2 of its 2 trials are also in another entry given: the entries are not independent "
        "results",
    )
    assert runs.warnings[0].startswith("2 of its 3 trials are also in another entry")


def test_many_entries_of_one_source_or_one_run_take_no_square_of_their_number(tmp_path):
    value = entry_of([1.0], suite="dawnjax").to_json()
    lines = []
    for number in range(1500):
        trial = {**value["trials"][0], "clock_seconds": 1.0 + number, "run_id": "r"}
        lines.append(json.dumps({**value, "trials": [trial]}))
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    began = time.process_time()
    entries = analysis.load(tmp_path / "a.jsonl")
    assert time.process_time() - began < 5
    assert len({entry.source for entry in entries}) == 1500
    assert len(entries[-1].warnings) == 1


def test_rows_of_entries_trials_and_evaluations():
    entry = make_entry(
        [make_trial(2.0, 3.0, curve=[(1, 1.0, 0.5), (2, 2.0, 94.0)]), make_trial(None, total=9.0)],
        cost_per_hour_usd=1800.0,
        warnings=("one", "two"),
    )
    entries = analysis.Entries([entry])
    (row,) = entries.records()
    assert row["figures_cost_usd"] == 1.0 and row["target_value"] == 93.0
    assert row["figures_expected_seconds"] == 11.0 and row["warnings"] == "one; two"
    trials = entries.records("trial")
    assert [trial["reached"] for trial in trials] == [True, False]
    assert [line["value"] for line in entries.records("evaluation")] == [0.5, 94.0]
    with pytest.raises(ConfigError, match="not 'seed'"):
        entries.records("seed")


def test_to_dataframe():
    pandas = pytest.importorskip("pandas")
    entries = analysis.Entries([entry_of([1.0, 3.0]), entry_of([None], total=5.0)])
    frame: Any = entries.to_dataframe()
    assert isinstance(frame, pandas.DataFrame)
    assert frame["figures_mean_seconds"][0] == 2.0
    # Not a number rather than 0, and rather than the time of the trial.
    assert math.isnan(frame["figures_mean_seconds"][1])
    sizes: Any = analysis.Entries([entry_of([1.0], num_hosts=80), entry_of([1.0])]).to_dataframe()
    assert sizes["num_hosts"].dtype == "Int64" and sizes["num_hosts"][0] == 80
    assert pandas.isna(sizes["num_hosts"][1]) and math.isnan(sizes["figures_cost_usd"][0])
    assert list(entries.to_dataframe("trial")["time_to_accuracy_seconds"][:2]) == [1.0, 3.0]


def test_without_pandas_there_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match=r'pip install "dawnjax\[notebook\]"'):
        analysis.Entries([]).to_dataframe()


TABLE = Table(
    name="t",
    title="T",
    columns=(Column("name"), Column("seconds", "time", "s", "number"), Column("ok", kind="flag")),
    rows=(("=1+1", -2.5, True), ("b", "not reached", False), (None, None, None)),
    notes=("n",),
)


def test_tables_refuse_what_no_file_can_say():
    columns = (Column("x", kind="number"),)
    for rows in (((math.nan,),), ((math.inf,),), ((1, 2),)):
        with pytest.raises(ValueError):
            Table(name="t", title="", columns=columns, rows=rows)
    with pytest.raises(ValueError, match="two columns"):
        Table(name="t", title="", columns=(Column("x"), Column("x")), rows=())
    with pytest.raises(ValueError, match="kind"):
        Column("x", kind="colour")
    with pytest.raises(ValueError, match="text column"):
        Table(name="t", title="", columns=(Column("x"),), rows=((1.0,),))


def test_a_table_as_json_csv_text_and_markdown():
    assert TABLE.to_json()["rows"][0] == {"name": "=1+1", "seconds": -2.5, "ok": True}
    assert TABLE.column("seconds") == [-2.5, "not reached", None]
    with pytest.raises(KeyError, match="no column 'x'"):
        TABLE.column("x")
    assert TABLE.to_csv() == "name,seconds,ok\r\n'=1+1,-2.5,true\r\nb,not reached,false\r\n,,\r\n"
    exact = Table(name="t", title="", columns=(Column("x", kind="number"),), rows=((0.1 + 0.2,),))
    assert exact.to_csv() == "x\r\n0.30000000000000004\r\n"
    assert TABLE.to_text().splitlines() == [
        "T",
        "name         time  ok",
        "=1+1      -2.50 s  yes",
        "b     not reached  no",
        "-               -  -",
        "note: n",
    ]
    assert TABLE.to_markdown().splitlines() == [
        "| name | time | ok |",
        "|---|---|---|",
        "| =1+1 | -2.50 s | yes |",
        "| b | not reached | no |",
        "| - | - | - |",
        "",
        "n",
    ]
    words = of_words(["a", "b", "b"], [["x\n y", "1"], ["\x1b[2J", "10", "2"]])
    assert words.to_text().splitlines() == ["a           b  b", "x y         1",
                                            "\\u001b[2J  10  2"]  # fmt: skip


def test_the_tables_of_a_report_are_written(tmp_path):
    files = writing.write(Report("", (TABLE,)), tmp_path / "out")
    assert [file.name for file in files] == ["t.csv", "t.json", "index.html"]
    assert files[0].read_bytes().startswith(b"name,seconds,ok\r\n'=1+1")
    assert json.loads(files[1].read_text())["title"] == "T"
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is a file"):
        writing.write(Report("", (TABLE,)), tmp_path / "file")


@given(st.lists(st.one_of(st.none(), st.text()), min_size=1, max_size=5))
def test_no_text_becomes_a_formula(texts):
    table = Table(
        name="t", title="", columns=(Column("x"), Column("y")), rows=tuple((t, "y") for t in texts)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = list(csv.reader(io.StringIO(table.to_csv(), newline="")))
    assert len(rows) == len(texts) + 1
    for row, text in zip(rows[1:], texts, strict=True):
        assert not row[0].lstrip().startswith(("=", "+", "-", "@"))
        assert not row[0].startswith(("\t", "\n", "\r"))
        assert row[0].removeprefix("'") == escaped(text or "").removeprefix("'")
