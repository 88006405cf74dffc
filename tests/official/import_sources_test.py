"""Sources of results of every form: archives, stamps, and what is not a result: one clear line."""

import csv
import os
import zipfile

import pytest
from made_entries import make_entry, make_trial
from official_sources import LATER, LOG, RESULT, only_rejection, regular, tar_of

from dawnjax.__main__ import main
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


def test_a_link_in_a_folder_is_not_followed(tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_bytes(LOG)
    folder = tmp_path / "given" / "resnet"
    folder.mkdir(parents=True)
    (folder / "result_0.txt").symlink_to(secret)
    (tmp_path / "given" / "loop").symlink_to(tmp_path / "given")
    assert "is not a plain file" in only_rejection(tmp_path / "given")
    os.mkfifo(folder / "result_1.txt")
    imported = import_results([tmp_path / "given"])
    assert not imported.entries
    assert "loop" in imported.other_files


def test_a_damaged_archive_gives_nothing_of_itself(tmp_path):
    path = tar_of(tmp_path / "a.tar.gz", [regular(RESULT)], [LOG])
    path.write_bytes(path.read_bytes()[:40])
    assert "a.tar.gz" in only_rejection(path)


DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    "data",
    [
        DEEP,
        b"\xff\xfe{\x00}\x00",
        b'{"latency": NaN, "top5Accuracy": 93}',
        b'{"latency": true, "top5Accuracy": 93}',
        b'{"latency": 1, "top5Accuracy": 0.93}',
        b"[]",
    ],
    ids=range(6),
)
def test_descriptions_that_are_no_descriptions(tmp_path, data):
    folder = tmp_path / "ImageNet" / "inference"
    folder.mkdir(parents=True)
    (folder / "x.json").write_bytes(data)
    assert only_rejection(tmp_path).startswith("ImageNet/inference/x.json")


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


@pytest.mark.parametrize(
    "log",
    [
        LOG.decode().encode("utf-16"),
        LOG.replace(b"run_start", b"run_begin"),
        LOG.replace(b"1541720060", b"1541719060"),
        LOG.replace(b"1541720000.000000000", b"0000000000"),
        LOG + LATER,
        LOG.replace(b"resnet 1541720001", b"ssd 1541720001"),
        LATER.replace(b"1600000009000", b"1e999"),
    ],
    ids=range(7),
)
def test_logs_that_give_no_time(log):
    with pytest.raises(Refused) as refused:
        read_trial(log)
    assert "\n" not in refused.value.reason


def test_names_of_files_cannot_break_a_line(tmp_path, capsys):
    folder = tmp_path / "in\nrejected: all\x1b[2J" / "resnet"
    folder.mkdir(parents=True)
    (folder / "result_0.txt").write_bytes(b"nothing")
    assert main(["import", str(tmp_path), f"--out={tmp_path / 'out.jsonl'}"]) == 1
    captured = capsys.readouterr()
    assert captured.out.count("\n") == 1
    assert "\x1b" not in captured.out + captured.err
    assert not (tmp_path / "out.jsonl").exists()
