"""`dawnjax new`: the files of docs/extending.md, under a name of the user's."""

import ast
import re
from pathlib import Path

import pytest

from dawnjax.__main__ import main
from dawnjax.config.experiment_modules import load_experiment

PAGE = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.S)


@pytest.mark.parametrize(
    ("flags", "tag"),
    [
        ([], "small_net"),
        (["--kind=regression"], "linear_model"),
    ],
)
def test_a_new_file_is_one_of_the_page_under_its_own_name(
    flags, tag, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "mine", *flags]) == 0
    assert "dawnjax train mine.py" in capsys.readouterr().out
    experiment = load_experiment("mine.py")
    assert (experiment.name, experiment.model.TAG) == ("mine", tag)
    text = Path("mine.py").read_text()
    # The tests of that page train its files to their targets.
    unnamed = [re.sub(r'name="\w+",\n', "", block) for block in BLOCKS]
    assert re.sub(r'name="\w+",\n', "", text) in unnamed
    ast.parse(text)
