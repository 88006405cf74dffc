"""The report: a page that needs nothing else, whose numbers are those of its tables."""

import dataclasses
import html
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from browser import opened
from made_entries import make_entry, make_trial
from made_other_logs import normal, write_lines, write_side
from made_reports import Page, entry, some_entries, some_report
from made_runs import write_run

from dawnjax.other_logs.columns import Columns
from dawnjax.page.html_table import MOST_ROWS, to_html
from dawnjax.page.section import Figure
from dawnjax.report import contents, curves, inputs, own, summary, writing
from dawnjax.trials.trial import Evaluation


@pytest.fixture(scope="module")
def report() -> contents.Report:
    return some_report()


def test_the_page_is_whole_and_names_no_address(report):
    read = Page(report.html)
    for tag, attributes in read.tags:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            assert name != "style", tag
            if name in ("src", "href", "action", "srcset", "data", "xlink:href"):
                local = value is not None and (value[0] == "#" or value.startswith("tables/"))
                assert local or value == "data:,", (tag, value)
    # The one address is the name of SVG's namespace, which nothing fetches.
    addresses = set(re.findall(r"https?://[^\s\"'<]+", report.html))
    assert addresses == {"http://www.w3.org/2000/svg"}
    assert "url(" not in report.html and "@import" not in report.html


def test_numbers_of_the_page_are_those_of_the_tables(report):
    rows = Page(report.html).rows
    tables = {table.name: table for table in report.tables}
    board = [row for row in tables["leaderboards"].records() if row["rank"]]
    assert [row["source"] for row in board if "v0.5" in row["board"]] == [
        "v0.5.0/acme/large/resnet",
        "v0.5.0/acme/small/resnet",
    ]
    # By hand: large without its fastest and slowest is the mean of 110, 115, 120; small of
    # 805, 810, 820.
    assert [row["seconds"] for row in board[-3:-1]] == pytest.approx([115.0, 811.666667])
    shown = {row[1]: row for row in rows if len(row) > 3}
    assert shown["acme large · 64 acc.ResNet-50"][2:4] == ["5 of 5", "1 min 55 s"]
    assert shown["acme small · 8 acc.ResNet-50"][3] == "13 min 32 s"
    # Cost by hand: 600 s at 3 USD an hour.
    first = next(row for row in board if row["source"] == "CIFAR10/train/dawn0")
    assert first["cost_usd"] == pytest.approx(0.5)
    assert shown["dawn0ResNet-50"][4] == "$0.50"
    stability = {row["system"]: row for row in tables["stability"].records()}
    cell = next(row for row in rows if row and row[0].startswith("acme small") and len(row) > 6)
    assert cell[1:3] == ["5", "5"]
    # Deviations from 833 are -33, -13, -23, -28, 97: sqrt(11980 / 5) / 833.
    assert stability["small"]["cv"] == pytest.approx(0.0587622, rel=1e-5)
    assert cell[5].startswith("5.88%")


def test_what_is_not_known_says_why(report):
    read = Page(report.html)
    text = "".join(read.text)
    assert "costPerHour is null, and no listed price names its hardware" in text
    assert "no score: 3 of 5 trials reached" in text
    failed = next(row for row in read.rows if len(row) > 1 and "acme failed" in row[1])
    assert failed[0].startswith("not ranked") and failed[3].startswith("not known")
    for row in read.rows:
        assert all(cell.strip() for cell in row if row), row
    assert not re.search(r"\b(nan|None|inf|undefined)\b", text)


@pytest.mark.compiles
def test_logs_without_a_target_missed_none(tmp_path):
    write_side(tmp_path / "a", normal(3.0, 0.1, 5))
    read = inputs.read([tmp_path / "a"])
    assert summary.facts(read)[0] == ("5 trials", "no target known")
    assert not any("did not reach" in line for line in summary.conclusions(read))
    tables = {table.name: table.records() for table in contents.make(read).tables}
    [row], [ranked] = tables["entries"], tables["leaderboards"]
    assert (row["reached"], row["mean_seconds"]) == (None, "no target given")
    assert (ranked["reached"], ranked["remark"]) == ("", "no target given")
    assert "stability" not in tables


@pytest.mark.compiles
def test_logs_without_a_clock_reached_at_an_unknown_time(tmp_path):
    for seed, last in enumerate((2.0, 2.1, 2.2)):
        rows = [{"step": 10, "val_loss": 3.0}, {"step": 20, "val_loss": last}]
        write_lines(tmp_path / "a" / f"seed_{seed}.jsonl", rows)
    read = inputs.read([tmp_path / "a"], columns=Columns(metric="val_loss", target=2.5))
    first, second = summary.facts(read)[:2]
    unknown = "reached at an unknown time"
    assert first[0] == "3 of 3 reached" and second[1] == f"time to accuracy: {unknown}"
    assert not any("did not reach" in line for line in summary.conclusions(read))
    tables = {table.name: table.records() for table in contents.make(read).tables}
    for name in ("entries", "stability"):
        [row] = tables[name]
        assert (row["reached"], row["mean_seconds"]) == (3, unknown)
    assert tables["stability"][0]["reached_fraction"] == 1.0


def test_entries_on_other_data_are_not_drawn_or_compared_together():
    """An experiment of one name may be trained on made data."""

    def on(data, seconds):
        curve = [(1, seconds, 94.0)]
        both = [make_trial(seconds, curve=curve), make_trial(seconds + 1, curve=curve)]
        return make_entry(both, suite="dawnjax", source=data, data=data)

    mixed = [on("CIFAR-10", 10.0), on("made data", 5.0)]
    assert [title for title, _ in curves.groups_of(mixed)] == [
        "DawnJAX ImageNet on CIFAR-10", "DawnJAX ImageNet on made data",
    ]  # fmt: skip
    assert [title for title, _ in curves.groups_of(mixed[:1])] == ["DawnJAX ImageNet"]


def test_one_entry_alone_makes_a_page():
    # A letter after a cell's words is of a footnote.
    for alone, cells in (
        (some_entries()[3], []),
        (entry("none", [None]), []),
        (some_entries()[-1], ["1", "servedResNet-50", "683 µs"]),
    ):
        made = contents.make(inputs.Inputs((alone,)))
        sections = set(re.findall(r'<section id="([a-z]+)"', made.html))
        # What compares entries or trials says nothing of one.
        assert sections <= {"summary", "curves", "inference", "warnings", "definitions"}
        assert not cells or cells in [row[: len(cells)] for row in Page(made.html).rows]
        answer = made.html[: made.html.index("<section")]
        assert alone.kind == "inference" or "<dd>10 min</dd>" in answer or "not reached" in answer


def test_the_best_quality_of_a_diverged_run_is_a_number():
    diverged = entry("none", [None])
    values = (math.nan, 0.5, 0.25)
    rows = tuple(
        Evaluation(epoch=1.0, seconds_since_run_start=1.0, value=value) for value in values
    )
    trial = dataclasses.replace(diverged.trials[0], evaluations=rows)
    alone = dataclasses.replace(diverged, trials=(trial,))
    assert ("50%", "best quality") in summary.facts(inputs.Inputs((alone,)))


def test_what_is_left_out_is_named():
    problems = tuple(f"file {number} is damaged" for number in range(100))
    made = contents.make(inputs.Inputs(tuple(some_entries()), problems=problems))
    (left_out,) = (table for table in made.tables if table.name == "not_read")
    assert left_out.column("reason") == list(problems) and f"{MOST_ROWS} of 100 rows" in made.html


def test_wall_times_are_means_of_one_origin_with_their_goodput(tmp_path):
    (run,) = inputs.read([write_run(tmp_path / "a")]).runs
    wall = {"self_play": 6.0, "gating": 1.0, "steps": 2.0, "setup": 1.0}

    def figure(*runs):
        section = own.runs_section(runs)
        assert section is not None and isinstance(section.blocks[0], Figure)
        return section.blocks[0]

    [fast, slow] = [dataclasses.replace(run, wall_seconds=wall | {"steps": n}) for n in (1.0, 3.0)]
    assert "10 s, 90%" in figure(fast, slow).draw(880.0).body()
    other = dataclasses.replace(run, num_devices=64)
    apart = figure(run, other, dataclasses.replace(run, timed_options={"prefetch": 1})).summary
    assert all(name in apart for name in (str(run.system), str(other.system), "prefetch=1"))
    assert len(apart.split("; ")) == 3
    many = [dataclasses.replace(run, overrides={"n": n}) for n in range(own.MOST_BARS + 1)]
    assert figure(*many).left_out == (("x n=9", "too many bars for one figure"),)


def test_a_run_that_reached_at_an_unknown_time_says_why(tmp_path):
    path = write_run(tmp_path / "a")
    log = path / "log.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(line for line in lines if b'"run_start"' not in line))
    made = contents.make(inputs.read([path]))
    (row,) = next(table for table in made.tables if table.name == "runs").records()
    assert row["status"] == "reached" and row["reached"] is True
    assert row["time_to_accuracy_seconds"] is None
    section = own.runs_section(inputs.read([path]).runs)
    shown = to_html(section.every_table[0], "runs")
    assert "No time to accuracy: the log lacks run_start." in shown and "not reached" not in shown


def told_by(probe: str, report: contents.Report, folder: Path) -> Any:
    """What a page beside the report passes to `tell` in a browser."""
    writing.write(report, folder)
    tell = (
        "<p id=result></p><script>const tell = value => result.textContent = JSON.stringify(value);"
    )
    (folder / "probe.html").write_text(f"{tell}</script>{probe}")
    shown = opened(folder / "probe.html", folder / "profile")
    found = re.search(r'<p id="result">(.+?)</p>', shown, re.S)
    assert found, shown[-500:]
    return json.loads(html.unescape(found[1]))


def test_a_browser_runs_the_page(report, tmp_path):
    probe = """
    <script>
    addEventListener("load", () => {
      const page = document.querySelector("iframe").contentDocument;
      const board = [...page.querySelectorAll("table[data-sortable]")]
        .find(table => table.caption.textContent.includes("CIFAR10"));
      const names = () => [...board.tBodies[0].rows].filter(row => !row.hidden)
        .map(row => row.cells[0].textContent + row.cells[1].firstChild.textContent);
      const said = [names().join(" ")];
      board.tHead.rows[0].cells[4].querySelector("button").click();
      board.tHead.rows[0].cells[4].querySelector("button").click();
      said.push(board.tHead.rows[0].cells[4].getAttribute("aria-sort"), names().join(" "));
      const day = board.closest(".table").querySelector("input[type=date]");
      day.value = "2018-02-15"; day.dispatchEvent(new Event("input"));
      said.push(names().join(" "));
      tell(said);
    });
    </script><iframe src="index.html" width="900" height="900"></iframe>"""
    before, direction, by_cost, then = told_by(probe, report, tmp_path)
    assert before == "1dawn0 2dawn1 3dawn2 4dawn3 5dawn4 6dawn5"
    # Cost: 600 s at 3, 700 at 4, 800 at 5, 900 at 6 USD an hour; entries without one stay last.
    assert direction == "descending" and by_cost == "4dawn3 3dawn2 2dawn1 1dawn0 5dawn4 6dawn5"
    assert then == "2dawn1 1dawn0"


def test_a_browser_tells_the_value_at_the_pointer_and_at_the_keys(report, tmp_path):
    """Also: at both widths nothing is wider than the page."""
    probe = """
    <script>
    const told = {};
    const ask = (frame, width) => {
      const page = frame.contentDocument, view = frame.contentWindow;
      const tip = page.querySelector(".tip");
      const chart = [...page.querySelectorAll("#figure-overview svg")]
        .find(svg => svg.getBoundingClientRect().width);
      const send = (type, init, kind) => chart.dispatchEvent(
        new view[kind](type, {bubbles: true, cancelable: true, ...init}));
      const dot = chart.querySelectorAll("circle.dot")[2].getBoundingClientRect();
      const place = {clientX: dot.x + 1, clientY: dot.y + 1, pointerType: "mouse"};
      const said = [];
      send("pointermove", place, "PointerEvent"); said.push(tip.textContent);
      send("pointerleave", place, "PointerEvent"); said.push(tip.textContent);
      for (const key of ["ArrowRight", "ArrowRight", "ArrowLeft", "ArrowDown", "End"]) {
        send("keydown", {key}, "KeyboardEvent"); said.push(tip.textContent);
      }
      const root = page.documentElement;
      told[width] = {said, stop: chart.tabIndex, wide: root.scrollWidth <= root.clientWidth};
    };
    addEventListener("load", () => {
      for (const frame of document.querySelectorAll("iframe")) ask(frame, frame.width);
      tell(told);
    });
    </script>
    <iframe src="index.html" width="390" height="844"></iframe>
    <iframe src="index.html" width="1400" height="900"></iframe>"""
    told = told_by(probe, report, tmp_path)
    assert set(told) == {"390", "1400"}
    for width, answer in told.items():
        # The rows' third dot: dawn2 took 800 s.
        third = "DAWNBench CIFAR10\nrank 3: ResNet-50 (acme) on V100, 13 min 20 s"
        shown, hidden, first, second, back, down, last = answer["said"]
        assert (shown, hidden, back) == (third, "", first)
        assert [it.split(":")[0][-6:] for it in (first, second)] == ["rank 1", "rank 2"]
        assert down.startswith("MLPerf Training v0.5 resnet\n")
        assert last.startswith("MLPerf Training v0.5 resnet\nrank 2")
        assert answer["stop"] == 0 and answer["wide"], width


def test_each_of_41_trials_that_reached_is_drawn():
    """As `digits` has them: one or two evaluations, most of them the one that reached."""
    trials = [make_trial(0.5 + n / 100, curve=[(6, 0.5 + n / 100, 94.0)]) for n in range(41)]
    section = curves.learning_section([make_entry(trials)])
    [figure] = section.blocks
    assert isinstance(figure, Figure)
    assert "41 trials, drawn separately" in figure.summary
    assert figure.draw(640.0).body().count("end of a trial") == 41
