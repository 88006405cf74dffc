"""An experiment as a user starts it, against PyTorch: time to accuracy and total.

    python -m benchmarks time_to_accuracy --experiment=digits --rounds=20
    DAWNJAX_DATA=data python -m benchmarks time_to_accuracy --experiment=multi30k_gnmt --rounds=3

First PyTorch runs three seeds in each way of `pytorch_settings` that the experiment names (some
steps alone where a trial is long). The way with the least time an epoch is compared.

A round is one process of each side with one seed; every other round PyTorch goes first. Both train
the same network on the same data with the same recipe, evaluations and clock (`pytorch_trial.py`
and the experiment's script); our `digits` normalizes by whole batches here, as PyTorch's does. Both
must reach the target, which checks that they do the same work.

The time to accuracy excludes compilation on both sides. The total, from the start of the program,
includes imports and all compilation. DawnJAX reads nothing from a cache of earlier runs, while
`torch.compile` has its own, which the first seeds fill. PyTorch's total excludes the import of JAX,
which its script needs to read the recipe.

The load of the machine is recorded for each trial. `machine_load` says which trials it disturbed;
ratios are given with and without them. Nothing raises a side's priority.

Ratios are given only where every trial of both sides reached: means over the others would flatter
the side that fails.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import harness, machine_load, pytorch_settings
from benchmarks.pytorch_settings import COMPILED, EAGER, IMAGES, SEARCHED

SCREENING_SEED = 1_000_000
"""The first seed of the trials that choose how PyTorch runs."""

SCREENED = ("seed", "run_seconds", "epochs", "error")
"""What is kept of these trials."""

NOTHING_CACHED = "--compile_cache_dir=none"


@dataclasses.dataclass(frozen=True)
class Comparison:
    """PyTorch's side of an experiment.

    Attributes:
      name: Of the script `pytorch_NAME.py` and of the result.
      ways: Settings of PyTorch to try first.
      screening_steps: Of a trial while ways are tried; 0 for a whole trial.
      flags: Of our side, where PyTorch's cannot do as the recipe does.
    """

    name: str
    ways: Sequence[str]
    screening_steps: int = 0
    flags: tuple[str, ...] = ()


COMPARISONS = {
    # PyTorch normalizes over whole batches.
    "digits": Comparison(
        "digits",
        (*EAGER, *COMPILED, *SEARCHED, *IMAGES),
        flags=("--batch_norm_group_size=64",),
    ),
    "movielens_ml100k_neumf": Comparison("recommendation", (*EAGER, *COMPILED, *SEARCHED)),
    "wikipedia_bytes_small": Comparison("language_model", (*EAGER, *COMPILED), 50),
    # `torch.compile` leaves `nn.LSTM` as it is.
    "multi30k_gnmt": Comparison("gnmt", EAGER, 60),
    "squad_small": Comparison("squad", (*EAGER, *COMPILED), 30),
    "cells_ssd_small": Comparison("cells", (*EAGER, *COMPILED, *SEARCHED, *IMAGES), 40),
}
"""By experiment. Data lie in $DAWNJAX_DATA or in `./data`, as `dawnjax train` finds them."""


def main() -> int:
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--experiment", choices=COMPARISONS, required=True)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--first_seed", type=int, default=0)
    parser.add_argument("--name", help="of the result file; its NAME_pytorch if not given")
    parser.add_argument("flags", nargs="*", help="more flags of `dawnjax train`, after --")
    arguments = parser.parse_args()
    compared = COMPARISONS[arguments.experiment]
    flags = [NOTHING_CACHED, *compared.flags, *arguments.flags]
    results = harness.Results(arguments.name or f"{compared.name}_pytorch")
    tried = _screen(compared)
    seconds = {name: way["seconds_an_epoch"] for name, way in tried.items() if "failed" not in way}
    if not seconds:
        sys.exit(f"{compared.name}: PyTorch failed in every way: {tried}")
    settings = min(seconds, key=lambda name: seconds[name])
    print(f"PyTorch's fastest way of {len(seconds)}: {settings}", flush=True)
    sides: dict[str, list[dict[str, Any]]] = {"dawnjax": [], "pytorch": []}
    for number in range(arguments.rounds):
        seed = arguments.first_seed + number
        order = ["dawnjax", "pytorch"] if number % 2 == 0 else ["pytorch", "dawnjax"]
        for side in order:
            if side == "dawnjax":
                trial = run_trial(arguments.experiment, seed, flags)
            else:
                trial = _run_pytorch(compared, seed, settings)
            sides[side].append(trial)
            print(f"{side:8} {_line(trial)}", flush=True)
    results.add(
        experiment=arguments.experiment,
        flags=flags,
        pytorch_settings=settings,
        tried=tried,
        **{side: _summary(trials) for side, trials in sides.items()},
    )
    results.show(f"{compared.name}_pytorch")
    return 0


def run_trial(experiment: str, seed: int, flags: Sequence[str]) -> dict[str, Any]:
    """Run one trial of ours in a process of its own; a crash is a row too."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder, "run")
        command = [sys.executable, "-m", "dawnjax", "train", f"--experiment={experiment}"]
        command += [f"--seed={seed}", f"--run_dir={run_dir}", *flags]
        started = time.perf_counter()
        with machine_load.watched() as machine:
            done = subprocess.run(command, capture_output=True, text=True)
        result_file = run_dir / "result.json"
        if not result_file.exists():
            error = done.stderr.strip().splitlines()[-1:] or [f"exit {done.returncode}"]
            seconds = time.perf_counter() - started
            row = {"seed": seed, "reached": False, "error": error, "machine": machine}
            return row | {"run_seconds": seconds}
        result = json.loads(result_file.read_text())
    metric = result["target"]["metric"]
    last = result["evaluations"][-1] if result["evaluations"] else {}
    names = ("status", "reached", "time_to_accuracy_seconds", "total_seconds_to_accuracy")
    names += ("train_seconds", "compile_seconds", "epochs", "steps", "examples_per_second")
    return {name: result[name] for name in names} | {
        "seed": seed,
        # A trial that diverged before an evaluation took all its time: 0 would flatter us.
        "run_seconds": last.get("seconds_since_run_start") or result["total_seconds"],
        "last": last.get(metric),
        "machine": machine,
        "evaluations": [
            [row["epoch"], row[metric], row["seconds_since_run_start"]]
            for row in result["evaluations"]
        ],
    }


def _run_pytorch(compared: Comparison, seed: int, settings: str, steps: int = 0) -> dict[str, Any]:
    """Run one trial of PyTorch's side in a process of its own; a crash is a row too."""
    command = [sys.executable, "-m", "benchmarks", "pytorch_trial", f"--side={compared.name}"]
    command += [f"--seed={seed}", f"--settings={settings}", f"--steps={steps}"]
    variables = {**os.environ, **pytorch_settings.SETTINGS[settings].environment()}
    with machine_load.watched() as machine:
        done = subprocess.run(command, capture_output=True, text=True, env=variables)
    if done.returncode:
        error = done.stderr.strip().splitlines()[-1:]
        return {"seed": seed, "reached": False, "error": error, "machine": machine}
    trial = json.loads(done.stdout.splitlines()[-1])
    reached_total = trial["total_seconds"] if trial["reached"] else None
    return {**trial, "total_seconds_to_accuracy": reached_total, "machine": machine}


def _screen(compared: Comparison, seeds: int = 3) -> dict[str, Any]:
    """Seconds an epoch of each way to run PyTorch, in turn, on seeds that no round uses."""
    tried: dict[str, Any] = {name: {"trials": []} for name in compared.ways}
    for number in range(seeds):
        for name in compared.ways:
            if "failed" not in tried[name]:
                seed, steps = SCREENING_SEED + number, compared.screening_steps
                trial = _run_pytorch(compared, seed, name, steps)
                tried[name]["trials"].append({key: trial[key] for key in SCREENED if key in trial})
                if "error" in trial:
                    tried[name]["failed"] = trial["error"]
    for name, way in tried.items():
        if "failed" not in way:
            seconds = [trial["run_seconds"] / trial["epochs"] for trial in way["trials"]]
            way["seconds_an_epoch"] = float(np.median(seconds))
            print(f"PyTorch, {name}: {way['seconds_an_epoch']:.4f} s an epoch", flush=True)
    return tried


def _summary(trials: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "num_trials": len(trials),
        "num_reached": sum(trial["reached"] for trial in trials),
        "trials": trials,
    }


def _line(trial: dict[str, Any]) -> str:
    if not trial["reached"]:
        return f"seed {trial['seed']:3}  not reached {trial.get('error', '')}"
    return (
        f"seed {trial['seed']:3}  TTA {trial['time_to_accuracy_seconds']:.3f} s  "
        f"total {trial['total_seconds_to_accuracy']:.2f} s  epochs {trial['epochs']:.1f}"
        f"{'  DISTURBED' if machine_load.is_disturbed(trial) else ''}"
    )


if __name__ == "__main__":
    sys.exit(main())
