"""JSON that was changed at a random place, as a forger or a fault of a program would."""

import copy
import json
import random
from typing import Any

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 10**19, -(10**19), 0.5, -0.0, 1e308, -1e308, 5e-324, "", "x",
    "NaN", "Infinity", "\0", "\ud800", "\u202e\x1b[31m", "a" * 10_000, "9" * 400, [], {}, [[]],
    [0], [None], ["x"], {"": 0}, {"x": {}}, {"event": {}}, {"metric": 1}, float("nan"),
    float("inf"),
)  # fmt: skip


def deep(levels: int) -> Any:
    """A value of lists and objects inside each other."""
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every list or object in a value with each of its keys or positions."""
    found = []
    stack = [value]
    while stack:
        whole = stack.pop()
        keys = range(len(whole)) if isinstance(whole, list) else list(whole)
        for key in keys:
            found.append((whole, key))
            if isinstance(whole[key], dict | list):
                stack.append(whole[key])
    return found


def forge(value: Any, draw: random.Random) -> Any:
    """A copy of a value with one to three changes: another value, one less, one more, a swap."""
    changed = copy.deepcopy(value)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        all_places = places(changed)
        if not all_places:
            break
        # An early place is as likely as one of the many that are deep inside.
        whole, key = draw.choice(all_places)
        kind = draw.randrange(8)
        if kind == 0:
            del whole[key]
        elif kind == 1:
            other, its = draw.choice(all_places)
            if other is not whole:
                whole[key] = copy.deepcopy(other[its]) if its in _keys(other) else None
        elif kind == 2 and isinstance(whole, list):
            whole.insert(key, copy.deepcopy(whole[key]))
        elif kind == 3 and isinstance(whole, dict):
            whole[draw.choice(("event", "a", "", "\0", "past", "step"))] = draw.choice(ODD)
        elif kind == 4:
            whole[key] = deep(draw.choice((5, 55, 70, 200)))
        else:
            whole[key] = copy.deepcopy(draw.choice(ODD))
    return changed


def _keys(whole: Any) -> Any:
    return range(len(whole)) if isinstance(whole, list) else whole


def text(value: Any) -> bytes:
    """A value as JSON, with NaN and lone surrogates as Python writes them."""
    return json.dumps(value, separators=(",", ":")).encode()
