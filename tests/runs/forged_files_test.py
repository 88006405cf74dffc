"""Forged logs, their checksums right: each is read, or refused in one line."""

import contextlib
import io
import json
import random
import re
import time
import zlib

import pytest
from forged import deep, forge, text
from made_runs import write_run

from dawnjax import records
from dawnjax.analysis.loading import load_with_runs
from dawnjax.checkpointed.earlier_run import read_run
from dawnjax.commands import check
from dawnjax.errors import ConfigError, RunError
from dawnjax.official import exported_run
from dawnjax.runs import summary
from dawnjax.runs.clock import RunClock
from dawnjax.runs.directory import RunDirectory
from dawnjax.runs.log import RunLog, is_moment, log_path
from dawnjax.runs.logged_run import LoggedRun, last_event

SECONDS = 10


def sealed(value) -> bytes:
    """A value as a line of a log, its checksum right."""
    body = text(value)[:-1] or b"{"
    return body + b',"crc32":"%08x"}\n' % zlib.crc32(body)


def checked(run) -> None:
    shown = io.TextIOWrapper(io.BytesIO(), "utf8")
    with contextlib.redirect_stdout(shown):
        check.main([str(run)])
    shown.seek(0)
    lines = shown.read().split("\n")[:-1]
    assert lines
    assert all(line.isprintable() and len(line) < 1000 for line in lines)


def resumed(run) -> None:
    """Opens the log as `train` does, and makes the result that it would write at its end."""
    log = RunLog(log_path(run, 0), RunClock())
    try:
        summary.refuse_forged(log.events, log.path)
        end = last_event(log.events, "attempt_end")
        assert end is None or isinstance(end["status"], str)
        if log.events:
            earlier = LoggedRun.from_events(log.events)
            assert earlier.reached is None or earlier.reached["step"] is not None
            earlier.run_seconds(log.events[-1])
        result = summary.summarize_log(log.events)
        records.write_json(RunDirectory(run).result_file, result.to_json())
    finally:
        log.close()


READERS = {
    "check": checked,
    "report": lambda run: load_with_runs(run),
    "export": exported_run.read_run,
    "train": resumed,
}


@pytest.mark.parametrize("count", [100, pytest.param(10_000, marks=pytest.mark.long)])
def test_a_forged_log_is_read_or_refused_in_a_line(tmp_path, count, campaign):
    forged = campaign(
        "forged_logs",
        "a log of ours, or its `experiment.json`, forged at random places, checksums right; "
        "`check`, `report`, `export` and `train` again",
        "read, or refused in one line",
    )
    honest = [
        write_run(tmp_path / "a", seconds=10.0, price=36.0, interrupted=True),
        write_run(tmp_path / "b", seconds=None, cores=2, cache="cold", profile_seconds=3.0),
    ]
    for seed in range(count):
        draw = random.Random(seed)
        source, run = honest[seed % 2], tmp_path / "forged"
        (run / "log").mkdir(parents=True, exist_ok=True)
        lines = log_path(source, 0).read_bytes().splitlines()
        events = [{**json.loads(line)} for line in lines]
        for event in events:
            del event["crc32"]
        record = json.loads((source / "experiment.json").read_bytes())
        if seed % 4 == 3:
            record = forge(record, draw)
        else:
            events = forge(events, draw)
        (run / "experiment.json").write_bytes(text(record))
        (run / "result.json").unlink(missing_ok=True)
        data = b"".join(sealed(event if isinstance(event, dict) else {}) for event in events)
        log_path(run, 0).write_bytes(data)
        started, why = time.perf_counter(), ""
        for name, read in READERS.items():
            try:
                read(run)
            except (RunError, ConfigError) as error:
                if "\n" in str(error):
                    why = f"{name}: several lines"
            except Exception as error:
                why = f"{name}: {type(error).__name__}: {error}"
        seconds = time.perf_counter() - started
        forged.tried(f"seed {seed}", held=not why and seconds < SECONDS, why=why, seconds=seconds)
    forged.finish()


@pytest.mark.parametrize(
    "event", [{"event": {}}, {"event": []}, {"event": "no such"}, {"attempt": "1"}, {"t": "soon"},
              {"metrics": []}, {"step": "1"}, {"past": {}}, {"past": [1]},
              {"t": None}]
)  # fmt: skip
def test_a_line_of_the_wrong_kind_is_told(tmp_path, event):
    run = write_run(tmp_path / "run")
    honest = {"event": "evaluation", "attempt": 1, "t": 20.0, "boot_seconds": None}
    honest |= {"step": 30, "epoch": 1.0, "metrics": {}, "reached": False, "unix_seconds": 1.0}
    with log_path(run, 0).open("r+b") as file:
        honest["sequence"] = len(file.readlines()) + 1
        file.write(sealed({**honest, **event}))
    faults, notes = check.check_run(run)
    assert any(
        re.search(r"jsonl: line \d+ is (torn|damaged)|of another kind", line)
        for line in faults + notes
    )


def test_a_run_directory_without_its_experiment_is_refused(tmp_path):
    run = write_run(tmp_path / "run")
    with pytest.raises(ConfigError, match="missing 4 required keyword-only arguments: 'model'"):
        read_run(run)


def test_what_a_checkpoint_holds_of_the_log_is_checked():
    event = {"event": "checkpoint", "attempt": 1, "sequence": 1, "t": 1.0, "step": 7}
    assert is_moment(event)
    for wrong in (None, [], {}, {**event, "step": "7"}, {**event, "event": deep(3)}):
        assert not is_moment(wrong)
