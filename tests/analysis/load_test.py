"""`dawnjax.analysis.load` and the tables that go out."""

import dataclasses
import math
from typing import Any

import pytest
from made_entries import entry_of
from made_runs import write_run

from dawnjax import analysis
from dawnjax.errors import ConfigError
from dawnjax.page.table import Column, Table, of_words
from dawnjax.trials.group import Entry


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
    with pytest.raises(ConfigError, match="not 'seed'"):
        entries.records("seed")


def test_what_cannot_be_read_is_told(tmp_path):
    write_run(tmp_path / "good")
    bad = write_run(tmp_path / "bad")
    (bad / "log.jsonl").write_bytes(b"")
    with pytest.warns(UserWarning, match="1 files, runs or entries were left out"):
        entries = analysis.load(tmp_path)
    assert len(entries) == 1 and "bad" in entries.problems[0]
    with pytest.raises(ConfigError, match="nothing to load"):
        analysis.load()


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


TABLE = Table(
    name="t",
    title="T",
    columns=(Column("name"), Column("seconds", "time", "s", "number"), Column("ok", kind="flag")),
    rows=(("=1+1", -2.5, True), ("b", "not reached", False), (None, None, None)),
    notes=("n",),
)


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
