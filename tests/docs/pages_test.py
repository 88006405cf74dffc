"""The pages of the docs: tables equal the result files, and links lead somewhere."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import dawnjax
from benchmarks import tables
from benchmarks.result_tables import goals, result_files
from dawnjax.statistics.interval import Interval

TOP = Path(__file__).resolve().parents[2]
TOP_PAGES = [TOP / name for name in ("README.md", "CONTRIBUTING.md", "RELEASE.md", "SECURITY.md")]
PAGES = [*TOP_PAGES, *sorted((TOP / "docs").glob("*.md"))]
SOURCES = ("dawnjax", "models", "input_pipeline", "experiments", "benchmarks")
SHOWN = set(re.findall(r"<!-- table (\w+) -->", "".join(page.read_text() for page in PAGES)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tables_hold_what_the_result_files_hold(page):
    text = page.read_text()
    assert text.count("<!-- table ") == text.count(tables.END)
    assert tables.filled(text) == text, "python -m benchmarks tables writes it anew"


def test_the_citation_names_the_version():
    assert f"version: {dawnjax.__version__}\n" in (TOP / "CITATION.cff").read_text()


INSTALLED = "-e '.[{}]'"
"""How every text installs an extra: in a clone, until there is a release to name instead."""


def test_every_text_installs_extras_in_the_one_way():
    extras = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    sources = [path for folder in SOURCES for path in (TOP / folder).rglob("*.py")]
    lines = [
        match[1]
        for path in [*PAGES, *sources]
        for match in re.finditer(r"pip install ([^`\n]*\[[^`\n]*\]'?)", path.read_text())
    ]
    assert len(lines) > 20
    for line in lines:
        names = re.findall(r"\[([\w,.{}]+)\]", line)
        wanted = " ".join(INSTALLED.format(name) for name in names)
        assert line.removeprefix("-q ") == wanted, line
        known = (name for name in names if name not in ("...", "{name}"))
        assert {part for name in known for part in name.split(",")} <= set(extras), line


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_picture_shows_what_the_result_files_hold(theme):
    drawn = (tables.IMAGES / f"time_to_accuracy_{theme}.svg").read_text()
    assert tables.time_to_accuracy(theme) == drawn, "python -m benchmarks tables writes it anew"
    assert "var(" not in drawn  # many programs that show an SVG know no variables


def test_every_result_file_is_in_a_table_of_a_page():
    assert set(tables.TABLES) == SHOWN
    shown = {file for table in tables.TABLES.values() for file in table.files()}
    assert shown == set(result_files.RESULTS.glob("*.json"))
    patterns = {pattern for table in tables.TABLES.values() for pattern in table.patterns}
    for goal in goals.GOALS:
        assert goal.pattern in patterns or list(result_files.RESULTS.glob(goal.pattern)), goal.title


def test_a_table_without_a_result_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(result_files, "RESULTS", tmp_path)
    assert tables.TABLES["gnmt_pytorch"].text() == "Not yet run."
    assert tables.TABLES["goals"].text().count("\n") == 1  # the head alone


def test_a_table_says_what_failed(tmp_path, monkeypatch):
    facts = {
        "date": "2026-01-02",
        "processor": "Some Processor",
        "cores": 2,
        "load_before": 3.5,
        "versions": {"python": "3.11.7", "jax": "0.10.2"},
    }
    reached = {"seed": 0, "reached": True, "time_to_accuracy_seconds": 2.0, "epochs": 4.0}
    reached |= {"compile_seconds": 3.0, "examples_per_second": 100.0, "last": 0.5}
    crashed = {"seed": 1, "reached": False, "status": "exit 1", "error": ["out of memory"]}
    slow = {**reached, "reached": False, "time_to_accuracy_seconds": None, "last": 0.25}
    record = {
        "environment": facts,
        "experiment": "some",
        "trials_wanted": 5,
        "num_trials": 3,
        "num_reached": 1,
        "trials": [reached, crashed, slow],
    }
    (tmp_path / "seeds_some.json").write_text(json.dumps(record))
    monkeypatch.setattr(result_files, "RESULTS", tmp_path)
    text = tables.filled("<!-- table trials -->\nold\n<!-- end of table -->\nafter")
    assert "| 1 of 3; 5 were wanted |" in text
    assert "| 2 cores of Some, load 3.5 before |" in text
    assert "| 2.000 |" in text
    assert "| 0.3750 (sd 0.1250; 0.2500 to 0.5000) |" in text
    assert text.endswith("From `seeds_some.json`.\n<!-- end of table -->\nafter")
    assert "old" not in text
    (tmp_path / "seeds_some.json").write_text(
        json.dumps({**record, "num_trials": 1, "num_reached": 0, "trials": [crashed]})
    )
    text = tables.TABLES["trials"].text()
    assert "| 0 of 1; 5 were wanted |" in text and "| time to accuracy, s | none |" in text


def test_a_goal_is_missed_where_a_side_failed(tmp_path, monkeypatch):
    facts = {"date": "2026-01-02", "processor": "Some", "cores": 2, "versions": {}}
    sides = {side: {"trials": [{"reached": False}]} for side in ("dawnjax", "pytorch")}
    record = {"environment": facts, "pytorch_mode": "eager", **sides}
    (tmp_path / "digits_pytorch.json").write_text(json.dumps(record))
    monkeypatch.setattr(result_files, "RESULTS", tmp_path)
    (row,) = tables.TABLES["goals"].text().splitlines()[2:]
    assert "| at most 0.67 | none: a side or a trial failed | **missed** |" in row


def test_a_goal_is_met_or_missed_by_the_interval_of_its_figure():
    def figure(value, low=None, high=None, level: float | None = 0.95):
        return goals.Figure(Interval(value, low, high, level, 3), "5 rounds")

    speed = goals.Goal("speed", "some.json", lambda record: figure(record["speed"]), least=1.4)
    assert speed.needed() == "at least 1.4"
    assert speed.state(figure(1.38, 1.37, 1.39)) == "**missed**"
    assert speed.state(figure(1.5, 1.4, 1.6)) == "met"
    assert speed.state(figure(1.38, 1.3, 1.5)) == "undecided"
    assert speed.state(figure(2.0, 1.9, 2.1)) == "met"
    # Three rounds decide nothing, however far their range is from the limit.
    assert speed.state(figure(2.0, 1.9, 2.1, None)) == "undecided"
    assert speed.state(figure(2.0, level=None)) == "undecided"
    share = goals.Goal("share", "some.json", speed.figure, most=0.67)
    assert share.needed() == "at most 0.67"
    assert share.state(figure(0.655, 0.57, 0.76)) == "undecided"
    assert share.state(figure(0.6, 0.57, 0.67)) == "met"
    assert share.state(figure(1.0502, 1.0489, 1.0516)) == "**missed**"
    assert str(figure(1.0502, 1.0489, 1.0516)) == "1.050 (1.049 to 1.052)"
    assert str(figure(1.0502, 1.0, 1.1, None)) == "1.050 (range of 3: 1.000 to 1.100)"


def test_an_unknown_table_is_named():
    with pytest.raises(tables.UnknownTable, match="no table 'seedz'; there are goals, trials"):
        tables.filled("<!-- table seedz -->\n<!-- end of table -->")


def anchors(page: Path) -> set[str]:
    """Names of a page's headings, as links have them."""
    names = set()
    without_code = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for title in re.findall(r"^#+ (.*)$", without_code, re.MULTILINE):
        names.add(re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-"))
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_to_a_heading(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path) if path else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


@pytest.mark.processes
def test_the_architecture_names_files_that_a_run_of_digits_loads():
    page = (TOP / "docs" / "architecture.md").read_text()
    _, _, section = page.partition("## From flag to result\n")
    files = re.findall(r"^\| `(dawnjax/\S+)\.py` \|", section, re.MULTILINE)
    assert f"These {len(files)} files take" in section and len(files) > 10
    script = "import sys; from dawnjax.config.experiment_flags import parse_request; "
    script += "import dawnjax.commands.train, dawnjax.__main__, dawnjax.train; "
    script += "parse_request('train', ['--experiment=digits']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=TOP, capture_output=True, text=True)
    assert {file.replace("/", ".") for file in files} <= set(done.stdout.split()), done.stderr


def test_the_readme_shows_an_experiment_for_each_file():
    readme = (TOP / "README.md").read_text()
    shown = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", readme, re.MULTILINE))))
    assert {path.stem for path in (TOP / "experiments").glob("[a-z]*.py")} <= shown


def test_the_page_of_the_report_has_a_row_for_each_section():
    parts = (TOP / "dawnjax" / "report").glob("*.py")
    titles = re.findall(
        r'Section\(\n? *(?:name=[^\n]+\n *)?title=f?"([^"{]+)',
        "".join(path.read_text() for path in parts),
    )
    rows = re.findall(r"^\| ([^|]+?) \|", (TOP / "docs" / "report.md").read_text(), re.MULTILINE)
    assert len(titles) >= 10
    assert [title for title in titles if not any(row.startswith(title) for row in rows)] == []


def test_every_listed_benchmark_does_something():
    listed = subprocess.run(
        [sys.executable, "-m", "benchmarks"], cwd=TOP, capture_output=True, text=True, check=True
    ).stdout.splitlines()[1:]
    for name in (line.split()[0] for line in listed):
        text = (TOP / "benchmarks" / f"{name}.py").read_text()
        assert 'if __name__ == "__main__":' in text, f"{name} has nothing to run"


def test_no_text_keeps_both_sides_of_a_merge():
    folders = ("dawnjax", "models", "input_pipeline", "experiments", "tests", "benchmarks", "docs")
    kinds = {".py", ".md", ".sh", ".json", ".css", ".js", ".html"}
    files = [file for folder in folders for file in (TOP / folder).rglob("*")]
    for file in [*TOP.glob("*.*"), *files]:
        if file.suffix in kinds:
            assert not re.search(r"^(<{7}|>{7}) ", file.read_text(), re.MULTILINE), file


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_of_the_repository_that_a_page_names_exist(page):
    folders = "dawnjax|models|input_pipeline|experiments|benchmarks|tests"
    for path in re.findall(rf"`((?:{folders})/[\w/]+\.(?:py|sh))`", page.read_text()):
        assert (TOP / path).is_file(), path
