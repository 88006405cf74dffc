"""Figures with two axes: lines with their spread, and points."""

from collections.abc import Sequence
from typing import NamedTuple

from dawnjax.page import svg, words

MOST_POINTS = 160
"""Points of a drawn line; the eye does not see more at this size."""

MOST_TITLED = 25
"""Points of a line that have a title."""

MOST_MARKERS = 20
"""A line of more points has a marker at every third of those with a title."""

_NEAR = 48.0
"""A name is joined to a line that ends so near the right edge."""

_BELOW = 46.0
"""Room below a figure's lower edge, for its horizontal axis."""


class Line(NamedTuple):
    """A line with its spread.

    Attributes:
      points: (x, y) or (x, y, low, high) from left to right.
      strands: Thin lines of the trials whose median the line is.
      band: What lies between low and high.
    """

    label: str
    points: tuple[tuple[float, ...], ...]
    strands: tuple[tuple[tuple[float, float], ...], ...] = ()
    marked: bool = True
    band: str = "half of the trials"

    @property
    def every(self) -> list[tuple[float, ...]]:
        """All points, those of the strands too."""
        return [*self.points, *(point for strand in self.strands for point in strand)]


class Point(NamedTuple):
    """A point of a colour and marker (`series`, from 0), with a radius in CSS pixels.

    Attributes:
      label: Written beside it where it fits.
      number: Written in its place where the label does not fit; 0 for none.
      name: First line of its title, before `more`; the label if empty.
    """

    x: float
    y: float
    label: str
    series: int = 0
    number: int = 0
    name: str = ""
    size: float = 4.5
    more: tuple[str, ...] = ()


class _Frame(NamedTuple):
    x: svg.Axis
    y: svg.Axis
    to_x: svg.Scale
    to_y: svg.Scale

    @property
    def edges(self) -> tuple[float, float, float, float]:
        """Left, top, right and bottom, in CSS pixels."""
        return self.to_x.start, self.to_y.end, self.to_x.end, self.to_y.start

    def draw(self, canvas: svg.Canvas) -> None:
        left, top, right, bottom = self.edges
        svg.draw_y_axis(canvas, self.y, self.to_y, left, right)
        svg.draw_x_axis(canvas, self.x, self.to_x, top, bottom, 7)

    def place(self, point: Sequence[float]) -> tuple[float, float]:
        return self.to_x(point[0]), self.to_y(point[1])

    def title(self, name: str, point: Sequence[float], band: str = "") -> list[str]:
        lines = [name, self.x.named(point[0]), self.y.named(point[1])]
        if len(point) == 4 and point[2] < point[3]:
            text = self.y.exact or self.y.text
            lines.append(f"{band}: {text(point[2])} to {text(point[3])}")
        return lines


class _End(NamedTuple):
    x: float
    y: float
    style: str
    shape: str
    label: str


def draw_lines(
    lines: Sequence[Line],
    x: svg.Axis,
    y: svg.Axis,
    width: float,
    *,
    reference: tuple[float, str] | None = None,
    least_y: float | None = None,
    is_named: bool = True,
) -> svg.Canvas:
    """Draw lines, `width` CSS pixels wide.

    Args:
      reference: (value, name) of a horizontal line, such as a target.
      least_y: Nothing below is drawn.
      is_named: Whether names stand at the ends of lines or in a key; a line alone may do without.
    """
    longest = max(svg.text_width(words.squeezed(line.label, 32)) for line in lines)
    right = width - (min(longest + 30, 0.34 * width) if is_named else 14)
    top = 30.0
    bottom = top + 0.38 * width
    canvas = svg.Canvas(width, bottom + _BELOW)
    points = [point for line in lines for point in line.every]
    ys = [value for point in points for value in point[1:]]
    if reference is not None:
        ys.append(reference[0])
    if least_y is not None:
        ys = [value for value in ys if value >= least_y] + [least_y]
    to_y = y.scale(ys, bottom, top)
    left = max(52.0, _room(y, to_y))
    frame = _Frame(x, y, x.scale([point[0] for point in points], left, right), to_y)
    frame.draw(canvas)
    if reference is not None:
        _draw_reference(canvas, frame, *reference)
    ends = [_draw_line_of(canvas, frame, line, number) for number, line in enumerate(lines)]
    if is_named:
        _label_ends(canvas, ends, right, top, bottom)
    return canvas


def _draw_reference(canvas: svg.Canvas, frame: _Frame, value: float, name: str) -> None:
    left, _, right, _ = frame.edges
    at = frame.to_y(value)
    canvas.line(left, at, right, at, "target")
    canvas.text(left + 6, at - 5, name, "targeted")


def _draw_line_of(canvas: svg.Canvas, frame: _Frame, line: Line, number: int) -> _End:
    color = number % svg.SERIES + 1
    style, shape = f"s{color}", svg.MARKERS[number % len(svg.MARKERS)]
    name, low = line.label, frame.to_y.low
    for strand in line.strands:
        thin = svg.thinned(strand, MOST_POINTS // 4)
        _draw_line(canvas, thin, frame, f"{style} strand", 0)
    drawn = svg.thinned(line.points, MOST_POINTS)
    _draw_line(canvas, drawn, frame, f"{style} line", color)
    for strand in line.strands:
        last = strand[-1]
        if last[1] >= low:
            title = frame.title(f"{name}, end of a trial", last)
            if drawn:
                canvas.marker(*frame.place(last), 1.6, style, title=title)
            else:
                canvas.marker(*frame.place(last), 3.2, style, shape, title)
    visible = svg.thinned([point for point in drawn if point[1] >= low], MOST_TITLED)
    every = 1 if len(visible) <= MOST_MARKERS else 3
    for place, point in enumerate(visible):
        title = frame.title(name, point, line.band)
        if place % every or not line.marked:
            canvas.marker(*frame.place(point), 3.2, "unseen", title=title)
        else:
            canvas.marker(*frame.place(point), 3.2, style, shape, title)
    marked = visible or drawn or [strand[-1] for strand in line.strands]
    last = max(marked, key=lambda point: point[0])
    return _End(*frame.place((last[0], max(last[1], low))), style, shape, line.label)


def draw_points(
    points: Sequence[Point],
    x: svg.Axis,
    y: svg.Axis,
    width: float,
    *,
    diagonal: str = "",
    bound: Line | None = None,
    series_names: Sequence[str] = (),
    joined: bool = False,
) -> svg.Canvas:
    """Draw points, in CSS pixels; their names stand beside them where there is room.

    Args:
      points: In the order of their numbers.
      diagonal: Name of the line of equal values; empty for none.
      bound: A line that no point should pass.
      joined: Join the points of a series by a line.
    """
    keyed = svg.in_rows(series_names, 34, width)
    top = 30.0 + (18.0 * (keyed[-1][1] + 1) if keyed else 0)
    bottom = top + 0.38 * width
    canvas = svg.Canvas(width, bottom + _BELOW)
    corners = bound.points if bound else ()
    xs = [p.x for p in points] + [p[0] for p in corners]
    ys = [p.y for p in points] + [p[1] for p in corners]
    to_y = y.scale(ys, bottom, top)
    frame = _Frame(x, y, x.scale(xs, max(58.0, _room(y, to_y)), width - 14), to_y)
    for index, (name, (at, row)) in enumerate(zip(series_names, keyed, strict=True)):
        canvas.marker(at + 7, 8 + 18 * row, 4.5, *_series_style(index))
        canvas.text(at + 17, 12 + 18 * row, name, "keyed")
    frame.draw(canvas)
    taken = _draw_diagonal(canvas, frame.to_x, frame.to_y, diagonal) if diagonal else []
    if joined:
        _join(canvas, frame, points)
    if bound:
        taken.append(_draw_bound(canvas, frame, bound))
    for point in points:
        title = [*frame.title(point.name or point.label, (point.x, point.y)), *point.more]
        place = frame.place((point.x, point.y))
        style, shape = _series_style(point.series)
        # A rim parts marks that overlap; a cross is all rim.
        canvas.marker(
            *place, point.size, style if shape == "cross" else f"{style} dot", shape, title
        )
    _label_points(canvas, frame, points, taken)
    return canvas


def _room(axis: svg.Axis, scale: svg.Scale) -> float:
    return 12 + max((svg.text_width(axis.text(v), 11) for v in axis.ticks(scale, 6)), default=0.0)


def _series_style(index: int) -> tuple[str, str]:
    return f"s{index % svg.SERIES + 1}", svg.MARKERS[index % len(svg.MARKERS)]


def _draw_bound(
    canvas: svg.Canvas, frame: _Frame, bound: Line
) -> tuple[float, float, float, float]:
    path = [frame.place(point) for point in bound.points]
    canvas.path(path, "target")
    x, y = path[-1]
    canvas.text(x, y - 6, bound.label, "targeted", anchor="end")
    return x - svg.text_width(bound.label), y - 18, x, y - 4


def _join(canvas: svg.Canvas, frame: _Frame, points: Sequence[Point]) -> None:
    for index in sorted({point.series for point in points}):
        highest: dict[float, float] = {}
        for point in (point for point in points if point.series == index):
            highest[point.x] = max(point.y, highest.get(point.x, point.y))
        path = [frame.place((at, highest[at])) for at in sorted(highest)]
        canvas.path(path, f"{_series_style(index)[0]} line")


def _label_points(canvas: svg.Canvas, frame: _Frame, points: Sequence[Point], taken: list) -> None:
    """Write names or numbers beside points, where they hide no point and no text in `taken`."""
    left, top, right, bottom = frame.edges
    places = [frame.place((point.x, point.y)) for point in points]
    taken += [(px - 6, py - 6, px + 6, py + 6) for px, py in places]
    shorts = words.squeezed_apart([point.label for point in points], 30)
    for point, (px, py), short in zip(points, places, shorts, strict=True):
        number = str(point.number) if point.number else ""
        for text in filter(None, [short, number]):
            placed = _place(px, py, svg.text_width(text), taken, (left, top - 4, right, bottom))
            if placed is not None:
                at, anchor, box = placed
                canvas.text(at[0], at[1], text, "pointed", anchor=anchor)
                taken.append(box)
                break


def _draw_line(
    canvas: svg.Canvas, points: Sequence[tuple[float, ...]], frame: _Frame, style: str, color: int
) -> None:
    to_x, to_y = frame.to_x, frame.to_y
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


def _label_ends(
    canvas: svg.Canvas, ends: Sequence[_End], right: float, top: float, bottom: float
) -> None:
    """Write names beside the ends of their lines if all end near the edge, else in a key."""
    near = all(end.x > right - _NEAR for end in ends)
    wanted = [end.y for end in ends] if near else [top + 8.0 + 18 * n for n in range(len(ends))]
    placed = svg.spread(wanted, 16, top, bottom)
    room = int((canvas.width - right - 24) / svg.text_width("x"))
    shorts = words.squeezed_apart([end.label for end in ends], room)
    for end, at, short in zip(ends, placed, shorts, strict=True):
        if near and (abs(at - end.y) > 3 or end.x < right - 4):
            canvas.path([(end.x + 4, end.y), (right + 4, at), (right + 8, at)], "leader")
        canvas.marker(right + 13, at, 4, end.style, end.shape)
        canvas.text(right + 22, at + 4, short, "keyed")


def _draw_diagonal(
    canvas: svg.Canvas, to_x: svg.Scale, to_y: svg.Scale, name: str
) -> list[tuple[float, float, float, float]]:
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
