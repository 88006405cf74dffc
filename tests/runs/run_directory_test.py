"""A run directory that is damaged or of another run; tests/golden has what commands say of it."""

import json
from collections.abc import Iterator

import pytest
from made_runs import write_run

import dawnjax
from dawnjax.commands.check import check_run
from dawnjax.config.config_json import identity_of
from dawnjax.errors import RunError
from dawnjax.runs.log import encode_line, log_path

IDENTITY = identity_of({})  # of a run without fields


@pytest.mark.parametrize(("name", "value"), [("seed", 7), ("identity", "0123456789abcdef")])
def test_an_edited_record_does_not_pass_the_check(name, value, tmp_path):
    run_dir = write_run(tmp_path / "run", identity=IDENTITY)
    record = json.loads((run_dir / "experiment.json").read_text())
    (run_dir / "experiment.json").write_text(json.dumps({**record, name: value}))
    (fault,) = check_run(run_dir)[0]
    assert f"is the log of another run: experiment.json says {name}={value!r}" in fault


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


def test_python_reads_no_damaged_log_and_none_of_another_run(tmp_path):
    run_dir, other = (
        write_run(tmp_path / name, seed=seed, identity=IDENTITY) for seed, name in enumerate("ab")
    )
    whole = log_path(other).read_bytes()
    for content, why in ((whole[:-40] + b"\n", "is damaged"), (whole, "log of another run")):
        log_path(run_dir).write_bytes(content)
        for read in (dawnjax.load_run, dawnjax.load_losses):
            with pytest.raises(RunError, match=why):
                read(run_dir)


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
