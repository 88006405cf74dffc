"""Trials of a study against single runs: seconds of a trial, and of all trials.

    python -m benchmarks study_trials --trials=20

Trials of `digits` run in one process, as in `dawnjax study`, alternating with single runs of the
same seeds in processes of their own. Both must have the same first losses. Then one `dawnjax study`
of all seeds runs against a shell's loop of `dawnjax train`, both with a warm cache of compiled
programs and no profile after a run.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import dawnjax
from benchmarks import harness
from dawnjax.config.run_options import ProfileOptions, RunOptions
from dawnjax.trials.trial import Trial


def main() -> int:
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--name", default="study_trials", help="of the result file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        cache = f"--compile_cache_dir={folder / 'compiled'}"
        in_study(folder / "warm", 0, cache)  # fills the cache, and imports all that a trial needs
        pairs = []
        for seed in range(arguments.trials):
            sides = [("study", in_study), ("single", alone)]
            results = {
                name: run(folder / f"{name}_{seed}", seed, cache)
                for name, run in (sides if seed % 2 else sides[::-1])
            }
            pairs.append((results["study"], results["single"]))
            print(seed, *(result.time_to_accuracy_seconds for result in pairs[-1]), flush=True)
        differing = [first.seed for first, second in pairs if not same(first, second)]
        steps = harness.Rounds(
            [1000 * first.train_seconds / first.steps for first, _ in pairs],
            [1000 * second.train_seconds / second.steps for _, second in pairs],
            "ms a step",
        )
        facts = {
            "step_milliseconds": steps.to_json(),
            "seeds_with_other_losses": differing,
            "reached": [
                sum(result.reached for result in side) for side in zip(*pairs, strict=True)
            ],
            "study_seconds": whole_study(folder, arguments.trials, cache),
            "loop_seconds": loop(folder, arguments.trials, cache),
        }
    print(harness.write(arguments.name, {"trials": arguments.trials, **facts}))
    return 0 if not differing else 1


def in_study(run_dir: Path, seed: int, cache: str) -> Trial:
    """Result of a trial in this process."""
    options = RunOptions(
        compile_cache_dir=cache.partition("=")[2], profile=ProfileOptions(after_run=False)
    )
    return dawnjax.run("digits", seed=seed, run_dir=run_dir, options=options, shows=False)


def alone(run_dir: Path, seed: int, cache: str) -> Trial:
    """Result of a trial in a process of its own."""
    command = ["train", "digits", f"--seed={seed}", f"--run_dir={run_dir}", cache]
    call(*command, "--profile.after_run=false")
    return dawnjax.load_run(run_dir)


def same(first: Trial, second: Trial) -> bool:
    """True if two trials computed the same."""
    return first.first_losses == second.first_losses and first.steps == second.steps


def whole_study(folder: Path, trials: int, cache: str) -> float:
    """Seconds of a study of all seeds in one command."""
    started = time.perf_counter()
    call("study", "--experiment=digits", f"--seeds={trials}", f"--out={folder / 'study'}", cache)
    return time.perf_counter() - started


def loop(folder: Path, trials: int, cache: str) -> float:
    """Seconds of a command for each seed, one after the other."""
    started = time.perf_counter()
    for seed in range(trials):
        alone(folder / f"loop_{seed}", seed, cache)
    return time.perf_counter() - started


def call(*command: str) -> None:
    """Run `dawnjax` with its output hidden; CalledProcessError if it fails."""
    subprocess.run([sys.executable, "-m", "dawnjax", *command], check=True, capture_output=True)


if __name__ == "__main__":
    sys.exit(main())
