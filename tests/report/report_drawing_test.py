"""The words and the drawings of a report."""

import html
import re

from dawnjax.page import plots, svg, words
from dawnjax.page.rows import WIDE, Row, draw_bars, draw_strips


def test_times_and_numbers_in_words():
    said = {
        0.000683: "683 µs", 0.683: "683 ms", 4.056: "4.06 s", 59.94: "59.9 s", 59.96: "1 min",
        162.34: "2 min 42 s", 3599.6: "1 h", 12354.2: "3 h 26 min", 1161694.0: "323 h", 0: "0 s",
    }  # fmt: skip
    for seconds, text in said.items():
        assert words.duration(seconds) == text, seconds
    values = (22652.7, 0.13729, 3.0, -1234567, 99.996, 0.00000012349, 0.0)
    assert " ".join(map(words.rounded, values)) == "22,650 0.1373 3 -1,235,000 100 0.0000001235 0"
    estimates = [words.about(seconds) for seconds in (0.0196, 397.2, 790.0, 45_000.0)]
    assert estimates == ["19.6 ms", "397 s", "13 min", "12.5 h"]
    assert words.scaled(5e11, "FLOP/s") == "500 GFLOP/s" and words.scaled(999.7, "B") == "1 kB"
    assert [words.usd(v) for v in (48.479, 1112.64, 0.00208)] == ["$48.48", "$1,113", "$0.0021"]
    assert words.percent(0.067208) == "6.72%" and words.percent(1.0) == "100%"
    assert words.percent(0.55, 4) == "55%"
    assert words.memory(40 * 2**30) == "40 GiB" and words.memory(1.5 * 2**30) == "1.50 GiB"
    assert [words.number(v) for v in (82.0, 4.568, 0.0, 1234.5)] == [
        "82",
        "4.57",
        "0",
        "1\u202f234",
    ]


def titles(canvas: svg.Canvas) -> list[list[str]]:
    """The lines of each title of a drawing."""
    found = re.findall(r"<title>(.*?)</title>", canvas.body(), re.S)
    return [html.unescape(text).split("\n") for text in found]


def test_each_mark_tells_whose_it_is_and_its_values_with_units():
    x = svg.Axis("time", words.duration, svg.time_ticks)
    y = svg.Axis("accuracy (%)", words.plain, exact=lambda v: words.percent(v, 4), name="accuracy")
    quartiles = ((60.0, 0.5, 0.4, 0.6), (120.0, 0.93456, 0.93456, 0.93456))
    lines = [plots.Line("a <whole> name", quartiles)]
    assert titles(plots.draw_lines(lines, x, y, WIDE)) == [
        ["a <whole> name", "time: 1 min", "accuracy: 50%", "half of the trials: 40% to 60%"],
        ["a <whole> name", "time: 2 min", "accuracy: 93.46%"],
    ]
    point = plots.Point(60.0, 0.25, "", name="first")
    assert titles(plots.draw_points([point], x, y, WIDE)) == [
        ["first", "time: 1 min", "accuracy: 25%"]
    ]
    row = Row("digits", "ours", (1.0, 3.0), "", low=1.5, high=2.5)
    bars = draw_bars([row], ("train", "eval"), x, WIDE)
    assert titles(bars) == [
        ["ours \xb7 digits", "train: 1 s", "25% of 4 s"],
        ["ours \xb7 digits", "eval: 3 s", "75% of 4 s"],
    ]
    assert titles(draw_strips([row], x, WIDE)) == [
        ["ours \xb7 digits", "95% interval: 1.50 s to 2.50 s"],
        ["ours \xb7 digits", "time: 1 s"],
        ["ours \xb7 digits", "time: 3 s"],
    ]


def test_the_value_of_a_field_is_never_cut():
    name = "digits optimizer.base_learning_rate=0.0125 on 2 cores of an AMD EPYC processor"
    for length in (60, 40, 30, 16):
        assert "=0.0125" in words.squeezed(name, length)
        assert len(words.squeezed(name, length)) <= max(length, len("optim…=0.0125"))
    two = "schedule.warmup_epochs=1.5, optimizer.weight_decay=0.0005 on cpu"
    short = words.squeezed(two, 32)
    assert "=1.5" in short and "=0.0005" in short and len(short) <= 32
    pair = [f"global_batch_size={size} on a machine of some name" for size in (64, 128, 256)]
    assert all(
        f"={n}" in s for n, s in zip((64, 128, 256), words.squeezed_apart(pair, 24), strict=True)
    )
