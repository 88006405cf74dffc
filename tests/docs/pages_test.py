"""The pages of the docs: tables equal the result files, and links lead somewhere."""

import re
import runpy
import tomllib
from pathlib import Path

import pytest

import dawnjax
from benchmarks import tables
from benchmarks.result_tables import result_files
from dawnjax.errors import install

TOP = Path(__file__).resolve().parents[2]
PAGES = [
    path
    for folder in (".", "docs", "benchmarks", "experiments")
    for path in sorted((TOP / folder).glob("*.md"))
    if path.name != "CHANGELOG.md"
]
GUIDES = sorted(TOP.glob("skills/*/SKILL.md"))
SOURCES = ("dawnjax", "models", "input_pipeline", "experiments", "benchmarks")
SHOWN = set(re.findall(r"<!-- table (\w+) -->", "".join(page.read_text() for page in PAGES)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tables_hold_what_the_result_files_hold(page):
    text = page.read_text()
    assert text.count("<!-- table ") == text.count(tables.END)
    emptied = re.sub(
        rf"(<!-- table \w+ -->\n).*?{tables.END}", rf"\1{tables.END}", text, flags=re.S
    )
    assert tables.filled(emptied) == text, "python -m benchmarks tables writes it anew"


def test_the_site_lists_flags_and_fields_as_they_are():
    pytest.importorskip("mkdocs", reason=f"needs mkdocs ({install('docs')})")
    made = runpy.run_path(str(TOP / "docs" / "site" / "reference.py"))
    flags, page = "\n".join(made["commands"]()), (TOP / "docs" / "numbers.md").read_text()
    assert "--optimizer.base_learning_rate" in flags and "--fail_if_slower_by" in flags
    fields = made["on_page_markdown"](page)
    assert "| `time_to_accuracy_seconds` |" in fields and "| `allocated_cost_usd` |" in fields


def test_the_citation_names_the_version():
    assert f"version: {dawnjax.__version__}\n" in (TOP / "CITATION.cff").read_text()


def test_every_text_installs_extras_in_the_one_way():
    """By the name of the package, which a clone's install has too; CONTRIBUTING by the clone."""
    extras = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    sources = [path for folder in SOURCES for path in (TOP / folder).rglob("*.py")]
    places = [(install("name"), "name")]
    for path in [*PAGES, *sources]:
        text = path.read_text()
        places += [(m[0], m[1]) for m in re.finditer(r"pip install [^`\n[]*\[([\w,]+)\]\S?", text)]
        places += [(install(m[1]), m[1]) for m in re.finditer(r"[{ ]install\('([\w,]+)'\)", text)]
    assert len(places) > 40
    for line, named in places:
        of_a_clone = "'.[test" in line
        assert of_a_clone or line.replace("'", '"').endswith(install(named)), line
        assert {part for part in named.split(",") if part != "name"} <= set(extras), line


def test_every_result_file_is_in_a_table_of_a_page():
    assert set(tables.TABLES) == SHOWN
    shown = {file for table in tables.TABLES.values() for file in table.files()}
    assert shown == set(result_files.RESULTS.glob("*.json"))


def anchors(page: Path) -> set[str]:
    """Names of a page's headings, as links have them."""
    names = set()
    without_code = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for title in re.findall(r"^#+ (.*)$", without_code, re.MULTILINE):
        names.add(re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-"))
    return names


@pytest.mark.parametrize("page", [*PAGES, *GUIDES], ids=lambda page: page.name)
def test_links_between_pages_lead_to_a_heading(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path) if path else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


def test_the_page_of_experiments_has_a_row_for_each_file():
    page = (TOP / "docs" / "experiments.md").read_text()
    rows = "".join(re.findall(r"^\| (`.*?) \|", page, re.MULTILINE))
    names = {path.stem for path in (TOP / "experiments").glob("[a-z]*.py")}
    assert names <= set(re.findall(r"`(\w+)`", rows))


def test_the_architecture_counts_the_files_of_a_run():
    """The test below tells those that are gone."""
    _, _, section = (TOP / "ARCHITECTURE.md").read_text().partition("## From flag to result\n")
    files = re.findall(r"^\| `dawnjax/\S+\.py` \|", section, re.MULTILINE)
    assert f"These {len(files)} files take" in section and len(files) > 10


@pytest.mark.parametrize("page", [*PAGES, *GUIDES], ids=lambda page: page.name)
def test_files_of_the_repository_that_a_page_names_exist(page):
    folders = "dawnjax|docs|models|input_pipeline|experiments|benchmarks|tests"
    for path in re.findall(rf"`((?:{folders})/[\w/]+(?:\.\w+|/))`", page.read_text()):
        is_of_any_name = re.search(r"/[A-Z]+\.", path)  # docs/schemas/COMMAND.json
        assert is_of_any_name or (TOP / path).exists(), path
