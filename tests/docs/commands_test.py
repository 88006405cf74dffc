"""Commands in pages, docstrings and messages: each name and flag in them exists."""

import ast
import contextlib
import functools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from dawnjax.__main__ import COMMANDS, main
from dawnjax.config.experiment_modules import experiment_names

TOP = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").is_file())
PAGES = [TOP / "README.md", TOP / "CONTRIBUTING.md", *sorted((TOP / "docs").glob("*.md"))]
PAGES += [TOP / "AGENTS.md", *sorted((TOP / "benchmarks").glob("*.md"))]
PAGES += sorted(TOP.glob("skills/*/*.md"))
MODULES = sorted((TOP / "experiments").glob("[a-z]*.py"))
BENCHMARKS = sorted((TOP / "benchmarks").glob("[a-z]*.py"))
CODE = [
    path
    for folder in ("dawnjax", "models", "input_pipeline")
    for path in sorted((TOP / folder).rglob("*.py"))
]


@functools.cache
def texts(path: Path) -> list[str]:
    """A page, or the texts of a module that show a command and are no part of an f-string."""
    text = path.read_text()
    if path.suffix != ".py":
        return [text]
    if not re.search(r"(?<!from )dawnjax [a-z]|python -m benchmarks ", text):
        return []
    tree = ast.parse(text)
    formatted = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    parts = {id(part) for node in formatted for part in ast.walk(node)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts
        if "dawnjax " in node.value or "python -m benchmarks" in node.value
    ]


def shown(path: Path, program: str) -> Iterator[list[str]]:
    """Words after `program` of each command in lines of code and in `code` within sentences."""
    start = rf"[$ ]*(?:[A-Z_]+=\S+ )*(?:\S*/bin/)?{program} ([a-z_]+(?= |$).*?)"
    for text in texts(path):
        sentences = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
        spans = [" ".join(span.split()) for span in re.findall(r"`([^`]{1,300})`", sentences)]
        for line in [*re.sub(r"\\\n\s*", " ", text).splitlines(), *spans]:
            found = re.fullmatch(rf"{start}(?:  +#.*|&&.*|> .*)?", line)
            # Brackets hold what may be left out; dots and "etc." what a sentence leaves out.
            plain = re.sub(r"[\[\]]|\.\.\.|…", " ", found[1]) if found else ""
            with contextlib.suppress(ValueError):  # a sentence with an apostrophe
                if words := shlex.split(plain):
                    yield words


def dawnjax_commands(path: Path) -> Iterator[list[str]]:
    """The arguments of each `dawnjax COMMAND`; `launch` takes another command behind `--`."""
    for words in shown(path, "dawnjax"):
        # A sentence of code may begin with the name, as `dawnjax is` does.
        if words[0] in COMMANDS and "COMMAND" not in words:
            while "--" in words:
                yield words[: words.index("--")]
                words = words[words.index("--") + 1 :]
            yield words


@functools.cache
def help_of(words: tuple[str, ...], capture: pytest.CaptureFixture) -> str:
    assert main([*words, "--help"]) == 0
    return capture.readouterr().out


def unknown_flags(command: str, rest: list[str], capture: pytest.CaptureFixture) -> list[str]:
    """Flags of a shown command that it does not have."""
    rest = [word for word in rest if not re.match(r"--[A-Z]", word)]  # `--FLAG=VALUE`
    if any(word.endswith(".py") for word in rest):
        return []  # a file of the reader's own
    # The fields of an experiment depend on its name and on the choices of its parts.
    names = [f"--experiment={w}" for w in rest if w in experiment_names()]
    choices = [word for word in rest if re.match(r"--[a-z]+=[^A-Z]", word)]
    choices += [word for word in rest if word == "--noise"]  # another form of `study`
    if command in ("train", "plan"):
        choices = [*names[:1], *choices]
    text = help_of((command, *choices), capture)
    if command == "study":  # each trial takes the flags of `train`
        named = [word for word in choices if word.startswith("--experiment=")]
        text += help_of(("train", *(named or names[:1])), capture)
    unknown = []
    for word in rest:
        flag = word.partition("=")[0]
        # Another set is given to `evaluate` by flags of the run's own task.
        of_the_run = command == "evaluate" and flag.startswith(("--data", "--task"))
        if flag.startswith("--") and flag not in ("--help", "--") and not of_the_run:
            known = re.search(rf"^(?:\s+|usage: .*){re.escape(flag)}\b", text, re.MULTILINE)
            unknown += [] if known else [f"{command} {word}"]
    return unknown


@pytest.mark.parametrize("path", [*PAGES, *MODULES], ids=lambda path: path.name)
def test_every_flag_of_a_shown_command_exists(path, capsys):
    unknown = []
    for command, *rest in dawnjax_commands(path):
        unknown += unknown_flags(command, rest, capsys)
    assert unknown == []


def test_every_flag_that_code_names_exists(capsys):
    unknown = []
    for path in [*CODE, *BENCHMARKS]:
        for command, *rest in dawnjax_commands(path):
            unknown += [f"{path.name}: {word}" for word in unknown_flags(command, rest, capsys)]
    assert unknown == []


def test_every_benchmark_that_is_shown_is_there():
    places = [*PAGES, *MODULES, *BENCHMARKS, *CODE]
    names = {name for path in places for name, *_ in shown(path, "python -m benchmarks")}
    assert len(names) > 15
    assert [name for name in names if not (TOP / "benchmarks" / f"{name}.py").is_file()] == []
