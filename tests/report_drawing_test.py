"""The words and the drawings of a report."""

import re

from dawnjax.report import plots, svg, words


def test_times_and_numbers_in_words():
    said = {
        0.000683: "683 µs", 0.683: "683 ms", 4.056: "4.06 s", 59.94: "59.9 s", 59.96: "1 min",
        162.34: "2 min 42 s", 3599.6: "1 h", 12354.2: "3 h 26 min", 1161694.0: "323 h", 0: "0 s",
    }  # fmt: skip
    for seconds, text in said.items():
        assert words.duration(seconds).replace("\xa0", " ") == text, seconds
    assert [words.usd(v) for v in (48.479, 1112.64, 0.00208)] == ["$48.48", "$1,113", "$0.0021"]
    assert words.percent(0.067208) == "6.72%" and words.percent(1.0) == "100%"
    assert words.percent(0.55, 4) == "55%"
    assert [words.number(v) for v in (82.0, 4.568, 0.0, 1234.5)] == [
        "82",
        "4.57",
        "0",
        "1\u202f234",
    ]


def test_axes_have_few_round_values_inside_them():
    for low, high in ((0.1, 0.93), (3.0, 1700.0), (1.61, 4.3), (9.4, 370_000.0), (0.5, 0.501)):
        for log in (False, True):
            scale = svg.Scale(low, high, 0.0, 100.0, log)
            for make in (svg.ticks, svg.time_ticks):
                values = make(scale, 6)
                assert 1 <= len(values) <= 8, (low, high, log, make, values)
                assert all(low * 0.999 <= value <= high * 1.001 for value in values)
    assert svg.ticks(svg.Scale(0, 10, 0, 1)) == [0, 2, 4, 6, 8, 10]
    assert svg.spread([5, 5, 5], 10, 0, 100) == [5, 15, 25]


def test_a_line_enters_a_figure_where_it_crosses_the_edge():
    axis = plots.Axis("x", words.plain)
    line = plots.Line("a", ((0.0, 0.0), (1.0, 1.0), (2.0, 1.0)))
    drawn = plots.draw_lines([line], axis, axis, 880.0, least_y=0.5).body()
    path = re.search(r'class="s1 line" d="M([\d.]+) ([\d.]+)L', drawn)
    frame = re.search(r'class="axis" d="M([\d.]+) ([\d.]+)L([\d.]+)', drawn)
    assert path and frame
    left, bottom, right = float(frame[1]), float(frame[2]), float(frame[3])
    assert float(path[2]) == bottom
    # At half of the first of two steps, inside a margin of 3 %.
    share = (float(path[1]) - left) / (right - left)
    assert 0.23 < share < 0.29
