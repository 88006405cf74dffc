"""Three promises of every task: one mathematics, resuming, and what reads a run.

They are dear: some tasks keep them at each change, and all of them every night.
"""

import fnmatch
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from each_change import rows
from first_steps import run_steps, train_steps
from task_table import ANSWERED_AT_EACH_CHANGE, TABLE, cut_off, train, trained_run
from told import told
from trained import final_state_of, result_of, saves_of

from dawnjax.__main__ import main

pytestmark = pytest.mark.compiles

# Images, text with a loss in parts, examples that the task makes.
RESUMED_AT_EACH_CHANGE = ("classification", "llama", "self_play")

answered_tasks = pytest.mark.parametrize("name", rows(TABLE, ANSWERED_AT_EACH_CHANGE))
resumed_tasks = pytest.mark.parametrize("name", rows(TABLE, RESUMED_AT_EACH_CHANGE))
placed_tasks = pytest.mark.parametrize("name", rows(TABLE, ("classification", "llama")))


@pytest.fixture(autouse=True)
def scores(name):
    if name in ("translation", "gnmt"):
        pytest.importorskip("sacrebleu", reason="needs sacreBLEU (pip install -e '.[text]')")
    if name == "self_play":
        pytest.importorskip("mctx", reason="needs pgx and mctx (pip install -e '.[selfplay]')")


@pytest.fixture
def trained(name, scores, tmp_path_factory, compile_cache) -> Path:
    """The run of a task, on four devices that share its parameters; nobody may change it."""
    return trained_run(tmp_path_factory, name, compile_cache)


@placed_tasks
def test_devices_and_placement_do_not_change_the_mathematics(name, trained):
    row, sharded = TABLE[name], result_of(trained)
    assert sharded["num_devices"] == 4
    evaluated = sharded["evaluations"][0]
    if row.metric_atol is None:
        alone, metrics = train_steps(1, *row.flags)[1], {}
    else:
        alone, metrics = run_steps(1, *row.flags, steps=evaluated["step"])
    assert np.isfinite(alone).all() and len(set(alone[:6])) == 6
    assert alone[5] < alone[0] or not row.falls
    np.testing.assert_allclose(sharded["first_losses"][:6], alone[:6], atol=row.atol)
    for field in metrics.keys() & set(row.repeated):
        if not isinstance(metrics[field], str):
            assert evaluated[field] == pytest.approx(metrics[field], abs=row.metric_atol), field
    for devices, flags in row.layouts:
        _, losses = train_steps(devices, *row.flags, *flags)
        np.testing.assert_allclose(losses, alone[:6], atol=row.atol, err_msg=str(flags))


@resumed_tasks
def test_a_run_that_resumes_ends_bit_for_bit_as_one_that_does_not(
    name, request, tmp_path, compile_cache, kept_programs
):
    row, run_dir, flags = TABLE[name], tmp_path / "cut", []
    if row.resumes_in:
        trained, flags = tmp_path / "whole", [f"--compute_dtype={row.resumes_in}"]
        assert train(name, trained, compile_cache, *flags) == row.status
    else:
        trained = request.getfixturevalue("trained")
    with cut_off(row):
        assert train(name, run_dir, compile_cache, *flags) == (
            5 if row.is_signalled or row.signalled_in_call else 1
        )
    assert fnmatch.filter(map(str, saves_of(run_dir)), row.saved_at)
    assert train(name, run_dir, compile_cache, *flags) == row.status
    resumed, whole = result_of(run_dir), result_of(trained)
    assert resumed["interruptions"] == 1 and whole["interruptions"] == 0
    assert resumed["first_losses"] == whole["first_losses"]
    rows = [
        [{field: row_of[field] for field in ("step", *row.repeated)} for row_of in r["evaluations"]]
        for r in (whole, resumed)
    ]
    assert rows[0] == rows[1]
    (step, state), (whole_step, whole_state) = map(final_state_of, (run_dir, trained))
    assert step == whole_step == row.steps
    np.testing.assert_array_equal(state, whole_state)


@answered_tasks
def test_a_run_is_evaluated_answered_and_reported(name, trained, tmp_path, capsys):
    row, result = TABLE[name], result_of(trained)
    run = str(shutil.copytree(trained, tmp_path / "run"))
    assert result["steps"] == row.steps and result["reached"] == (row.status == 0)
    assert all(math.isfinite(loss) for loss in result["first_losses"])
    last = result["evaluations"][-1]
    capsys.readouterr()
    # As the run's devices shared it: another layout moves the last bit of a sum.
    again = told(capsys, "evaluate", run, *row.mesh)["own"]["metrics"]
    assert {field: again[field] for field in row.repeated} == {
        field: last[field] for field in row.repeated
    }
    if row.answered:
        assert main(["infer", run, f"--examples={row.num_answered}"]) == 0
        said = re.search(rf"{row.answered} (\d+)\.(\d+)", capsys.readouterr().out)
        # As printed; one device may move the last bit of what is rounded.
        rounding = 0.5 * 10.0 ** -len(said[2]) + 1e-6
        assert float(f"{said[1]}.{said[2]}") == pytest.approx(last[row.answered], abs=rounding)
    else:
        assert main(["infer", run]) == 2
        assert "defines no answer()" in capsys.readouterr().err
    assert main(["report", run, f"--out={tmp_path / 'page'}"]) == 0
    assert row.shown in (tmp_path / "page" / "index.html").read_text()
