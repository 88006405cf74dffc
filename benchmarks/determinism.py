"""The same seed twice, and once killed and resumed: do the parameters agree to the bit?

    python -m benchmarks determinism [--steps=100] [--name=NAME]

Each experiment trains with and without `--deterministic`. XLA promises the same bits on a GPU only
with it; what is measured without it says how often they differ all the same.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from benchmarks import harness

RECIPES = {
    "digits": [],
    # Gradients of embeddings are scattered sums, whose order on a GPU is not fixed.
    "wikipedia_llama_small": ["--data=synthetic_tokens"],
}


def main() -> int:
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--name", default="determinism")
    arguments = parser.parse_args()
    results, rows = harness.Results(arguments.name, steps=arguments.steps), []
    for experiment, flags in RECIPES.items():
        for deterministic in ("false", "true"):
            with tempfile.TemporaryDirectory() as folder:
                given = [*flags, f"--deterministic={deterministic}"]
                first, second, resumed = (
                    parameters(experiment, arguments.steps, Path(folder) / name, given)
                    for name in ("first", "second", "killed")
                )
            rows.append(
                {
                    "experiment": experiment,
                    "deterministic": deterministic == "true",
                    "largest_difference_of_the_same_seed": difference(first, second),
                    "largest_difference_after_a_kill": difference(first, resumed),
                }
            )
            print(rows[-1], flush=True)
            results.add(rows=rows)
    return 0


def parameters(
    experiment: str, steps: int, run_dir: Path, flags: list[str]
) -> dict[str, np.ndarray]:
    """Trained parameters of a run; one that is called `killed` is killed half-way and resumed."""
    program = [sys.executable, "-m", "dawnjax"]
    train = [*program, "train", experiment, f"--run_dir={run_dir}", f"--max_steps={steps}", *flags]
    train += ["--num_epochs=0", "--schedule=constant", "--evaluation.stop_at_target=false"]
    train += ["--evaluation.first_epoch=0", "--profile.after_run=false", "--tensorboard=false"]
    train += [f"--checkpoint.every_steps={max(1, steps // 4)}", "--steps_per_call=1"]
    if run_dir.name == "killed":
        process = subprocess.Popen(train)
        while process.poll() is None and not (run_dir / "checkpoints" / str(steps // 2)).exists():
            time.sleep(0.01)
        process.kill()
        process.wait()
    if subprocess.run(train).returncode not in (0, 3):
        raise SystemExit(f"{experiment}: a run failed")
    out = run_dir / "weights"
    subprocess.run(
        [*program, "export", str(run_dir), "--format=safetensors", f"--out={out}"]
    ).check_returncode()
    return load_file(next(out.glob("*.safetensors")))


def difference(one: dict[str, Any], other: dict[str, Any]) -> float:
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)


if __name__ == "__main__":
    sys.exit(main())
