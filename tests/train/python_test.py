"""Runs that Python starts and reads, as a notebook does."""

import dataclasses
import json
import subprocess
import sys
import types

import pytest

import dawnjax
from dawnjax.config.experiment import Target
from dawnjax.config.experiment_modules import load_experiment
from dawnjax.config.run_options import ProfileOptions, RunOptions
from dawnjax.errors import ConfigError

TINY = load_experiment("digits", is_tiny=True)
OPTIONS = RunOptions(tensorboard=False, profile=ProfileOptions(after_run=False))


@pytest.mark.processes
def test_a_run_from_python_is_the_run_of_the_command(tmp_path, compile_cache, capsys):
    options = dataclasses.replace(OPTIONS, compile_cache_dir=compile_cache.partition("=")[2])
    changed = dataclasses.replace(TINY, targets=(Target(value=0.999),))
    result = dawnjax.run(changed, seed=3, run_dir=tmp_path / "python", options=options)
    assert result.overrides["targets.0.value"] == 0.999
    command = [sys.executable, "-m", "dawnjax", "train", "digits", "--tiny", "--seed=3"]
    command += [f"--run_dir={tmp_path / 'command'}", "--profile.after_run=false", compile_cache]
    command += ["--targets.0.value=0.999", "--json"]
    done = subprocess.run(command, check=False, capture_output=True)
    next_ = [line.split()[1] for line in json.loads(done.stdout)["next"]]
    assert next_ == ["evaluate", "report"], "there is no profile to read"
    written = json.loads((tmp_path / "command" / "result.json").read_text())
    assert result.identity == written["identity"] and result.seed == 3
    # The command's process compiles with other flags of XLA's, which changes the last bits.
    assert result.first_losses == pytest.approx(written["first_losses"], abs=1e-5)
    assert len(result.first_losses) == 2
    assert dawnjax.load_run(tmp_path / "python") == result
    assert json.loads((tmp_path / "python" / "result.json").read_text())["steps"] == result.steps


def test_wrong_use_from_python_names_it(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'digits'"):
        dawnjax.run("digit", run_dir=tmp_path / "run")
    with pytest.raises(ConfigError, match="seed=-1"):
        dawnjax.run("digits", run_dir=tmp_path / "run", seed=-1)
    with pytest.raises(ConfigError, match="holds no run"):
        dawnjax.load_run(tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_a_class_of_a_notebook_s_cell_is_refused(tmp_path, monkeypatch):
    cells = types.ModuleType("__main__")  # as IPython leaves it: without a file
    monkeypatch.setitem(sys.modules, "__main__", cells)
    schedule = dataclasses.make_dataclass("Mine", [("warmup_epochs", float, 0.0)])
    schedule.__module__, schedule.TAG = "__main__", "mine"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(ConfigError, match="Mine is defined in a notebook: write it to a file"):
        dawnjax.run(dataclasses.replace(TINY, schedule=schedule()), run_dir=tmp_path / "run")
    assert not list(tmp_path.iterdir())
