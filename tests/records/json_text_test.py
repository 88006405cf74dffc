"""JSON that is printed: numbers that JSON has, from one function."""

import ast
import json
import math
import os
from pathlib import Path

from dawnjax import records

PACKAGE = Path(__file__).resolve().parents[2] / "dawnjax"


def test_numbers_that_json_lacks_become_null():
    told = {"a": [1.5, math.inf, (math.nan, -math.inf)], "b": {"c": math.nan}, "d": True}
    text = records.json_text(told, indent=1)
    assert json.loads(text) == {"a": [1.5, None, [None, None]], "b": {"c": None}, "d": True}
    assert records.json_text({"a": 0.1}) == '{"a": 0.1}'


def test_no_module_prints_json_by_another_function():
    printed = []
    for folder, _, names in os.walk(PACKAGE, followlinks=True):
        for name in names:
            # A file that people copy imports nothing of ours.
            if not name.endswith(".py") or name == "log_lines.py":
                continue
            for call in ast.walk(ast.parse(Path(folder, name).read_text())):
                if isinstance(call, ast.Call) and _name(call) in ("print", "write", "echo"):
                    inner = (node for node in ast.walk(call) if isinstance(node, ast.Call))
                    if any(_name(node) in ("dumps", "dump") for node in inner):
                        printed.append(f"{folder}/{name}:{call.lineno}")
    assert not printed


def _name(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))
