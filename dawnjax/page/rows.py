"""Figures with one row for each entry or run: dots of trials, stacked bars."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from dawnjax.page import svg, words

WIDE = 880.0
HALF = 640.0
"""Widths in CSS pixels: of a figure alone, and of one beside another. A phone scrolls them."""

ROW = 24.0
HEADING = 30.0


class Row(NamedTuple):
    """One row of a figure; rows of one group stand under its name.

    Attributes:
      values: A dot each, or a part of a bar each.
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

    @property
    def bottom(self) -> float:
        return self.height - 46


def draw_strips(rows: Sequence[Row], axis: svg.Axis, width: float) -> svg.Canvas:
    """Draw the values of each row as dots, their mean across, its interval along the row."""
    layout = _layout(rows, width, note_width=118)
    canvas = svg.Canvas(width, layout.height)
    every = [value for row in rows for value in (*row.values, row.low, row.high, row.mean)]
    scale = axis.scale([v for v in every if v is not None], layout.left, layout.right)
    svg.draw_x_axis(canvas, axis, scale, layout.top, layout.bottom, 8)
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
    svg.draw_x_axis(canvas, axis, scale, layout.top, layout.bottom, 7)
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


def _layout(rows: Sequence[Row], width: float, note_width: float, above: float = 0.0) -> _Layout:
    longest = max(svg.text_width(words.squeezed(row.label, 40)) for row in rows)
    left = min(longest + 16, 0.36 * width)
    right = width - note_width
    places = []
    y, group = above + 4.0, ""
    for row in rows:
        if row.group != group:
            group = row.group
            y += HEADING if places else HEADING - 8
        places.append(y + ROW / 2)
        y += ROW
    return _Layout(left, right, above + 4, y + 4 + 46, places)


def _labelled(
    canvas: svg.Canvas, rows: Sequence[Row], layout: _Layout
) -> Iterator[tuple[Row, float]]:
    group = ""
    room = int((layout.left - 12) / svg.text_width("x"))
    labels = words.squeezed_apart([row.label for row in rows], room)
    for row, y, label in zip(rows, layout.places, labels, strict=True):
        if row.group != group:
            group = row.group
            room = int(canvas.width / svg.text_width("x"))
            heading = words.shortened(words.squeezed(group, room), room)
            canvas.text(2, y - ROW / 2 - 6, heading, "heading")
        canvas.text(layout.left - 10, y + 4, label, anchor="end")
        canvas.text(canvas.width - 2, y + 4, row.note, "note", anchor="end")
        yield row, y
