"""Records of MLPerf training logs, in three forms of lines.

v0.5 writes `:::MLPv0.5.0 <benchmark> <seconds> (<file>:<line>) <tag>` and at times `: <value>`;
v0.6 `:::MLL <seconds> <key>: {...}`; from v0.7 `:::MLLOG {...}` with `time_ms`. A log mixes the
output of a whole job: a marker may stand anywhere in a line, and records come in any order.

Source: mlcommons/logging, `mlperf_logging/mllog` and the parsers of its compliance checker; and the
files of the rounds themselves.
"""

import json
import re
from typing import Any, NamedTuple

from dawnjax.official.outcome import Refused, printable
from dawnjax.official.text import finite
from dawnjax.records import count_marks

_V05 = re.compile(
    rb":::MLPv0\.5\.\d+ (\w+) (\d+(?:\.\d+)?) "
    rb"\([^)\r\n]{0,400}\) (\w+)[ \t]*(?::[ \t]*([^\r\n]*))?"
)
_MLL = re.compile(rb":::MLL (\d+(?:\.\d+)?) (\w+): ?(\{[^\r\n]*)")
_MLLOG = re.compile(rb":::MLLOG ?(\{[^\r\n]*)")

_DECODER = json.JSONDecoder()

MAX_RECORDS = 200_000
"""Marked lines of a log; official ones have up to 13,212."""

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
    """

    version: str
    benchmark: str
    records: list[Record]
    unreadable: list[int]


def line_of(data: bytes, offset: int) -> int:
    """Number, from 1, of the line at an offset; LF ends a line."""
    return data.count(b"\n", 0, offset) + 1


def parse(data: bytes) -> Records:
    """Parse a log; `Refused` if it has no record, or records of two kinds."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Refused("is UTF-16; write it as UTF-8")
    kinds = [b":::MLPv0.5" in data, b":::MLL " in data, b":::MLLOG" in data]
    # Counted in the bytes, before any record takes memory.
    marked = data.count(b":::ML")
    if not marked:
        raise Refused("has no MLPerf record (:::MLPv0.5.0, :::MLL or :::MLLOG)")
    if marked > MAX_RECORDS:
        raise Refused(f"has {marked:,} marked lines; at most {MAX_RECORDS:,} are read")
    if sum(kinds) > 1:
        raise Refused("has records of two versions of MLPerf")
    is_json, version = kinds[1] or kinds[2], "v0.6" if kinds[1] else "v0.7+"
    log = _parse_json(data, version) if is_json else _parse_v05(data)
    if not log.records:
        at = data.index(b":::ML")
        shown = printable(data[at : at + 200].split(b"\n")[0].decode("utf-8", "replace"), 80)
        raise Refused(
            f"has marked lines, and none is in a known form, the first being {shown!r}; known are "
            "':::MLPv0.5.0 <benchmark> <seconds> (<file>:<line>) <tag>: <value>', "
            "':::MLL <seconds> <key>: {...}' and ':::MLLOG {...}'",
            line_of(data, at),
        )
    return log


def _parse_v05(data: bytes) -> Records:
    # Most values and tags repeat: what was decoded once in a file is not decoded again.
    values: dict[bytes | None, Any] = {None: None, b"": None}
    keys: dict[bytes, str] = {}
    benchmarks: set[bytes] = set()
    records: list[Record] = []
    unreadable: list[int] = []
    read_value = _Values().read
    # `tuple.__new__` skips Record's slower constructor, once for every line of a log.
    append, none, make = records.append, {}, tuple.__new__
    for match in _V05.finditer(data):
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
    unreadable += _not_matched(data, b":::MLPv0.5", records)
    names = sorted(name.decode() for name in benchmarks)
    if len(names) > 1:
        raise Refused(f"has records of several benchmarks: {', '.join(names[:4])}")
    return Records("v0.5", "".join(names), records, unreadable)


def _parse_json(data: bytes, version: str) -> Records:
    """Records of v0.6, with stamp and key before the object, or of later rounds."""
    form, marker = (_MLL, b":::MLL ") if version == "v0.6" else (_MLLOG, b":::MLLOG")
    read_value = _Values().read
    records: list[Record] = []
    unreadable: list[int] = []
    for match in form.finditer(data):
        body, _ = read_value(match[form.groups])
        key = seconds = None
        if isinstance(body, dict) and version == "v0.6":
            key, seconds = match[2].decode(), float(match[1])
        elif isinstance(body, dict):
            key, milliseconds = body.get("key"), finite(body.get("time_ms"))
            seconds = None if milliseconds is None else milliseconds / 1000
        if not isinstance(key, str):
            unreadable.append(match.start())
            continue
        metadata = body.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        records.append(Record(seconds or None, key, body.get("value"), metadata, match.start()))
    unreadable += _not_matched(data, marker, records, unreadable)
    return Records(version, "", records, unreadable)


class _Values:
    """Decoder of one log's values, with a bound on their total memory."""

    def __init__(self) -> None:
        self._marks_left = MAX_MARKS

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


def _not_matched(
    data: bytes, marker: bytes, records: list[Record], known: list[int] | None = None
) -> list[int]:
    """Offsets of markers that yielded no record."""
    if data.count(marker) == len(records) + len(known or ()):
        return []
    seen = {record.offset for record in records} | set(known or ())
    return [m.start() for m in re.finditer(re.escape(marker), data) if m.start() not in seen]
