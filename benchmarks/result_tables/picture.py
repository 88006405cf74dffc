"""README's picture: the time to accuracy of each trial, DawnJAX beside PyTorch."""

import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from html import escape
from importlib import resources

from benchmarks.compared import step_of
from benchmarks.result_tables.cells import machine, when
from benchmarks.result_tables.result_files import Record
from dawnjax.page import svg, words
from dawnjax.page.rows import WIDE, Row, draw_strips
from dawnjax.statistics.sample import Sample, time_interval
from dawnjax.text import escaped

TITLE = "Time to accuracy of each trial, DawnJAX and PyTorch"
SIDES = {"dawnjax": "DawnJAX", "pytorch": "PyTorch"}


def picture(files: Sequence[tuple[str, Record]], theme: str) -> str:
    """SVG of the trials of all benchmarks that ran on both sides, from result files by name.

    The theme is `light` or `dark`.
    """
    rows = [row for name, record in files for row in _rows(name, record)]
    axis = svg.Axis("time to accuracy", words.duration, svg.time_ticks, log=True)
    days = sorted({when(record) for _, record in files})
    caption = (
        "A dot is a trial that reached its target, the line across the expected time: that of all "
        "trials over the number that reached. The bar is its 95 % interval if all reach, given "
        "from 5 trials on. Both sides train the same model on the same data; compilation is not in "
        "these times. "
        "A load is that of the machine before, named where it is above the number of cores. "
        f"Measured from {days[0]} to {days[-1]}, on the machines named above."
    )
    return _document(draw_strips(rows, axis, WIDE), TITLE, caption, theme)


def _rows(name: str, record: Record) -> Iterator[Row]:
    what = record.get("experiment") or name.partition("_")[0]
    for number, (side, title) in enumerate(SIDES.items(), 1):
        trials = record[side]["trials"]
        times = [t["time_to_accuracy_seconds"] for t in trials if t["reached"]]
        sample = Sample.of(
            [t["time_to_accuracy_seconds"] if t["reached"] else None for t in trials],
            [t["run_seconds"] for t in trials],
            steps=[step_of(t) if t["reached"] else None for t in trials],
        )
        estimate = None if sample is None else time_interval(sample)
        expected = None if estimate is None else estimate.value
        bar = None if estimate is None or estimate.level is None else estimate
        mean = "" if expected is None else f"{words.duration(expected)}, "
        yield Row(
            label=title,
            group=f"{what}, on {machine(name, record)}",
            values=tuple(times),
            note=f"{mean}{len(times)} of {len(trials)}",
            low=None if bar is None else bar.low,
            high=None if bar is None else bar.high,
            mean=expected,
            series=number,
        )


def _document(canvas: svg.Canvas, title: str, caption: str, theme: str) -> str:
    """A drawing as a file of its own, titled above and captioned below."""
    margin, line = 16, 18
    letters = int(canvas.width / svg.text_width("x"))
    lines = textwrap.wrap(escaped(caption), letters)
    width = math.ceil(canvas.width + 2 * margin)
    top = margin + 24
    height = math.ceil(top + canvas.height + line * len(lines) + margin)
    below = svg.Canvas(canvas.width, 0)
    for number, text in enumerate(lines):
        below.text(0, canvas.height + line * (number + 1) - 4, text, "note")
    above = svg.Canvas(canvas.width, 0)
    above.text(0, -10, title, "heading title")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}"><title>{escape(escaped(title))}</title>'
        f"<style>{_style(theme)}</style>"
        f'<rect class="ground" width="{width}" height="{height}"/>'
        f'<g transform="translate({margin} {top})">'
        f"{above.body()}{canvas.body()}{below.body()}</g></svg>\n"
    )


def _style(theme: str) -> str:
    """Style sheet of drawings with each colour written out.

    Some programs that show SVG lack CSS variables, and an image cannot ask for the page's theme.
    """
    sheet = (resources.files("dawnjax.page") / "templates" / "figure.css").read_text("utf-8")
    light, dark = re.findall(r":root \{(.*?)\}", sheet, re.DOTALL)
    colors = dict(re.findall(r"--(\w+): ([^;]+);", light if theme == "light" else dark))
    rules = sheet[sheet.index("svg text") :]
    return re.sub(r"var\(--(\w+)\)", lambda name: colors[name[1]], rules)
