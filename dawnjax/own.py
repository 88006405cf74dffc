"""All that a file of one's own imports: `from dawnjax.own import Experiment, ImageArrays, Task`.

Names are loaded when they are first used, so that a file loads no model or data set of the others.
`own.pyi` lists them, for type checkers and for this module; docs/extending.md says what each is
for.
"""

import ast
import functools
import importlib
from importlib import resources
from typing import Any


@functools.cache
def _owners() -> dict[str, str]:
    """Module of each public name."""
    stub = ast.parse(resources.files("dawnjax").joinpath("own.pyi").read_text())
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or "" for node in imports for alias in node.names}


def __getattr__(name: str) -> Any:
    if name not in _owners():
        raise AttributeError(f"dawnjax.own has no {name}; docs/extending.md lists what it has")
    return getattr(importlib.import_module(_owners()[name]), name)


def __dir__() -> list[str]:
    return sorted(_owners())
