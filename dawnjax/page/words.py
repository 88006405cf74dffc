"""Numbers in words: times in s, min and h, three or four significant digits.

These texts are for people; tables keep the exact numbers.
"""

import collections
import math
import os.path
import re
from collections.abc import Iterable, Sequence
from decimal import ROUND_HALF_EVEN, Decimal
from typing import TypeVar

Named = TypeVar("Named")
Said = TypeVar("Said")

NOT_KNOWN = "not known"
NOT_REACHED = "not reached"
NO_TARGET = "no target given"
NO_MOMENT = "reached at an unknown time"

_THIN = "\u202f"
"""Narrow blank between thousands, which does not break a line."""


def duration(seconds: float) -> str:
    """A time in words: `12 µs`, `683 ms`, `4.06 s`, `2 min 42 s`, `3 h 26 min`, `323 h`."""
    if seconds < 0:
        return "-" + duration(-seconds)
    if seconds == 0:
        return "0 s"
    if seconds < 0.0009995:
        return f"{number(seconds * 1e6)} µs"
    if seconds < 0.9995:
        return f"{number(seconds * 1000)} ms"
    if seconds < 59.95:
        return f"{number(seconds)} s"
    if seconds < 3599.5:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min" + (f" {rest} s" if rest else "")
    if seconds < 99.5 * 3600:
        hours, rest = divmod(round(seconds / 60), 60)
        return f"{hours} h" + (f" {rest} min" if rest else "")
    return f"{number(seconds / 3600)} h"


def about(seconds: float) -> str:
    """An estimated time in one unit: `19.6 ms`, `397 s`, `13 min`, `12.5 h`."""
    if seconds < 0.9995:
        return f"{rounded(1e3 * seconds, 3)} ms"
    if seconds < 600:
        return f"{rounded(seconds, 3)} s"
    return f"{seconds / 60:,.0f} min" if seconds < 36_000 else f"{seconds / 3600:,.1f} h"


def usd(amount: float) -> str:
    """A cost in words: `$48.48`, `$1,113`, `$0.0021`."""
    if abs(amount) >= 1000:
        return f"${amount:,.0f}"
    if abs(amount) >= 0.1 or amount == 0:
        return f"${amount:.2f}"
    return f"${number(amount, 2)}"


def percent(fraction: float, digits: int = 3) -> str:
    """A fraction in percent: `6.72%`, `100%`."""
    # Rounded first: 100 x 0.55 is not 55 in binary.
    return f"{number(round(100 * fraction, 10), digits)}%"


def number(value: float, digits: int = 3) -> str:
    """A number to `digits` significant digits, whole numbers in full: `4.57`, `16 640`, `82`."""
    if isinstance(value, int):
        return grouped(value)
    if not math.isfinite(value):
        return NOT_KNOWN
    if value == 0:
        return "0"
    if not 1e-6 <= abs(value) < 1e15:
        return f"{value:.{digits - 1}e}"
    if value == int(value) and abs(value) < 1e6:
        return grouped(int(value))
    # Rounds what `repr` shows: in binary, 2.675 would round down to 2.67.
    exact = Decimal(repr(value))
    places = max(0, digits - 1 - exact.adjusted())
    rounded = exact.quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_EVEN)
    return f"{rounded:,f}".replace(",", _THIN)


def rounded(value: float, digits: int = 4) -> str:
    """A number to `digits` significant digits, without a power of ten: `22,650`, `0.0000012`."""
    text = f"{Decimal(f'{value:.{digits}g}'):,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def scaled(value: float, unit: str) -> str:
    """A number with the prefix of its unit: `1.35 TFLOP/s`, `820 MB`."""
    for power, prefix in ((15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if abs(value) >= 0.9995 * 10.0**power:
            return f"{number(float(f'{value / 10.0**power:.3g}'))} {prefix}{unit}"
    return f"{number(value)} {unit}"


def grouped(value: int) -> str:
    """A whole number with thin blanks between thousands, from 10 000 on."""
    return f"{value:,}".replace(",", _THIN) if abs(value) >= 10_000 else str(value)


def plain(value: float) -> str:
    """A round number for an axis, without zeros at its end: `98.5`, `0.2`."""
    return f"{round(value, 10):,.10g}".replace(",", _THIN)


def times(ratio: float) -> str:
    """A ratio in words: `21.6x` with a multiplication sign."""
    return f"{number(ratio)}×"


def count(amount: int, singular: str, plural: str = "") -> str:
    """An amount with its noun: `1 entry`, `3 entries`."""
    return f"{grouped(amount)} {singular if amount == 1 else plural or singular + 's'}"


def counted(lines: Iterable[str]) -> list[str]:
    """Each line once, in order, with its number where it comes several times."""
    numbers = collections.Counter(lines)
    return [line if number == 1 else f"{line} ({number} times)" for line, number in numbers.items()]


def shared(said: Iterable[tuple[Named, Said]]) -> list[tuple[list[Named], Said]]:
    """What is said of several, once, in order, with all of whom it is said."""
    names: dict[Said, list[Named]] = {}
    for name, text in said:
        names.setdefault(text, []).append(name)
    return [(of, text) for text, of in names.items()]


def of_name(name: str) -> str:
    """A name such as `not_reached` in words: `not reached`."""
    return name.replace("_", " ")


def shortened(text: str, length: int) -> str:
    """Cut the end of a text that is longer than `length`."""
    text = " ".join(text.split())
    return text if len(text) <= length else text[: max(length - 1, 0)].rstrip() + "…"


def memory(size: float) -> str:
    """Bytes in words, in powers of 1,024: `1.50 GiB`, `820 MiB`."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if abs(size) >= 0.9995 * 2.0**power:
            return f"{number(float(f'{size / 2.0**power:.3g}'))} {unit}"
    return f"{number(size)} bytes"


_FIELD = re.compile(r"[^\s=,()]+(?==)")
"""Name of a field before its value."""

_VALUE = re.compile(r"[^\s=]+=(?:\[[^\]]*\],?|\S+)")
"""A field with its value, which may be a list."""


def squeezed(text: str, length: int) -> str:
    """Cut the middle of a text that is longer than `length`, because names differ at their ends.

    Values of fields, as in `learning_rate=0.4`, stay whole: names of fields are cut, and words
    beside them. Values alone may be longer than `length`.
    """
    text = " ".join(text.split())
    if len(text) <= length:
        return text
    if fields := _FIELD.findall(text):
        return _squeezed_around(text, fields, length)
    end = max(length - 1, 0) * 2 // 5
    return text[: max(length - 1 - end, 0)] + "…" + (text[-end:] if end else "")


def _squeezed_around(text: str, fields: Sequence[str], length: int) -> str:
    """Cut names of fields to six letters at least, then the words beside them."""
    room = sum(map(len, fields)) - (len(text) - length)
    each = max(room // len(fields), 6)
    text = _FIELD.sub(lambda name: shortened(name[0], each), text)
    if len(text) <= length:
        return text
    kept = " ".join(_VALUE.findall(text))
    others = squeezed(_VALUE.sub("", text), length - len(kept) - 1)
    return f"{others} {kept}" if len(others) > 2 else kept


def squeezed_apart(names: Sequence[str], length: int) -> list[str]:
    """Squeeze names to a length; cut names that would become equal where they agree."""
    short = [squeezed(name, length) for name in names]
    alike: dict[str, set[str]] = {}
    for name, cut in zip(names, short, strict=True):
        alike.setdefault(cut, set()).add(name)
    return [
        _squeezed_from(name, len(os.path.commonprefix([*alike[cut]])), length)
        if len(alike[cut]) > 1
        else cut
        for name, cut in zip(names, short, strict=True)
    ]


def _squeezed_from(name: str, place: int, length: int) -> str:
    """Cut a name so that its part from `place` on stays visible as far as there is room."""
    rest = name[place:]
    if len(rest) >= length - 4:
        return "…" + shortened(rest, max(length - 1, 1))
    head = max(length - 1 - len(rest), 0) * 2 // 3
    middle = max(length - 1 - len(rest) - head, 0)
    return f"{name[:head]}…{name[place - middle : place]}{rest}"
