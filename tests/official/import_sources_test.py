"""Archives of results, values that are no numbers, and the tables that an import writes."""

import csv
import zipfile

import pytest
from made_entries import make_entry, make_trial
from official_sources import LOG, RESULT, only_rejection, regular, tar_of

from dawnjax.analysis.loading import Entries
from dawnjax.commands.import_results import write_tables
from dawnjax.official.importer import import_results
from dawnjax.official.mlperf_trial import read_trial


def test_tables_have_every_field_of_entries_trials_and_evaluations(tmp_path, capsys):
    trials = [
        make_trial(seconds, 3.0, curve=[(1, 5.0, 90.0), (2, 9.0, 94.0)]) for seconds in (9, 8)
    ]
    entry = make_entry(trials, submitter="=cmd", reasons={"num_hosts": "not told"}, warnings=("w",))
    write_tables(tmp_path, Entries([entry]))
    tables = {
        path.stem: list(csv.DictReader(path.open(newline=""))) for path in tmp_path.glob("*.csv")
    }
    assert {name: len(rows) for name, rows in tables.items()} == {
        "entries": 1,
        "trials": 2,
        "evaluations": 4,
    }
    (row,) = tables["entries"]
    assert row["submitter"] == "'=cmd" and row["target_value"] == "93.0"
    assert row["reasons"] == "num_hosts: not told" and row["warnings"] == "w"
    assert row["num_hosts"] == "" and row["figures_trials"] == "2"
    assert tables["trials"][1]["time_to_accuracy_seconds"] == "8"
    assert tables["evaluations"][3]["trial"] == "1" and tables["evaluations"][3]["value"] == "94.0"
    assert "entries.csv: 1 rows" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_a_bad_archive_gives_nothing_and_nothing_is_unpacked(tmp_path, kind):
    names = {RESULT: LOG, "../out.txt": LOG}
    path = tmp_path / "in" / f"a.{kind}"
    path.parent.mkdir()
    for given in (names, {RESULT: LOG}):
        if kind == "tar":
            tar_of(path, [regular(name) for name in given], list(given.values()))
        else:
            with zipfile.ZipFile(path, "w") as archive:
                for name, content in given.items():
                    archive.writestr(name, content)
        if given is names:
            assert "leads out of the archive" in only_rejection(path)
    (entry,) = import_results([path]).entries
    assert entry.trials[0].time_to_accuracy_seconds == pytest.approx(60)
    assert sorted(p.name for p in tmp_path.rglob("*")) == [f"a.{kind}", "in"]


DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    "value,kept",
    [
        (b"NaN", False),
        (b"1e999", False),
        (DEEP, False),
        (b'{"epoch": 1e300, "value": 0.1}', True),
        (b'{"epoch": {"epoch": 1}, "value": 0.1}', True),
    ],
    ids=range(5),
)
def test_values_that_are_no_numbers(value, kept):
    line = b":::MLPv0.5.0 resnet 1541720040.0 (x:1) eval_accuracy: " + value + b"\n"
    trial = read_trial(LOG + line)
    assert len(trial.evaluations) == 1 + kept
    assert (trial.seconds, trial.epochs) == (pytest.approx(60), 1)
    assert all(e.epoch is None or abs(e.epoch) <= 1e6 for e in trial.evaluations)
