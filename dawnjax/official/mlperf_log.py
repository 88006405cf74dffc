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

_FORMS = {
    "v0.5": (
        b":::MLPv0.5",
        re.compile(
            rb":::MLPv0\.5\.\d+ (\w+) (\d+(?:\.\d+)?) "
            rb"\([^)\r\n]{0,400}\) (\w+)[ \t]*(?::[ \t]*([^\r\n]*))?"
        ),
    ),
    "v0.6": (b":::MLL ", re.compile(rb":::MLL (\d+(?:\.\d+)?) (\w+): ?(\{[^\r\n]*)")),
    "v0.7+": (b":::MLLOG", re.compile(rb":::MLLOG ?(\{[^\r\n]*)")),
}
"""Marker of a version's lines, and their form, whose last group is the value."""

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
    versions = [version for version, (marker, _) in _FORMS.items() if marker in data]
    # Counted in the bytes, before any record takes memory.
    marked = data.count(b":::ML")
    if not marked:
        raise Refused("has no MLPerf record (:::MLPv0.5.0, :::MLL or :::MLLOG)")
    if marked > MAX_RECORDS:
        raise Refused(f"has {marked:,} marked lines; at most {MAX_RECORDS:,} are read")
    if len(versions) > 1:
        raise Refused("has records of two versions of MLPerf")
    log = _parse(data, versions[0]) if versions else None
    if log is None or not log.records:
        at = data.index(b":::ML")
        shown = printable(data[at : at + 200].split(b"\n")[0].decode("utf-8", "replace"), 80)
        raise Refused(
            f"has marked lines, and none is in a known form, the first being {shown!r}; known are "
            "':::MLPv0.5.0 <benchmark> <seconds> (<file>:<line>) <tag>: <value>', "
            "':::MLL <seconds> <key>: {...}' and ':::MLLOG {...}'",
            line_of(data, at),
        )
    return log


def _parse(data: bytes, version: str) -> Records:
    marker, form = _FORMS[version]
    records: list[Record] = []
    benchmarks: set[str] = set()
    marks = 0
    unreadable = {match.start() for match in re.finditer(re.escape(marker), data)}
    for match in form.finditer(data):
        raw = match[form.groups] or b""
        # Counted before objects are made of them: `[]` becomes one of 60 bytes.
        marks += count_marks(raw)
        if marks > MAX_MARKS:
            raise Refused(f"has more than {MAX_MARKS:,} commas, colons and brackets in its records")
        value, is_json = _value(raw)
        seconds, key, metadata = 0.0, None, None
        if version == "v0.5":
            benchmarks.add(match[1].decode())
            seconds, key = float(match[2]), match[3].decode()
        elif isinstance(value, dict):
            if version == "v0.6":
                seconds, key = float(match[1]), match[2].decode()
            else:
                seconds, key = (finite(value.get("time_ms")) or 0.0) / 1000, value.get("key")
            value, metadata = value.get("value"), value.get("metadata")
        if not isinstance(key, str):
            continue
        metadata = metadata if isinstance(metadata, dict) else {}
        records.append(Record(seconds or None, key, value, metadata, match.start()))
        if is_json:
            unreadable.discard(match.start())
    if len(benchmarks) > 1:
        raise Refused(f"has records of several benchmarks: {', '.join(sorted(benchmarks)[:4])}")
    return Records(version, "".join(benchmarks), records, sorted(unreadable))


def _value(raw: bytes) -> tuple[Any, bool]:
    """JSON value at the start of some bytes, None of none, and True if they are JSON."""
    if not raw:
        return None, True
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
