"""Commands with their whole answer, kept as text in the `.txt` files beside this one.

A file is read from its top, in an empty folder of its own:

    # a remark
    < mine.py             writes a file, whose lines follow and begin with "|"
    | x = 1
    % write_run("a/0")    makes something, by a function of MAKERS
    $ dawnjax check a     runs a command
    dawnjax check: ...    what it answered on standard output, then on standard error
    ? 2                   its exit status
    $ dawnjax runs | next runs it with `--json`, and shows fields of its object by their paths
    = a.json rows.0.seed  shows fields of a file; one of JSON lines is a list of them

Numbers in fields are shown to four digits.

`pytest tests/golden --update` writes what the commands answer now; read the difference before you
keep it. A command that fails, with status 1 or 2, writes one line on standard error and changes no
file; the faults that `check` finds are its answer, and what `import` rejects.
"""

import contextlib
import json
import re
import shlex
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import coco_sources
import cv2
import numpy as np
import pytest
import small_questions
import small_tokens
import small_weights
from made_entries import entry_of
from made_other_logs import normal, write_lines, write_side
from made_runs import disturb, write_run
from made_studies import made_study
from official_sources import JSON, LATER, LOG, RESULT, TSV
from packed import write_members, write_tar, write_zip
from task_table import copied_run

from dawnjax.__main__ import main
from dawnjax.config.experiment_modules import experiment_names
from dawnjax.input_pipeline.datasets import squad
from dawnjax.runs.log import log_path
from dawnjax.study.design import StudyFolder

pytestmark = pytest.mark.compiles  # a file has up to seventy commands

FILES = sorted(Path(__file__).parent.glob("*.txt"))
PAGE = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()
NAMES = ("data", "model", "linen", "optimizer", "task")
TEXTS = re.findall(r"```python\n(.*?)```", PAGE, re.S)
EXAMPLES: dict[str, str] = dict(zip(NAMES, TEXTS, strict=True))


def new(path: str) -> Path:
    """A path in a folder that is there then."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    return Path(path)


def edit(path: str, old: str, new: str) -> None:
    text = Path(path).read_text()
    assert old in text, (path, old)
    Path(path).write_text(text.replace(old, new, 1))


def example(path: str, name: str, old: str, new: str) -> None:
    """A file of docs/extending.md, changed."""
    assert old in EXAMPLES[name]
    Path(path).write_text(EXAMPLES[name].replace(old, new))


def write_in_turn(folder: str, order: str, hosts: str) -> None:
    """Runs of A and of B, a minute after each other."""
    for place, side in enumerate(order):
        log = log_path(write_run(Path(folder, side, str(place)), seed=place, seconds=10.0))
        events = [json.loads(line) for line in log.read_text().splitlines()]
        host = {"process_index": 0, "hostname": hosts["AB".index(side)]}
        events.insert(-1, {**events[-2], "event": "host_summary", "hosts": [host]})
        for event in events:
            event["unix_seconds"] = 1772323200.0 + 60 * place  # 2026-03-01
        log.write_text("".join(json.dumps(event) + "\n" for event in events))


def write_ladder(name: str, speeds: tuple[float, ...], every: int = 5, steps: int = 100) -> None:
    """Logs of A, and of B that is so many times as fast, at each of several sizes."""
    for size, speed in enumerate(speeds):
        for number, (side, factor) in enumerate((("a", 1.0), ("b", speed))):
            for trial, offset in enumerate(normal(0, 0.002, 5, 2 * size + number)):
                rows = [
                    {"step": step, "tokens": 100 * step}
                    | {"val_loss": 4 - 0.02 * step * factor - size + offset}
                    for step in range(every, steps + 1, every)
                ]
                write_lines(Path(f"{name}{side}{size}/seed_{trial}.jsonl"), rows)


def write_entry(folder: str, table: bytes, task: str = "ImageNet") -> None:
    new(f"{folder}/{task}/train/x.tsv").write_bytes(table)
    new(f"{folder}/{task}/train/x.json").write_bytes(JSON)


def write_odd_entry(path: str, place: tuple[str | int, ...], value: Any) -> None:
    """An entry of two trials, with another value at a place in it."""
    entry = entry_of([1.0, 2.0]).to_json()
    holder: Any = entry
    for name in place[:-1]:
        holder = holder[name]
    holder[place[-1]] = value
    Path(path).write_text(json.dumps(entry))


def database(path: str, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as file:
        for name in statements:
            file.executescript(Path(name).read_text())


def write_study(out: str, seconds: dict[str, list[float | None]]) -> None:
    study, arms, _ = made_study(Path(out), seconds)
    StudyFolder(Path(out)).write(study, arms)


MAKERS = {
    "JSON": JSON,
    "LATER": LATER,
    "LOG": LOG,
    "RESULT": RESULT,
    "TSV": TSV,
    "database": database,
    "disturb": lambda path, **changes: disturb(Path(path), **changes),
    "edit": edit,
    "example": example,
    "normal": normal,
    "np": np,
    "write_run": lambda path, **facts: write_run(Path(path), **facts),
    "write_lines": lambda path, rows: write_lines(Path(path), rows),
    "write_side": lambda path, finals, **facts: write_side(Path(path), finals, **facts),
    "write_entry": write_entry,
    "write_in_turn": write_in_turn,
    "write_ladder": write_ladder,
    "write_odd_entry": write_odd_entry,
    "write_study": write_study,
    "write_bytes": lambda path, content: new(path).write_bytes(content),
    "make_folder": lambda path: Path(path).mkdir(),
    "symlink": lambda target, path: Path(path).symlink_to(target),
}


def png(height: int, width: int) -> bytes:
    return cv2.imencode(".png", np.zeros((height, width, 3), np.uint8))[1].tobytes()


def image_folder(path: str, classes: str, evaluated: str) -> None:
    """An image in each class of both splits."""
    for split in ("train", evaluated):
        for name in classes.split():
            new(f"{path}/{split}/{name}/0.png").write_bytes(png(32, 32))


def prepare_questions(out: str) -> None:
    train, evaluated = map(squad.read_passages, small_questions.write(Path()))
    squad.made(train, evaluated, Path(out)).write()


def prepare_objects(out: str, **fields: Any) -> None:
    """Prepare images whose objects to evaluate have other fields."""
    evaluated = coco_sources.body(11)
    for annotation in evaluated["annotations"]:
        annotation |= fields
    source = coco_sources.write_source(Path("source"), coco_sources.body(1, 8), evaluated)
    assert coco_sources.prepare(source, out) == 0


DATA_MAKERS = {
    "image_folder": image_folder,
    "needs": pytest.importorskip,
    "objects": lambda at, value: coco_sources.write_source(
        Path("source"), coco_sources.changed(at, value)
    ),
    "png": png,
    "prepare_objects": prepare_objects,
    "prepare_questions": prepare_questions,
    "questions": lambda *at, **fields: small_questions.write(
        Path(), small_questions.changed(small_questions.TRAIN, *at, **fields)
    ),
    "shard": small_tokens.shard,
    "tokens": lambda path, train=range(9), **more: small_tokens.write(
        Path(path), train, range(6), **more
    ),
    "weights": small_weights.write,
    "STRETCHED": small_weights.STRETCHED,
    "write_members": write_members,
    "write_tar": write_tar,
    "write_zip": write_zip,
}


def content(folder: Path) -> dict[str, bytes | None]:
    """Every path below a folder, with the bytes of those that are files."""
    return {
        str(path): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
        if "__pycache__" not in path.parts
    }


def answers(text: str, folder: Path, capsys: Any, makers: dict[str, Any]) -> Iterator[str]:
    """The lines of a file as they are when its commands are run now."""
    file, is_answer = None, False
    for line in text.splitlines():
        mark, _, rest = line.partition(" ")
        is_answer = is_answer and mark not in ("#", "<", "%", "$", "=", "?")
        if mark == "<":
            file = new(rest)
            file.write_text("")
        elif mark == "|" and file is not None:
            file.write_text(file.read_text() + rest + "\n")
        elif mark == "%":
            eval(rest, dict(makers))
            capsys.readouterr()
        elif mark not in ("$", "=", "#", "") or is_answer:
            continue
        yield line
        if mark == "=":
            is_answer = True
            source, *paths = rest.split()
            text = Path(source).read_text()
            lines = f"[{','.join(text.splitlines())}]"
            yield from fields(lines if source.endswith(".jsonl") else text, paths)
            yield "? shown"
        if mark == "$":
            is_answer = True
            yield from answer(shlex.split(rest), folder, capsys)


def to_four_digits(number: str) -> float:
    return float(f"{float(number):.4g}")


def fields(text: str, paths: list[str]) -> Iterator[str]:
    """Fields of a JSON text by their paths."""
    for path in paths:
        record = json.loads(text, parse_float=to_four_digits)
        for name in path.split("."):
            record = record[int(name)] if isinstance(record, list) else record.get(name)
        yield f"{path}: {json.dumps(record)}"


def answer(words: list[str], folder: Path, capsys: Any) -> Iterator[str]:
    """What a command writes, and its status."""
    assert words[0] == "dawnjax"
    if "|" in words:
        place = words.index("|")
        status = main([*words[1:place], "--json"])
        yield from fields(capsys.readouterr().out, words[place + 1 :])
        yield f"? {status}"
        return
    before = content(folder)
    with pytest.MonkeyPatch.context() as patch:  # no command here trains, or asks a compiler
        patch.setattr("dawnjax.train.compile_stages", None)
        patch.setattr("dawnjax.plan.compiling.compilers.environment", None)
        patch.setattr("dawnjax.train.compile_generation", None)
        status = main(words[1:])
    said = capsys.readouterr()
    if status in (1, 2) and words[1] not in ("check", "import"):
        assert (said.out + said.err).count("\n") == 1, (words, said)
        assert said.out == "" or words[1] == "plan", words
        assert content(folder) == before, words
    text = (said.out + said.err).replace(str(folder), "FOLDER")
    # What differs between versions of Python: a dataclass's code, and words of a wrong call.
    text = re.sub(r"<string>:\d+", "<string>:N", text)
    text = text.replace("required keyword-only argument", "required argument")
    yield from text.replace(", ".join(experiment_names()), "EXPERIMENTS").splitlines()
    yield f"? {status}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_commands_answer_as_they_did(
    file, tmp_path, tmp_path_factory, compile_cache, monkeypatch, capsys, request
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def trained(name: str, path: str) -> None:
        copied_run(tmp_path_factory, name, compile_cache, Path(path))

    kept, makers = file.read_text(), {**MAKERS, **DATA_MAKERS, "trained": trained}
    now = "".join(f"{line}\n" for line in answers(kept, tmp_path, capsys, makers))
    if request.config.getoption("--update"):
        file.write_text(now)
    else:
        assert now == kept
