"""`--json` of every command: one object by its schema, with the figures of the text."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import jsonschema
import numpy as np
import pytest
from made_race import write_entry
from made_runs import write_run
from official_sources import LOG, RESULT
from shared_runs import SMALL, SMALL_RUN, small_run
from told import SCHEMAS, schema_text

from dawnjax.__main__ import COMMANDS, main
from dawnjax.errors import ExitStatus


@pytest.mark.parametrize("command", COMMANDS)
def test_the_schema_is_the_committed_file(command):
    file = SCHEMAS / f"{command}.json"
    assert file.exists() and file.read_text() == schema_text(command), (
        f"fields of `dawnjax {command} --json` changed: raise SCHEMA_VERSION in "
        "dawnjax/commands/answer.py where a reader must know, and run tests/support/told.py"
    )


def object_of(command: str, status: int, capsys: Any) -> dict[str, Any]:
    """The one object on standard output, checked by its schema."""
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert shown.out.count("\n") == 1
    jsonschema.validate(found, json.loads(schema_text(command)))
    assert (found["command"], found["exit_status"]) == (command, status)
    assert found["status"] == ExitStatus(status).name.lower()
    assert bool(found["reasons"]) >= bool(status), "a status other than 0 has its reason"
    for line in found["next"]:
        program, name, *_ = shlex.split(line)
        assert program == "dawnjax" and name in COMMANDS, line
    return {**found, "log": shown.err}


@pytest.mark.parametrize("command", COMMANDS)
def test_wrong_use_is_an_object_too(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([command, "--json", "--no_such_flag=1"]) == 2
    found = object_of(command, 2, capsys)
    assert found["result"] is None
    [line] = found["reasons"]
    assert found["log"] == f"dawnjax {command}: {line}\n"
    # A trial has the flags that a study has not.
    assert ("--experiment is missing" if command == "study" else "no_such_flag") in line


def test_an_unknown_command_and_a_fault_of_the_program_are_objects(monkeypatch, capsys):
    assert main(["trian", "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert found["status"] == "wrong_use" and "did you mean 'train'" in found["reasons"][0]

    def fail(_: list[str]) -> None:
        print("text of the command")
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("dawnjax.commands.check.main", fail)
    assert main(["check", "--json"]) == 1
    found = object_of("check", 1, capsys)
    assert found["reasons"] == ["ZeroDivisionError: by zero"]
    assert "text of the command\nTraceback" in found["log"]


@pytest.mark.processes
def test_libraries_and_children_print_on_standard_error():
    script = (
        "import os, sys\n"
        "from dawnjax import __main__ as program\n"
        "from dawnjax.commands import check\n"
        "def noisy(argv):\n"
        "    os.system('echo of a child')\n"
        "    os.write(1, b'of a library\\n')\n"
        "    return program_answer\n"
        "from dawnjax.commands.answer import Answer as program_answer\n"
        "program_answer = program_answer()\n"
        "check.main = noisy\n"
        "sys.exit(program.main(['check', '--json']))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert json.loads(done.stdout)["status"] == "done"
    assert done.stderr == "of a child\nof a library\n"


class Case(NamedTuple):
    """A command line, and texts that it shows by the figures of its object.

    Attributes:
      argv: What follows the command; `{made}` is a folder of `inputs_in`, `{run}` one of `digits`.
      texts: Of the object's record.
      writes: Whether it writes anew: asked for its text, into another folder.
      computes: Whether its figures are those of one moment: its log has the text.
    """

    argv: str
    texts: Callable[[dict[str, Any]], list[str]] = lambda told: []
    writes: bool = False
    computes: bool = False

    def words(self, made: Path, run: Path) -> list[str]:
        return self.argv.format(made=made, run=run).split()


TRAIN = f"digits {SMALL} --tensorboard=false --profile.seconds=0.05"
RECORD = f"synthetic_image {SMALL} --seeds=1 --global_batch_size=16"
RECORD += " --data.num_train_examples=48 --data.num_eval_examples=32"
RECORD += " --batch_norm_group_size=4 --schedule.warmup_epochs=0 --targets.0.value=0.01"
"""A recipe whose record, a program of the whole run, compiles in seconds."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory, compile_cache) -> Path:
    return small_run(tmp_path_factory, compile_cache)


def inputs_in(folder: Path) -> None:
    """Runs, official results, images and a race's entry."""
    for seed in range(5):
        write_run(folder / "runs" / "a" / str(seed), seed=seed, seconds=20.0 + 5 * (seed % 2))
        write_run(folder / "runs" / "b" / str(seed), seed=seed, seconds=10.0 + 5 * (seed % 2))
    log = folder / "mlperf" / RESULT
    log.parent.mkdir(parents=True)
    log.write_bytes(LOG)
    write_entry(folder / "race")
    np.savez(
        folder / "images.npz",
        train_x=np.arange(9 * 30).astype(np.uint8).reshape(9, 6, 5),
        train_y=np.arange(9) % 3,
        test_x=np.arange(4 * 30).astype(np.uint8).reshape(4, 6, 5)[::-1],
        test_y=[2, 1, 0, 0],
    )


READERS = {
    "list": Case(
        "digits",
        lambda told: [
            f"{seen['reached']} of {seen['trials']} reached"
            for seen in told["experiments"][0]["observations"]
        ],
    ),
    "runs": Case(
        "{made}/runs",
        lambda told: [f"{row['figures']['time_to_accuracy_seconds']:g}" for row in told["runs"]],
    ),
    "check": Case(
        "{made}/runs/a/0", lambda told: [f"{one['name']}: ok" for one in told["checked"]]
    ),
    "compare": Case(
        "{made}/runs/a {made}/runs/b --fail_if_slower_by=0.1",
        lambda told: [
            f"B takes {told['verdict']['ratio']:.3f} of A's time",
            f"{told['verdict']['low']:.3f} to {told['verdict']['high']:.3f}",
            f"{told['a']['reached']} of {told['a']['trials']} trials reached",
            told["verdict"]["why"],
            f"decision: {told['decision']['decision']} B",
        ],
    ),
    "report": Case(
        "{made}/runs --out={made}/page",
        lambda told: [f"{told['entries']} entr", f"{len(told['tables']) // 2} tables"],
    ),
    "import": Case(
        "{made}/mlperf --out={made}/official.jsonl",
        lambda told: [f"{told['out']}: {told['entries']} entries"],
    ),
    "profile": Case(
        "{run}",
        lambda told: [
            f"profiled steps {told['first_step']} to {told['last_step']}",
            f"{1000 * told['hosts'][0]['utilization']['step_seconds']:.3g}",
            f"{100 * told['hosts'][0]['utilization']['parts_fraction']['compute']:.1f} %",
        ],
    ),
    "race": Case(
        "board {made}/race/entries",
        lambda told: [told["board"][0]["name"], told["board"][0]["code"], "not yet judged"],
    ),
}

WRITERS = {
    "new": Case("{made}/mine", lambda told: [told["file"]], writes=True),
    "prepare": Case(
        "--dataset=images --from={made}/images.npz --name=dots --out={made}/dots",
        lambda told: [told["summary"]],
        writes=True,
    ),
    # The text is that of the process.
    "launch": Case("--processes=1 -- check {made}/runs/a/0", computes=True),
}

COMPUTERS = {
    "train": Case(
        SMALL_RUN + " --run_dir={made}/own",
        lambda told: [f"{told[n]:.3f} s" for n in ("time_to_accuracy_seconds", "compile_seconds")],
        computes=True,
    ),
    "record": Case(
        RECORD + " --out={made}/record.json",
        lambda told: [f"{told['seeds'][0]['time_seconds']:.4f} s", f"{told['num_steps']} steps"],
        computes=True,
    ),
    "evaluate": Case(
        "{run}",
        lambda told: [
            f"step {told['step']}",
            f"{told['own']['examples']:,}",
            f"{told['own']['metrics']['top_1_accuracy']:.4f}",
        ],
    ),
    "infer": Case("{run} --examples=5 --warm_up=1", computes=True),
    "predict": Case(
        "{run} --from={made}/digit.png",
        lambda told: [json.dumps(answer) for answer in told["answers"]],
        computes=True,
    ),
    "export": Case(
        "--format=safetensors {run} --out={made}/weights", lambda told: told["files"], writes=True
    ),
    "study": Case(
        TRAIN + " --seeds=2 --out={made}/study",
        lambda told: [f"{told['arms'][0]['reached']} of {told['arms'][0]['trials']}"],
    ),
}

NOT_HERE = {
    "plan": "tests/plan: it compiles for hardware that is not here",
    "doctor": "tests/commands/doctor_test.py",
    "watch": "tests/report/watch_test.py: it runs until Ctrl-C",
}


def test_every_command_has_a_case():
    assert {*READERS, *WRITERS, *COMPUTERS, *NOT_HERE} == {*COMMANDS}


def answers_alike(command: str, case: Case, made: Path, run: Path, capsys: Any) -> None:
    again = made.parent / f"{made.name}_again"
    if case.writes:
        shutil.copytree(made, again)
    assert main([command, "--json", *case.words(made, run)]) == 0
    found = object_of(command, 0, capsys)
    text = found["log"]
    if not case.computes:
        assert main([command, *case.words(again if case.writes else made, run)]) == 0
        text = capsys.readouterr().out.replace(str(again), str(made))
    for said in case.texts(found["result"]):
        assert said in text, (said, text)


@pytest.mark.parametrize("command", [*READERS, *WRITERS])
@pytest.mark.processes
def test_the_object_has_the_figures_of_the_text(command, trained, tmp_path, capsys):
    inputs_in(tmp_path)
    run = Path(shutil.copytree(trained, tmp_path / "trained"))
    answers_alike(command, {**READERS, **WRITERS}[command], tmp_path, run, capsys)


@pytest.mark.parametrize("command", [name for name in READERS if name != "report"])
@pytest.mark.processes
def test_tables_hold_the_width_of_a_terminal(command, trained, tmp_path, monkeypatch, capsys):
    inputs_in(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    assert main([command, *READERS[command].words(tmp_path, trained)]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if re.search(r"\S   +\S", line)]
    assert [line for line in rows if len(line) > 80] == []


@pytest.mark.parametrize("command", COMPUTERS)
@pytest.mark.compiles
def test_commands_that_compute_have_them_too(command, trained, tmp_path, capsys):
    cv2.imwrite(str(tmp_path / "digit.png"), np.zeros((8, 8), np.uint8))
    run = Path(shutil.copytree(trained, tmp_path / "trained"))
    answers_alike(command, COMPUTERS[command], tmp_path, run, capsys)
