"""Code of classes that cells of a notebook define, which is part of a run as a file's is.

A cell has no file. IPython keeps the texts of all that ran, oldest first, as `_ih`.
"""

import ast
import sys
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from dawnjax.config.own_sources import OwnFile

_NAME = "notebook"

_VALUES = bool | int | float | str | tuple | None
"""Values that a definition may use by their names, such as `WIDTH = 32`."""


def own_file(classes: Iterable[type]) -> OwnFile | None:
    """Texts of classes of `__main__` and of what they use there; None where no cell has them.

    A definition is that of the newest cell. Other lines of a cell do not count, so that a cell
    may hold the call that trains as well.
    """
    main = vars(sys.modules["__main__"])
    cells = [cell for cell in main.get("_ih", ()) if isinstance(cell, str)]
    newest: dict[str, str] = {}
    for cell in cells:
        newest.update(_definitions(cell))
    waiting = [cls.__name__ for cls in classes]
    texts: dict[str, str] = {}
    for name in waiting:
        texts[name] = _text(name, main.get(name), newest)
        used = [other for other in _names(texts[name]) if other in main]
        waiting += [other for other in dict.fromkeys(used) if other not in waiting]
    if not any(texts.values()):
        return None
    return OwnFile(Path(_NAME), {_NAME: "\n\n\n".join(filter(None, map(texts.get, sorted(texts))))})


def _text(name: str, value: Any, newest: dict[str, str]) -> str:
    if isinstance(value, type | types.FunctionType) or hasattr(value, "__wrapped__"):
        return newest.get(name, "") if value.__module__ == "__main__" else ""
    return f"{name} = {value!r}" if isinstance(value, _VALUES) else ""


def _definitions(cell: str) -> Iterator[tuple[str, str]]:
    """Names and texts of the classes and functions that a cell defines."""
    for node in _parsed(cell):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name, ast.unparse(node)


def _names(text: str) -> Iterator[str]:
    for node in _parsed(text):
        yield from (item.id for item in ast.walk(node) if isinstance(item, ast.Name))


def _parsed(text: str) -> list[ast.stmt]:
    try:
        return ast.parse(text).body
    except (SyntaxError, ValueError):
        return []  # IPython keeps cells that did not run too
