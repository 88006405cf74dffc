"""The way in and out of our files: typed, bounded, whole or not at all, past no link."""

import ast
import dataclasses
import errno
import fcntl
import json
import math
import os
from pathlib import Path
from typing import Literal

import no_renames
import pytest

from dawnjax import records
from dawnjax.errors import ConfigError, RunError
from dawnjax.input_pipeline.reading.columns import replacing
from dawnjax.runs.clock import RunClock
from dawnjax.runs.log import RunLog
from dawnjax.study.design import StudyFolder


@dataclasses.dataclass(frozen=True)
class Seat:
    row: int
    price: float | None = None
    kind: Literal["aisle", "window"] = "aisle"


@dataclasses.dataclass(frozen=True)
class Hall:
    name: str
    seats: tuple[Seat, ...] = ()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"seats": []}', "Object missing required field name"),
        (
            '{"name": "a", "seats": [{"row": 1.0}]}',
            "seats[0].row: Expected int, got float",
        ),
        (
            '{"name": "a", "seats": [{"row": true}]}',
            "seats[0].row: Expected int, got bool",
        ),
        ('{"name": "a", "seats": [{"row": 1, "rows": 2}]}', "seats[0].rows is not a field of it"),
        ("[]", "Expected object, got array"),
    ],
)
def test_a_wrong_field_is_named_by_its_path(text, line):
    with pytest.raises(records.FieldError) as refused:
        records.decode(text, Hall)
    assert str(refused.value) == line


def test_a_file_becomes_what_wrote_it(tmp_path):
    hall = Hall("Ωmega \udcff", (Seat(1), Seat(2, 3.5, "window")))
    records.write_json(tmp_path / "a" / "hall.json", records.plain(hall), durable=True)
    assert records.read_json(tmp_path / "a" / "hall.json", Hall) == hall
    assert os.listdir(tmp_path / "a") == ["hall.json"]


def test_text_with_half_of_a_surrogate_pair_is_refused_where_a_choice_is_due():
    with pytest.raises(records.FieldError):
        records.decode('{"row": 1, "kind": "\\ud800"}', Seat)


@pytest.mark.parametrize(
    "text", ["NaN", "1e999", "1" * 21, "[" * 61 + "]" * 61, "[" + "1," * 2**20]
)
def test_numbers_and_depths_of_no_file_of_ours_are_refused(text):
    with pytest.raises(records.BoundError):
        records.load_json(text)


def test_a_link_is_replaced_and_its_target_stays(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in ("table.csv", "log"):
        (tmp_path / name).symlink_to(victim)
    records.write(tmp_path / "table.csv", "1,2\r\n")
    assert (tmp_path / "table.csv").read_bytes() == b"1,2\r\n"
    assert not (tmp_path / "table.csv").is_symlink()
    with pytest.raises(OSError):
        records.open_append(tmp_path / "log")
    assert victim.read_text() == "precious"


def test_what_cannot_be_written_leaves_the_old_and_no_other_file(tmp_path, monkeypatch):
    file = tmp_path / "result.json"
    records.write(file, "old")
    with pytest.raises(RunError, match="what was there stays"):
        records.write_json(file, float("nan"))
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space")))
    with pytest.raises(RunError, match=r"result.json: No space; what was there stays"):
        records.write(file, "new")
    assert file.read_text() == "old" and os.listdir(tmp_path) == ["result.json"]


def test_pipes_and_devices_are_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(RunError, match="not a plain file"):
            records.write(path, "")
    with pytest.raises(OSError, match="not a plain file"):
        records.open_append(tmp_path / "pipe")


def test_a_folder_is_written_whole_or_not_at_all(tmp_path):
    def fail(folder: Path) -> None:
        records.write(folder / "a", "")
        raise RunError("half way")

    with pytest.raises(RunError, match="half way"):
        records.write_folder(tmp_path / "out", fail)
    assert os.listdir(tmp_path) == []
    records.write_folder(tmp_path / "out", lambda folder: records.write(folder / "b" / "c", "1"))
    assert (tmp_path / "out" / "b" / "c").read_text() == "1"
    with pytest.raises(ConfigError, match="choose a new folder"):
        records.write_folder(tmp_path / "out", fail)


@pytest.mark.parametrize(
    ("number", "files"),
    [
        *((number, True) for number in (errno.EXDEV, errno.ENOSYS, errno.ENOTSUP, errno.EPERM)),
        (errno.EMFILE, False),
    ],
)
def test_a_file_system_without_renames(number, files, tmp_path, monkeypatch):
    no_renames.mount(monkeypatch, number, files=files)
    file = tmp_path / "result.json"
    records.write(file, "long and old", durable=True)
    records.write(file, "new", durable=True)
    assert file.read_text() == "new"

    def fill(folder: Path) -> None:
        records.write(folder / "inner" / "a", "1")
        records.write(folder / "b", "2")

    records.write_folder(tmp_path / "out", fill)
    assert (tmp_path / "out" / "inner" / "a").read_text() == "1"
    assert sorted(os.listdir(tmp_path)) == ["out", "result.json"]
    (tmp_path / "link").symlink_to(file)
    if files:  # a link at the place is not followed here either
        with pytest.raises(RunError, match="link: Too many levels of symbolic links"):
            records.write(tmp_path / "link", "other")
    assert file.read_text() == "new"


def test_without_renames_a_full_disk_is_named_with_what_it_cost(tmp_path, monkeypatch):
    no_renames.mount(monkeypatch, errno.ENOSYS, files=True)
    records.write(tmp_path / "file", "old")
    calls = iter([None])  # the first file synced is the one beside the place

    def full(_: int) -> None:
        if next(calls, "full"):
            raise OSError(errno.ENOSPC, "No space left")

    monkeypatch.setattr(os, "fsync", full)
    lost = "file: No space left; its file system renames no file, so what was there is lost"
    with pytest.raises(RunError, match=lost):
        records.write(tmp_path / "file", "new", durable=True)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP])
def test_a_file_system_without_locks_is_no_other_process(number, tmp_path, monkeypatch, capsys):
    def refused(fd, operation):
        raise OSError(number, os.strerror(number))

    first, second = (records.open_append(tmp_path / ".lock") for _ in range(2))
    assert records.lock(first)
    with pytest.raises(BlockingIOError):
        records.lock(second)
    monkeypatch.setattr(fcntl, "flock", refused)
    assert not records.lock(second)
    log = RunLog(tmp_path / "log.jsonl", RunClock())
    assert not log.is_locked
    log.append("warning", message="fine")
    log.close()
    with StudyFolder(tmp_path).locked():
        assert "is on a file system without locks" in capsys.readouterr().err
    with replacing(tmp_path / "data"):
        assert "is on a file system without locks" in capsys.readouterr().err
    for fd in (first, second):
        os.close(fd)


def test_a_home_that_is_known_takes_the_place_of_the_tilde(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert records.path_of("~/runs") == records.in_home("~/runs") == tmp_path / "runs"


def test_the_home_of_nobody_stays_as_it_is_written():
    assert records.path_of("~no-such-user/runs") == Path("~no-such-user/runs")


@pytest.mark.parametrize("home", ["", "here"])
def test_a_home_that_is_no_place_keeps_no_cache(monkeypatch, home):
    monkeypatch.setenv("HOME", home)
    with pytest.raises(RunError, match="set HOME"):
        records.in_home("~/.cache")
    with pytest.raises(RunError, match="set HOME"):
        records.in_home("~no-such-user/.cache")


PACKAGE = Path(__file__).resolve().parents[2] / "dawnjax"


def test_numbers_that_json_lacks_become_null():
    told = {"a": [1.5, math.inf, (math.nan, -math.inf)], "b": {"c": math.nan}, "d": True}
    text = records.json_text(told, indent=1)
    assert json.loads(text) == {"a": [1.5, None, [None, None]], "b": {"c": None}, "d": True}
    assert records.json_text({"a": 0.1}) == '{"a": 0.1}'


def test_no_module_prints_json_by_another_function():
    printed = []
    for folder, _, names in os.walk(PACKAGE, followlinks=True):
        for name in names:
            # A file that people copy imports nothing of ours.
            if not name.endswith(".py") or name == "log_lines.py":
                continue
            for call in ast.walk(ast.parse(Path(folder, name).read_text())):
                if isinstance(call, ast.Call) and _name(call) in ("print", "write", "echo"):
                    inner = (node for node in ast.walk(call) if isinstance(node, ast.Call))
                    if any(_name(node) in ("dumps", "dump") for node in inner):
                        printed.append(f"{folder}/{name}:{call.lineno}")
    assert not printed


def _name(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))
