"""The report: a page that needs nothing else, whose numbers are those of its tables."""

import base64
import dataclasses
import hashlib
import html
import json
import re

import pytest
from browser import opened
from made_reports import Page, entry, some_entries, some_report
from made_runs import write_run

from dawnjax.analysis.leaderboard import RULE
from dawnjax.page.section import Figure
from dawnjax.page.view import MOST_ROWS, TableView
from dawnjax.report import boards, contents, curves, inputs, own, trials, writing
from dawnjax.report.labels import labels_apart
from dawnjax.report.privacy import Redactor
from dawnjax.results.entries import Entry, EntryTarget, TimedEvaluation, write_entries


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
    assert len(drawings) >= 10
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


def test_only_the_two_inline_blocks_may_run(report):
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', report.html)
    assert policy
    directives = policy[1].replace("&#39;", "'")
    assert directives.startswith("default-src 'none'") and "unsafe" not in directives
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        blocks = re.findall(rf"<{tag}>(.*?)</{tag}>", report.html, re.S)
        assert len(blocks) == 1
        digest = base64.b64encode(hashlib.sha256(blocks[0].encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in directives


def test_numbers_of_the_page_are_those_of_the_tables(report):
    rows = Page(report.html).rows
    tables = {table.name: table for table in report.tables}
    board = [row for row in tables["leaderboards_by_time"].records() if row["rank"]]
    assert [row["source"] for row in board if "v0.5" in row["board"]] == [
        "v0.5.0/acme/large/resnet",
        "v0.5.0/acme/small/resnet",
    ]
    # By hand: large without its fastest and slowest is the mean of 110, 115, 120; small of
    # 805, 810, 820.
    assert [row["seconds"] for row in board[-3:-1]] == pytest.approx([115.0, 811.666667])
    shown = {row[1]: row for row in rows if len(row) > 3}
    assert shown["ResNet-50acme large · 64 acc."][2] == "1 min 55 s"
    assert shown["ResNet-50acme small · 8 acc."][2] == "13 min 32 s"
    # Cost by hand: 600 s at 3 USD an hour.
    first = next(row for row in board if row["source"] == "CIFAR10/train/dawn0")
    assert first["cost_usd"] == pytest.approx(0.5)
    assert shown["ResNet-50dawn0"][3] == "$0.50"
    stability = {row["system"]: row for row in tables["stability"].records()}
    cell = next(row for row in rows if row and row[0].startswith("resnet · acme small"))
    assert cell[1:3] == ["5", "5"]
    # Deviations from 833 are -33, -13, -23, -28, 97: sqrt(11980 / 5) / 833.
    assert stability["small"]["cv"] == pytest.approx(0.0587622, rel=1e-5)
    assert cell[5].startswith("5.88%")


def test_each_target_has_its_own_board_and_each_entry_its_own_numbers(tmp_path):
    easy = EntryTarget(metric="top_1_accuracy", value=0.9, unit="fraction")
    hard = EntryTarget(metric="top_1_accuracy", value=0.99, unit="fraction")
    fields = {"suite": "dawnjax", "round": "", "benchmark": "digits", "source": "digits/x/1 x cpu"}
    write_entries(tmp_path / "a.jsonl", [entry("s", [100.0, 110.0], **fields, target=hard)])
    write_entries(tmp_path / "b.jsonl", [entry("s", [100.0, 300.0, 500.0], **fields, target=hard)])
    write_entries(tmp_path / "c.jsonl", [entry("s", [10.0, 11.0], **fields, target=easy)])
    made = contents.make(inputs.read([tmp_path / f"{name}.jsonl" for name in "abc"]))
    tables = {table.name: table for table in made.tables}
    rows = tables["leaderboards_by_time"].records()
    assert [(row["board"], row["rank"], row["seconds"]) for row in rows] == [
        ("DawnJAX digits to top_1_accuracy at least 0.9", 1, 10.5),
        ("DawnJAX digits to top_1_accuracy at least 0.99", 1, 105.0),
        ("DawnJAX digits to top_1_accuracy at least 0.99", 2, 300.0),
    ]
    # CVs by hand: 5 / 105, 163.3 / 300 and 0.5 / 10.5, each in the figure and the table.
    for shown in ("4.76% · 2/2", "54.4% · 3/3"):
        assert shown in made.html
    first_cells = [row[:3] for row in Page(made.html).rows if len(row) == 7]
    trials = [row[1] for row in first_cells if "(from b.jsonl)" in row[0]]
    assert trials == ["3", "3"]  # in the tables of stability and of epochs
    # The two with one target are neighbours; the third is compared with neither.
    assert len(tables["comparisons"].rows) == 1
    assert "expected cost" in made.html and "mean cost" in made.html


@pytest.mark.parametrize(
    ("target", "label", "value", "line"),
    [
        (
            EntryTarget(metric="mse", value=0.3, direction="at_most", unit="mm", title="MSE"),
            "MSE (mm), lower is better",
            "0.2898 mm",
            "target at most 0.3 mm",
        ),
        (EntryTarget(metric="r2", value=0.3, unit="1", title="R2"), "R2", "0.2898", "target 0.3"),
        (
            EntryTarget(metric="bleu", value=25.0, unit="BLEU", title="BLEU"),
            "BLEU",
            "0.2898",
            "target 25",
        ),
        (
            EntryTarget(metric="top1Accuracy", value=94.0, unit="percent"),
            "top-1 accuracy (%)",
            "0.2898%",
            "target 94%",
        ),
        (
            EntryTarget(metric="eval_accuracy", value=25.0, unit="bleu"),
            "eval_accuracy (BLEU)",
            "0.2898",
            "target 25",
        ),
    ],
)
def test_a_metric_has_its_declared_words(target, label, value, line):
    assert curves.metric_label(target) == label
    assert curves.quality(0.28975, target) == value
    assert curves.target_label(target) == line


def test_what_is_not_known_says_why(report):
    read = Page(report.html)
    text = "".join(read.text)
    assert "costPerHour is null, and no listed price names its hardware" in text
    assert "no score: 3 of 5 trials reached" in text
    failed = next(row for row in read.rows if len(row) > 1 and "acme failed" in row[1])
    assert failed[0].startswith("not ranked") and failed[2].startswith("not known")
    for row in read.rows:
        assert all(cell.strip() for cell in row if row), row
    assert not re.search(r"\b(nan|None|inf|undefined)\b", text)


def test_a_board_shows_intervals_and_the_places_that_an_entry_might_have():
    fields = {"suite": "dawnjax", "round": "", "benchmark": "digits"}
    entries = [
        entry("few", [0.48, 0.481, 0.483], **fields),
        entry("ten", [0.58, 0.6] * 5, **fields),
        entry("slow", [1.0, 1.02] * 5, **fields),
    ]
    entries = [dataclasses.replace(e, source=n) for e, n in zip(entries, "abc", strict=True)]
    (board,) = boards.boards(entries)
    rows = boards.board_view(board).rows
    assert [(row[0].text, row[0].small) for row in rows] == [
        ("1", "1\N{EN DASH}3"),
        ("2", "1\N{EN DASH}2"),
        ("3", "2\N{EN DASH}3"),
    ]
    assert rows[0][2].small == "range of 3: 480\xa0ms to 483\xa0ms"
    assert re.fullmatch(r"0?\.?58\d.* to .*59\d.*", rows[1][2].small)
    section = boards.leaderboards_section([board])
    assert section is not None and RULE in section.lead
    single = [dataclasses.replace(e, trials=e.trials[:1]) for e in entries[:2]]
    view = boards.board_view(boards.boards(single)[0])
    assert all(row[0].small == "" for row in view.rows)
    assert any("No rank is certain here" in note for note in view.notes)


def test_few_trials_have_a_range_and_no_verdict():
    slow, fast = entry("slow", [200.0, 210.0, 220.0]), entry("fast", [100.0, 101.0, 102.0])
    made = contents.make(inputs.Inputs((slow, fast)))
    (compared,) = next(table for table in made.tables if table.name == "comparisons").records()
    assert compared["verdict"] == "undecided" and compared["ratio_ends"] == "range of 3"
    read = Page(made.html)
    (row,) = (row for row in read.rows if any(cell.startswith("undecided") for cell in row))
    assert any("range of 3: " in cell for cell in row)
    assert "3 and 3 trials; a verdict needs 5 of each" in made.html
    assert "no verdict without 2 more trials of each, the fewest that it takes" in made.html
    stability = [row for row in read.rows if len(row) > 5 and "slow" in row[0] and "3" in row[1]]
    # The mean has the range of its trials; an expected time of trials that all reached has none.
    assert any(sum("no interval" in cell for cell in row) == 1 for row in stability)
    assert any(sum("range of 3: " in cell for cell in row) == 1 for row in stability)


def test_text_of_results_is_escaped_everywhere():
    bad = "<script>alert(1)</script>\"'&<img src=x onerror=y>"
    entries = [
        dataclasses.replace(
            one,
            submitter=bad,
            system=bad,
            model=bad,
            hardware=bad,
            framework=bad,
            warnings=(bad,),
            reasons={"cost_per_hour_usd": bad},
            benchmark=bad,
            source=f"{bad}/{number}",
            target=dataclasses.replace(one.target, metric=bad),
        )
        for number, one in enumerate(some_entries())
    ]
    made = contents.make(inputs.Inputs(tuple(entries), problems=(bad,)), title=bad)
    read = Page(made.html)
    assert [tag for tag, _ in read.tags].count("script") == 1
    assert not [tag for tag, _ in read.tags if tag == "img"]
    assert not [name for _, attributes in read.tags for name in attributes if name == "onerror"]
    assert all(re.fullmatch(r"[a-z_]+", table.name) for table in made.tables)


@pytest.mark.compiles
def test_a_cut_off_day_ranks_the_entries_of_its_time():
    made = contents.make(inputs.Inputs(tuple(some_entries())), until="2018-03-01")
    board = next(table for table in made.tables if table.name == "leaderboards_by_time")
    training = [row for row in board.records() if row["kind"] == "training"]
    assert [str(row["source"])[-5:] for row in training] == ["dawn0", "dawn1", "dawn2"]


def test_hosts_paths_and_addresses_are_left_out():
    redactor = Redactor(["node17"])
    text = redactor.text("ann@example.org ran /home/ann/runs/a on node17, not node171, 1/2 a/b")
    assert text == (
        "[e-mail left out] ran [path left out] on [host left out], not node171, 1/2 a/b"
    )
    assert redactor.text(r"C:\Users\ann\x") == "[path left out]"
    assert redactor.text("v0.5.0/nvidia/submission/results") == "v0.5.0/nvidia/submission/results"
    assert redactor.text("8 P100 / 512 GB / 40 CPU") == "8 P100 / 512 GB / 40 CPU"
    assert Redactor(["node17"], keep=True).text("node17 /a/b") == "node17 /a/b"
    entries = [
        dataclasses.replace(one, warnings=("wrote /data/ann/log by ann@example.org",))
        for one in some_entries()
    ]
    made = contents.make(inputs.Inputs(tuple(Redactor().value(one) for one in entries)))
    everything = made.html + "".join(table.to_csv() for table in made.tables)
    assert "wrote [path left out] by [e-mail left out]" in everything
    assert not re.search(r"\bann\b", everything)


def test_one_entry_alone_and_many_make_a_page():
    # Letters after a cell's words are of footnotes.
    for alone, cells in (
        (some_entries()[3], ["1", "ResNet-50dawn0", "10 min"]),
        (entry("none", [None]), ["not rankeda", "ResNet-50acme none · 8 acc.", "not reacheda"]),
        (some_entries()[-1], ["1", "ResNet-50served", "683 µs"]),
    ):
        made = contents.make(inputs.Inputs((alone,)))
        sections = re.findall(r'<section id="([a-z]+)"', made.html)
        assert "leaderboards" in sections
        assert "stability" not in sections and "speedups" not in sections
        assert cells in [row[:3] for row in Page(made.html).rows]
    many = [
        dataclasses.replace(one, source=f"{one.source}/{number}")
        for number in range(70)
        for one in some_entries()
    ]
    large = many[0].trials[0]
    rows = tuple(
        TimedEvaluation(epoch=float(i), seconds_since_run_start=float(i), value=min(0.7, i / 1e4))
        for i in range(1, 10_001)
    )
    many[0] = dataclasses.replace(
        many[0], trials=(dataclasses.replace(large, evaluations=rows), *many[0].trials[1:])
    )
    made = contents.make(inputs.Inputs(tuple(many)))
    assert len(made.html.encode()) < 3e6
    board = next(table for table in made.tables if table.name == "leaderboards_by_time")
    # Leaderboards are shown whole, other tables in part, and say so.
    assert made.html.count("<tr") > len(board.rows) == 700
    assert f"{MOST_ROWS} of " in made.html
    # The entries `small` and `large` have several trials and a score.
    assert f"Of {2 * 70 - 1} pairs of neighbours the first 40 are compared." in made.html
    # The figure shows those that vary most, and its words are of the same.
    said = re.findall(r'id="figure-stability-words">(.*?)</p>', made.html)[0].split("; ")
    assert len(said) == trials.MOST_ROWS and all("acme large" in one for one in said)


def test_what_an_example_is_stands_there_where_it_is_no_example(tmp_path):
    images = inputs.read([write_run(tmp_path / "a")])
    texts = inputs.read([write_run(tmp_path / "b", data="parallel_text")])
    assert "packed rows" not in contents.make(images).html
    made = contents.make(dataclasses.replace(images, runs=(*images.runs, *texts.runs))).html
    assert made.count("Examples of x are packed rows.") == 1


def test_what_is_left_out_is_named(tmp_path):
    problems = tuple(f"file {number} is damaged" for number in range(100))
    made = contents.make(inputs.Inputs(tuple(some_entries()), problems=problems))
    assert all(problem in made.html for problem in problems)
    (run,) = inputs.read([write_run(tmp_path / "a")]).runs
    result = run.result
    runs = [
        run._replace(result=dataclasses.replace(result, overrides={"num_epochs": number}))
        for number in range(own.MOST_BARS + 1)
    ]
    section = own.runs_section(runs)
    assert section is not None
    figure = section.blocks[1]
    assert isinstance(figure, Figure)
    assert figure.left_out == (("x num_epochs=9", "too many bars for one figure"),)


@pytest.mark.parametrize(
    ("lost", "names", "why"),
    [
        (b'"run_start"', ["time_to_accuracy_seconds"], "the log lacks run_start"),
        (
            b'"reached":true',
            ["time_to_accuracy_seconds", "total_seconds_to_accuracy"],
            "the evaluation that reached the target is damaged in the log, which ends in `reached`",
        ),
    ],
)
def test_a_run_that_reached_at_an_unknown_time_says_why(lost, names, why, tmp_path):
    path = write_run(tmp_path / "a")
    log = path / "log" / "process_00000.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(b"torn\n" if lost in line else line for line in lines))
    made = contents.make(inputs.read([path]))
    (row,) = next(table for table in made.tables if table.name == "runs").records()
    assert row["status"] == "reached" and row["reached"] is True
    assert [row[name] for name in names] == [None] * len(names)
    section = own.runs_section(inputs.read([path]).runs)
    assert section is not None
    shown = section.blocks[0]
    assert isinstance(shown, TableView)
    assert why in dict(shown.reasons).values()
    cells = [cell.text for cell in shown.rows[0]]
    assert "not known" in cells and "not reached" not in cells


def test_a_browser_runs_the_page(report, tmp_path):
    probe = """
    <script>
    addEventListener("load", () => {
      const page = document.querySelector("iframe").contentDocument;
      const board = [...page.querySelectorAll("table[data-sortable]")]
        .find(table => table.caption.textContent.includes("CIFAR10"));
      const names = () => [...board.tBodies[0].rows].filter(row => !row.hidden)
        .map(row => row.cells[0].textContent + row.cells[1].querySelector("small").textContent);
      const said = [names().join(" ")];
      board.tHead.rows[0].cells[3].querySelector("button").click();
      board.tHead.rows[0].cells[3].querySelector("button").click();
      said.push(board.tHead.rows[0].cells[3].getAttribute("aria-sort"), names().join(" "));
      const day = board.closest(".table").querySelector("input[type=date]");
      day.value = "2018-02-15"; day.dispatchEvent(new Event("input"));
      said.push(names().join(" "));
      document.title = said.join("; ");
      const result = document.createElement("p");
      result.id = "result"; result.textContent = said.join("; ");
      document.body.append(result);
    });
    </script><iframe src="index.html" width="900" height="900"></iframe>"""
    writing.write(report, tmp_path)
    (tmp_path / "probe.html").write_text(probe)
    shown = opened(tmp_path / "probe.html", tmp_path / "profile")
    result = re.search(r'<p id="result">(.*?)</p>', shown)
    assert result, shown[-500:]
    before, direction, by_cost, then = result[1].split("; ")
    assert before == "1dawn0 2dawn1 3dawn2 4dawn3 5dawn4 6dawn5"
    # Cost: 600 s at 3, 700 at 4, 800 at 5, 900 at 6 USD an hour; entries without one stay last.
    assert direction == "descending" and by_cost == "4dawn3 3dawn2 2dawn1 1dawn0 5dawn4 6dawn5"
    assert then == "2dawn1 1dawn0"


def test_a_browser_tells_the_value_at_the_pointer_and_at_the_keys(report, tmp_path):
    """Also: at both widths nothing is wider than the page, and a figure is on the first screens."""
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
      };
    };
    addEventListener("load", () => {
      for (const frame of document.querySelectorAll("iframe")) ask(frame, frame.width);
      const result = document.createElement("p");
      result.id = "result"; result.textContent = JSON.stringify(told);
      document.body.append(result);
    });
    </script>
    <iframe src="index.html" width="390" height="844"></iframe>
    <iframe src="index.html" width="1400" height="900"></iframe>"""
    writing.write(report, tmp_path)
    (tmp_path / "probe.html").write_text(probe)
    shown = opened(tmp_path / "probe.html", tmp_path / "profile")
    result = re.search(r'<p id="result">(.*?)</p>', shown, re.S)
    assert result, shown[-500:]
    told = json.loads(html.unescape(result[1]))
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
        assert answer["wide"], width
        assert answer["first"] < 700, width


def test_entries_beside_each_other_are_named_by_what_differs():
    def ours(variant: str, system: str = "1 x cpu (2 cores)") -> Entry:
        fields = {"suite": "dawnjax", "benchmark": "digits", "variant": variant}
        return entry(system, [1.0], **fields)

    same = "optimizer.base_learning_rate=0.2"
    group = [ours(f"{same}, global_batch_size={size}") for size in (32, 64)]
    assert labels_apart(group) == ["global_batch_size=32", "global_batch_size=64"]
    assert labels_apart([ours("data.kept_classes=[0, 1]"), ours("")]) == [
        "kept_classes=[0, 1]",
        "digits",
    ]
    assert labels_apart(group[:1]) == [
        "digits base_learning_rate=0.2 global_batch_size=32 on 1 x cpu (2 cores)"
    ]
    elsewhere = [ours(""), ours("", "8 x TPU v3")]
    assert labels_apart(elsewhere) == ["on 1 x cpu (2 cores)", "on 8 x TPU v3"]
    # An experiment whose file was changed has another identity, and the same name.
    edited = [dataclasses.replace(ours(""), identity=name * 16) for name in "ab"]
    assert labels_apart(edited) == ["digits (aaaaaaaa)", "digits (bbbbbbbb)"]
    twice = [entry("dgx", [1.0], framework=name) for name in ("MXNet", "PyTorch")]
    assert labels_apart(twice) == [
        "acme dgx \xb7 8 acc. (MXNet)",
        "acme dgx \xb7 8 acc. (PyTorch)",
    ]


def test_runs_of_one_name_are_told_apart(tmp_path):
    runs = inputs.read([write_run(tmp_path / str(n) / "s1", run_id=str(n)) for n in range(3)]).runs
    assert [run.name for run in runs] == ["s1 (1)", "s1 (2)", "s1 (3)"]

    def with_overrides(run, **overrides):
        result = dataclasses.replace(run.result, overrides=overrides)
        return run._replace(name="s1", result=result)

    changed = [
        with_overrides(runs[0]),
        with_overrides(runs[1], **{"optimizer.decay": 0.1, "num_epochs": 4}),
        with_overrides(runs[2], **{"optimizer.decay": 0.2, "num_epochs": 4}),
    ]
    assert [run.name for run in inputs.named_apart(changed)] == [
        "s1 (nothing changed)",
        "s1 (num_epochs=4, decay=0.1)",
        "s1 (num_epochs=4, decay=0.2)",
    ]


def test_a_section_begins_with_its_figures_and_folds_long_tables():
    again = [dataclasses.replace(one, source=f"{one.source}/2") for one in some_entries()]
    made = contents.make(inputs.Inputs((*some_entries(), *again))).html
    sections = re.findall(r'(?s)<section id="[a-z]+".*?</section>', made)
    assert sections[0].startswith('<section id="summary"')
    both = [body for body in sections if "<figure" in body and "<table" in body]
    assert len(both) >= 5
    assert all(body.index("<figure") < body.index("<table") for body in both)
    folded = re.findall(
        r'(?s)<details class="folded"><summary>([^<]*) <span>(\d+) rows?</span></summary>'
        r".*?<tbody>(.*?)</tbody>",
        made,
    )
    assert all(rows.count("<tr") == int(number) for _, number, rows in folded)
    assert ("DAWNBench CIFAR10: training", "12") in [row[:2] for row in folded]
    # A page of one entry shows its tables.
    alone = contents.make(inputs.Inputs((some_entries()[3],))).html
    (board,) = re.findall(r'(?s)<section id="leaderboards".*?</section>', alone)
    assert board.index("<table") < board.index('<details class="folded"')


def test_own_runs_on_published_data_stand_among_official_entries():
    official = entry(
        "fast",
        [100.0],
        suite="dawnbench",
        round="",
        benchmark="CIFAR10",
        source="CIFAR10/train/fast.json",
        target=EntryTarget(metric="top1Accuracy", value=94.0, unit="percent"),
    )
    fields = {
        "suite": "dawnjax",
        "round": "",
        "benchmark": "cifar10_record",
        "source": "cifar10_record/1234/gpu",
        "target": EntryTarget(metric="top_1_accuracy", value=0.94),
        "data": "CIFAR-10",
    }
    ours = entry("gpu", [50.0], **fields, published="CIFAR-10")
    assert board_sources([official, ours]) == [ours.source, official.source]
    for other in (
        dataclasses.replace(ours, published=""),  # some other data
        dataclasses.replace(ours, target=EntryTarget(metric="top_1_accuracy", value=0.9)),
        dataclasses.replace(ours, benchmark="cifar10_record, fine-tuned"),
        dataclasses.replace(ours, published="ImageNet"),
    ):
        assert board_sources([official, other]) == [official.source]


def board_sources(entries: list[Entry]) -> list:
    """Sources of the board of DAWNBench's CIFAR10, in their order."""
    [board] = [b for b in boards.boards(entries) if b.title.startswith("DAWNBench CIFAR10")]
    return [row["source"] for row in board.by_time.records()]
