"""The judge where JAX is not installed: what reads results imports nothing that trains."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from made_other_logs import normal, write_side
from made_runs import write_run

TOP = Path(__file__).parents[2]

TRAINS = ("jax", "jaxlib", "flax", "optax", "orbax", "cv2", "sklearn")
BLOCKER = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {TRAINS}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
from dawnjax.__main__ import main
"""


def run_without(*commands: list[str]) -> subprocess.CompletedProcess:
    """Run commands in a process to which the modules are not there; statuses are printed."""
    lines = [f"print('status', main({command!r}))" for command in commands]
    script = BLOCKER + "\n".join(lines)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)


@pytest.mark.processes
def test_results_are_compared_reported_and_checked_without_jax(tmp_path):
    sides = [
        str(write_side(tmp_path / name, normal(3.0, 0.02, 5, n))) for n, name in enumerate("ab")
    ]
    for name, seconds in (("c", 10.0), ("d", 20.0)):
        for seed in range(5):
            write_run(tmp_path / name / str(seed), seed=seed, seconds=seconds)
    runs = [f"{tmp_path}/c", f"{tmp_path}/d"]
    done = run_without(
        ["--version"],
        ["compare", *sides],
        ["compare", *runs],
        ["study", "--noise", sides[0]],
        ["import", *sides, f"--out={tmp_path}/logs.jsonl"],
        ["report", *sides, *runs, "--target=3.02", f"--out={tmp_path}/page"],
        ["check", f"{tmp_path}/c/0"],
        ["import", "--help"],
        ["runs", str(tmp_path)],
    )
    assert re.findall(r"^status (\d+)$", done.stdout, re.MULTILINE) == ["0"] * 9, done.stderr
    assert "verdict at the last evaluation" in done.stdout and "verdict: B is slower" in done.stdout
    # What these say of a run without a benchmark's data and without a profile.
    out = f"--out={tmp_path}/out"
    done = run_without(
        ["export", "--format=dawnbench", "--submitter=L", f"{tmp_path}/c/0", out],
        ["profile", f"{tmp_path}/c/0"],
    )
    assert done.stdout.split() == ["status", "2", "status", "2"], done.stderr
    assert "this needs" not in done.stderr


@pytest.mark.processes
def test_training_says_in_one_line_what_is_missing():
    done = run_without(["train", "digits"])
    assert done.stdout.split() == ["status", "1"]
    said = "dawnjax train: this needs jax, which is not installed: pip install dawnjax"
    assert done.stderr.splitlines() == [said]


def test_the_page_lists_what_the_judge_needs():
    declared = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["dependencies"]
    names = {re.match(r"[\w-]+", text)[0] for text in declared}  # pyright: ignore[reportOptionalSubscript]
    of_training = {
        "jax",
        "flax",
        "optax",
        "orbax-checkpoint",
        "etils",
        "opencv-python-headless",
        "scikit-learn",
        "simplejpeg",
    }
    page = (TOP / "docs" / "other_logs.md").read_text()
    line = re.search(r"^    pip install (absl-py .*)$", page, re.MULTILINE)
    assert line is not None and set(line[1].split()) == names - of_training
