"""Printed plans that are kept: given again only where all that made them is the same."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from dawnjax.errors import RunError
from dawnjax.plan import answers, compiled

ARGV = ["digits", "--on=h100:8"]
BUILT_IN: Any = SimpleNamespace(experiment_file=None, overrides={"global_batch_size": 64})


@pytest.fixture
def data(monkeypatch, tmp_path):
    """Folder of data sets, in a process that has not loaded JAX."""
    monkeypatch.delitem(sys.modules, "jax")
    monkeypatch.setattr(compiled, "CACHE_DIR", str(tmp_path / "plans"))
    folder = tmp_path / "data"
    for file in (folder / "set" / "train" / "class" / "0.png", tmp_path / "apart" / "to" / "shard"):
        file.parent.mkdir(parents=True)
        file.write_text("")
    (folder / "link").symlink_to(tmp_path / "apart")
    (tmp_path / "apart" / "back").symlink_to(folder)
    monkeypatch.setenv("DAWNJAX_DATA", str(folder))
    return folder


def _asked(argv=ARGV) -> answers.Question:
    question = answers.question(argv)
    assert question is not None
    return question


def test_the_same_question_gets_the_kept_answer(data):
    assert _asked().answer() == ""
    _asked().keep("a plan\nof two lines", BUILT_IN)
    assert _asked().answer() == "a plan\nof two lines"


@pytest.mark.parametrize(
    "change",
    [
        lambda patch, data: patch.setenv("XLA_FLAGS", "--xla_x=1"),
        lambda patch, data: patch.setenv("DAWNJAX_DATA", str(data / "set")),
        lambda patch, data: patch.setattr(compiled, "hash_of_sources", lambda is_part: "other"),
        lambda patch, data: patch.setattr(compiled, "versions", lambda names: {"jax": "0"}),
        lambda patch, data: (data / "set" / "dataset.json").write_text("{}"),
        lambda patch, data: (data / "set" / "train" / "shard").write_text(""),
        lambda patch, data: (data / "set" / "train" / "class" / "0.png").unlink(),
        lambda patch, data: (data / "link" / "to" / "shard").write_text("more"),
    ],
)
def test_a_change_of_what_made_an_answer_is_another_question(monkeypatch, data, change):
    _asked().keep("a plan", BUILT_IN)
    change(monkeypatch, data)
    assert _asked().answer() == ""
    assert _asked([*ARGV, "--json"]).answer() == ""


def test_answers_on_the_users_files_or_code_are_not_kept(data):
    for request in (
        SimpleNamespace(experiment_file="mine.py", overrides={}),
        SimpleNamespace(experiment_file=None, overrides={"data.data_dir": "elsewhere"}),
        SimpleNamespace(experiment_file=None, overrides={"model.of": ["mine"]}),
    ):
        _asked().keep("a plan", request)  # pyright: ignore[reportArgumentType]
    assert _asked().answer() == ""
    for flag in ("--epochs_from=runs", "--calibrate", "--flagfile=f", "--help"):
        assert answers.question([*ARGV, flag]) is None


def test_of_each_command_the_last_answer_is_kept(data, monkeypatch):
    _asked().keep("a plan", BUILT_IN)
    monkeypatch.setenv("XLA_FLAGS", "--xla_x=1")
    _asked().keep("another", BUILT_IN)
    assert _asked().answer() == "another"
    assert len(list((data.parent / "plans" / "answers").iterdir())) == 1


def test_more_files_than_are_looked_at_are_no_question(data, monkeypatch):
    monkeypatch.setattr(answers, "MOST_FILES", 2)
    assert answers.question(ARGV) is None


@pytest.mark.parametrize("home", ["", "relative", "/dev/null/x"])
def test_without_a_home_the_plan_is_made_and_one_line_says_so(data, monkeypatch, capsys, home):
    monkeypatch.setenv("HOME", home)
    monkeypatch.setattr(compiled, "CACHE_DIR", "~/plans")
    assert _asked().answer() == ""
    _asked().keep("a plan", BUILT_IN)
    assert capsys.readouterr().err.startswith("the plan is not kept: ")


def test_a_process_that_has_loaded_jax_asks_nothing(data, monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace())
    assert answers.question(ARGV) is None


@pytest.mark.parametrize(
    ("forged", "says"),
    [
        (b"[", "Expecting value"),
        (json.dumps({"made_of": {}}).encode(), "required field text"),
        (None, "a screen would obey it"),
    ],
)
def test_a_damaged_answer_is_named_and_not_given(data, capsys, forged, says):
    asked = _asked()
    asked.keep("\x1b[2J", BUILT_IN)
    [file] = (data.parent / "plans" / "answers").iterdir()
    if forged:
        file.write_bytes(forged)
    assert asked.answer() == ""
    [line] = capsys.readouterr().err.splitlines()
    assert says in line and line.endswith("the plan is made again")


def test_a_full_disk_costs_the_answer_alone(data, monkeypatch, capsys):
    def full(*_, **__):
        raise RunError("no space left")

    monkeypatch.setattr("dawnjax.records.write_json", full)
    _asked().keep("a plan", BUILT_IN)
    assert capsys.readouterr().err == "the plan is not kept: no space left\n"


def test_the_command_answers_again_without_jax(tmp_path):
    code = "import sys; from dawnjax import __main__; __main__.main(); print('jax' in sys.modules)"
    command = [sys.executable, "-c", code, "plan", "digits", "--on=h100:8,v5e:8", "--memory"]
    environment = {**os.environ, "HOME": str(tmp_path)}
    first, again = (
        subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
        for _ in range(2)
    )
    assert first.stdout.endswith("True\n") and "h100:8" in first.stdout, first.stderr
    assert again.stdout == first.stdout.replace("True\n", "False\n")
