"""SVG drawings: shapes whose colours come from the page's style sheet, and axes.

Colours are classes (`s1` to `s6` for series): one drawing serves light, dark and print, and a
strict content security policy needs no inline style. Coordinates are rounded to a tenth, which
keeps drawings small and equal on every machine.
"""

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple, TypeVar

from dawnjax.text import escaped

LETTER_WIDTH = 0.56
"""Mean width of a letter over the size of the font, for sans serif fonts; for placing labels."""

FONT = 12

SERIES = 6
MARKERS = ("circle", "square", "triangle", "diamond", "cross", "down")

_CORNERS = {
    "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    "triangle": ((0, -1.15), (1.1, 0.85), (-1.1, 0.85)),
    "down": ((0, 1.15), (1.1, -0.85), (-1.1, -0.85)),
    "diamond": ((0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)),
}
"""Corners of a marker of size 1, around its middle."""


class Canvas:
    """A drawing that grows shape by shape, in CSS pixels; text is escaped."""

    def __init__(self, width: float, height: float):
        self.width = width
        self.height = height
        self._parts: list[str] = []

    def line(self, x1: float, y1: float, x2: float, y2: float, style: str) -> None:
        self._parts.append(f'<path class="{style}" d="M{_n(x1)} {_n(y1)}L{_n(x2)} {_n(y2)}"/>')

    def path(
        self,
        points: Sequence[tuple[float, float]],
        style: str,
        *,
        close: bool = False,
        title: Sequence[str] = (),
    ) -> None:
        """Draw a line through points; `title` holds the lines of its tooltip."""
        if points:
            body = "L".join(f"{_n(x)} {_n(y)}" for x, y in points)
            self._add("path", f'class="{style}" d="M{body}{"Z" if close else ""}"', title)

    def rectangle(
        self, x: float, y: float, width: float, height: float, style: str, title: Sequence[str] = ()
    ) -> None:
        """Draw a rectangle from its upper left corner."""
        place = f'x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}"'
        self._add("rect", f'class="{style}" {place}', title)

    def marker(
        self,
        x: float,
        y: float,
        size: float,
        style: str,
        shape: str = "circle",
        title: Sequence[str] = (),
    ) -> None:
        """Draw one of `MARKERS` with a radius of about `size`."""
        if shape == "circle":
            self._add("circle", f'class="{style}" cx="{_n(x)}" cy="{_n(y)}" r="{_n(size)}"', title)
        elif shape == "cross":
            arm = size * 0.8
            body = f"M{_n(x - arm)} {_n(y - arm)}l{_n(2 * arm)} {_n(2 * arm)}"
            body += f"m0 {_n(-2 * arm)}l{_n(-2 * arm)} {_n(2 * arm)}"
            self._add("path", f'class="{style} open" d="{body}"', title)
        else:
            corners = [(x + dx * size, y + dy * size) for dx, dy in _CORNERS[shape]]
            self.path(corners, style, close=True, title=title)

    def _add(self, tag: str, attributes: str, title: Sequence[str]) -> None:
        if title:
            text = "\n".join(escape(escaped(line), quote=False) for line in title)
            self._parts.append(f"<{tag} {attributes}><title>{text}</title></{tag}>")
        else:
            self._parts.append(f"<{tag} {attributes}/>")

    def text(
        self, x: float, y: float, text: str, style: str = "", *, anchor: str = "start"
    ) -> None:
        """Write a text on the base line `y`; `x` is its `start`, `middle` or `end`, by `anchor`."""
        anchors = {"start": "", "middle": "m", "end": "e"}
        classes = f"{style} {anchors[anchor]}".strip()
        named = f' class="{classes}"' if classes else ""
        self._parts.append(f'<text{named} x="{_n(x)}" y="{_n(y)}">{escape(escaped(text))}</text>')

    def body(self) -> str:
        """Shapes drawn so far, without the `svg` element around them."""
        return "".join(self._parts)


class Scale(NamedTuple):
    """Map from values in `low` to `high` to coordinates in `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def linear(values: Sequence[float], start: float, end: float, *, zero: bool = False) -> Scale:
    """Linear scale over values with a margin; from 0 on if `zero`."""
    low, high = min(values), max(values)
    if zero:
        low = min(0.0, low)
    if high <= low:
        high = low + (abs(low) or 1.0)
    margin = 0.03 * (high - low)
    return Scale(low if zero and low == 0 else low - margin, high + margin, start, end)


def logarithmic(values: Sequence[float], start: float, end: float) -> Scale:
    """Logarithmic scale over values above 0, with a margin."""
    low, high = min(values), max(values)
    margin = max((high / low) ** 0.04, 1.08)
    return Scale(low / margin, high * margin, start, end, log=True)


def ticks(scale: Scale, most: int = 6) -> list[float]:
    """At most `most` round values: steps of 1, 2 or 5, or 1, 2, 5 of each decade."""
    if scale.log:
        for mantissas in ((1, 2, 5), (1, 3), (1,)):
            values = _decades(scale, mantissas)
            if len(values) <= most:
                return values if len(values) > 1 else _steps(scale, most)
        return values[:: math.ceil(len(values) / most)]
    return _steps(scale, most)


_ROUND_TIMES = (
    *(1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4),
    *(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
    *(60, 180, 600, 1800, 3600, 3 * 3600, 10 * 3600, 30 * 3600, 100 * 3600, 300 * 3600),
    *(1000 * 3600, 3000 * 3600),
)
_TIME_STEPS = (
    *(1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4),
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 900, 1800, 3600, 7200, 5 * 3600, 10 * 3600, 20 * 3600, 50 * 3600),
    *(100 * 3600, 200 * 3600, 500 * 3600, 1000 * 3600),
)


def time_ticks(scale: Scale, most: int = 6) -> list[float]:
    """Moments that are round in s, min or h."""
    if not scale.log:
        for step in _TIME_STEPS:
            if (scale.high - scale.low) / step <= most:
                # The small offset keeps a tick at the very end that rounding moved outside.
                first = math.ceil(scale.low / step - 1e-9)
                return [number * step for number in range(first, math.floor(scale.high / step) + 1)]
        return _steps(scale, most)
    for choice in (_ROUND_TIMES, _TIME_STEPS):
        inside = [value for value in choice if scale.low <= value <= scale.high]
        if len(inside) > 2:
            return inside[:: math.ceil(len(inside) / most)]
    return time_ticks(scale._replace(log=False), most)


def _steps(scale: Scale, most: int) -> list[float]:
    span = scale.high - scale.low
    step = 10.0 ** math.floor(math.log10(span / most))
    step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= most)
    first, last = math.ceil(scale.low / step - 1e-9), math.floor(scale.high / step + 1e-9)
    digits = max(0, -math.floor(math.log10(step)))
    return [round(number * step, digits) for number in range(first, last + 1)]


def _decades(scale: Scale, mantissas: Sequence[int]) -> list[float]:
    first, last = math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high))
    values = [m * 10.0**power for power in range(first, last + 1) for m in mantissas]
    return [value for value in values if scale.low <= value <= scale.high]


class Axis(NamedTuple):
    """An axis, and the wording of its values.

    Attributes:
      label: With its unit.
      text: From a round value to its words.
      ticks: From a scale and a number to at most so many round values.
      exact: From any value to its words; `text` if None.
      name: Name of its values, without a unit; the label if empty.
    """

    label: str
    text: Callable[[float], str]
    ticks: Callable[[Scale, int], list[float]] = ticks
    log: bool = False
    zero: bool = False
    exact: Callable[[float], str] | None = None
    name: str = ""

    def scale(self, values: Sequence[float], start: float, end: float) -> Scale:
        """Scale over values; a logarithmic one needs values above 0."""
        if self.log:
            return logarithmic(values, start, end)
        return linear(values, start, end, zero=self.zero)

    def named(self, value: float) -> str:
        """A value in words after its name."""
        return f"{self.name or self.label}: {(self.exact or self.text)(value)}"

    @property
    def title(self) -> str:
        """Label, with a note if the axis is logarithmic."""
        return f"{self.label} (logarithmic)" if self.log else self.label


def draw_x_axis(
    canvas: Canvas, axis: Axis, scale: Scale, top: float, bottom: float, most: int
) -> None:
    """Draw grid lines, at most `most` values below, and the title under them."""
    last_end = -math.inf
    for value in axis.ticks(scale, most):
        x, text = scale(value), axis.text(value)
        canvas.line(x, top, x, bottom, "grid")
        half = text_width(text) / 2
        # Skip a label that would touch the one before it; its grid line stays.
        if x - half > last_end + 6:
            canvas.text(x, bottom + 16, text, "tick", anchor="middle")
            last_end = x + half
    canvas.line(scale.start, bottom, scale.end, bottom, "axis")
    title = axis.title
    if text_width(title) > canvas.width:
        title = title.replace(" (logarithmic)", " (log)")
    half = text_width(title) / 2
    middle = max(half, min((scale.start + scale.end) / 2, canvas.width - half))
    canvas.text(middle, bottom + 36, title, "label", anchor="middle")


def draw_y_axis(canvas: Canvas, axis: Axis, scale: Scale, left: float, right: float) -> None:
    """Draw grid lines, values to the left, and the title above them."""
    for value in axis.ticks(scale, 6):
        y = scale(value)
        canvas.line(left, y, right, y, "grid")
        canvas.text(left - 6, y + 4, axis.text(value), "tick", anchor="end")
    canvas.text(2, min(scale.start, scale.end) - 12, axis.title, "label")


def text_width(text: str, size: float = FONT) -> float:
    """Estimated width of a text, in CSS pixels."""
    return len(text) * size * LETTER_WIDTH


def in_rows(names: Sequence[str], lead: float, width: float) -> list[tuple[float, int]]:
    """(x, row) of each name of a key; `lead` is the room of a mark and a gap."""
    places, at, row = [], 0.0, 0
    for name in names:
        wide = lead + text_width(name)
        if at and at + wide > width:
            at, row = 0.0, row + 1
        places.append((at, row))
        at += wide
    return places


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move labels at least `gap` apart, near the wanted places and in their order."""
    order = sorted(range(len(places)), key=lambda index: (places[index], index))
    placed = [0.0] * len(places)
    last = low - gap
    for index in order:
        last = placed[index] = max(places[index], last + gap)
    # What ran over the end is pushed back.
    limit = high
    for index in reversed(order):
        placed[index] = min(placed[index], limit)
        limit = placed[index] - gap
    return placed


Item = TypeVar("Item")


def thinned(points: Sequence[Item], most: int) -> list[Item]:
    """At most `most` points, evenly by number, with the first and the last."""
    if len(points) <= most:
        return list(points)
    step = (len(points) - 1) / (most - 1)
    return [points[round(number * step)] for number in range(most)]


def _n(value: float) -> str:
    text = f"{value:.1f}"
    text = text.removesuffix(".0")
    # A tiny negative rounds to -0, which would make equal drawings differ.
    return "0" if text == "-0" else text
