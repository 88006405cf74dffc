"""Trials of one experiment that differ in their seed alone: reached, mean, spread, every one.

    python -m benchmarks seeds --experiment=digits --trials=20 [-- --FLAG=VALUE...]

Trials are separate processes, as a user would start them, one after another. All count, and each is
on disk as soon as it ends. No trial begins that would pass `--seconds`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import harness, machine_load
from dawnjax import records
from dawnjax.runs.log import Event, log_path, read_events
from dawnjax.trials.figures import coefficient_of_variation, deviation


def main() -> int:
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--experiment", required=True)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--first_seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for all trials")
    parser.add_argument("--name", help="of the result file; seeds_EXPERIMENT if not given")
    parser.add_argument(
        "--keep", type=Path, help="where run directories stay; none do if not given"
    )
    parser.add_argument("flags", nargs="*", help="more flags of `dawnjax train`, after --")
    arguments = parser.parse_args()
    wanted = range(arguments.first_seed, arguments.first_seed + arguments.trials)
    if arguments.keep:
        for folder in (_run_dir(arguments.keep, arguments.experiment, seed) for seed in wanted):
            if folder.exists():
                # A finished run would be given again as a trial of today.
                parser.error(f"{folder} exists: choose another --keep or --first_seed")
    results = harness.Results(
        arguments.name or f"seeds_{arguments.experiment}",
        experiment=arguments.experiment,
        flags=arguments.flags,
        trials_wanted=arguments.trials,
    )
    trials: list[dict[str, Any]] = []
    started, longest = time.perf_counter(), 0.0
    for seed in wanted:
        begun = time.perf_counter()
        if begun - started + longest > arguments.seconds:
            print(f"stopped after {len(trials)} of {arguments.trials}: no time for another")
            break
        trials.append(run_trial(arguments.experiment, seed, arguments.flags, arguments.keep))
        longest = max(longest, time.perf_counter() - begun)
        results.add(**summary(trials))
        print(_line(trials[-1]), flush=True)
    if trials:
        totals = {key: value for key, value in summary(trials).items() if key != "trials"}
        print(records.json_text(totals, indent=1))
        print(results.path)
    return 0


def run_trial(
    experiment: str, seed: int, flags: list[str], keep: Path | None = None
) -> dict[str, Any]:
    """Run one trial in a process of its own; return its row. A crash is a row too."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = _run_dir(keep or Path(folder), experiment, seed)
        command = [sys.executable, "-m", "dawnjax", "train", f"--experiment={experiment}"]
        command += [f"--seed={seed}", f"--run_dir={run_dir}", *flags]
        started = time.perf_counter()
        with machine_load.watched() as machine:
            done = subprocess.run(command, capture_output=True, text=True)
        result_file = run_dir / "result.json"
        if not result_file.exists():
            return {
                "seed": seed,
                "status": f"exit {done.returncode}",
                "reached": False,
                # Nothing better is known of its time, and to leave it out would flatter the mean.
                "run_seconds": time.perf_counter() - started,
                "machine": machine,
                "error": done.stderr.strip().splitlines()[-1:],
            }
        result = json.loads(result_file.read_text())
        events = read_events(log_path(run_dir))
    metric = result["target"]["metric"]
    last = result["evaluations"][-1] if result["evaluations"] else {}
    return {
        "seed": seed,
        "status": result["status"],
        "reached": result["reached"],
        "time_to_accuracy_seconds": result["time_to_accuracy_seconds"],
        "total_seconds_to_accuracy": result["total_seconds_to_accuracy"],
        "train_seconds": result["train_seconds"],
        "eval_seconds": result["phases"]["eval"],
        "compile_seconds": result["compile_seconds"],
        "phases": result["phases"],
        "cpu_seconds": cpu_seconds(events),
        # A trial that diverged before an evaluation took all its time: 0 would flatter the mean.
        "run_seconds": last.get("seconds_since_run_start") or result["total_seconds"],
        "epochs": result["epochs"],
        "steps": result["steps"],
        "best": result["best"].get(metric),
        "last": last.get(metric),
        "examples_per_second": result["examples_per_second"],
        "machine": machine,
        "device": f"{result['num_devices']} x {result['device_kind']}",
        "evaluations": [
            [row["epoch"], row[metric], row["seconds_since_run_start"]]
            for row in result["evaluations"]
        ],
    } | _made(result["generations"])


def cpu_seconds(events: list[Event]) -> dict[str, float]:
    """CPU seconds of each phase of one attempt, all threads; samples are a second apart."""
    samples = [e for e in events if e["event"] == "host_sample"]
    phases = [(e["t"], e["name"]) for e in events if e["event"] == "phase"]
    edges = [*(begin for begin, _ in phases), events[-1]["t"]]
    times, counted = ([e[name] for e in samples] for name in ("t", "cpu_seconds"))
    used = np.interp(edges, times, counted)
    seconds = dict.fromkeys((name for _, name in phases), 0.0)
    for (_, name), begin, end in zip(phases, used, used[1:], strict=False):
        seconds[name] += end - begin
    return {name: round(float(value), 3) for name, value in seconds.items()}


def _made(generations: list[dict[str, Any]]) -> dict[str, Any]:
    """Totals of a task that makes its examples."""
    names = ("games", "positions", "simulations")
    totals = {name: sum(row[name] for row in generations if name in row) for name in names}
    return {"made": totals} if generations else {}


def _run_dir(folder: Path, experiment: str, seed: int) -> Path:
    return folder / f"{experiment}_{seed}"


def summary(trials: list[dict[str, Any]]) -> dict[str, Any]:
    """Summary of all trials; spreads are population deviations, None of one trial."""
    times = [t["time_to_accuracy_seconds"] for t in trials if t["reached"]]
    last = [t["last"] for t in trials if t.get("last") is not None]
    spent = [t["run_seconds"] for t in trials]
    return {
        "num_trials": len(trials),
        "num_reached": len(times),
        "fraction_reached": len(times) / len(trials),
        "time_to_accuracy_mean_seconds": float(np.mean(times)) if times else None,
        "time_to_accuracy_cv": coefficient_of_variation(times),
        "expected_time_to_accuracy_seconds": sum(spent) / len(times) if times else None,
        "last_quality_mean": float(np.mean(last)) if last else None,
        "last_quality_std": deviation(last),
        "trials": trials,
    }


def _line(trial: dict[str, Any]) -> str:
    if trial.get("error"):
        return f"seed {trial['seed']:3}  {trial['status']:12} {' '.join(trial['error'])}"

    def number(name: str) -> str:
        value = trial.get(name)
        return "-" if value is None else f"{value:.4f}"

    return (
        f"seed {trial['seed']:3}  {trial['status']:12} TTA {number('time_to_accuracy_seconds')} s  "
        f"train {number('train_seconds')} s  total {number('total_seconds_to_accuracy')} s  "
        f"epochs {number('epochs')}  best {number('best')}  last {number('last')}"
    )


if __name__ == "__main__":
    sys.exit(main())
