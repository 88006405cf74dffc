"""A run directory that is damaged or of another run: one line, and never a time."""

import json
from collections.abc import Iterator

import pytest
from made_runs import write_run

import dawnjax
from dawnjax.__main__ import main
from dawnjax.commands.check import check_run
from dawnjax.config.config_json import identity_of
from dawnjax.errors import RunError
from dawnjax.runs.log import encode_line, log_path

IDENTITY = identity_of({})  # of a run without fields


def readers(run_dir, tmp_path):
    """Commands that read a run directory, each with its status for one that is refused."""
    return (
        (1, "check", str(run_dir)),
        (1, "report", str(run_dir), f"--out={tmp_path / 'page.html'}"),
        (1, "export", str(run_dir), "--format=dawnbench", f"--out={tmp_path / 'out'}"),
    )


def test_a_damaged_line_gives_no_time(tmp_path, capsys):
    run_dir = write_run(tmp_path / "run", identity=IDENTITY)
    lines = log_path(run_dir).read_bytes().splitlines(keepends=True)
    lines[5] = lines[5][:-9] + b"\n"
    log_path(run_dir).write_bytes(b"".join(lines))
    for status, *argv in readers(run_dir, tmp_path):
        assert main(argv) == status, argv
        printed = "".join(capsys.readouterr())
        assert "log.jsonl: line 6 is damaged" in printed and printed.count("\n") == 1, printed
    with pytest.raises(RunError, match="line 6 is damaged"):
        dawnjax.load_run(run_dir)


def test_the_log_of_another_run_is_refused(tmp_path, capsys):
    run_dir, other = (
        write_run(tmp_path / name, seed=seed, identity=IDENTITY) for seed, name in enumerate("ab")
    )
    log_path(run_dir).write_bytes(log_path(other).read_bytes())
    for status, *argv in readers(run_dir, tmp_path):
        assert main(argv) == status, argv
        printed = "".join(capsys.readouterr())
        assert "is the log of another run: experiment.json says run_id=" in printed, printed
        assert printed.count("\n") == 1
    for read in (dawnjax.load_run, dawnjax.load_losses):
        with pytest.raises(RunError, match=r"log of another run: experiment.json says run_id="):
            read(run_dir)


@pytest.mark.parametrize("field", ["run_id", "identity_fields"])
def test_an_experiment_file_without_a_field_is_one_line(field, tmp_path, capsys):
    run_dir = write_run(tmp_path / "run", identity=IDENTITY)
    record = json.loads((run_dir / "experiment.json").read_text())
    del record[field]
    for content, why in (
        (record, f"Object missing required field {field}"),
        ({**record, field: None}, f"{field}: Expected "),
    ):
        (run_dir / "experiment.json").write_text(json.dumps(content))
        for _, *argv in (*readers(run_dir, tmp_path), (2, "evaluate", str(run_dir))):
            assert main(argv) in (1, 2)
            printed = "".join(capsys.readouterr())
            assert f"({why}" in printed and printed.count("\n") == 1, printed


def edits(value: object, path: tuple = ()) -> Iterator[tuple[tuple, object]]:
    """Every leaf of a JSON value by its path, with another value of its kind."""
    if isinstance(value, dict | list) and value:
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from edits(item, (*path, key))
    elif isinstance(value, bool):
        yield path, not value
    elif isinstance(value, int | float):
        yield path, value + 1
    else:
        yield path, f"{value or ''}x"


def test_an_attempt_that_was_killed_after_the_result_is_a_note(tmp_path):
    run_dir = write_run(tmp_path / "run", identity=IDENTITY)
    (run_dir / "result.json").write_text(json.dumps(dawnjax.load_run(run_dir).to_json()))
    log = log_path(run_dir)
    start = {**json.loads(log.read_bytes().splitlines()[0]), "attempt": 2}
    log.write_bytes(log.read_bytes() + encode_line(start))
    faults, notes = check_run(run_dir)
    assert faults == [] and "an attempt is running or was killed" in notes[0]


def test_check_names_every_edited_field_of_a_result(tmp_path):
    run_dir = write_run(tmp_path / "run", identity=IDENTITY)
    file, result = run_dir / "result.json", dawnjax.load_run(run_dir).to_json()
    file.write_text(json.dumps(result))
    assert check_run(run_dir) == ([], [])
    for path, value in edits(result):
        content = json.loads(json.dumps(result))
        place = content
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        file.write_text(json.dumps(content))
        (fault,), _ = check_run(run_dir)
        assert fault.startswith(f"result.json says {path[0]}=")
