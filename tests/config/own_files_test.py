"""A user's file and the modules beside it: found, hashed, kept, and named by errors."""

import ast
import dataclasses
import importlib
import json
import os
import re
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trained import result_of

from dawnjax.__main__ import main
from dawnjax.commands.check import check_run
from dawnjax.config import own_files
from dawnjax.config.experiment_modules import load_experiment
from dawnjax.errors import ConfigError

TEMPLATE = resources.files("dawnjax.config.templates") / "regression.py"
MINE = TEMPLATE.read_text()
for old, new in (
    ("from flax import nnx\n", "from flax import nnx\nfrom parts import Lion, activation\n"),
    ('module(inputs["x"])', 'activation(module(inputs["x"]))'),
    ("Adam(base_learning_rate=0.1)", "Lion()"),
):
    MINE = MINE.replace(old, new)
PARTS = '''"""An activation and an optimizer."""
import dataclasses

import optax
from flax import nnx


def activation(x):
    return nnx.gelu(x)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lion:
    TAG = "lion_of_mine"
    base_learning_rate: float = 1e-2

    def __post_init__(self):
        {1e-2: 0}[self.base_learning_rate]

    def build(self, learning_rate):
        return optax.lion(learning_rate)
'''
QUICK = ["--tensorboard=false", "--profile.after_run=false", "--num_epochs=2"]


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """The file and its module in a folder below the working one; writes them, changed or not."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "own").mkdir()

    def write(old: str = "", new: str = "") -> str:
        assert old in MINE + PARTS
        Path("own/mine.py").write_text(MINE.replace(old, new) if old else MINE)
        Path("own/parts.py").write_text(PARTS.replace(old, new) if old else PARTS)
        return "own/mine.py"

    return write


@pytest.mark.compiles
def test_an_error_within_a_run_is_one_line_too(mine, compile_cache, capsys):
    measured = '        return {"mean_squared_error": self.loss(module, batch, None, setting)[0]}'
    late = "\n\n    def metrics_of(self, totals, setting):\n        return {}['nxt']"
    path = mine(measured, measured + late)
    assert main(["train", f"--experiment={path}", "--run_dir=run", *QUICK, compile_cache]) in (1, 2)
    lines = capsys.readouterr().err.splitlines()
    assert re.match(r"dawnjax train: own/mine.py:\d+: ", lines[-1]), lines
    assert not any("Traceback" in line for line in lines)
    assert result_of(Path("run"))["status"] == "failed"


@pytest.mark.compiles
def test_a_changed_module_is_refused_wherever_its_run_is_used(mine, compile_cache, capsys):
    path = mine()
    argv = ["train", f"--experiment={path}", "--run_dir=run", *QUICK, compile_cache]
    assert main(argv) in (0, 3)
    capsys.readouterr()
    record = json.loads(Path("run/experiment.json").read_text())
    assert set(record["identity_fields"]["code"]) == {"mine.py", "parts.py"}
    assert [item["text"] for item in record["source"]["modules"]] == [PARTS]
    assert check_run(Path("run")) == ([], [])
    # As many letters, and within the second that a compiled copy of it knows.
    mine("nnx.gelu", "nnx.silu")
    for command in (argv, ["evaluate", "run", argv[1]]):
        assert main(command) == 2
        error = capsys.readouterr().err
        assert "parts.py" in error and "experiment.json" in error, error
        assert error.count("\n") == 1
    mine()
    assert main(["infer", "run", argv[1], "--examples=5"]) == 0
    assert "of 5 of 122 examples: quality() of task=regression gives none of its" in (
        capsys.readouterr().out
    )


def test_modules_of_a_package_beside_the_file_are_code_too(mine):
    path = mine("from flax import nnx", "from flax import nnx\nfrom bag.inner import act")
    Path("own/bag").mkdir()
    Path("own/bag/__init__.py").write_text("")
    Path("own/bag/inner.py").write_text("from . import base\nact = base.act\n")
    Path("own/bag/base.py").write_text("def act(x):\n    return x\n")
    Path("own/unused.py").write_text("nothing = 0\n")
    own: Any = own_files.file_of(load_experiment(path))
    names = {"mine.py", "parts.py", "bag/__init__.py", "bag/inner.py", "bag/base.py"}
    assert set(own.texts) == names
    Path("own/bag/base.py").write_text("def act(x):\n    return -x\n")
    again: Any = own_files.file_of(load_experiment(path))
    before, after = own.code(), again.code()
    assert {name for name in names if after[name] != before[name]} == {"bag/base.py"}


def test_a_module_that_a_run_loads_later_is_named(mine):
    experiment = load_experiment(mine())
    own = own_files.file_of(experiment)
    assert own is not None and own_files.modules_not_in(own.texts) == []
    Path("own/late.py").write_text("nothing = 0\n")
    importlib.import_module("late")
    assert own_files.modules_not_in(own.texts) == ["late.py"]


def test_each_file_has_the_modules_beside_it(mine, tmp_path):
    load_experiment(mine())
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.py").write_text(MINE)
    with pytest.raises(ConfigError, match=r"other/mine.py:\d+: ModuleNotFoundError.*parts"):
        load_experiment("other/mine.py")
    (tmp_path / "other" / "parts.py").write_text(PARTS.replace("gelu", "tanh"))
    own = own_files.file_of(load_experiment("other/mine.py"))
    assert own is not None and "tanh" in own.texts["parts.py"]
    assert sys.modules["parts"].__file__ == os.path.abspath("other/parts.py")


def test_classes_of_this_package_have_no_code_of_their_own(tmp_path):
    file = tmp_path / "as_shipped.py"
    file.write_text(
        "import dataclasses\nfrom dawnjax.own import load_experiment\n"
        "EXPERIMENT = dataclasses.replace(load_experiment('digits'), name='as_shipped')\n"
    )
    experiment = load_experiment(str(file))
    assert own_files.file_of(experiment) is None
    own = own_files.source_of(experiment, file)
    assert own is not None and list(own.texts) == ["as_shipped.py"]


@dataclasses.dataclass(frozen=True)
class Outside:
    """A class that Python imported in the ordinary way."""


def test_a_class_that_was_imported_before_brings_its_file(mine):
    experiment = dataclasses.replace(load_experiment("digits"), model=Outside())
    own = own_files.file_of(experiment)
    assert own is not None and next(iter(own.texts)) == Path(__file__).name


def lines_of_code(text: str) -> list[int]:
    """Lines, from 0, that begin a statement which runs before a run begins."""
    tree = ast.parse(text)
    blocks = [node.body for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return sorted(node.lineno - 1 for body in [tree.body, *blocks] for node in body)


RAISED = ["KeyError('nxt')", "ValueError('a\\nb')", "ZeroDivisionError()", "SystemExit(0)"]
RAISED += ["RuntimeError('\\x1b[31m')", "RecursionError('deep')", "OSError(5, 'no disk')"]


@pytest.mark.parametrize("count", [4, pytest.param(150, marks=pytest.mark.long)])
def test_wherever_a_user_s_file_fails_the_place_is_named(count, mine, campaign, capsys):
    tries = campaign(
        "own_files",
        "an experiment file, or a module beside it, that raises an error at a random statement",
        "one line with the file and the line; no run directory",
    )
    random = np.random.default_rng(38)
    places = [(name, line) for name, text in (("mine.py", MINE), ("parts.py", PARTS))
              for line in lines_of_code(text)]  # fmt: skip
    for number in range(count):
        name, line = places[random.integers(len(places))]
        error = RAISED[random.integers(len(RAISED))]
        path = mine()
        lines: list[str] = [*(MINE if name == "mine.py" else PARTS).splitlines()]
        decorated = next((n for n in range(line, 0, -1) if not lines[n - 1].startswith("@")), 0)
        indent = len(lines[line]) - len(lines[line].lstrip())
        lines.insert(decorated, " " * indent + f"raise {error}")
        Path("own", name).write_text("\n".join(lines))
        status = main(["train", f"--experiment={path}", "--run_dir=run", *QUICK])
        said = capsys.readouterr().err
        held = status in (1, 2) and said.count("\n") == 1 and not Path("run").exists()
        held = held and f"own/{name}:{decorated + 1}: " in said and "\x1b" not in said
        why = f"status {status}: {said[-300:]}"
        tries.tried(f"try {number}: {error} at {name}:{decorated + 1}", held=held, why=why)
    tries.finish()
