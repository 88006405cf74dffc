"""Members of a large JSON object one by one: neither its whole text nor all of its values are made.

A decoded object of COCO's annotations takes seven times the bytes of its text.
"""

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any

from dawnjax.records.reading import (
    DEEPEST,
    LENIENT_DECODER,
    MOST_MARKS,
    BoundError,
    check_depth,
    check_json,
)
from dawnjax.records.typed import FieldError

PART_BYTES = 2**20
"""Of text that is read at a time; a longer value is read whole."""
_BLANKS = re.compile(r"[ \t\n\r]*")
_LONGEST_CUT = 12
"""Last characters of a cut text that may mean another thing than in the whole, such as `1e+`."""


def json_members(
    data: bytes, most_marks: int = MOST_MARKS
) -> Iterator[tuple[str, int | None, Any]]:
    """Yield name, place and value of each element of an object's lists, and of its other values.

    The place is None for a value that is no list, and for a list without elements. NaN and
    infinities are admitted, for a reader that reports their place.

    Raises:
      BoundError: Too many values, depth or digits.
      FieldError: The text is no object, or has a name twice.
      ValueError: It is no JSON.
    """
    check_json(data, most_marks)
    text = _Text(data)
    if text.next() not in ("{", ""):
        raise FieldError(f"it is {text.shown(60)}; it must be an object")
    text.take("{")
    names: set[str] = set()
    ends = text.next() == "}" and text.take("}")
    while not ends:
        name = text.value() if text.next() == '"' else text.take('"')
        if name in names:
            raise FieldError(f"{ascii(name)[:60]} is there twice")
        names.add(name)
        text.take(":")
        if text.next() == "[":
            yield from _elements(text, name)
        else:
            yield name, None, text.value()
        ends = text.take(",}") == "}"
    if text.next():
        raise text.error("Extra data")


def _elements(text: "_Text", name: str) -> Iterator[tuple[str, int | None, Any]]:
    text.take("[")
    if text.next() == "]":
        text.take("]")
        yield name, None, []
        return
    place, separator = 0, ","
    while separator == ",":
        yield name, place, text.value()
        place, separator = place + 1, text.take(",]")


class _Text:
    """A text in UTF-8 of which a part is decoded, and a place in it that moves forward."""

    def __init__(self, data: bytes):
        self._data, self._decoded = data, 0
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._part, self._place, self._line = "", 0, 0

    @property
    def _is_whole(self) -> bool:
        return self._decoded >= len(self._data)

    def next(self) -> str:
        """The next character that is no blank; empty at the end."""
        while True:
            self._place = _BLANKS.match(self._part, self._place).end()  # type: ignore[union-attr]
            if self._place < len(self._part) or self._is_whole:
                return self._part[self._place : self._place + 1]
            self._decode_more()

    def take(self, wanted: str) -> str:
        """Move past the next character, which must be one of `wanted`."""
        found = self.next()
        if not found or found not in wanted:
            raise self.error(f"Expecting {' or '.join(map(repr, wanted))}")
        self._place += 1
        return found

    def value(self) -> Any:
        """Move past the next JSON value."""
        self.next()
        while True:
            is_whole = self._is_whole
            try:
                value, end = LENIENT_DECODER.raw_decode(self._part, self._place)
                if is_whole or len(self._part) - end > _LONGEST_CUT:
                    break
            except json.JSONDecodeError as error:
                # What is wrong with a cut text shows at its end, but for a string.
                is_cut = len(self._part) - error.pos <= _LONGEST_CUT or "Unterminated" in error.msg
                if is_whole or not is_cut:
                    self._place = error.pos
                    raise self.error(error.msg) from None
            except RecursionError:
                raise BoundError(f"is nested more than {DEEPEST} deep") from None
            self._decode_more()
        brackets = sum(self._part.count(sign, self._place, end) for sign in "[{")
        if brackets > DEEPEST:
            check_depth(value)
        self._place = end
        return value

    def shown(self, length: int) -> str:
        return self._part[self._place : self._place + length]

    def error(self, message: str) -> json.JSONDecodeError:
        """The error with the line of the place in the whole text."""
        error = json.JSONDecodeError(message, self._part, min(self._place, len(self._part)))
        error.lineno += self._line
        return error

    def _decode_more(self) -> None:
        """Decode as much again as is not taken yet, or a part, and forget what is taken."""
        rest = self._part[self._place :]
        self._line += self._part.count("\n", 0, self._place)
        end = self._decoded + max(PART_BYTES, len(rest))
        more, self._decoded = self._data[self._decoded : end], end
        self._part = rest + self._decoder.decode(more, self._is_whole)
        self._place = 0
