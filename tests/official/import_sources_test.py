"""Sources of results of every form: archives, dialects, stamps, and what is no result."""

import dataclasses
import math
import re
import zipfile

import pytest
from made_entries import make_entry, make_trial
from official_sources import JSON, LATER, LOG, RESULT, TSV, only_rejection, regular, tar_of

from dawnjax.__main__ import main
from dawnjax.official.importer import import_results
from dawnjax.official.mlperf_trial import read_trial
from dawnjax.official.outcome import Refused
from dawnjax.report import boards
from dawnjax.trials.group import read_entries, write_entries


def test_archives_in_a_folder_are_sources_of_their_own(tmp_path, capsys):
    folder = tmp_path / "results"
    (folder / "more").mkdir(parents=True)
    tar_of(folder / "more" / "a.tar.gz", [regular(RESULT)], [LOG])
    with zipfile.ZipFile(folder / "b.zip", "w") as archive:
        archive.writestr("CIFAR10/train/one.json", JSON)
        archive.writestr("CIFAR10/train/one.tsv", TSV.replace(b"top5", b"top1"))
        archive.writestr("CIFAR10/notes.md", b"words")
    with zipfile.ZipFile(folder / "nothing.zip", "w") as archive:
        archive.writestr("a.txt", b"words")
    (folder / "cut.tar.gz").write_bytes((folder / "more" / "a.tar.gz").read_bytes()[:200])
    (folder / "link.zip").symlink_to(folder / "b.zip")
    # The archive beside what it holds counts once.
    unpacked = folder / "unpacked" / RESULT
    unpacked.parent.mkdir(parents=True)
    unpacked.write_bytes(LOG)
    imported = import_results([folder])
    assert [entry.source for entry in imported.entries] == [
        "b.zip/CIFAR10/train/one",
        f"unpacked/{RESULT.rpartition('/')[0]}",
    ]
    (copy,) = imported.copies
    assert copy.startswith("more/a.tar.gz/v0.5.0/someone/")
    (rejection,) = imported.rejections
    assert rejection.file == "cut.tar.gz"
    assert set(imported.other_files) == {"b.zip/CIFAR10/notes.md", "nothing.zip", "link.zip"}
    out = tmp_path / "out.jsonl"
    assert main(["import", str(folder), f"--out={out}"]) == 1
    shown = capsys.readouterr().out
    assert "rejected: cut.tar.gz: " in shown
    assert "copy, left out: more/a.tar.gz/" in shown
    assert "link.zip" in shown
    assert len(list(read_entries(out))) == 2


def test_a_copy_of_a_log_in_its_folder_is_no_further_trial(tmp_path):
    """Ten copies of a fast trial would make a score of an entry that lacks trials."""
    folder = (tmp_path / RESULT).parent
    folder.mkdir(parents=True)
    for name in ("result_0.txt", "result_1.txt", "result_10.txt"):
        (folder / name).write_bytes(LOG)
    (folder / "result_2.txt").write_bytes(LOG.replace(b"0.75}", b"0.76}"))
    (entry,) = import_results([tmp_path]).entries
    assert [trial.name[-12:] for trial in entry.trials] == ["result_0.txt", "result_2.txt"]
    assert entry.figures.trials == 2
    copies = [warning for warning in entry.warnings if "copy" in warning]
    assert copies == [
        f"result_{number}.txt is a copy of result_0.txt; it counts once" for number in (1, 10)
    ]
    assert "2 logs where the rules of the round ask for 5" in entry.warnings


def test_two_entries_of_one_source_with_the_same_log_both_count(tmp_path):
    for system in ("one", "other"):
        path = tmp_path / RESULT.replace("/sys/", f"/{system}/")
        path.parent.mkdir(parents=True)
        path.write_bytes(LOG)
    imported = import_results([tmp_path])
    assert (len(imported.entries), imported.copies) == (2, ())


def test_the_content_of_a_description_says_whose_it_is(tmp_path):
    table = TSV.replace(b"top5", b"top1")
    for place in ("CIFAR10/train", "CIFAR10/elsewhere"):
        members = [regular(f"{place}/entry.json"), regular(f"{place}/entry.tsv")]
        (entry,) = import_results([tar_of(tmp_path / "a.tar.gz", members, [JSON, table])]).entries
        assert (entry.suite, entry.source) == ("dawnbench", f"{place}/entry")
    # No JSON: what it describes is told by its folder.
    members = [regular("CIFAR10/inference/submission.json")]
    archive = tar_of(tmp_path / "b.tar.gz", members, [b"{"])
    assert "CIFAR10/inference/submission.json:1: is no JSON" in only_rejection(archive)


def test_a_description_that_describes_nothing_is_listed(tmp_path):
    log = tmp_path / RESULT
    log.parent.mkdir(parents=True)
    log.write_bytes(LOG)
    (log.parent.parent / "entry.json").write_text("{}")
    (tmp_path / "v0.5.0" / "entry.json").write_text("{}")
    imported = import_results([tmp_path])
    assert len(imported.entries) == 1
    assert imported.other_files == ("v0.5.0/entry.json",)


def stamped(name: str, start: float, after: float, more: str = "") -> bytes:
    """A log of a run_start, a run_stop after it, and other lines."""
    lines = ((start, "run_start", "{}"), (start + after, "run_stop", '{"status": "success"}'))
    return (
        "".join(
            f':::MLLOG {{"key": "{key}", "{name}": {stamp!r}, "metadata": {metadata}}}\n'
            for stamp, key, metadata in lines
        )
        + more
    ).encode()


@pytest.mark.parametrize(
    ("log", "seconds", "how"),
    [
        (stamped("time_ms", 1_600_000_000, 60), 60.0, "time_ms is read as seconds"),
        (stamped("time_ms", 1.6e9, 60.25), 60.25, "time_ms is read as seconds"),
        (stamped("time_s", 1.6e12, 60_250), 60.25, "time_s is read as milliseconds"),
        (stamped("time_ms", 1.6e15, 60e6), 60.0, "time_ms is read as microseconds"),
        (LOG.replace(b"15417200", b"15417200" + b"000"), None, ""),
    ],
)
def test_a_unit_that_all_stamps_tell_is_inferred_and_named(log, seconds, how):
    if seconds is None:  # some stamps in milliseconds, some moved by years
        with pytest.raises(Refused, match="not all stamps|no unit|two runs"):
            read_trial(log.replace(b"1541720000060", b"1541720060"))
        return
    trial = read_trial(log)
    assert trial.seconds == pytest.approx(seconds, abs=1e-6)
    assert trial.inferred.startswith(how)
    assert trial.inferred.endswith("all 2 stamps lie from 2014 to 2036")
    assert f"inferred: {trial.inferred}" in trial.warnings
    assert 1.59e9 < trial.start_unix_seconds < 1.61e9


@pytest.mark.parametrize(
    ("log", "why"),
    [
        # Ten days of seconds, or a quarter of an hour on a clock of milliseconds since its start.
        (stamped("time_ms", 1_600_000_000, 864_000), "as seconds the log takes 864000, as mill"),
        (stamped("time_ms", 3_000_000_000, 60), "no unit makes it a time from 2014 to 2036"),
        (stamped("time_s", 1e30, 60), "no unit makes it a time"),
        (
            stamped("time_ms", 1.6e9, 60, ':::MLLOG {"key": "seed", "time_ms": 1.6e12}\n'),
            "not all stamps of the log have the same",
        ),
        (
            stamped("time_ms", 1.6e9, 60, ':::MLLOG {"key": "seed", "time_s": 1.6e9}\n'),
            "no unit makes it a time",
        ),
        (stamped("time_ms", 1e3, 60e3, ':::MLLOG {"key": "eval_accuracy", "time_ms": 1e308}\n'),
         "'eval_accuracy' is stamped 1e+305 s after 1970"),
        (LOG.replace(b"1541720050.000000000", b"9" * 400), "'eval_accuracy' is stamped inf s"),
        (LOG.replace(b"1541720001", b"9" * 400), "'train_epoch' is stamped inf s"),
    ],
)  # fmt: skip
def test_stamps_that_are_no_times_of_a_run_are_refused(log, why):
    with pytest.raises(Refused) as refused:
        read_trial(log)
    assert why in refused.value.reason and refused.value.line is not None


@pytest.mark.parametrize(
    ("log", "how"),
    [
        (LOG.replace(b"v0.5.0", b"v0.6.0"), "lines such as ':::MLPv0.6.0 resnet 1541720000."),
        (LOG.replace(b"v0.5.0", b"-0.4"), "lines such as ':::MLP-0.4 resnet 1541720000."),
        (b"\n".join(re.sub(rb"\(.*?\) ", b"", line) for line in LOG.splitlines()), "lines such"),
        (LATER.replace(b'"', b"'").replace(b"null", b"None"), "lines in Python's notation"),
    ],
)
def test_a_dialect_is_read_and_named(log, how):
    trial, plain = read_trial(log), read_trial(LATER if b"MLLOG" in log else LOG)
    assert trial.inferred.startswith(how) and not plain.inferred
    same = ("seconds", "reached", "evaluations", "benchmark", "epochs", "start_unix_seconds")
    for name in same:
        assert getattr(trial, name) == getattr(plain, name)


def test_lines_in_no_form_are_quoted():
    with pytest.raises(Refused) as refused:
        read_trial(b"words\n:::MLLOG run_start at noon\n")
    assert refused.value.line == 2
    assert "the first being ':::MLLOG run_start at noon'; known are ':::MLPv0.5.0 <" in str(
        refused.value
    )


def test_one_bad_log_costs_its_entry_alone_and_inferred_times_are_flagged(tmp_path, capsys):
    """From a folder with a stamp of 400 digits, one of 1e308 and one in seconds to a report."""
    bad = {
        "digits": LOG.replace(b"1541720050.000000000", b"9" * 400),
        "huge": stamped("time_ms", 1e3, 6e4, ':::MLLOG {"key": "eval_stop", "time_ms": 1e308}\n'),
        "seconds": stamped("time_ms", 1.6e9, 60.0),
        "whole": LOG,
    }
    for system, log in bad.items():
        path = tmp_path / "in" / RESULT.replace("/sys/", f"/{system}/")
        path.parent.mkdir(parents=True)
        path.write_bytes(log)
    out = tmp_path / "official.jsonl"
    assert main(["import", str(tmp_path / "in"), f"--out={out}", "--warnings"]) == 1
    shown = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("rejected: ") for line in shown) == 2
    assert any("result_0.txt: inferred: time_ms is read as seconds" in line for line in shown)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "official.jsonl"]
    entries = {entry.source.split("/")[-2]: entry for entry in read_entries(out)}
    assert set(entries) == {"seconds", "whole"}
    assert [entries[name].figures.inferred for name in ("seconds", "whole")] == [1, 0]
    trial = dataclasses.replace(make_trial(60.0), inferred="time_ms is read as seconds")
    flagged = make_entry([trial], source="flagged")
    (board,) = boards.boards([flagged])
    (row,) = boards.board_table(board).records()
    assert (row["rank"], row["remark"]) == (1, "of 1 of 1 trials time_ms is read as seconds")


def test_a_file_that_cannot_be_written_whole_leaves_nothing(tmp_path):
    entry = make_entry([make_trial(math.inf)])
    with pytest.raises(ValueError, match="JSON"):
        write_entries(tmp_path / "out.jsonl", [entry])
    assert not list(tmp_path.iterdir())


def test_what_there_was_instead_of_results_is_said(tmp_path, capsys):
    out, empty, run = tmp_path / "out.jsonl", tmp_path / "empty", tmp_path / "run"
    empty.mkdir()
    run.mkdir()
    (run / "experiment.json").write_text("{}")
    for path, said in ((empty, "which is empty"), (run, "dawnjax report RUN_DIR")):
        assert main(["import", str(path), f"--out={out}"]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert said in line
    log = tmp_path / "result_0.txt"
    log.write_bytes(LOG)
    assert main(["import", str(log), f"--out={log}"]) == 2
    assert "would be overwritten" in capsys.readouterr().err
    assert log.read_bytes() == LOG
    assert not out.exists()
