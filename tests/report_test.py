"""The report: a page that needs nothing else, whose numbers are those of its tables."""

import base64
import csv
import dataclasses
import hashlib
import html.parser
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from made_runs import write_run

from dawnjax.__main__ import run_command
from dawnjax.analysis import entry_checks
from dawnjax.analysis.entries import Entry, Evaluation, Inference, Target, Trial, write_entries
from dawnjax.analysis.entry_tables import WARM
from dawnjax.analysis.stability import summarize_trials
from dawnjax.errors import ConfigError, RunError
from dawnjax.report import inputs, own, page, plots, svg, words, writing
from dawnjax.report.privacy import Redactor
from dawnjax.report.table_view import MOST_ROWS, TableView

VOID = {"meta", "link", "br", "input", "img", "hr"}


def trial(number: int, seconds: float | None, *, total: float, epochs: float = 4.0) -> Trial:
    end = seconds if seconds is not None else total
    return Trial(
        file=f"result_{number}.txt",
        reached=seconds is not None,
        time_to_accuracy_seconds=seconds,
        total_seconds=total,
        epochs=epochs,
        evaluations=tuple(
            Evaluation(
                epoch=float(step),
                seconds_since_run_start=end * step / 4,
                value=(0.76 if seconds is not None else 0.7) * step / 4,
            )
            for step in range(1, 5)
        ),
    )


def entry(name: str, times: list[float | None], **fields) -> Entry:
    trials = tuple(
        trial(number, seconds, total=seconds or 900.0, epochs=4.0 + number % 2)
        for number, seconds in enumerate(times)
    )
    price = fields.get("cost_per_hour_usd")
    defaults = {
        "source": f"v0.5.0/acme/{name}/resnet",
        "suite": "mlperf_training",
        "round": "v0.5",
        "benchmark": "resnet",
        "submitter": "acme",
        "system": name,
        "hardware": "V100",
        "processor_class": "GPU",
        "num_accelerators": 8,
        "num_hosts": 1,
        "framework": "MXNet",
        "framework_family": "MXNet",
        "model": "ResNet-50",
        "date": "2018-12-10",
        "global_batch_size": 256,
        "target": Target(metric="eval_accuracy", value=0.749, unit="fraction"),
    }
    return Entry(
        **{**defaults, **fields},
        trials=trials,
        summary=summarize_trials(
            times, [t.epochs for t in trials], [t.total_seconds for t in trials], price
        ),
    )


def some_entries() -> list[Entry]:
    small = entry("small", [800.0, 820.0, 810.0, 805.0, 930.0])
    large = entry("large", [100.5, 140.25, 110.0, 120.0, 115.0], num_accelerators=64, num_hosts=8)
    failed = entry("failed", [300.0, None, None, 310.0, 305.0], warnings=("2 trials failed",))
    dawn = [
        entry(
            f"dawn{number}",
            [600.0 + 100 * number],
            suite="dawnbench",
            round="",
            benchmark="CIFAR10",
            source=f"CIFAR10/train/dawn{number}",
            cost_per_hour_usd=3.0 + number if number < 4 else None,
            date=f"2018-0{number + 1}-01",
            reasons={} if number < 4 else {"cost_per_hour_usd": "costPerHour is null"},
        )
        for number in range(6)
    ]
    served = dataclasses.replace(
        dawn[0],
        source="CIFAR10/inference/served",
        kind="inference",
        trials=(),
        summary=None,
        inference=Inference(latency_milliseconds=0.683, cost_usd=0.002, quality=0.76),
    )
    return [small, large, failed, *dawn, served]


@pytest.fixture(scope="module")
def report() -> page.Report:
    return page.make(inputs.Inputs(tuple(some_entries())))


class Page(html.parser.HTMLParser):
    """Reads a page: its tree must be balanced; what matters is collected."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(text)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data):
        if "script" not in self.open and "style" not in self.open:
            self.text.append(data)
        if self.open and self.rows and ("td" in self.open or "th" in self.open):
            self.rows[-1][-1] += data


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
    assert shown["ResNet-50acme large · 64 acc."][2] == "1\xa0min 55\xa0s"
    assert shown["ResNet-50acme small · 8 acc."][2] == "13\xa0min 32\xa0s"
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
    easy = Target(metric="top_1_accuracy", value=0.9, unit="fraction")
    hard = Target(metric="top_1_accuracy", value=0.99, unit="fraction")
    fields = {"suite": "dawnjax", "round": "", "benchmark": "digits", "source": "digits/x/1 x cpu"}
    write_entries(tmp_path / "a.jsonl", [entry("s", [100.0, 110.0], **fields, target=hard)])
    write_entries(tmp_path / "b.jsonl", [entry("s", [100.0, 300.0, 500.0], **fields, target=hard)])
    write_entries(tmp_path / "c.jsonl", [entry("s", [10.0, 11.0], **fields, target=easy)])
    made = page.make(inputs.read([tmp_path / f"{name}.jsonl" for name in "abc"]))
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


@pytest.mark.parametrize("field", ["time_to_accuracy_seconds", "total_seconds", "cost_usd"])
def test_a_negative_time_or_cost_is_refused_by_name(tmp_path, field):
    made = entry("s", [100.0, 110.0])
    trials = (dataclasses.replace(made.trials[0], **{field: -1.0}), made.trials[1])
    write_entries(tmp_path / "a.jsonl", [dataclasses.replace(made, trials=trials)])
    with pytest.raises(
        RunError, match=rf"acme/s/resnet' is damaged: trials\[0\].{field} is '-1.0'"
    ):
        inputs.read([tmp_path / "a.jsonl"])


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


def test_few_trials_are_too_few_to_tell():
    slow, fast = entry("slow", [200.0, 210.0, 220.0]), entry("fast", [100.0, 101.0, 102.0])
    made = page.make(inputs.Inputs((slow, fast)))
    (compared,) = next(table for table in made.tables if table.name == "comparisons").records()
    assert compared["distinct"] is None and compared["expected_ratio_low"] is None
    read = Page(made.html)
    (row,) = (row for row in read.rows if any("too few trials to tell" in cell for cell in row))
    assert any("no interval" in cell for cell in row)
    assert "too few trials to tell: 3 and 3, an interval needs 5 of each" in made.html
    stability = [row for row in read.rows if len(row) > 5 and "slow" in row[0] and "3" in row[1]]
    # The mean, the CV and the expected time.
    assert any(sum("no interval" in cell for cell in row) == 3 for row in stability)


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
    made = page.make(inputs.Inputs(tuple(entries), problems=(bad,)), title=bad)
    read = Page(made.html)
    assert [tag for tag, _ in read.tags].count("script") == 1
    assert not [tag for tag, _ in read.tags if tag == "img"]
    assert not [name for _, attributes in read.tags for name in attributes if name == "onerror"]
    assert all(re.fullmatch(r"[a-z_]+", table.name) for table in made.tables)


def test_formulas_do_not_reach_a_spreadsheet(tmp_path):
    formula = '=HYPERLINK("x","y")'
    entries = [dataclasses.replace(one, submitter=formula, model=formula) for one in some_entries()]
    writing.write(page.make(inputs.Inputs(tuple(entries))), tmp_path)
    for file in sorted((tmp_path / "tables").glob("*.csv")):
        for row in csv.reader(io.StringIO(file.read_bytes().decode(), newline="")):
            assert not [cell for cell in row if cell.startswith("=")], file.name
    assert "'=HYPERLINK" in (tmp_path / "tables" / "leaderboards_by_time.csv").read_text()


def test_the_same_inputs_give_the_same_bytes(report, tmp_path):
    again = page.make(inputs.Inputs(tuple(some_entries())))
    assert again.html == report.html
    first, second = tmp_path / "one", tmp_path / "two"
    write_entries(tmp_path / "e.jsonl", some_entries())
    for out in (first, second):
        command = [sys.executable, "-m", "dawnjax", "report", "e.jsonl", f"--out={out.name}"]
        environment = {**os.environ, "PYTHONHASHSEED": str(len(out.name) + 5)}
        environment["PYTHONPATH"] = str(Path(__file__).resolve().parent.parent)
        subprocess.run(command, check=True, cwd=tmp_path, env=environment, stdout=subprocess.PIPE)
    names = sorted(str(file.relative_to(first)) for file in first.rglob("*") if file.is_file())
    assert "index.html" in names and "tables/stability.json" in names
    for name in names:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


def test_the_command_writes_inside_out_and_deletes_nothing(tmp_path, capsys):
    source = tmp_path / "e.jsonl"
    write_entries(source, some_entries())
    out = tmp_path / "out"
    (out / "tables").mkdir(parents=True)
    (out / "mine.txt").write_text("mine")
    (out / "tables" / "old.csv").write_text("old")
    outside = tmp_path / "outside.html"
    outside.write_text("outside")
    (out / "index.html").symlink_to(outside)
    assert run_command("report", [f"--source={source}", f"--out={out}"]) == 0
    line = capsys.readouterr().out
    assert line.count("\n") == 1 and "10 entries" in line and str(out) in line
    assert outside.read_text() == "outside" and not (out / "index.html").is_symlink()
    assert (out / "mine.txt").read_text() == "mine"
    assert (out / "tables" / "old.csv").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.jsonl", "out", "outside.html"]
    assert not list(out.rglob("*.part"))
    document = json.loads((out / "tables" / "stability.json").read_text())
    assert document["rows"][0]["trials"] == 5


def test_a_link_out_of_the_directory_is_refused(report, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "tables").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="tables is no directory of its own"):
        writing.write(report, tmp_path / "out")
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize(
    "damage",
    [
        b"{not json\n",
        b"[1, 2]\n",
        b'{"schema_version": 1}\n',
        b"[" * 100_000,
        b"\xff\xfe\x00",
        "nan",
        "negative",
        "text",
        "huge",
        "date",
    ],
)
def test_damaged_input_is_one_line(damage, tmp_path, capsys):
    source, out = tmp_path / "e.jsonl", tmp_path / "out"
    if isinstance(damage, bytes):
        source.write_bytes(damage)
    else:
        value = some_entries()[0].to_json()
        bad = {"nan": float("nan"), "negative": -5.0, "text": "soon", "huge": 1e308, "date": "x"}
        bad = bad[damage]
        if damage == "date":
            value["date"] = 7
        else:
            value["trials"][0]["time_to_accuracy_seconds"] = bad
        source.write_text(json.dumps(value) + "\n")
    assert run_command("report", [str(source), f"--out={out}"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("dawnjax report: ") and error.count("\n") == 1
    assert "Traceback" not in error and not out.exists()


def test_wrong_use_is_said_before_anything_is_written(tmp_path, capsys):
    source = tmp_path / "e.jsonl"
    write_entries(source, some_entries())
    for argv, said in (
        ([f"--out={tmp_path / 'o'}"], "no source given"),
        ([str(source)], "--out is missing"),
        ([str(tmp_path / "none.jsonl"), f"--out={tmp_path / 'o'}"], "nothing at"),
        ([str(source), f"--out={source}"], "is a file"),
        ([str(source), f"--out={tmp_path / 'o'}", "--until=yesterday"], "not YYYY-MM-DD"),
        ([str(source), f"--out={tmp_path / 'o'}", "--entry_list=x"], "--paper"),
    ):
        assert run_command("report", argv) == 2, argv
        assert said in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


def test_a_cut_off_day_ranks_the_entries_of_its_time():
    made = page.make(inputs.Inputs(tuple(some_entries())), until="2018-03-01")
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
    made = page.make(inputs.Inputs(tuple(Redactor().value(one) for one in entries)))
    everything = made.html + "".join(table.to_csv() for table in made.tables)
    assert "ann" not in re.findall(r"\bann\b", everything)


def test_one_entry_alone_and_many_make_a_page():
    for chosen in (some_entries()[3:4], [entry("none", [None])], some_entries()[-1:]):
        made = page.make(inputs.Inputs(tuple(chosen)))
        sections = re.findall(r'<section id="([a-z]+)"', made.html)
        assert "stability" not in sections and "speedups" not in sections
        assert "not reached" in made.html or chosen[0].benchmark == "CIFAR10"
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
    made = page.make(inputs.Inputs(tuple(many)))
    assert len(made.html.encode()) < 3e6
    board = next(table for table in made.tables if table.name == "leaderboards_by_time")
    # Leaderboards are shown whole, other tables in part, and say so.
    assert made.html.count("<tr") > len(board.rows) == 700
    assert f"{MOST_ROWS} of " in made.html


def test_our_runs_show_compilation_phases_and_losses(tmp_path, compile_cache):
    pytest.importorskip("jax")
    run = tmp_path / "first"
    argv = ["train", "--experiment=synthetic_image", f"--run_dir={run}"]
    argv.append("--profile.after_run=false")
    argv += ["--data.num_train_examples=96", "--data.num_eval_examples=40", "--num_epochs=2"]
    argv += ["--global_batch_size=16", "--batch_norm_group_size=4", "--notensorboard"]
    argv.append(compile_cache)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
    ended = subprocess.run(
        [sys.executable, "-m", "dawnjax", *argv], env=environment, capture_output=True, text=True
    )
    assert ended.returncode in (0, 3), ended.stderr
    result = json.loads((run / "result.json").read_text())
    assert run_command("report", [str(tmp_path), f"--out={tmp_path / 'out'}"]) == 0
    html = (tmp_path / "out" / "index.html").read_text()
    phases = json.loads((tmp_path / "out" / "tables" / "phases.json").read_text())["rows"][0]
    for name, seconds in result["phases"].items():
        assert phases[f"{name}_seconds"] == seconds
    losses = json.loads((tmp_path / "out" / "tables" / "first_losses.json").read_text())["rows"][0]
    assert [losses[f"step_{n + 1}"] for n in range(3)] == result["first_losses"][:3]
    runs = json.loads((tmp_path / "out" / "tables" / "runs.json").read_text())["rows"][0]
    assert runs["compile_seconds"] == result["compile_seconds"]
    assert words.duration(result["compile_seconds"]) in html
    # Compilation stands beside the time to accuracy in every table that has one.
    beside = {}
    for file in (tmp_path / "out" / "tables").glob("*.json"):
        for row in json.loads(file.read_text())["rows"][:1]:
            if "compile_seconds" in row:
                beside[file.stem] = row["compile_seconds"]
    boards = {"leaderboards_by_time", "leaderboards_by_cost"}
    assert set(beside) >= {"runs", "phases", "entries", *boards}
    assert beside["runs"] == result["compile_seconds"]
    # The entries' is that of programs which no cache had.
    warm = set(result["compile_cache"].values()) == {"warm"}
    expected = WARM if warm else result["compile_seconds"]
    assert {beside[name] for name in ("entries", *boards)} == {expected}
    assert runs["compile_cache"] == ("warm" if warm else "cold")
    for section in ("summary", "leaderboards"):
        (body,) = re.findall(rf'(?s)<section id="{section}".*?</section>', html)
        assert "compilation" in body.replace("\n", " "), section
    host = result["hosts"][0]["hostname"]
    everything = html + "".join(
        file.read_text() for file in (tmp_path / "out" / "tables").iterdir()
    )
    assert str(tmp_path) not in everything
    assert len(host) < 4 or not re.search(rf"(?<![\w-]){re.escape(host)}(?![\w-])", everything)


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
    made = page.make(inputs.read([path]))
    (row,) = next(table for table in made.tables if table.name == "runs").records()
    assert row["status"] == "reached" and row["reached"] is True
    assert [row[name] for name in names] == [None] * len(names)
    part = own.runs_part(inputs.read([path]).runs)
    assert part is not None
    shown = part.section.blocks[0]
    assert isinstance(shown, TableView)
    assert why in dict(shown.reasons).values()
    cells = [cell.text for cell in shown.rows[0]]
    assert "not known" in cells and "not reached" not in cells


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


def test_a_browser_runs_the_page(report, tmp_path):
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium is installed")
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
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
    flags += [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=5000"]
    try:
        ended = subprocess.run(
            [browser, *flags, "--dump-dom", f"file://{tmp_path / 'probe.html'}"],
            capture_output=True,
            text=True,
            timeout=90,
        )
    except subprocess.TimeoutExpired:
        pytest.skip("Chromium did not start within 90 s")
    if ended.returncode:
        pytest.skip(f"Chromium cannot run here: {ended.stderr[-200:]}")
    found = re.search(r'<p id="result">(.*?)</p>', ended.stdout)
    assert found, ended.stdout[-500:]
    before, direction, by_cost, then = found[1].split("; ")
    assert before == "1dawn0 2dawn1 3dawn2 4dawn3 5dawn4 6dawn5"
    # Cost: 600 s at 3, 700 at 4, 800 at 5, 900 at 6 USD an hour; entries without one stay last.
    assert direction == "descending" and by_cost == "4dawn3 3dawn2 2dawn1 1dawn0 5dawn4 6dawn5"
    assert then == "2dawn1 1dawn0"


def test_reading_a_damaged_entry_names_its_field():
    good = some_entries()[0]
    entry_checks.check(good)
    bad = dataclasses.replace(good, num_hosts="many")  # type: ignore[arg-type]
    with pytest.raises(RunError, match="num_hosts is 'many'"):
        entry_checks.check(bad)
