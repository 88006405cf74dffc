"""Damage to the log of a real run: it is seen, and no time is wrong for it."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from made_runs import write_run
from shared_runs import made_once
from trained import result_of

from dawnjax import run_record, train
from dawnjax.__main__ import main
from dawnjax.capture.run_profile import RunProfile
from dawnjax.commands.check import check_run
from dawnjax.errors import RunError
from dawnjax.runs.clock import RunClock
from dawnjax.runs.log import RunLog, decode_line, encode_line, log_path

pytestmark = pytest.mark.compiles

FLAGS = [
    "--experiment=synthetic_image",
    "--data.num_train_examples=200",
    "--data.num_eval_examples=64",
    "--num_epochs=4",
    "--evaluation.every_epochs=1",
    "--global_batch_size=16",
    "--batch_norm_group_size=4",
    "--model.stage_sizes=1",
    "--model.stage_widths=16",
    "--targets.0.value=0.3",
    "--steps_per_call=2",
    "--checkpoint.every_steps=20",
    "--profile.after_run=false",
    "--notensorboard",
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory, compile_cache) -> Path:
    """A run that reached its target; not to be changed, but copied."""

    def make(folder: Path) -> None:
        assert main(["train", *FLAGS, compile_cache, f"--run_dir={folder / 'run'}"]) == 0
        assert check_run(folder / "run") == ([], [])

    return made_once(tmp_path_factory, "damaged_log", make) / "run"


def log_of(run_dir: Path) -> Path:
    return run_dir / "log" / "process_00000.jsonl"


def faulty(lines: list[bytes]) -> Iterator[tuple[str, int, list[bytes]]]:
    """Every log that differs from a whole one by a fault of one line."""
    for place, line in enumerate(lines):
        before, after = lines[:place], lines[place + 1 :]
        position = (7 * place) % len(line)
        flipped = bytearray(line)
        flipped[position] ^= 1
        yield "flipped", place, [*before, bytes(flipped), *after]
        yield "deleted", place, [*before, *after]
        yield "doubled", place, [*before, line, line, *after]
        if after:
            yield "swapped", place, [*before, after[0], line, *after[1:]]


def test_check_sees_every_fault_of_a_line(trained, tmp_path, campaign):
    tries = campaign(
        "log_lines",
        "each line of a run's log flipped in one bit, deleted, doubled, or swapped with the next",
        "`dawnjax check` names the fault",
    )
    run_dir = shutil.copytree(trained, tmp_path / "run")
    shutil.rmtree(run_dir / "checkpoints")
    lines = log_of(run_dir).read_bytes().splitlines(keepends=True)
    for what, place, damaged in faulty(lines):
        log_of(run_dir).write_bytes(b"".join(damaged))
        faults, _ = check_run(run_dir)
        tries.tried(f"line {place + 1} {what}", held=bool(faults), why="no fault is named")
    tries.finish()


def resumed_time(run_dir: Path, compile_cache: str) -> tuple[float | None, str]:
    """The time to accuracy after the same command again, and why there is none."""
    status = main(["train", *FLAGS, compile_cache, f"--run_dir={run_dir}"])
    assert status == 0, status
    result = result_of(run_dir)
    return result["time_to_accuracy_seconds"], result["reasons"].get("time_to_accuracy_seconds", "")


@pytest.mark.parametrize(
    ("ended", "every"),
    [
        pytest.param(True, 41, id="ended"),
        pytest.param(False, 1000, id="killed"),
        pytest.param(True, 1, id="ended-all", marks=pytest.mark.long),
        pytest.param(False, 3, id="killed-many", marks=pytest.mark.long),
    ],
)
def test_a_damaged_log_never_gives_a_wrong_time(
    trained, tmp_path, compile_cache, campaign, ended, every
):
    """Without its result.json; `killed` lacks what follows the last save, too."""
    tries = campaign(
        "damaged_log_ended" if ended else "damaged_log_killed",
        "a line of the log flipped, deleted, doubled or swapped with the next, no result.json, and "
        + ("`train` again" if ended else "killed after the last save, and resumed"),
        "the right time to accuracy, or none with the reason",
    )
    lines = log_of(trained).read_bytes().splitlines(keepends=True)
    expected = result_of(trained)["time_to_accuracy_seconds"]
    if not ended:
        saved = max(n for n, line in enumerate(lines) if b'{"event":"checkpoint"' in line)
        lines = lines[: saved + 1]
    target = next(n for n, line in enumerate(lines) if b'"reached":true' in line)
    for number, (what, place, damaged) in enumerate(faulty(lines)):
        if number % every and (what, place) != ("flipped", target):
            continue
        run_dir = tmp_path / "run"
        shutil.rmtree(run_dir, ignore_errors=True)
        shutil.copytree(trained, run_dir)
        (run_dir / "result.json").unlink()
        log_of(run_dir).write_bytes(b"".join(damaged))
        seconds, reason = resumed_time(run_dir, compile_cache)
        held = bool(reason) if seconds is None else seconds == pytest.approx(expected, abs=1e-5)
        if place == target:
            held = seconds == pytest.approx(expected, abs=1e-5)  # the checkpoint holds it
        why = f"{seconds} for {expected}; {reason}"
        tries.tried(f"line {place + 1} {what}", held=held, why=why)
    tries.finish()


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


def test_check_sees_every_edit_of_a_leaf(trained, tmp_path, campaign):
    tries = campaign(
        "edited_leaves",
        "each leaf of `result.json` and of `experiment.json` edited",
        "`dawnjax check` names the fault",
    )
    run_dir = shutil.copytree(trained, tmp_path / "run")
    shutil.rmtree(run_dir / "checkpoints")
    for name in ("result.json", "experiment.json"):
        file = run_dir / name
        whole = file.read_text()
        for path, value in edits(json.loads(whole)):
            content = json.loads(whole)
            place = content
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = value
            file.write_text(json.dumps(content))
            where = ".".join(map(str, path))
            faults, _ = check_run(run_dir)
            tries.tried(f"{name}: {where}", held=bool(faults), why="no fault is named")
        file.write_text(whole)
    assert check_run(run_dir) == ([], [])
    tries.finish()


def test_the_log_of_another_run_is_refused_by_every_command(
    trained, tmp_path, compile_cache, capsys
):
    run_dir = shutil.copytree(trained, tmp_path / "run")
    with log_of(run_dir).open("wb") as file:
        for line in log_of(trained).read_bytes().splitlines():
            event = decode_line(line) or {}
            event |= {"run_id": "other"} if event["event"] == "attempt_start" else {}
            event |= {"seed": 1} if event["event"] == "experiment" else {}
            file.write(encode_line(event))
    for status, *argv in (
        (2, "train", *FLAGS, compile_cache, f"--run_dir={run_dir}"),
        (1, "check", str(run_dir)),
        (1, "report", str(run_dir), f"--out={tmp_path / 'page.html'}"),
        (2, "evaluate", str(run_dir), compile_cache),
        (1, "export", str(run_dir), "--format=dawnbench", f"--out={tmp_path / 'out'}"),
    ):
        before = log_of(run_dir).read_bytes()
        assert main(argv) == status
        printed = "".join(capsys.readouterr())
        assert "says run_id='synthetic_image-s0-" in printed and "the log 'other'" in printed, argv
        assert log_of(run_dir).read_bytes() == before and "Traceback" not in printed


@pytest.mark.parametrize("field", ["run_id", "experiment", "seed", "identity", "identity_fields"])
def test_an_experiment_file_without_a_field_is_one_line(field, tmp_path, capsys):
    run_dir = write_run(tmp_path / "run")
    record = json.loads((run_dir / "experiment.json").read_text())
    del record[field]
    for content, why in (
        (record, f"{field} is missing"),
        ({**record, field: None}, f"{field} is None; it must be "),
    ):
        (run_dir / "experiment.json").write_text(json.dumps(content))
        for status, *argv in (
            (1, "check", str(run_dir)),
            (1, "report", str(run_dir), f"--out={tmp_path / 'page.html'}"),
            (2, "evaluate", str(run_dir)),
            (2, "export", str(run_dir), "--format=dawnbench", f"--out={tmp_path / 'out'}"),
        ):
            assert main(argv) == status
            printed = "".join(capsys.readouterr())
            assert f"({why}" in printed and printed.count("\n") == 1, printed
    assert main(["check", str(tmp_path / "nowhere")]) == 2


def test_who_comes_second_writes_no_experiment_file(tmp_path, compile_cache, capsys, monkeypatch):
    """Two jobs find an empty directory; the lock of the log decides, and then the file."""
    run_dir = tmp_path / "run"
    argv = ["train", *FLAGS, compile_cache, f"--run_dir={run_dir}", "--seed=1"]
    first = RunLog(log_path(run_dir, 0), RunClock())
    assert main(argv) == 1 and "is in use" in capsys.readouterr().err
    assert not (run_dir / "experiment.json").exists()
    first.close()

    # The first job writes its file after the second has looked, and has ended by then.
    read_twice = iter([lambda _: None, run_record.read_record])
    monkeypatch.setattr(run_record, "read_record", lambda directory: next(read_twice)(directory))
    record = {"schema_version": 1, "run_id": "first", "experiment": {}, "seed": 0}
    record |= {"identity": "i", "identity_fields": {}}
    (run_dir / "experiment.json").write_text(json.dumps(record))
    assert main(argv) == 2 and "belongs to another run" in capsys.readouterr().err
    assert json.loads((run_dir / "experiment.json").read_text()) == record
    RunLog(log_path(run_dir, 0), RunClock()).close()  # and it holds no lock


def test_saves_that_cannot_be_read_and_a_full_disk_in_the_profile_cost_no_result(
    tmp_path, compile_cache, capsys, monkeypatch
):
    """A folder whose name Orbax takes for a pattern, were it not refused: each save is useless."""
    run_dir = tmp_path / "lr[0.1]"
    monkeypatch.setattr(train, "refuse_unusable_path", lambda path: None)
    before_profile = []

    def no_room(profile, *_):
        before_profile.append((result_of(run_dir), check_run(run_dir)))
        (profile.folder / "after_run").mkdir(parents=True, exist_ok=True)
        raise RunError("cannot write the log: No space left on device")

    monkeypatch.setattr(RunProfile, "after_run", no_room)
    assert main(["train", *FLAGS, compile_cache, f"--run_dir={run_dir}"]) == 0
    result = result_of(run_dir)
    first = [w for w in result["warnings"] if "cannot be read back" in w]
    assert len(first) == len(result["warnings"]) - 2 >= 1 and "is absent for Orbax" in first[0]
    assert "there is no checkpoint in" in result["warnings"][-2]
    assert "the profile was deleted to make room: cannot write" in result["warnings"][-1]
    assert not list((run_dir / "checkpoints").iterdir()) and check_run(run_dir) == ([], [])
    assert "there is no checkpoint in" in " ".join(capsys.readouterr().out.split())
    # What was there while the profile was taken is a result too.
    ((early, (faults, notes)),) = before_profile
    names = ("reached", "status", "time_to_accuracy_seconds", "evaluations", "steps")
    assert [early[name] for name in names] == [result[name] for name in names]
    assert result["reached"] and faults == [] and "from before the profile" in notes[0]
