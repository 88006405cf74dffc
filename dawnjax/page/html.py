"""The page: sections in their order, figures drawn for two widths, one HTML file around them.

Each section begins with its figures. Tables follow, folded where a section has many rows, and so
do figures after the first ones.
"""

import base64
import dataclasses
import hashlib
import math
from collections.abc import Sequence
from importlib import resources
from typing import Any

import jinja2
import markupsafe

import dawnjax
from dawnjax.analysis.tables import Table
from dawnjax.report import (
    boards,
    curves,
    own,
    steps,
    studies,
    summary,
    systems,
    trials,
    words,
)
from dawnjax.report.figures import HALF, NARROW, WIDE, Figure
from dawnjax.report.inputs import Inputs
from dawnjax.report.sections import Section
from dawnjax.report.table_view import MOST_REASONS, TableView
from dawnjax.text import escaped

MOST_OPEN_ROWS = 6
"""The tables of a section are folded if they have more rows than this in all."""

MOST_OPEN_FIGURES = 4
"""Figures of a section that are shown; further ones are folded."""

MOST_LEFT_OUT = 3
"""What is not in a figure is folded if it is more than this."""


@dataclasses.dataclass(frozen=True)
class Report:
    """A report, ready to be written.

    Attributes:
      html: The page.
      tables: All tables; the page may show a part of one.
    """

    html: str
    tables: tuple[Table, ...]


def make(
    inputs: Inputs,
    *,
    until: str | None = None,
    paper: tuple[Sequence[Table], Table] | None = None,
    title: str = "",
) -> Report:
    """Makes the report of entries and runs; the same inputs make the same bytes.

    Args:
      inputs: What was read.
      until: The last day of the entries that the leaderboards rank, `YYYY-MM-DD`.
      paper: The paper's tables and their errata, if they are asked for.
      title: Instead of one made from the suites.

    Raises:
      ConfigError: `until` is no date.
    """
    entries, runs = inputs.entries, inputs.runs
    all_boards = boards.boards(entries, until)
    sections: list[Section | None] = [
        *studies.studies_sections(inputs.studies),
        own.runs_section(runs),
        steps.steps_section(runs),
        boards.leaderboards_section(all_boards, until),
        curves.learning_section(entries),
        trials.stability_section(entries),
        trials.comparisons_section(entries),
        trials.epochs_section(entries),
        systems.speedups_section(entries),
        curves.thresholds_section(entries),
        systems.scaling_section(entries),
        boards.inference_section(all_boards),
        systems.counts_section(entries),
        own.mathematics_section(runs),
        summary.paper_section(*paper) if paper else None,
        summary.warnings_section(inputs),
    ]
    present = [section for section in sections if section is not None]
    html = _render(
        title=title or summary.title_of(inputs),
        facts=summary.facts(inputs),
        summary=_drawn_section(summary.summary_section(all_boards)),
        conclusions=summary.conclusions(inputs),
        sections=[_drawn_section(section) for section in present],
    )
    tables = {table.name: table for section in present for table in section.tables}
    return Report(html, tuple(tables.values()))


def _fields(record: Figure | Section | TableView) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}


def _drawn_section(section: Section) -> dict[str, Any]:
    figures = [block for block in section.blocks if isinstance(block, Figure)]
    tables = [block for block in section.blocks if isinstance(block, TableView)]
    wide = WIDE if len(figures) == 1 else HALF
    drawn = [_drawn_figure(figure, wide) for figure in figures]
    is_open = sum(len(table.rows) for table in tables) <= MOST_OPEN_ROWS
    folded = (*(() if is_open else tables), *section.folded)
    return {
        **_fields(section),
        "figures": drawn[:MOST_OPEN_FIGURES],
        "more_figures": drawn[MOST_OPEN_FIGURES:],
        "open_tables": [_shown_table(table) for table in (tables if is_open else ())],
        "folded": [_shown_table(table) for table in folded],
    }


def _drawn_figure(figure: Figure, wide: float) -> dict[str, Any]:
    drawings = []
    for size, width in (("wide", wide), ("narrow", NARROW)):
        canvas = figure.draw(width)
        drawings.append(
            {
                "size": size,
                "width": math.ceil(canvas.width),
                "height": math.ceil(canvas.height),
                # Every text in it went through `Canvas.text`, which escapes.
                "body": markupsafe.Markup(canvas.body()),
            }
        )
    reasons: dict[str, list[str]] = {}
    for name, reason in figure.left_out:
        reasons.setdefault(reason, []).append(name)
    left_out = [(reason, ", ".join(names)) for reason, names in reasons.items()]
    return {
        **_fields(figure),
        "drawings": drawings,
        "left_out": left_out,
        "number_left_out": len(figure.left_out),
        "fold_left_out": len(figure.left_out) > MOST_LEFT_OUT,
    }


def _shown_table(table: TableView) -> dict[str, Any]:
    return {
        **_fields(table),
        "more_reasons": len(table.reasons) >= MOST_REASONS,
        "rows_in_words": words.count(len(table.rows), "row"),
    }


def _render(**context: object) -> str:
    files = resources.files("dawnjax.report") / "templates"
    style = (files / "page.css").read_text(encoding="utf-8")
    script = (files / "page.js").read_text(encoding="utf-8")
    # Nothing is fetched and only these two run: not even a fault in the escaping could run more.
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        finalize=_without_controls,
    )
    template = environment.from_string((files / "page.html").read_text(encoding="utf-8"))
    return template.render(
        **context,
        style=markupsafe.Markup(style),
        script=markupsafe.Markup(script),
        policy=policy,
        version=dawnjax.__version__,
    )


def _without_controls(value: Any) -> Any:
    is_made_here = isinstance(value, markupsafe.Markup)  # from the templates and `Canvas`
    return escaped(value) if isinstance(value, str) and not is_made_here else value


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
