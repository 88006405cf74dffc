"""Files with edits that Hypothesis draws, and what breaks a reader's promise about them.

An edit is a tuple, so that a campaign's line about a failure says how to repeat it: bytes at a part
of the file (`BYTES`), or a value, a key or the structure of its JSON (`VALUES`).
"""

import copy
import dataclasses
import json
import math
import random
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from campaign import Campaign
from hypothesis import HealthCheck, example, given, seed, settings
from hypothesis import strategies as st

from dawnjax import records

SEED = 38
SECONDS = 10
"""Of one try."""

SIGNS = [bytes([sign]) for sign in b'\0\xff-",\t\n\r ']
SIGNS += [b"\xef\xbb\xbf", b"\xc3\xa9", b"\\ud83d", b"[]", b"{}", b"null", b"true", b"NaN"]
SIGNS += [b"9" * 30, b"18446744073709551616", b"1e999"]
PARTS = st.floats(0, 1, exclude_max=True)
BYTES = st.tuples(
    PARTS,
    st.integers(0, 12),
    st.one_of(st.sampled_from(SIGNS), st.binary(max_size=6)),
)
"""Part of the length, number of bytes there, and those that take their place."""

SHORT = 'null true 0 -1 1.5 1e13 1e308 -1e308 5e-324 1e400 NaN -Infinity "" "x" "12" [] {} [null]'
ODD = {
    **{text: text.encode() for text in SHORT.split()},
    "2**31": b"2147483648",
    "2**63": b"9223372036854775808",
    "20 digits": b"9" * 20,
    "5,000 digits": b"9" * 5_000,
    "lone surrogate": b'"\\ud83d"',
    "controls": b'"a\\u0000\\n\\u001b[31m\\u202e\\u2028"',
    "another folder": b'"../../x"',
    "100 KB of text": b'"' + b"a" * 100_000 + b'"',
    "object of an object": b'{"a":{}}',
    "10,000 numbers": b"[" + b"0," * 9_999 + b"0]",
    "59 deep": b"[" * 59 + b"]" * 59,
    "100,000 deep": b"[" * 100_000 + b"]" * 100_000,
}
"""Texts for a value, by the name that stands in an edit."""

UNREAD = ("5,000 digits", "100,000 deep")
OTHERS = [json.loads(text) for name, text in ODD.items() if name not in UNREAD]
"""Those of them that Python reads."""

VALUES = st.one_of(
    BYTES,
    st.tuples(st.sampled_from(["value", "key twice"]), PARTS, st.sampled_from(list(ODD))),
    st.tuples(st.just("forged"), st.integers(0, 2**32)),
    st.tuples(st.just("cut"), PARTS),
)
"""Also another value at a part of the values, a key that stands twice, changes by `forge` with a
seed, or the end cut off."""

_VALUE = re.compile(rb'"(?:[^"\\]|\\.)*+"|-?\d[\d.eE+-]*+|\b(?:true|false|null)\b')
_KEY = re.compile(rb'"(?:[^"\\]|\\.)*+"\s*:')

Edits = Sequence[tuple[Any, ...]]


def edited(content: bytes, edits: Edits) -> bytes:
    """Content after some edits, one after the other."""
    for edit in edits:
        match edit:
            case ("forged", number):
                try:
                    value = json.loads(content)
                except (ValueError, RecursionError):  # it is not JSON, or an edit before took care
                    continue
                if isinstance(value, dict | list):
                    value = forge(value, random.Random(number))
                    content = json.dumps(value, separators=(",", ":")).encode()
            case ("replaced", old, new):
                assert old in content, f"{old!r} is in no such record"
                content = content.replace(old, new, 1)
            case ("cut", part):
                content = content[: int(part * len(content))]
            case (str(kind), part, odd):
                found = list((_VALUE if kind == "value" else _KEY).finditer(content))
                if not found:
                    continue
                token = found[int(part * len(found))]
                new = ODD[odd] if kind == "value" else token[0] + ODD[odd] + b"," + token[0]
                content = content[: token.start()] + new + content[token.end() :]
            case (part, count, new):
                place = int(part * (len(content) + 1))
                content = content[:place] + new + content[place + count :]
    return content


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every list or object in a value with each of its keys or positions."""
    found, stack = [], [value]
    while stack:
        whole = stack.pop()
        for key in keys_of(whole):
            found.append((whole, key))
            if isinstance(whole[key], dict | list):
                stack.append(whole[key])
    return found


def keys_of(whole: Any) -> Sequence[Any]:
    return range(len(whole)) if isinstance(whole, list) else list(whole)


def forge(value: Any, draw: random.Random) -> Any:
    """A copy of a value with one to three changes: another value, one less, one more, a swap."""
    changed = copy.deepcopy(value)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        all_places = places(changed)
        if not all_places:
            break
        whole, key = draw.choice(all_places)
        kind = draw.randrange(8)
        if kind == 0:
            del whole[key]
        elif kind == 1:
            other, its = draw.choice(all_places)
            if other is not whole:
                whole[key] = copy.deepcopy(other[its]) if its in keys_of(other) else None
        elif kind == 2 and isinstance(whole, list):
            whole.insert(key, copy.deepcopy(whole[key]))
        elif kind == 3 and isinstance(whole, dict):
            whole[draw.choice(("event", "a", "", "\0", "past", "step"))] = draw.choice(OTHERS)
        else:
            whole[key] = copy.deepcopy(draw.choice(OTHERS))
    return changed


Refusal = type[Exception] | tuple[type[Exception], ...]


class Record(NamedTuple):
    """A record that is read.

    Attributes:
      file: Its path in a folder that is empty at first.
      make: Writes what lies beside the file, and returns the honest content, or what `put` takes.
      read: Reads the file as a command does.
      refusal: Error that may refuse it; none where a damaged file counts as absent.
      put: Writes a content, such as packed.
      above: Folders above the file, the last of which a refusal names; 0 for the file itself.
    """

    file: str
    make: Callable[[Path], bytes]
    read: Callable[[Path], object]
    refusal: Refusal = ()
    put: Callable[[Path, bytes], object] = Path.write_bytes
    above: int = 0


def of(content: bytes | str | Any) -> Callable[[Path], bytes]:
    """Maker of a file that lies alone: bytes, or values for JSON."""
    data = content if isinstance(content, bytes) else json.dumps(records.plain(content)).encode()
    return lambda _: data


def in_lines(lines: Any) -> None:
    """Check that a report has one line for each of its points."""
    for line in lines:
        if len(str(line).splitlines()) != 1:
            raise AssertionError(f"no line: {str(line)[:200]!r}")


def fuzz_one(
    fuzz: Campaign,
    count: int,
    name: str,
    act: Callable[[Edits], str],
    edit: st.SearchStrategy[tuple[Any, ...]] = BYTES,
    kept: Sequence[Edits] = (),
) -> None:
    """Try a reader on the kept edits, and on so many that Hypothesis draws.

    Args:
      act: Edits a file, reads it, and answers what was wrong with that; empty for nothing.
      kept: Edits that a reader once failed on.
    """

    def try_one(edits: Edits) -> None:
        started = time.perf_counter()
        why = act(edits)
        seconds = time.perf_counter() - started
        why = why or ("too slow" if seconds > SECONDS else "")
        fuzz.tried(f"{name} {edits}", held=not why, why=why, seconds=seconds)

    for edits in kept:
        try_one = example(edits)(try_one)
    drawn = given(st.lists(edit, min_size=1, max_size=4))(try_one)
    slow = [HealthCheck.too_slow]
    limits = settings(max_examples=count, deadline=None, database=None, suppress_health_check=slow)
    seed(SEED)(limits(drawn))()


def fuzz_record(
    fuzz: Campaign, count: int, name: str, record: Record, folder: Path, kept: Sequence[Edits] = ()
) -> None:
    """Make a record in a new folder, read it, and then with the edits of `fuzz_one`."""
    path = folder / record.file
    path.parent.mkdir(parents=True)
    honest = record.make(path)
    place = str([path, *path.parents][record.above])

    def act(edits: Edits) -> str:
        record.put(path, edited(honest, edits))
        return broken(lambda: record.read(path), record.refusal, place)

    record.put(path, honest)
    fault = broken(lambda: record.read(path), (), place)
    assert not fault, f"{name}, as it was made: {fault}"
    fuzz_one(fuzz, count, name, act, VALUES, kept)


def broken(read: Callable[[], object], refusal: Refusal, place: str) -> str:
    """What breaks a reader's promise; empty for a sound result, or one line that names a place."""
    try:
        return unsound(read())
    except refusal as error:
        is_line = len(str(error).splitlines()) == 1 and place in str(error)
        return "" if is_line else f"the line is {str(error)[:300]!r}"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]}"


def unsound(value: Any, name: str = "it") -> str:
    """Place of a number that is not finite, in what a reader made; empty for none."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{name} is {value}"
    if dataclasses.is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, list | tuple):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        return ""
    found = (unsound(part, f"{name}.{key}") for key, part in value.items())
    return next(filter(None, found), "")
