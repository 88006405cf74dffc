"""Sources of results of every form: archives, dialects, stamps, and what is not a result."""

import csv

import pytest
from made_entries import make_entry, make_trial
from official_sources import LATER, LOG, RESULT, only_rejection, regular, tar_of

from dawnjax.analysis.loading import Entries
from dawnjax.commands.import_results import write_tables
from dawnjax.official.importer import import_results
from dawnjax.official.mlperf_trial import read_trial
from dawnjax.official.outcome import Refused


def test_an_archive_in_a_folder_is_named_as_not_read(tmp_path):
    (tmp_path / RESULT).parent.mkdir(parents=True)
    (tmp_path / RESULT).write_bytes(LOG)
    tar_of(tmp_path / "a.tar.gz", [regular("other/" + RESULT)], [LOG])
    imported = import_results([tmp_path])
    assert len(imported.entries) == 1 and imported.other_files == ("a.tar.gz",)


def test_a_copy_of_a_log_in_its_folder_is_refused(tmp_path):
    """Ten copies of a fast trial would make a score of an entry that lacks trials."""
    folder = (tmp_path / RESULT).parent
    folder.mkdir(parents=True)
    for name in ("result_0.txt", "result_10.txt"):
        (folder / name).write_bytes(LOG)
    (folder / "result_2.txt").write_bytes(LOG.replace(b"0.75}", b"0.76}"))
    assert "its log result_10.txt is a copy of result_0.txt" in only_rejection(tmp_path)


@pytest.mark.parametrize(
    ("log", "line", "why"),
    [
        (LATER.replace(b"time_ms", b"time_s"), 2, "run_start has no time"),
        (LATER.replace(b"16000000", b"16000000000"), 1, "is stamped 1.6e+12 s after 1970"),
        (LOG.replace(b"1541720050.000000000", b"9" * 400), 3, "'eval_accuracy' is stamped inf s"),
        (LATER.replace(b'"', b"'"), 1, "none is in a known form, the first being"),
        (LATER.replace(b'{"status": "success"}', b"{'status': 'success'}"), 4, "no readable"),
        (b"words\n:::MLLOG run_start at noon\n", 2, "':::MLLOG run_start at noon'; known are"),
    ],
)
def test_stamps_and_lines_of_another_form_are_refused_with_their_line(log, line, why):
    with pytest.raises(Refused) as refused:
        read_trial(log)
    assert (refused.value.line, why in refused.value.reason) == (line, True), refused.value


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
