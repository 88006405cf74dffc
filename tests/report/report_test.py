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
from made_reports import Page, entry, some_entries, some_report
from made_runs import write_run

from dawnjax.page.html_table import MOST_ROWS, to_html
from dawnjax.page.section import Figure
from dawnjax.report import contents, curves, inputs, own, stability, summary, writing
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


def test_every_figure_has_words_and_every_table_its_heads(report):
    read = Page(report.html)
    ids = [attributes["id"] for _, attributes in read.tags if attributes.get("id")]
    assert len(set(ids)) == len(ids)
    drawings = [attributes for tag, attributes in read.tags if tag == "svg"]
    assert len(drawings) >= 6
    for attributes in drawings:
        assert attributes["role"] == "img" and attributes["aria-label"]
        assert attributes["aria-describedby"] in ids
    assert not [tag for tag, _ in read.tags if tag == "img"]
    for tag, attributes in read.tags:
        if tag == "th":
            assert attributes["scope"] in ("col", "row")
        for name in ("aria-labelledby", "aria-describedby"):
            assert attributes.get(name, ids[0]) in ids
        if tag == "a" and str(attributes["href"]).startswith("#"):
            assert str(attributes["href"])[1:] in ids
    tags = [tag for tag, _ in read.tags]
    assert tags.count("caption") == tags.count("table") >= 8
    assert all(tags.count(mark) == 1 for mark in ("main", "h1", "header", "footer", "nav"))


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


def test_one_entry_alone_and_many_make_a_page():
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
    many = [
        dataclasses.replace(one, source=f"{one.source}/{number}")
        for number in range(70)
        for one in some_entries()
    ]
    large = many[0].trials[0]
    rows = tuple(
        Evaluation(epoch=float(i), seconds_since_run_start=float(i), value=min(0.7, i / 1e4))
        for i in range(1, 10_001)
    )
    many[0] = dataclasses.replace(
        many[0], trials=(dataclasses.replace(large, evaluations=rows), *many[0].trials[1:])
    )
    made = contents.make(inputs.Inputs(tuple(many)))
    assert len(made.html.encode()) < 3e6
    board = next(table for table in made.tables if table.name == "leaderboards")
    # Leaderboards are shown whole, other tables in part, and say so.
    assert made.html.count("<tr") > len(board.rows) == 700
    assert f"{MOST_ROWS} of " in made.html
    # The figure shows those that vary most, and its words are of the same.
    said = re.findall(r'id="figure-stability-words">(.*?)</p>', made.html)[0].split("; ")
    assert len(said) == stability.MOST_ROWS and all("acme large" in one for one in said)


def test_the_best_quality_of_a_diverged_run_is_a_number():
    diverged = entry("none", [None])
    values = (math.nan, 0.5, 0.25)
    rows = tuple(
        Evaluation(epoch=1.0, seconds_since_run_start=1.0, value=value) for value in values
    )
    trial = dataclasses.replace(diverged.trials[0], evaluations=rows)
    alone = dataclasses.replace(diverged, trials=(trial,))
    assert ("50%", "best quality") in summary.facts(inputs.Inputs((alone,)))


def test_what_an_example_is_stands_there_where_it_is_no_example(tmp_path):
    images = inputs.read([write_run(tmp_path / "a")])
    texts = inputs.read([write_run(tmp_path / "b", data="parallel_text")])
    rows = [dataclasses.replace(run, example_unit="packed rows") for run in texts.runs]
    assert "packed rows" not in contents.make(images).html
    made = contents.make(dataclasses.replace(images, runs=(*images.runs, *rows))).html
    assert made.count("Examples of x are packed rows.") == 1


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
    assert section is not None
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
    """Also: at both widths nothing is wider than the page, and a figure is on the first screens."""
    probe = """
    <script>
    const told = {};
    const opened = page => [...page.querySelectorAll("details")].forEach(fold => fold.open = true);
    const cut = page => {
      opened(page);
      return [...page.querySelectorAll(".scroll")].filter(box => box.scrollWidth > box.clientWidth)
        .map(box => box.textContent.slice(0, 60));
    };
    const stays = page => {
      const box = page.querySelector("#leaderboards .scroll");
      box.scrollLeft = 200;
      const name = box.querySelector("tbody th");
      return name.getBoundingClientRect().left >= box.getBoundingClientRect().left;
    };
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
      send("pointerdown", {...place, pointerType: "touch"}, "PointerEvent");
      send("pointerleave", {...place, pointerType: "touch"}, "PointerEvent");
      said.push(tip.textContent);
      send("keydown", {key: "Escape"}, "KeyboardEvent"); said.push(tip.textContent);
      for (const key of ["ArrowRight", "ArrowRight", "ArrowLeft", "ArrowDown", "End"]) {
        send("keydown", {key}, "KeyboardEvent"); said.push(tip.textContent);
      }
      const root = page.documentElement;
      told[width] = {
        said, stop: chart.tabIndex, titles: page.querySelectorAll("title").length,
        wide: root.scrollWidth <= root.clientWidth,
        first: page.querySelector("figure").getBoundingClientRect().top,
        stays: stays(page), cut: cut(page),
      };
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
        first, second = (line.split(":")[0] for line in (answer["said"][4], answer["said"][5]))
        assert answer["said"][:4] == [third, "", third, ""]
        assert first.endswith("rank 1") and second.endswith("rank 2")
        assert answer["said"][6] == answer["said"][4]
        assert answer["said"][7].startswith("MLPerf Training v0.5 resnet\n")
        assert answer["said"][8].startswith("MLPerf Training v0.5 resnet\nrank 2")
        assert answer["stop"] == 0 and answer["titles"] == 1  # the page's own
        assert answer["wide"] and answer["stays"], width
        assert answer["first"] < 700, width
    assert told["1400"]["cut"] == [] and told["390"]["cut"]


def test_a_section_begins_with_its_figures_and_folds_long_tables():
    again = [dataclasses.replace(one, source=f"{one.source}/2") for one in some_entries()]
    made = contents.make(inputs.Inputs((*some_entries(), *again))).html
    sections = re.findall(r'(?s)<section id="[a-z]+".*?</section>', made)
    assert sections[0].startswith('<section id="summary"')
    both = [body for body in sections[1:] if "<figure" in body and "<table" in body]
    assert len(both) >= 2
    assert all(body.index("<figure") < body.index("<table") for body in both)
    folded = re.findall(
        r'(?s)<details class="folded"><summary>([^<]*) <span>(\d+) rows?</span></summary>'
        r".*?<tbody>(.*?)</tbody>",
        made,
    )
    assert all(rows.count("<tr") == int(number) for _, number, rows in folded)
    assert ("DAWNBench CIFAR10: training", "12") in [row[:2] for row in folded]


def test_each_of_41_trials_that_reached_is_drawn():
    """As `digits` has them: one or two evaluations, most of them the one that reached."""
    trials = [make_trial(0.5 + n / 100, curve=[(6, 0.5 + n / 100, 94.0)]) for n in range(41)]
    section = curves.learning_section([make_entry(trials)])
    assert section is not None
    [figure] = section.blocks
    assert isinstance(figure, Figure)
    assert "41 trials, drawn separately" in figure.summary
    assert figure.draw(640.0).body().count("end of a trial") == 41


def test_our_own_entries_begin_the_page_and_official_ones_have_a_section():
    fields = {"suite": "dawnjax", "round": "", "benchmark": "digits", "submitter": ""}
    ours = [
        entry(rate, [scale * n for n in (10.0, 11.0, 12.0, 13.0, 14.0)], variant=f"rate={rate}",
              source=f"digits rate={rate}", **fields)
        for rate, scale in (("0.1", 1.0), ("0.2", 3.0))
    ]  # fmt: skip
    made = contents.make(inputs.Inputs((*ours, entry("dgx", [800.0, 820.0, 810.0]))))
    for section, names in (("summary", ["curves-1", "overview"]), ("curves", ["curves-2"])):
        (text,) = re.findall(rf'(?s)<section id="{section}".*?</section>', made.html)
        assert re.findall(r'<figure id="figure-([a-z0-9_-]+)"', text) == names
