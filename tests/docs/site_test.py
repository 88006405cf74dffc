"""The documentation: the site builds without a warning, and the notebook's cells run."""

import json
import re
import subprocess
import sys
from pathlib import Path

import fault_runs
import pytest

from dawnjax.errors import install

pytestmark = pytest.mark.processes

TOP = Path(__file__).parents[2]

EASIER = """
import dataclasses
from dawnjax.experiments import digits
_target = dataclasses.replace(digits.EXPERIMENT.targets[0], value=0.5)
digits.EXPERIMENT = dataclasses.replace(digits.EXPERIMENT, targets=(_target,))
"""
"""A target that the first evaluation reaches."""


def test_the_site_builds_strictly(tmp_path):
    for name in ("mkdocs", "mkdocstrings"):
        pytest.importorskip(name, reason=f"needs {name} ({install('docs')})")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]

    def page(name: str) -> str:
        return (tmp_path / "site" / name / "index.html").read_text()

    assert "time_to_accuracy_seconds" in page("numbers") and "allocated_cost_usd" in page("numbers")
    flags = page("reference/commands")
    assert "--optimizer.base_learning_rate" in flags and "fail_if_slower_by" in flags
    assert "load_losses" in page("reference/python") and "to_dataframe" in page("reference/python")


def test_the_notebooks_cells_run(tmp_path):
    notebook = json.loads((TOP / "docs" / "notebook.ipynb").read_text())
    cells = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]
    program = tmp_path / "notebook.py"
    program.write_text("\n".join([EASIER, *cells]))
    command = [sys.executable, str(program)]
    done = subprocess.run(
        command, cwd=tmp_path, env=fault_runs.environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    assert re.match(r"0 reached \d+\.\d+", lines[0]), lines[0]
    assert "1 earlier runs of the same process imported the libraries" in done.stdout
    assert "{'global_batch_size': 32}" in done.stdout
