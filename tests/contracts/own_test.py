"""`dawnjax.own`: the one module that a file of one's own imports."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dawnjax import own
from dawnjax.config.choices import CHOICES, Choice
from dawnjax.race.tracks import read_track, recipe_text, track_names

TOP = Path(__file__).parents[2]
PAGE = (TOP / "docs" / "extending.md").read_text()
SECTION = PAGE.partition("## What your file imports\n")[2].partition("\n## ")[0]


def test_each_name_is_there():
    for name in dir(own):
        it = getattr(own, name)
        # A table of values has no name of its own.
        assert isinstance(it, dict) or it.__name__ == name


def test_the_page_has_each_name_once():
    rows = re.findall(r"^\| (`.*?) \|", SECTION, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", "".join(rows))) == dir(own)


def test_it_has_all_that_an_experiment_chooses_from():
    for field, tags in CHOICES.items():
        for tag in tags:
            chosen = Choice(field).load(tag)
            assert getattr(own, chosen.__name__) is chosen


def test_a_name_that_is_not_there_says_where_the_list_is():
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        from dawnjax.own import Nothing  # noqa: F401 # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(AttributeError, match=r"has no Nothing; docs/extending\.md lists"):
        _ = own.Nothing  # pyright: ignore[reportAttributeAccessIssue]


def python_texts() -> dict[str, str]:
    """Files of one's own: of `new` and `race new`, and those that pages show."""
    folder = TOP / "dawnjax/config/templates"
    texts = {path.name: path.read_text() for path in folder.glob("*.py")}
    texts |= {f"race {name}": recipe_text(read_track(name)) for name in track_names()}
    for page in (TOP / "docs").glob("*.md"):
        for number, text in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.S)):
            if "EXPERIMENT =" in text or "Arrays)" in text or "STUDY =" in text:
                texts[f"{page.name} {number}"] = text
    cells = json.loads((TOP / "docs" / "notebook.ipynb").read_text())["cells"]
    codes = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return texts | {"notebook": "\n".join(code for code in codes if not code.startswith("%"))}


@pytest.mark.parametrize(("name", "text"), python_texts().items())
def test_files_of_ones_own_import_nothing_else(name, text):
    allowed = {"dawnjax.own"}
    if name == "notebook":
        allowed |= {"dawnjax"}  # to run, and to read results
    for node in ast.walk(ast.parse(text)):
        modules = [getattr(node, "module", None)] if isinstance(node, ast.ImportFrom) else []
        modules += [it.name for it in node.names] if isinstance(node, ast.Import) else []
        ours = {module for module in modules if (module or "").split(".")[0] == "dawnjax"}
        assert ours <= allowed, (name, modules)


@pytest.mark.processes
def test_a_name_loads_no_other_model_and_no_jax():
    script = (
        "import sys\n"
        "from dawnjax import own\n"
        "assert 'Llama' in dir(own)\n"
        "assert not [name for name in sys.modules if name.startswith(('dawnjax.models', 'jax'))]\n"
        "own.ResNet\n"
        "assert 'dawnjax.models.configs.llama' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=TOP)
    assert done.returncode == 0, done.stderr
