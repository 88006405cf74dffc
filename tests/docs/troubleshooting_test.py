"""The page of troubleshooting: every message that it quotes is one that the code can print."""

import ast
import functools
import os
import re
from pathlib import Path

import pytest

TOP = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").is_file())
PAGE = TOP / "docs" / "troubleshooting.md"
QUOTED = re.findall(r"^\| `(.+?)` \|", PAGE.read_text(), re.MULTILINE)
VALUE = "\0"
"""Stands in a text of the code for a value that is put in when the program runs."""


def text_of(node: ast.expr) -> str:
    """A text of the code, with `VALUE` for what is not written there."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else VALUE
    if isinstance(node, ast.JoinedStr):
        return "".join(map(text_of, node.values))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return text_of(node.left) + text_of(node.right)
    return VALUE


@functools.cache
def texts_of_the_code() -> str:
    """All texts of the package, one a line."""
    texts = []
    for folder, _, names in os.walk(TOP / "dawnjax", followlinks=True):
        for name in names:
            if name.endswith(".py"):
                tree = ast.parse(Path(folder, name).read_text())
                expressions = (node for node in ast.walk(tree) if isinstance(node, ast.expr))
                texts += [text_of(node).replace("\n", " ") for node in expressions]
    return "\n".join(texts)


def test_the_page_quotes_the_messages_that_users_meet():
    assert len(QUOTED) == len(set(QUOTED)) >= 50


@pytest.mark.parametrize("message", QUOTED)
def test_a_quoted_message_is_one_of_the_code(message):
    # A value between quotation marks is written by `!r`, which puts the marks.
    parts = message.replace("'...'", "...").split("...")
    pattern = "[^\n]*".join(map(re.escape, parts))
    assert re.search(pattern, texts_of_the_code()), message
