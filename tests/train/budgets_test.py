"""A run's length in epochs, steps, examples or seconds."""

import dataclasses
import json
import re
from pathlib import Path

import pytest
from dataset_specs import SMALL_IMAGES
from trained import SMALL, result_of

from dawnjax.__main__ import main
from dawnjax.config.experiment import Constant, Evaluation, Experiment
from dawnjax.config.experiment_modules import load_experiment

SPEC = dataclasses.replace(SMALL_IMAGES, num_train_examples=1000)
BASE = dataclasses.replace(
    load_experiment("synthetic_image"), num_epochs=0.0, global_batch_size=64, schedule=Constant()
)


def of(**fields: object) -> Experiment:
    experiment = dataclasses.replace(BASE, **fields)  # type: ignore[arg-type]
    experiment.validate(SPEC)
    return experiment


@pytest.mark.parametrize(
    ("fields", "steps"),
    [
        # 2.5 epochs of 1,000 examples are 39.06 steps of 64, which reach a little past them.
        ({"num_epochs": 2.5}, 40),
        ({"max_steps": 37}, 37),
        ({"max_examples": 640}, 10),
        ({"max_examples": 641}, 11),
    ],
)
def test_the_length_of_a_run_by_hand(fields, steps):
    assert of(**fields).num_steps(SPEC) == steps


def test_evaluations_may_count_steps():
    experiment = of(max_steps=37, evaluation=Evaluation(every_steps=10))
    assert experiment.evaluation_steps(SPEC) == [10, 20, 30, 37]
    # From 1.2 epochs on, which end in step 18.75.
    later = of(max_steps=37, evaluation=Evaluation(every_steps=10, first_epoch=1.2))
    assert later.evaluation_steps(SPEC) == [20, 30, 37]


def trained(run_dir: Path, *flags: str) -> dict:
    """Result of a run with a profile after it, and without a number of epochs."""
    argv = [*SMALL, "--num_epochs=0", "--schedule=constant", "--schedule.warmup_epochs=0"]
    argv += ["--targets.0.value=1", "--profile.after_run=true", *flags]
    status = main(["train", *argv, f"--run_dir={run_dir}"])
    assert status in (0, 3)
    return result_of(run_dir)


@pytest.mark.compiles
def test_a_budget_of_seconds_ends_training_in_time_and_evaluates(tmp_path, compile_cache, capsys):
    """The profile, which is on by default, has no time left."""
    flags = ["--max_seconds=0.5", "--evaluation.every_epochs=1e4"]
    result = trained(tmp_path / "run", *flags, compile_cache)
    (evaluation,) = result["evaluations"]
    assert evaluation["step"] == result["steps"] >= 1
    assert result["status"] in ("not_reached", "reached")
    assert 0.5 < evaluation["seconds_since_run_start"] < 60
    assert result["phases"]["profile"] < 5
    log = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    assert json.loads(log[-1])["status"] == result["status"]
    # The trial has ended: the same command shows the same result.
    again = trained(tmp_path / "run", *flags, compile_cache)
    assert again["steps"] == result["steps"]
    reason = result["hosts"][0]["utilization"]["reasons"]["mfu"]
    assert reason == "max_seconds=0.5 left no time for a profile"
    shown = capsys.readouterr()
    # No bound of steps, which nobody gave.
    (progress,) = (line for line in shown.err.splitlines() if line.startswith("step "))
    assert re.match(r"step \d+  [\d.]+ of 0.5 s  not yet evaluated  ", progress)


@pytest.mark.compiles
def test_a_profile_is_taken_while_time_is_left(tmp_path, compile_cache):
    flags = ["--max_steps=2", "--profile.measured_peaks=false", "--profile.seconds=0.05"]
    with_time = trained(tmp_path / "run", *flags, "--max_seconds=600", compile_cache)
    assert with_time["hosts"][0]["utilization"]["window"] == "after_run"
