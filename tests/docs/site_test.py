"""The notebook: its cells run, and its outputs are theirs."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import fault_runs
import pytest

pytestmark = [pytest.mark.long, pytest.mark.processes]

TOP = Path(__file__).parents[2]

EASIER = """
import dataclasses
from dawnjax.experiments import digits
_target = dataclasses.replace(digits.EXPERIMENT.targets[0], value=0.5)
digits.EXPERIMENT = dataclasses.replace(digits.EXPERIMENT, targets=(_target,))
"""
"""A target that the first evaluation reaches."""


def test_the_notebooks_outputs_are_those_of_its_cells(tmp_path):
    """`jupyter nbconvert --to notebook --execute --inplace docs/notebook.ipynb` makes them anew."""
    path = TOP / "docs" / "notebook.ipynb"
    notebook = json.loads(path.read_text())
    assert path.stat().st_size < 100_000
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    [drawn] = [cell for cell in cells if "matplotlib" in "".join(cell["source"])]
    assert [list(output["data"]) for output in drawn["outputs"]] == [["image/png", "text/plain"]]
    if importlib.util.find_spec("matplotlib") is None:
        cells.remove(drawn)
    program, mark = tmp_path / "notebook.py", "end of a cell"
    program.write_text(EASIER + f"\nprint({mark!r})\n".join("".join(c["source"]) for c in cells))
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env=fault_runs.environment() | {"MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said = [_without_numbers(text) for text in done.stdout.split(f"{mark}\n")]
    assert said == [_without_numbers(_told(cell)) for cell in cells]
    assert "an earlier run of the same process imported the libraries" in said[1]


def _told(cell: dict) -> str:
    """What an executed cell has printed."""
    assert cell["execution_count"], "the notebook is not executed"
    printed = [output for output in cell["outputs"] if output["output_type"] == "stream"]
    assert all(output["name"] == "stdout" for output in printed)
    return "".join(line for output in printed for line in output["text"])


def _without_numbers(text: str) -> str:
    """Sorted lines without numbers, and without the compiler's flags of the tests."""
    text = re.sub(r" \(XLA_FLAGS=[^)]*\)", "", text)
    return "\n".join(sorted(re.sub(r"\d+(\.\d+)?", "0", text).splitlines()))
