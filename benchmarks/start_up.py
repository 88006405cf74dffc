"""Seconds of whole commands: `--help`, the analysis library, a second run of an experiment.

    python -m benchmarks start_up [--rounds=10] [--runs=3] [--experiment=digits]

Whole processes alternate: `dawnjax --help` with an empty interpreter, and `import dawnjax.analysis`
with `import numpy`, which it needs. A second run of an experiment, which reads its programs from
the cache, stands against the first, in compilation and in its whole process, profile included. Both
must have the same first losses, and every program of the second must come from the cache.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import harness

_COMMANDS = {
    "dawnjax --help": (["-m", "dawnjax", "--help"], ["-c", "pass"], "an empty program"),
    "import dawnjax.analysis": (
        ["-c", "import dawnjax.analysis"],
        ["-c", "import numpy"],
        "import numpy",
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--experiment", default="digits")
    arguments = parser.parse_args()
    results = harness.Results("start_up", unit="seconds")
    commands: dict[str, Any] = {}
    for name, (ours, other, other_name) in _COMMANDS.items():
        comparison = harness.alternate(
            lambda ours=ours: _seconds(ours), lambda other=other: _seconds(other), arguments.rounds
        )
        commands[name] = {"against": other_name, **comparison.to_json()}
        results.add(commands=commands)
    runs = [_first_and_second(arguments.experiment) for _ in range(arguments.runs)]
    second_runs: dict[str, Any] = {"experiment": arguments.experiment, "rounds": runs}
    for quantity in ("compile_seconds", "process_seconds"):
        second, first = ([run[name][quantity] for run in runs] for name in ("second", "first"))
        second_runs[quantity] = harness.Rounds(second, first).to_json()
    results.add(second_runs=second_runs)
    results.show("start_up")
    return 0


def _seconds(arguments: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def _first_and_second(experiment: str) -> dict[str, dict[str, float]]:
    """Run an experiment twice with one cache of compiled programs, empty at first."""
    times, losses = {}, []
    with tempfile.TemporaryDirectory() as directory:
        for name in ("first", "second"):
            run_dir = Path(directory, name)
            command = [sys.executable, "-m", "dawnjax", "train", f"--experiment={experiment}"]
            command += [f"--run_dir={run_dir}", f"--compile_cache_dir={directory}/compiled"]
            started = time.perf_counter()
            done = subprocess.run(command, capture_output=True, text=True)
            seconds = time.perf_counter() - started
            if done.returncode not in (0, 3):  # reached, or not: the compilation is the same
                raise SystemExit(f"start_up: the {name} run failed: {done.stderr[-600:]}")
            result = json.loads((run_dir / "result.json").read_text())
            programs = set(result["compile_cache"].values())
            if programs != ({"cold"} if name == "first" else {"warm"}):
                raise SystemExit(f"start_up: programs of the {name} run: {result['compile_cache']}")
            times[name] = {
                "compile_seconds": result["phases"]["compile"],
                "process_seconds": seconds,
            }
            losses.append(result["first_losses"])
    harness.same_losses(*losses, tolerance=1e-6)
    return times


if __name__ == "__main__":
    sys.exit(main())
