"""Records of MLPerf training logs, in three forms of lines.

v0.5 writes `:::MLPv0.5.0 <benchmark> <seconds> (<file>:<line>) <tag>` and at times `: <value>`;
v0.6 `:::MLL <seconds> <key>: {...}`; from v0.7 `:::MLLOG {...}` with `time_ms`. A log mixes the
output of a whole job: a marker may stand anywhere in a line, and records come in any order.

If no line has one of these forms, v0.5's form with another version below 1 or without its optional
parts is tried. A line that is no JSON is tried in Python's notation, in which one entry of v0.6
wrote its metadata. `Records.dialect` names both.

Source: mlcommons/logging, `mlperf_logging/mllog` and the parsers of its compliance checker; and the
files of the rounds themselves.
"""

import ast
import json
import re
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from dawnjax.official.outcome import Refused, printable
from dawnjax.official.text import finite
from dawnjax.records import count_marks

MARKER = b":::MLP"

_V05 = re.compile(
    rb":::MLPv0\.5\.\d+ (\w+) (\d+(?:\.\d+)?) "
    rb"\([^)\r\n]{0,400}\) (\w+)[ \t]*(?::[ \t]*([^\r\n]*))?"
)
_MLL = re.compile(rb":::MLL (\d+(?:\.\d+)?) (\w+): ?(\{[^\r\n]*)")
_MLLOG = re.compile(rb":::MLLOG ?(\{[^\r\n]*)")

_V05_LIKE = re.compile(
    rb":::MLP[v-]?0\.\d+(?:\.\d+)?[ \t]+(?:([A-Za-z]\w*)[ \t]+)?(\d+(?:\.\d+)?)[ \t]+"
    rb"(?:\([^)\r\n]{0,400}\)[ \t]+)?([A-Za-z]\w*)[ \t]*(?::[ \t]*([^\r\n]*))?"
)
_MOST_PYTHON = 4000
"""Bytes of a line that is read in Python's notation."""

_MOST_TRIED = 4 * 2**20
"""Bytes of a log's lines that are tried in Python's notation, which is a hundred times slower."""

_BYTES_OF_TRIAL = 100
"""Bytes that a trial of a line counts beside its own, because each takes 40 microseconds."""

_DECODER = json.JSONDecoder()

MAX_RECORDS = 200_000
"""Marked lines of a log; those of v0.5 have up to 5,342."""

MAX_MARKS = 1_500_000
"""Commas, colons and brackets in all marked lines of a log."""

MAX_LINE_BYTES = 2**20
"""A marked line above this is not read; those of v0.5 have up to some hundred bytes."""


class Record(NamedTuple):
    """One marked line; `seconds` is Unix time, `offset` its byte in the file."""

    seconds: float | None
    key: str
    value: Any
    metadata: dict[str, Any]
    offset: int


class Records(NamedTuple):
    """Records of a log, in the order of the file.

    Attributes:
      version: `v0.5`, `v0.6` or `v0.7+`: the kind of lines.
      benchmark: Named in every line of v0.5; else empty.
      unreadable: Offsets of lines with a marker that cannot be read.
      time_name: Name of the stamps in lines from v0.7 on: `time_ms`, `time_s` or both.
      dialect: Form of the lines where it is none of the known ones; else empty.
    """

    version: str
    benchmark: str
    records: list[Record]
    unreadable: list[int]
    time_name: str = ""
    dialect: str = ""


def line_of(data: bytes, offset: int) -> int:
    """Number, from 1, of the line at an offset; LF ends a line."""
    return data.count(b"\n", 0, offset) + 1


def parse(data: bytes) -> Records:
    """Parse a log; `Refused` if it has no record, or records of two kinds."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Refused("is UTF-16; write it as UTF-8")
    kinds = [b":::MLPv0.5" in data, b":::MLL " in data, b":::MLLOG" in data]
    if not any(kinds) and MARKER not in data:
        raise Refused("has no MLPerf record (:::MLPv0.5.0, :::MLL or :::MLLOG)")
    # Counted in the bytes, before any record takes memory.
    marked = data.count(b":::ML")
    if marked > MAX_RECORDS:
        raise Refused(f"has {marked:,} marked lines; at most {MAX_RECORDS:,} are read")
    if sum(kinds) > 1:
        raise Refused("has records of two versions of MLPerf")
    if kinds[1] or kinds[2]:
        values = _Values()
        log = (_parse_mll if kinds[1] else _parse_mllog)(data, values.body)
        if values.num_python and values.num_not_tried:
            raise Refused(
                f"has {values.num_python:,} lines in Python's notation instead of JSON, and more "
                f"than {_MOST_TRIED:,} bytes of such lines"
            )
        if values.num_python:
            log = log._replace(
                dialect=f"lines in Python's notation instead of JSON: {values.num_python}"
            )
    else:
        log = _parse_v05(data, _V05)
        if not log.records:
            log = _parse_v05(data, _V05_LIKE)._replace(
                dialect=f"lines such as {_first_marked(data)!r}, read in the form of v0.5"
            )
    if not log.records:
        at = re.search(rb":::ML", data)
        raise Refused(
            f"has marked lines, and none is in a known form, the first being "
            f"{_first_marked(data)!r}; known are ':::MLPv0.5.0 <benchmark> <seconds> "
            "(<file>:<line>) <tag>: <value>', ':::MLL <seconds> <key>: {...}' and ':::MLLOG {...}'",
            None if at is None else line_of(data, at.start()),
        )
    return log


def _first_marked(data: bytes) -> str:
    at = data.find(b":::ML")
    return printable(data[at : at + 200].split(b"\n")[0].decode("utf-8", "replace"), 80)


def _parse_v05(data: bytes, form: re.Pattern[bytes]) -> Records:
    # Most values and tags repeat: what was decoded once in a file is not decoded again.
    values: dict[bytes | None, Any] = {None: None, b"": None}
    keys: dict[bytes, str] = {}
    benchmarks: set[bytes | None] = set()
    records: list[Record] = []
    unreadable: list[int] = []
    read_value = _Values().read
    # `tuple.__new__` skips Record's slower constructor, once for every line of a log.
    append, none, make = records.append, {}, tuple.__new__
    for match in form.finditer(data):
        benchmark, stamp, tag, raw = match.groups()
        try:
            value = values[raw]
        except KeyError:
            value, whole = read_value(raw)
            if not whole:
                unreadable.append(match.start())
            # Long values rarely repeat and would hold memory.
            if len(raw) <= 1000:
                values[raw] = value
        key = keys.get(tag)
        if key is None:
            key = keys[tag] = tag.decode()
        if benchmark not in benchmarks:
            benchmarks.add(benchmark)
        seconds = float(stamp)
        append(make(Record, (seconds or None, key, value, none, match.start())))
    unreadable += _not_matched(data, b":::MLPv0.5" if form is _V05 else MARKER, records)
    names = sorted(name.decode() for name in benchmarks if name)
    if len(names) > 1:
        raise Refused(f"has records of several benchmarks: {', '.join(names[:4])}")
    return Records("v0.5", "".join(names), records, unreadable)


def _parse_mll(data: bytes, decode: Callable[[bytes], Any]) -> Records:
    records: list[Record] = []
    unreadable: list[int] = []
    for match in _MLL.finditer(data):
        body = decode(match[3])
        if not isinstance(body, dict):
            unreadable.append(match.start())
            continue
        records.append(
            Record(
                float(match[1]) or None,
                match[2].decode(),
                body.get("value"),
                _object(body.get("metadata")),
                match.start(),
            )
        )
    unreadable += _not_matched(data, b":::MLL ", records, unreadable)
    return Records("v0.6", "", records, unreadable)


def _parse_mllog(data: bytes, decode: Callable[[bytes], Any]) -> Records:
    records: list[Record] = []
    unreadable: list[int] = []
    names: set[str] = set()
    for match in _MLLOG.finditer(data):
        body = decode(match[1])
        key = body.get("key") if isinstance(body, dict) else None
        if not isinstance(key, str):
            unreadable.append(match.start())
            continue
        milliseconds = finite(body.get("time_ms"))
        seconds = None if milliseconds is None else milliseconds / 1000
        if seconds is not None:
            names.add("time_ms")
        else:  # one entry of a round writes time_s
            seconds = finite(body.get("time_s"))
            if seconds is not None:
                names.add("time_s")
        metadata = _object(body.get("metadata"))
        records.append(Record(seconds or None, key, body.get("value"), metadata, match.start()))
    unreadable += _not_matched(data, b":::MLLOG", records, unreadable)
    return Records("v0.7+", "", records, unreadable, " and ".join(sorted(names)))


class _JsonNames(ast.NodeTransformer):
    """Replace JSON's names of constants, which stand beside Python's quotes in one line."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        names = {"null": None, "true": True, "false": False}
        return ast.Constant(names[node.id]) if node.id in names else node


def _python(raw: bytes) -> Any:
    try:
        # Odd escapes in a log would warn as if our own code had them.
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(raw[:_MOST_PYTHON].decode("utf-8").strip(), mode="eval")
            return ast.literal_eval(_JsonNames().visit(tree))
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


class _Values:
    """Decoder of one log's values, with a bound on their total memory."""

    def __init__(self) -> None:
        self._marks_left = MAX_MARKS
        self._bytes_left = _MOST_TRIED
        self.num_python = self.num_not_tried = 0

    def body(self, raw: bytes) -> Any:
        """Object at the start of some bytes, in JSON or Python's notation; else another value."""
        value, _ = self.read(raw)
        if isinstance(value, dict):
            return value
        if self._bytes_left < 0:
            self.num_not_tried += 1
            return value
        self._bytes_left -= min(len(raw), _MOST_PYTHON) + _BYTES_OF_TRIAL
        value = _python(raw)
        self.num_python += isinstance(value, dict)
        return value

    def read(self, raw: bytes) -> tuple[Any, bool]:
        """JSON value at the start of some bytes, and True if one was read."""
        # Counted before objects are made of them: `[]` becomes one of 60 bytes.
        self._marks_left -= count_marks(raw)
        if self._marks_left < 0:
            raise Refused(f"has more than {MAX_MARKS:,} commas, colons and brackets in its records")
        if len(raw) > MAX_LINE_BYTES:
            return "", False
        try:
            text = raw.decode("utf-8").strip()
            value, end = _DECODER.raw_decode(text)
            # Another rank may write into the line after an object; after a number it is digits.
            if end == len(text) or isinstance(value, dict | list):
                return value, True
        except (ValueError, RecursionError):
            pass
        # `DEFERRED: <id>` and the like are valid JSON only with their quotes.
        return raw[:1000].decode("utf-8", "replace").strip(), False


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _not_matched(
    data: bytes, marker: bytes, records: list[Record], known: list[int] | None = None
) -> list[int]:
    """Offsets of markers that yielded no record."""
    if data.count(marker) == len(records) + len(known or ()):
        return []
    seen = {record.offset for record in records} | set(known or ())
    return [m.start() for m in re.finditer(re.escape(marker), data) if m.start() not in seen]
