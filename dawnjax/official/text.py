"""Strict reading of text and JSON from untrusted files."""

import json
import math
import re
from typing import Any

from dawnjax import records
from dawnjax.official.outcome import Refused, printable

_UTF16 = (b"\xff\xfe", b"\xfe\xff")
MAX_MARKS = 200_000
"""Commas, colons and brackets of a description."""

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)


def decode(data: bytes) -> str:
    """Text of a UTF-8 file without its byte order mark; `Refused` names the line of other bytes."""
    if data.startswith(_UTF16) or b"\x00" in data[:400]:
        raise Refused("is not UTF-8 text (UTF-16 or binary); write it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Refused(f"is not UTF-8 text: byte {data[error.start]:#04x}", line) from None


def lines(text: str) -> list[str]:
    """Lines of a text that end with LF, CR LF or CR."""
    return re.split(r"\r\n|\n|\r", text)


def load_object(data: bytes) -> dict[str, Any]:
    """A file's JSON object."""
    text = decode(data)
    try:
        value = records.load_json(text, MAX_MARKS)
    except json.JSONDecodeError as error:
        raise Refused(f"is not JSON: {error.msg} (column {error.colno})", error.lineno) from None
    except ValueError as error:
        raise Refused(f"is not JSON that can be read: {printable(str(error), 80)}") from None
    if not isinstance(value, dict):
        raise Refused(f"holds no JSON object but a {type(value).__name__}")
    return value


def finite(value: Any) -> float | None:
    """JSON number as a float; None for anything else, NaN and infinities included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def count(value: Any) -> int | None:
    """Whole number of 0 to 1e12, also from a string of digits; None for anything else."""
    if isinstance(value, str) and re.fullmatch(r"\s*\d{1,12}\s*", value, re.ASCII):
        return int(value)
    number = finite(value)
    if number is None or not 0 <= number <= 1e12 or number != int(number):
        return None
    return int(number)


def number_of(cell: str) -> float | None:
    """Number in a cell of a table; None for any other text, NaN and infinities."""
    if len(cell) > 60 or not _NUMBER.fullmatch(cell):
        return None
    return finite(float(cell))


def words(value: Any, limit: int = 300) -> str:
    """Descriptive field as one printable line; empty for any value but text."""
    return printable(value, limit) if isinstance(value, str) else ""
