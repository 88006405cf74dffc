"""Extensions in a user's file: each file of docs/extending.md, run as it stands there."""

import json
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from shared_runs import copied_once
from told import told
from trained import restored_state, result_of

from dawnjax.__main__ import main
from dawnjax.checkpointed.earlier_run import read_run
from dawnjax.machine.mesh import make_mesh
from dawnjax.machine.mesh_shape import MeshShape
from dawnjax.train_step import make_recipe

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text()
NAMES = ("data", "model", "linen", "optimizer", "task")
TEXTS = re.findall(r"```python\n(.*?)```", PAGE, re.S)
FILES: dict[str, str] = dict(zip(NAMES, TEXTS, strict=True))
QUICK = ["--tensorboard=false", "--profile.after_run=false"]


@pytest.mark.compiles
@pytest.mark.parametrize("name", FILES)
def test_each_file_of_the_page_is_short_and_reaches_its_target(name, tmp_path, compile_cache):
    file = tmp_path / f"{name}.py"
    file.write_text(FILES[name])
    assert len(FILES[name].splitlines()) <= 60
    argv = ["train", f"--experiment={file}", f"--run_dir={tmp_path / 'run'}"]
    assert main([*argv, *QUICK, compile_cache]) == 0
    result = result_of(tmp_path / "run")
    assert result["reached"] and result["num_devices"] == 4
    record = json.loads((tmp_path / "run" / "experiment.json").read_text())
    assert record["source"]["text"] == FILES[name]
    if name == "linen":  # it is trained in training mode: its statistics moved
        run = read_run(tmp_path / "run", experiment_file=str(file))
        recipe = make_recipe(run.experiment, run.spec, make_mesh(MeshShape(), jax.devices()[:1]))
        state = restored_state(recipe, tmp_path / "run")
        means = [leaf for leaf in jax.tree.leaves(state.batch_stats) if leaf.size == 64]
        assert means and all(np.abs(np.asarray(leaf)).max() > 1e-3 for leaf in means)


@pytest.fixture(scope="module")
def regression(tmp_path_factory, compile_cache) -> tuple[Path, Path, list[str]]:
    """A run of the page's task on four devices: its file, its directory and its flags."""

    def flags_in(folder: Path) -> list[str]:
        return [f"--experiment={folder / 'mine.py'}", "--tensorboard=false", compile_cache]

    def make(folder: Path) -> None:
        (folder / "mine.py").write_text(FILES["task"])
        shown = ["--profile.seconds=0.05", "--profile.measured_peaks=false"]
        run_dir = f"--run_dir={folder / 'run'}"
        assert main(["train", *flags_in(folder), *shown, run_dir]) == 0

    folder = copied_once(tmp_path_factory, "regression", make)
    return folder / "mine.py", folder / "run", flags_in(folder)


@pytest.mark.compiles
def test_the_least_squares_solution_is_found(regression):
    """Best result of a linear model on the training data, by NumPy."""
    import sklearn.datasets

    data: Any = sklearn.datasets.load_diabetes(return_X_y=True)
    x, y = data
    rows = np.concatenate([20 * x, np.ones((len(x), 1))], axis=1)
    weights, *_ = np.linalg.lstsq(rows[:320], y[:320] / 100, rcond=None)
    best = np.square(rows[320:] @ weights - y[320:] / 100).mean()
    evaluations = result_of(regression[1])["evaluations"]
    assert evaluations[-1]["mean_squared_error"] == pytest.approx(best, rel=0.03)


@pytest.mark.compiles
def test_every_command_works_on_a_task_that_is_not_shipped(regression, tmp_path, capsys):
    file, run_dir, _ = regression
    last = result_of(run_dir)["evaluations"][-1]["mean_squared_error"]
    named = f"--experiment={file}"
    row = told(capsys, "evaluate", str(run_dir), named)
    assert row["own"]["metrics"]["mean_squared_error"] == last and row["reached"] is True
    assert row["own"]["examples"] == 442 - 320
    # Without the flag the run names its file, which is still there with the same text.
    assert told(capsys, "evaluate", str(run_dir))["own"] == row["own"]
    assert main(["infer", str(run_dir), named, "--examples=5"]) == 0
    assert "x on the host to the answer on the host" in capsys.readouterr().out
    assert main(["profile", str(run_dir)]) == 0
    assert main(["check", str(run_dir)]) == 0
    assert main(["report", str(run_dir), f"--out={tmp_path / 'page'}"]) == 0
    page = (tmp_path / "page" / "index.html").read_text()
    assert "diabetes: MSE against time" in page and "MSE, lower is better" in page
    assert "target at most 0.291" in page and f"to {last:.4g} after" in page
    result = result_of(run_dir)
    assert result["example_unit"] == "examples"
    (metric,) = result["metrics"]
    assert (metric["unit"], metric["direction"], metric["most"]) == ("1", "at_most", None)
    board = (tmp_path / "page" / "tables" / "leaderboards.csv").read_text()
    assert "mean_squared_error at most 0.291" in board
    capsys.readouterr()
    assert main(["list", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "task: regression" in shown and "mean_squared_error <= 0.291" in shown
    used = result_of(run_dir)["hosts"][0]["utilization"]
    # A step's products: 32 rows of 10 features, forward and one gradient more than the trace sees.
    assert used["model_flops_per_step"] == 3 * 2 * 10 * 32 / 4


@pytest.mark.compiles
def test_without_its_file_a_run_says_which_class_is_missing(regression, capsys):
    file, run_dir, _ = regression
    record = json.loads((run_dir / "experiment.json").read_text())
    record["source"]["path"] = str(file.with_name("gone.py"))
    (run_dir / "experiment.json").write_text(json.dumps(record))
    assert main(["evaluate", str(run_dir)]) == 2
    error = capsys.readouterr().err
    assert "'regression' is none of" in error and "--experiment=FILE" in error
    assert error.count("\n") == 1


def test_a_task_without_a_loss_is_one_line_in_the_words_of_any_python(tmp_path, capsys):
    file = tmp_path / "task.py"
    file.write_text(FILES["task"].replace("def loss", "def lose"))
    assert main(["train", f"--experiment={file}", f"--run_dir={tmp_path / 'run'}"]) == 2
    error = capsys.readouterr().err
    assert "abstract class Regression" in error and error.count("\n") == 1
