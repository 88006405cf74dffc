"""Heat map: a cell for each pair of values of two axes, the darker the less its value."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dawnjax.page import svg, words

SHADES = 6
"""Classes `h0` (the least value) to `h5` of the page's style sheet."""

_ROW = 44.0


class Cell(NamedTuple):
    """A value above 0, or None where there is none; `note` stands below it."""

    value: float | None
    note: str
    title: tuple[str, ...]


def draw_heat(
    cells: Sequence[Sequence[Cell]],
    rows: Sequence[str],
    columns: Sequence[str],
    names: tuple[str, str],
    text: Callable[[float], str],
    width: float,
) -> svg.Canvas:
    """Draw cells by row and column, with a frame around the least value.

    Args:
      names: Of the rows' axis and of the columns'.
      text: From a value to its words.
    """
    longest = max(map(svg.text_width, rows))
    left = min(longest + 16, 0.3 * width)
    top, each = 66.0, (width - left - 2) / len(columns)
    canvas = svg.Canvas(width, top + _ROW * len(rows) + 6)
    letters = int(width / svg.text_width("x"))
    for y, way, name in ((14, "down", names[0]), (30, "across", names[1])):
        canvas.text(2, y, words.squeezed(f"{way}: {name}", letters), "label")
    values = [cell.value for row in cells for cell in row if cell.value is not None]
    least, most = (min(values), max(values)) if values else (1.0, 1.0)
    heads = words.squeezed_apart(columns, max(3, int((each - 6) / svg.text_width("x"))))
    for place, head in enumerate(heads):
        canvas.text(left + (place + 0.5) * each, top - 8, head, "tick", anchor="middle")
    labels = words.squeezed_apart(rows, max(3, int((left - 12) / svg.text_width("x"))))
    frame = None
    for number, (label, row) in enumerate(zip(labels, cells, strict=True)):
        y = top + number * _ROW
        canvas.text(left - 8, y + _ROW / 2 + 4, label, anchor="end")
        for place, cell in enumerate(row):
            x = left + place * each
            canvas.rectangle(
                x + 1, y + 1, each - 2, _ROW - 2, _shade(cell, least, most), cell.title
            )
            shown = "-" if cell.value is None else text(cell.value)
            if svg.text_width(shown) < each - 6:
                canvas.text(x + each / 2, y + _ROW / 2, shown, anchor="middle")
            if svg.text_width(cell.note, 11) < each - 6:
                canvas.text(x + each / 2, y + _ROW / 2 + 14, cell.note, "pointed", anchor="middle")
            if cell.value == least and frame is None and values:
                frame = x + 1, y + 1
    if frame is not None:
        canvas.rectangle(*frame, each - 2, _ROW - 2, "mean")
    return canvas


def _shade(cell: Cell, least: float, most: float) -> str:
    if cell.value is None:
        return "heat none"
    # Ratios, as times differ by factors; a map of equal values is all of the least.
    share = math.log(cell.value / least) / math.log(most / least) if most > least > 0 else 0.0
    return f"heat h{min(SHADES - 1, int(share * SHADES))}"
