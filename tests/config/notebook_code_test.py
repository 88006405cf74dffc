"""Code of classes that cells of a notebook define."""

import dataclasses
import sys
import types

import pytest

import dawnjax.experiments.digits as digits
from dawnjax.config import own_files

CONFIG = """
import dataclasses
@dataclasses.dataclass(frozen=True)
class Schedule:
    TAG = "mine"
    warmup_epochs: float = 0.0
    def build(self, *given):
        return decayed  # by a name of another cell
"""
DECAY = "def decayed(step):\n    return RATE * step\n"


class Notebook:
    """`__main__` as IPython leaves it after some cells."""

    def __init__(self, monkeypatch):
        self.main = types.ModuleType("__main__")
        self.cells = vars(self.main)["_ih"] = [""]
        monkeypatch.setitem(sys.modules, "__main__", self.main)

    def run(self, cell):
        self.cells.append(cell)
        exec(cell, vars(self.main))

    def code(self):
        schedule = self.main.Schedule()
        own = own_files.file_of(dataclasses.replace(digits.EXPERIMENT, schedule=schedule))
        assert own is not None
        return own.code()


@pytest.fixture
def notebook(monkeypatch):
    notebook = Notebook(monkeypatch)
    for cell in (CONFIG, DECAY, "RATE = 0.1"):
        notebook.run(cell)
    return notebook


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(DECAY.replace("*", "/"), id="a function that the class uses"),
        pytest.param(CONFIG.replace("0.0", "1.0"), id="the class"),
        pytest.param(CONFIG.replace("(self", "(self, other=1", 1), id="the signature of a method"),
    ],
)
def test_a_cell_that_changes_the_computation_changes_the_code(notebook, cell):
    before = notebook.code()
    notebook.run(cell)
    assert notebook.code() != before


def test_other_cells_leave_the_code(notebook):
    before = notebook.code()
    notebook.run("list(range(3))")
    notebook.run(DECAY)  # once more
    notebook.cells.append("!ls (")  # IPython keeps what is no Python too
    assert notebook.code() == before
