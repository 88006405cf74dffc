"""Figures with one row for each entry or run: dots of trials, stacked bars, pairs of dots.

In a narrow figure, such as on a phone, the labels stand above their rows.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from dawnjax.page import svg, words

WIDE = 880.0
HALF = 640.0
NARROW = 350.0
"""Widths in CSS pixels: of a figure alone, of one beside another, and on a phone."""

ROW = 24.0
NARROW_ROW = 40.0
HEADING = 30.0


class Row(NamedTuple):
    """One row of a figure; rows of one group stand under its name.

    Attributes:
      values: A dot each, a part of a bar each, or a pair.
      note: Short numbers for the row's right end.
      low: Lower end of the interval of the values' mean; None without one.
      titles: Title of each value's mark; empty for the value alone.
    """

    label: str
    group: str
    values: tuple[float, ...]
    note: str
    low: float | None = None
    high: float | None = None
    mean: float | None = None
    titles: tuple[str, ...] = ()
    series: int = 1

    @property
    def name(self) -> str:
        return f"{self.group} \N{MIDDLE DOT} {self.label}" if self.group else self.label


class _Layout(NamedTuple):
    left: float
    right: float
    top: float
    height: float
    places: list[float]
    narrow: bool

    @property
    def bottom(self) -> float:
        return self.height - 46


def draw_strips(rows: Sequence[Row], axis: svg.Axis, width: float) -> svg.Canvas:
    """Draw the values of each row as dots, their mean across, its interval along the row."""
    layout = _layout(rows, width, note_width=118)
    canvas = svg.Canvas(width, layout.height)
    every = [value for row in rows for value in (*row.values, row.low, row.high, row.mean)]
    scale = axis.scale([v for v in every if v is not None], layout.left, layout.right)
    svg.draw_x_axis(canvas, axis, scale, layout.top, layout.bottom, 4 if layout.narrow else 8)
    words_of = axis.exact or axis.text
    for row, y in _labelled(canvas, rows, layout):
        if row.low is not None and row.high is not None:
            start = scale(row.low)
            ends = f"95% interval: {words_of(row.low)} to {words_of(row.high)}"
            length = max(scale(row.high) - start, 1)
            canvas.rectangle(start, y - 6, length, 12, f"s{row.series} range", (row.name, ends))
        crowded = len(row.values) > 20
        size = 2 if crowded else 3
        for number, value in enumerate(row.values):
            # Each trial has its own fixed shift, so that equal times are seen as several dots.
            shift = ((number * 7) % 11 - 5) * (1.3 if crowded else 0.7)
            shift = shift if len(row.values) > 1 else 0
            title = (row.name, row.titles[number] if row.titles else axis.named(value))
            canvas.marker(scale(value), y + shift, size, f"s{row.series} dot", title=title)
        if row.mean is not None:
            canvas.line(scale(row.mean), y - 9, scale(row.mean), y + 9, "mean")
    return canvas


def draw_bars(
    rows: Sequence[Row], parts: Sequence[str], axis: svg.Axis, width: float
) -> svg.Canvas:
    """Draw stacked bars; a key names the parts in their order, and so does a part with room."""
    used = [index for index in range(len(parts)) if any(row.values[index] for row in rows)]
    keyed = svg.in_rows([parts[index] for index in used], 30, width)
    key_rows = keyed[-1][1] + 1 if keyed else 1
    layout = _layout(rows, width, note_width=80, above=18.0 * key_rows + 6)
    canvas = svg.Canvas(width, layout.height)
    for index, (x, row) in zip(used, keyed, strict=True):
        _key(canvas, x, row, parts[index], index + 1)
    longest = max(sum(row.values) for row in rows)
    scale = axis.scale([0, longest], layout.left, layout.right)
    svg.draw_x_axis(canvas, axis, scale, layout.top, layout.bottom, 4 if layout.narrow else 7)
    for row, y in _labelled(canvas, rows, layout):
        at, whole = 0.0, sum(row.values)
        for index in used:
            value = row.values[index]
            start, end = scale(at), scale(at + value)
            at += value
            if end - start < 0.3:
                continue
            inside = f"{parts[index]} {axis.text(value)}"
            share = f"{words.percent(value / whole)} of {axis.text(whole)}"
            title = (row.name, f"{parts[index]}: {axis.text(value)}", share)
            canvas.rectangle(start, y - 8, max(end - start - 1, 0.5), 16, f"p{index + 1}", title)
            if svg.text_width(inside, 11) < end - start - 8:
                canvas.text((start + end) / 2, y + 4, inside, f"in i{index + 1}", anchor="middle")
    return canvas


def bars_in_words(
    rows: Sequence[Row], parts: Sequence[str], text: Callable[[Row, float], str]
) -> str:
    """Parts of stacked bars as a sentence, each by `text` of its row and value."""
    bars = (
        (row.label, [f"{n} {text(row, v)}" for n, v in zip(parts, row.values, strict=True) if v])
        for row in rows
    )
    return "; ".join(f"{label}: {', '.join(said)}" for label, said in bars) + "."


def _key(canvas: svg.Canvas, x: float, row: int, name: str, number: int) -> None:
    canvas.rectangle(x, 4 + 18 * row, 12, 12, f"p{number}")
    canvas.text(x + 17, 14 + 18 * row, name, "keyed")


def draw_pairs(
    rows: Sequence[Row], names: tuple[str, str], axis: svg.Axis, width: float
) -> svg.Canvas:
    """Draw a circle and a square in each row, and the line between them."""
    layout = _layout(rows, width, note_width=96, above=22)
    canvas = svg.Canvas(width, layout.height)
    marks = (("s1", "circle"), ("s2", "square"))
    at = layout.left if not layout.narrow else 4.0
    for (style, shape), name in zip(marks, names, strict=True):
        canvas.marker(at + 6, 9, 5, style, shape)
        canvas.text(at + 16, 13, name, "keyed")
        at += 34 + svg.text_width(name)
    values = [value for row in rows for value in row.values]
    scale = axis.scale([0, *values], layout.left, layout.right)
    svg.draw_x_axis(canvas, axis, scale, layout.top, layout.bottom, 4 if layout.narrow else 8)
    for row, y in _labelled(canvas, rows, layout):
        first, second = map(scale, row.values)
        canvas.line(first, y, second, y, "link")
        for place in (1, 0):  # the circle lies above the square
            style, shape = marks[place]
            title = (row.name, f"{names[place]}: {axis.text(row.values[place])}")
            canvas.marker((first, second)[place], y, 5, style, shape, title)
    return canvas


def _layout(rows: Sequence[Row], width: float, note_width: float, above: float = 0.0) -> _Layout:
    narrow = width < 600
    longest = max(svg.text_width(words.squeezed(row.label, 40)) for row in rows)
    left = 6.0 if narrow else min(longest + 16, 0.36 * width)
    right = width - (8.0 if narrow else note_width)
    places = []
    y, group = above + 4.0, ""
    for row in rows:
        if row.group != group:
            group = row.group
            y += HEADING if places else HEADING - 8
        places.append(y + (NARROW_ROW - 12 if narrow else ROW / 2))
        y += NARROW_ROW if narrow else ROW
    return _Layout(left, right, above + 4, y + 4 + 46, places, narrow)


def _labelled(
    canvas: svg.Canvas, rows: Sequence[Row], layout: _Layout
) -> Iterator[tuple[Row, float]]:
    group = ""
    above = NARROW_ROW - 12 if layout.narrow else ROW / 2
    longest_note = max(svg.text_width(row.note) for row in rows)
    wide = canvas.width - longest_note - 16 if layout.narrow else layout.left - 12
    labels = words.squeezed_apart([row.label for row in rows], int(wide / svg.text_width("x")))
    for row, y, label in zip(rows, layout.places, labels, strict=True):
        if row.group != group:
            group = row.group
            room = int(canvas.width / svg.text_width("x"))
            heading = words.shortened(words.squeezed(group, room), room)
            canvas.text(2, y - above - 6, heading, "heading")
        if layout.narrow:
            canvas.text(2, y - 14, label)
            canvas.text(canvas.width - 2, y - 14, row.note, "note", anchor="end")
        else:
            canvas.text(layout.left - 10, y + 4, label, anchor="end")
            canvas.text(canvas.width - 2, y + 4, row.note, "note", anchor="end")
        yield row, y
