"""Tests go through the public surface: none touches a private name of ours."""

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]
PUBLIC_UNDERSCORES = {"_replace", "_asdict", "_fields", "_make", "_exit"}
"""Of named tuples, and of `os`."""
OURS = ("dawnjax", "benchmarks")


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC_UNDERSCORES


def private_names(tree: ast.AST) -> list[tuple[int, str]]:
    """Line and name of each private that is imported, read from another object, or patched."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OURS:
            found += [(node.lineno, alias.name) for alias in node.names if is_private(alias.name)]
        elif isinstance(node, ast.Attribute) and is_private(node.attr):
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                found.append((node.lineno, node.attr))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("setattr", "getattr")):
            texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            names = [text.rpartition(".")[2] for text in texts if isinstance(text, str)]
            found += [(node.lineno, name) for name in names if is_private(name)]
    return sorted(found)


def test_no_test_touches_a_private_of_ours():
    touched = {
        str(path.relative_to(TESTS)): found
        for path in TESTS.rglob("*.py")
        if (found := private_names(ast.parse(path.read_text())))
    }
    assert not touched


def test_privates_are_seen_wherever_they_stand():
    source = (
        "from dawnjax.a import _b\nmodule._c(1)\npatch.setattr(module, '_d', 2)\n"
        "patch.setattr('dawnjax.a._e', 2)\nself._mine\ntuple._replace(a=1)\nother.__name__\n"
    )
    assert private_names(ast.parse(source)) == [(1, "_b"), (2, "_c"), (3, "_d"), (4, "_e")]
