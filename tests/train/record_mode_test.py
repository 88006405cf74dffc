"""Record mode: the same mathematics as the loop, and a result that no one takes for a TTA."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from shared_runs import made_once

from dawnjax.__main__ import main

pytestmark = pytest.mark.compiles

SMALL = [
    *("--experiment=synthetic_image", "--data.num_train_examples=48", "--num_epochs=3"),
    *("--data.num_eval_examples=32", "--global_batch_size=16", "--batch_norm_group_size=4"),
    *("--model.stage_sizes=1", "--model.stage_widths=8", "--schedule.warmup_epochs=0"),
    *("--evaluation.first_epoch=1", "--targets.0.value=1", "--seed=5"),
]
STEPS = 9


@pytest.fixture(scope="module")
def record(tmp_path_factory, compile_cache) -> tuple[Path, dict]:
    """The file of two seeds, and what is in it."""

    def make(folder: Path) -> None:
        flags = ["--seeds=2", f"--out={folder / 'record.json'}", compile_cache]
        assert main(["record", *SMALL, *flags]) == 3

    path = made_once(tmp_path_factory, "record", make) / "record.json"
    return path, json.loads(path.read_text())


def test_a_run_as_one_program_is_the_loops_run(record, tmp_path, compile_cache):
    run_dir = tmp_path / "run"
    flags = ["--profile.after_run=false", "--tensorboard=false", compile_cache]
    assert main(["train", *SMALL, *flags, f"--run_dir={run_dir}"]) == 3
    result = json.loads((run_dir / "result.json").read_text())
    seed = record[1]["seeds"][0]
    assert len(result["first_losses"]) == record[1]["num_steps"] == STEPS
    # Other fusions around the same operations: the last bits differ and grow from step to step.
    np.testing.assert_allclose(seed["first_losses"], result["first_losses"], rtol=2e-4)
    assert seed["last_loss"] == seed["first_losses"][-1]
    last = result["evaluations"][-1]
    assert last["step"] == STEPS
    assert seed["metrics"]["top_1_accuracy"] == last["top_1_accuracy"]
    np.testing.assert_allclose(seed["metrics"]["loss"], last["loss"], rtol=1e-3)


def test_the_summary_is_that_of_its_seeds(record):
    facts, seeds = record[1], record[1]["seeds"]
    assert [seed["seed"] for seed in seeds] == [5, 6]
    assert seeds[0]["first_losses"][0] != seeds[1]["first_losses"][0]
    times = [seed["time_seconds"] for seed in seeds]
    summary = facts["summary"]
    assert summary["num_seeds"] == 2
    assert summary["num_reached"] == summary["num_diverged"] == 0
    assert facts["schema_version"] == 2 and seeds[0]["first_nonfinite_step"] is None
    np.testing.assert_allclose(summary["time_mean_seconds"], (times[0] + times[1]) / 2)
    np.testing.assert_allclose(summary["time_std_seconds"], abs(times[0] - times[1]) / 2)
    np.testing.assert_allclose(
        summary["time_with_compilation_seconds"],
        (times[0] + times[1]) / 2 + facts["compile_seconds"],
    )
    accuracies = [seed["metrics"]["top_1_accuracy"] for seed in seeds]
    # The sample deviation of two is |a - b| / sqrt 2, and its mean's error that over sqrt 2.
    error = abs(accuracies[0] - accuracies[1]) / 2
    np.testing.assert_allclose(summary["top_1_accuracy_standard_error"], error, atol=1e-12)
    assert all(0 < seed["order_seconds"] < seed["time_seconds"] for seed in seeds)


def test_a_seed_that_diverged_is_counted(record):
    from dawnjax.record_mode import SeedResult, summary

    fine = SeedResult(**record[1]["seeds"][0])
    diverged = dataclasses.replace(fine, first_nonfinite_step=3)
    assert summary([fine, diverged], "top_1_accuracy", 1.0)["num_diverged"] == 1


def test_its_time_is_never_called_a_time_to_accuracy(record):
    path, facts = record
    assert facts["record_type"] == "record_mode"
    assert "not a time to accuracy" in facts["meaning"]
    assert "time_to_accuracy" not in path.read_text()
