"""Figures with two axes: lines with their spread, and points."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dawnjax.report import svg, words

Text = Callable[[float], str]
Ticks = Callable[[svg.Scale, int], list[float]]

MOST_POINTS = 160
"""Points of a drawn line; the eye does not see more at this size."""

MOST_MARKERS = 9
"""Markers on a line that has more points than this."""

_NEAR = 48.0
"""A name is joined to a line that ends so near the right edge."""


class Axis(NamedTuple):
    """How an axis is drawn.

    Attributes:
      label: With its unit.
      text: From a value to its words.
      ticks: From a scale and a number to at most so many round values.
      log: Whether equal ratios are equally far apart.
      zero: Whether it begins at 0.
    """

    label: str
    text: Text
    ticks: Ticks = svg.ticks
    log: bool = False
    zero: bool = False


class Line(NamedTuple):
    """A line with its spread.

    Attributes:
      label: Written at its end; without one, the line is drawn in grey behind the others.
      points: (x, y) or (x, y, low, high) from left to right.
      strands: Thin lines of the trials whose median the line is.
    """

    label: str
    points: tuple[tuple[float, ...], ...]
    strands: tuple[tuple[tuple[float, float], ...], ...] = ()

    @property
    def every(self) -> list[tuple[float, ...]]:
        """All points, those of the strands too."""
        return [*self.points, *(point for strand in self.strands for point in strand)]


class Point(NamedTuple):
    """A point.

    Attributes:
      x: Its value.
      y: Its value.
      label: Written beside it where it fits, and in the key if it is numbered.
      series: Colour and marker, from 0.
      number: Written in its place where the figure has a key; 0 for none.
    """

    x: float
    y: float
    label: str
    series: int = 0
    number: int = 0


def draw_lines(
    lines: Sequence[Line],
    x: Axis,
    y: Axis,
    width: float,
    *,
    reference: tuple[float, str] | None = None,
    least_y: float | None = None,
) -> svg.Canvas:
    """Draws lines with their names at their ends, or below the figure where it is narrow.

    Args:
      lines: Those without a label are drawn in grey behind the others.
      x: The horizontal axis.
      y: The vertical axis.
      width: In CSS pixels.
      reference: A value to be reached, drawn as a horizontal line, and its name.
      least_y: Where the vertical axis begins; what is below it is not drawn.
    """
    narrow = width < 600
    named = [line for line in lines if line.label]
    longest = max((svg.text_width(words.squeezed(line.label, 32)) for line in named), default=0)
    left, top = 52.0, 30.0
    right = width - (8 if narrow or not named else min(longest + 30, 0.34 * width))
    plot_height = 240.0 if narrow else 330.0
    bottom = top + plot_height
    key = 18.0 * len(named) + 10 if narrow else 0.0
    canvas = svg.Canvas(width, bottom + 46 + key)
    points = [point for line in lines for point in line.every]
    xs = [point[0] for point in points]
    ys = [value for point in points for value in point[1:]]
    if reference is not None:
        ys.append(reference[0])
    if least_y is not None:
        ys = [value for value in ys if value >= least_y] + [least_y]
    to_x = _scale(x, xs, left, right)
    to_y = _scale(y, ys, bottom, top)
    svg.y_axis(canvas, to_y, left, right, y.label, y.ticks(to_y, 6), y.text)
    svg.x_axis(canvas, to_x, top, bottom, x.label, x.ticks(to_x, 4 if narrow else 7), x.text)
    if reference is not None:
        at = to_y(reference[0])
        canvas.line(left, at, right, at, "target")
        canvas.text(left + 6, at - 5, reference[1], "targeted")
    ends = []
    for index, line in enumerate([*(line for line in lines if not line.label), *named]):
        number = index - (len(lines) - len(named))
        color = number % svg.SERIES + 1 if line.label else 0
        for strand in line.strands:
            thin = svg.thinned(strand, MOST_POINTS // 4)
            _draw_line(canvas, thin, to_x, to_y, f"s{color} strand" if color else "behind", 0)
        drawn = svg.thinned(line.points, MOST_POINTS)
        style = f"s{color} line" if color else "behind"
        _draw_line(canvas, drawn, to_x, to_y, style, color)
        if line.label:
            shape = svg.MARKERS[number % len(svg.MARKERS)]
            marked = drawn or [strand[-1] for strand in line.strands]
            visible = [point for point in marked if point[1] >= to_y.low]
            for point in svg.thinned(visible, 20 if len(visible) <= 20 else MOST_MARKERS):
                canvas.marker(to_x(point[0]), to_y(point[1]), 3.2, f"s{color}", shape)
            last = max(visible or marked, key=lambda point: point[0])
            ends.append((to_x(last[0]), to_y(max(last[1], to_y.low)), color, shape, line.label))
    if narrow:
        for number, (_, _, color, shape, label) in enumerate(ends):
            at = bottom + 60 + 18 * number
            canvas.marker(12, at - 4, 4.5, f"s{color}", shape)
            canvas.text(24, at, words.squeezed(label, 48), "keyed")
    else:
        _label_ends(canvas, ends, right, top, bottom)
    return canvas


def draw_points(
    points: Sequence[Point],
    x: Axis,
    y: Axis,
    width: float,
    *,
    diagonal: str = "",
    key: bool = False,
    series_names: Sequence[str] = (),
    joined: bool = False,
    floors: tuple[float | None, float | None] = (None, None),
) -> svg.Canvas:
    """Draws points; their names stand beside them where there is room.

    Args:
      points: In the order of their numbers.
      x: The horizontal axis.
      y: The vertical axis.
      width: In CSS pixels.
      diagonal: Name of the line of equal values; empty for none.
      key: Whether numbered points are named below the figure.
      series_names: Names of the series, in a key above.
      joined: Whether the points of a series are joined by a line.
      floors: A value that each axis must show, if any.
    """
    narrow = width < 600
    keyed = svg.in_rows(series_names, 34, width)
    left, top = 58.0, 30.0 + (18.0 * (keyed[-1][1] + 1) if keyed else 0)
    right = width - 14
    plot_height = 270.0 if narrow else 380.0
    bottom = top + plot_height
    numbered = [point for point in points if point.number] if key else []
    columns = 1 if narrow or len(numbered) < 4 else 2
    rows = -(-len(numbered) // columns)
    canvas = svg.Canvas(width, bottom + 46 + (18.0 * rows + 8 if rows else 0))
    xs = [point.x for point in points] + [v for v in floors[:1] if v is not None]
    ys = [point.y for point in points] + [v for v in floors[1:] if v is not None]
    to_x, to_y = _scale(x, xs, left, right), _scale(y, ys, bottom, top)
    for index, (name, (at, row)) in enumerate(zip(series_names, keyed, strict=True)):
        shape = svg.MARKERS[index % len(svg.MARKERS)]
        canvas.marker(at + 7, 8 + 18 * row, 4.5, f"s{index % svg.SERIES + 1}", shape)
        canvas.text(at + 17, 12 + 18 * row, name, "keyed")
    svg.y_axis(canvas, to_y, left, right, y.label, y.ticks(to_y, 6), y.text)
    svg.x_axis(canvas, to_x, top, bottom, x.label, x.ticks(to_x, 4 if narrow else 7), x.text)
    taken: list[tuple[float, float, float, float]] = []
    if diagonal:
        taken += _draw_diagonal(canvas, to_x, to_y, diagonal)
    if joined:
        for index in sorted({point.series for point in points}):
            highest: dict[float, float] = {}
            for point in (point for point in points if point.series == index):
                highest[point.x] = max(point.y, highest.get(point.x, point.y))
            path = [(to_x(at), to_y(highest[at])) for at in sorted(highest)]
            canvas.path(path, f"s{index % svg.SERIES + 1} line")
    places = [(to_x(point.x), to_y(point.y)) for point in points]
    taken += [(px - 6, py - 6, px + 6, py + 6) for px, py in places]
    for point, (px, py) in zip(points, places, strict=True):
        shape = svg.MARKERS[point.series % len(svg.MARKERS)]
        canvas.marker(px, py, 4.5, f"s{point.series % svg.SERIES + 1}", shape)
    for point, (px, py) in zip(points, places, strict=True):
        wanted = str(point.number) if point.number else ""
        short = words.squeezed(point.label, 30)
        texts = [short, wanted] if not key else [wanted]
        for text in filter(None, texts):
            placed = _place(px, py, svg.text_width(text), taken, (left, top - 4, right, bottom))
            if placed is not None:
                at, anchor, box = placed
                canvas.text(at[0], at[1], text, "pointed", anchor=anchor)
                taken.append(box)
                break
    for index, point in enumerate(numbered):
        column, row = divmod(index, rows)
        at = column * width / columns
        text = f"{point.number}  {point.label}"
        room = int((width / columns - 20) / svg.text_width("x"))
        canvas.text(at + 4, bottom + 60 + 18 * row, words.squeezed(text, room), "keyed")
    return canvas


def _scale(axis: Axis, values: Sequence[float], start: float, end: float) -> svg.Scale:
    if axis.log:
        return svg.logarithmic(values, start, end)
    return svg.linear(values, start, end, zero=axis.zero)


def _draw_line(
    canvas: svg.Canvas,
    points: Sequence[tuple[float, ...]],
    to_x: svg.Scale,
    to_y: svg.Scale,
    style: str,
    color: int,
) -> None:
    """Draws a line where it is inside the figure, and its spread."""
    floor = to_y.low
    if color and points and len(points[0]) == 4 and any(p[2] < p[3] for p in points):
        upper = [(to_x(p[0]), to_y(max(p[3], floor))) for p in points if p[3] >= floor]
        lower = [(to_x(p[0]), to_y(max(p[2], floor))) for p in points if p[3] >= floor]
        if len(upper) > 1:
            canvas.path([*upper, *reversed(lower)], f"s{color} band", close=True)
    path: list[tuple[float, float]] = []
    for before, point in zip([None, *points], points, strict=False):
        if point[1] < floor:
            continue
        if before is not None and before[1] < floor and not to_x.log:
            # The line enters from below: from where it crosses the figure's lower edge.
            share = (floor - before[1]) / (point[1] - before[1])
            path.append((to_x(before[0] + share * (point[0] - before[0])), to_y(floor)))
        path.append((to_x(point[0]), to_y(point[1])))
    canvas.path(path, style)


def _label_ends(canvas: svg.Canvas, ends: Sequence, right: float, top: float, bottom: float):
    # Names stand beside the ends of their lines if all ends are near the edge, else in a key.
    near = all(x > right - _NEAR for x, *_ in ends)
    wanted = [end[1] for end in ends] if near else [top + 8.0 + 18 * n for n in range(len(ends))]
    placed = svg.spread(wanted, 16, top, bottom)
    for (x, y, color, shape, label), at in zip(ends, placed, strict=True):
        if near and (abs(at - y) > 3 or x < right - 4):
            canvas.path([(x + 4, y), (right + 4, at), (right + 8, at)], "leader")
        canvas.marker(right + 13, at, 4, f"s{color}", shape)
        room = int((canvas.width - right - 24) / svg.text_width("x"))
        canvas.text(right + 22, at + 4, words.squeezed(label, room), "keyed")


def _draw_diagonal(
    canvas: svg.Canvas, to_x: svg.Scale, to_y: svg.Scale, name: str
) -> list[tuple[float, float, float, float]]:
    """Draws the line of equal values and its name at its upper end; returns the name's box."""
    low, high = max(to_x.low, to_y.low), min(to_x.high, to_y.high)
    if high <= low:
        return []
    canvas.line(to_x(low), to_y(low), to_x(high), to_y(high), "diagonal")
    x, y = to_x(high), to_y(high)
    room = svg.text_width(name)
    base = y - 6 if y > 40 else y + 12
    canvas.text(x - 6, base, name, "targeted", anchor="end")
    return [(x - 6 - room, base - 12, x - 6, base + 2)]


def _place(
    x: float,
    y: float,
    wide: float,
    taken: Sequence[tuple[float, float, float, float]],
    inside: tuple[float, float, float, float],
) -> tuple[tuple[float, float], str, tuple[float, float, float, float]] | None:
    """Finds a free place for a text beside a point; None if there is none."""
    for dx, dy, anchor in (
        (9, 4, "start"),
        (-9, 4, "end"),
        (0, -9, "middle"),
        (0, 18, "middle"),
        (8, -7, "start"),
        (8, 15, "start"),
        (-8, -7, "end"),
        (-8, 15, "end"),
    ):
        start = x + dx - {"start": 0, "middle": wide / 2, "end": wide}[anchor]
        box = (start, y + dy - 10, start + wide, y + dy + 2)
        within = box[0] >= inside[0] and box[2] <= inside[2]
        within = within and box[1] >= inside[1] and box[3] <= inside[3]
        if within and not any(_overlap(box, box_taken) for box_taken in taken):
            return (x + dx, y + dy), anchor, box
    return None


def _overlap(first: tuple[float, ...], second: tuple[float, ...]) -> bool:
    beside = first[2] <= second[0] or second[2] <= first[0]
    return not beside and first[1] < second[3] and second[1] < first[3]
