"""Seconds from the command to the end of ResNet-50's first step, against `torch.compile`.

    python -m benchmarks first_step [--rounds=3] [--seconds=540]

Images are synthetic. Both sides first compile everything (cold), and then read their caches (warm).
Ours also compiles initialization and evaluation before its first step. PyTorch's side,
`pytorch_steps.py` in mode `default`, compiles the step alone. Initial parameters differ.

Seconds are wall time from the start of the process to the end of the first step, which is a program
of one step a call. Sides alternate; no round begins that would pass `--seconds`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import harness, step_settings
from dawnjax.runs.log import log_path

_ONE_STEP = ("--num_epochs=0", "--max_steps=1", "--evaluation.first_epoch=0")
_ONE_STEP += ("--schedule.warmup_epochs=0", "--profile.after_run=false", "--tensorboard=false")

Runs = dict[str, dict[str, Any]]
"""Facts of a side's `cold` and `warm` process; all have `first_step_seconds`."""


def main() -> int:
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=540, help="for everything")
    parser.add_argument("--tiny", action="store_true", help="small shapes, to try the benchmark")
    arguments = parser.parse_args()
    end, longest = time.monotonic() + arguments.seconds, 0.0
    # What a process reads from the disk is in memory afterwards.
    _process(["-c", "import dawnjax.train, jax; jax.devices()"])
    _process(["-c", "import torch; torch.cuda.is_available()"])
    ours, theirs = sides(arguments.tiny)
    results, rounds, rows = None, [], []
    for number in range(arguments.rounds):
        began = time.monotonic()
        if number and began + longest > end:
            print(f"first_step: {number} of {arguments.rounds} rounds fit", file=sys.stderr)
            break
        runs = {side: side() for side in ((theirs, ours) if number % 2 else (ours, theirs))}
        longest = max(longest, time.monotonic() - began)
        rounds.append((runs[ours], runs[theirs]))
        if results is None:
            kind = runs[ours]["cold"]["device_kind"].lower().replace(" ", "_")
            how = "_tiny" if arguments.tiny else ""
            results = harness.Results(f"first_step_{kind}{how}", is_tiny=arguments.tiny)
        comparisons = {
            state: harness.Rounds(
                [first[state]["first_step_seconds"] for first, _ in rounds],
                [second[state]["first_step_seconds"] for _, second in rounds],
                "s",
            )
            for state in ("cold", "warm")
        }
        kept = {state: comparison.to_json() for state, comparison in comparisons.items()}
        results.add(rounds=rounds, comparisons=kept)
        rows = [comparison.row(state) for state, comparison in comparisons.items()]
    assert results is not None
    print(harness.table([harness.head("DawnJAX", "PyTorch"), *rows]))
    print(results.path)
    return 0


def sides(is_tiny: bool) -> tuple[Callable[[], Runs], Callable[[], Runs]]:
    """Functions that run our side and PyTorch's, cold and then warm."""
    flagship = step_settings.FLAGSHIPS["resnet50"]
    batch = flagship.tiny_batch if is_tiny else flagship.batch
    flags = [*flagship.flags, *(flagship.tiny_flags if is_tiny else ())]
    flags += [f"--{name}={batch}" for name in ("global_batch_size", "batch_norm_group_size")]
    flags += [f"--data.num_{split}_examples={batch}" for split in ("train", "eval")]
    command = ["-m", "benchmarks.pytorch_steps", "--model=resnet50", "--first_step"]
    command += ["--settings=compiled", *(["--tiny"] if is_tiny else [])]
    size = 32 if is_tiny else 224
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (batch, size, size, 3), np.uint8)
    labels = random.integers(0, 10, batch)

    def ours() -> Runs:
        with tempfile.TemporaryDirectory() as folder:
            return {state: train(flags, Path(folder)) for state in ("cold", "warm")}

    def theirs() -> Runs:
        runs = {}
        with tempfile.TemporaryDirectory() as folder:
            np.savez(Path(folder) / "batch.npz", image=images, label=labels)
            caches = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH")
            variables = {name: f"{folder}/{name}" for name in caches}
            for state in ("cold", "warm"):
                begun, said = _process([*command, f"--check={folder}"], variables)
                answer = json.loads(said.splitlines()[-1])
                answer["first_step_seconds"] = answer.pop("first_step_unix_seconds") - begun
                runs[state] = answer
        return runs

    return ours, theirs


def train(flags: list[str], folder: Path) -> dict[str, Any]:
    """Train one step with the cache of compiled programs in a folder.

    Raises:
      SystemExit: The run failed, or some of its programs were cold and some warm.
    """
    state = "warm" if (folder / "compiled").exists() else "cold"
    run_dir = folder / state
    command = ["-m", "dawnjax", "train", *flags, *_ONE_STEP, f"--run_dir={run_dir}"]
    command += [f"--compile_cache_dir={folder / 'compiled'}"]
    begun, _ = _process(command, {"CUDA_CACHE_PATH": f"{folder}/cuda"})
    result = json.loads((run_dir / "result.json").read_text())
    # A search of the first program may serve the next.
    wanted = {"warm"} if state == "warm" else {"cold", "tuned"}
    if not set(result["compile_cache"].values()) <= wanted:
        raise SystemExit(f"first_step: not all programs were {state}: {result['compile_cache']}")
    events = map(json.loads, log_path(run_dir).read_text().splitlines())
    first_step = next(event for event in events if event["event"] == "train")
    return {
        "first_step_seconds": first_step["unix_seconds"] - begun,
        "compile_seconds": result["phases"]["compile"],
        "compile_cache": result["compile_cache"],
        "device_kind": result["device_kind"],
    }


def _process(arguments: list[str], variables: dict[str, str] | None = None) -> tuple[float, str]:
    """Run a Python process; return its start in Unix seconds, and its output."""
    begun = time.time()
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **(variables or {})},
        capture_output=True,
        text=True,
    )
    if done.returncode not in (0, 3):  # the one step reached the target, or did not
        raise SystemExit(f"first_step: a process failed: {done.stderr[-600:]}")
    return begun, done.stdout


if __name__ == "__main__":
    sys.exit(main())
