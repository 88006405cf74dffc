"""Commands that the pages and the experiments show: every flag in them exists."""

import ast
import functools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from dawnjax.__main__ import COMMANDS, main

TOP = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").is_file())
PAGES = [TOP / "README.md", TOP / "CONTRIBUTING.md", *sorted((TOP / "docs").glob("*.md"))]
MODULES = sorted((TOP / "experiments").glob("[a-z]*.py"))


def shown(path: Path) -> Iterator[list[str]]:
    """The arguments of each `dawnjax COMMAND` in the code blocks of a page or in a docstring."""
    text = path.read_text()
    if path.suffix == ".py":
        text = ast.get_docstring(ast.parse(text)) or ""
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        found = re.match(
            r"[$ ]*(?:\S*/bin/)?dawnjax ([a-z]+(?= |$).*?)(?:  +#.*|&&.*|> .*)?$", line
        )
        words = shlex.split(found[1]) if found else []
        if words and words[0] in COMMANDS and "COMMAND" not in words:
            while "--" in words:  # launch takes another command behind it
                yield words[: words.index("--")]
                words = words[words.index("--") + 1 :]
            yield words


@functools.cache
def help_of(words: tuple[str, ...], capture: pytest.CaptureFixture) -> str:
    assert main([*words, "--help"]) == 0
    return capture.readouterr().out


@pytest.mark.parametrize("path", [*PAGES, *MODULES], ids=lambda path: path.name)
def test_every_flag_of_a_shown_command_exists(path, capsys):
    for command, *rest in shown(path):
        if any(word.endswith(".py") for word in rest):
            continue  # a file of the reader's own
        # The fields of an experiment depend on its name and on the choices of its parts.
        names = [f"--experiment={word}" for word in rest if not word.startswith("-")]
        choices = [word for word in rest if re.match(r"--[a-z]+=", word)]
        if command in ("train", "plan"):
            choices = [*names[:1], *choices]
        text = help_of((command, *choices), capsys)
        if command == "study":  # each trial takes the flags of `train`
            named = [word for word in choices if word.startswith("--experiment=")]
            text += help_of(("train", *(named or names[:1])), capsys)
        for word in rest:
            flag = word.partition("=")[0]
            # Another set is given to `evaluate` by flags of the run's own task.
            of_the_run = command == "evaluate" and flag.startswith(("--data", "--task"))
            if flag.startswith("--") and flag != "--help" and not of_the_run:
                assert re.search(rf"^\s+{re.escape(flag)}\b", text, re.MULTILINE), (command, word)
