"""The page: sections in their order, figures drawn for two widths, one HTML file around them."""

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
from dawnjax.report import boards, curves, own, steps, studies, summary, systems, trials
from dawnjax.report.figures import NARROW, WIDE, Figure
from dawnjax.report.inputs import Inputs
from dawnjax.report.sections import Section
from dawnjax.report.table_view import MOST_REASONS, TableView
from dawnjax.text import escaped


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
        summary.paper_section(*paper) if paper else None,
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
        summary.warnings_section(inputs),
    ]
    present = [section for section in sections if section is not None]
    best = summary.best_view(all_boards)
    html = _render(
        title=title or summary.title_of(inputs),
        facts=summary.facts(inputs),
        conclusions=summary.conclusions(inputs),
        best=_shown_table(best) if best else None,
        sections=[_drawn_section(section) for section in present],
    )
    tables = {table.name: table for section in present for table in section.tables}
    return Report(html, tuple(tables.values()))


def _fields(record: Figure | Section | TableView) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}


def _drawn_section(section: Section) -> dict[str, Any]:
    blocks = [
        _drawn_figure(block) if isinstance(block, Figure) else _shown_table(block)
        for block in section.blocks
    ]
    return {**_fields(section), "blocks": blocks, "folded": [*map(_shown_table, section.folded)]}


def _drawn_figure(figure: Figure) -> dict[str, Any]:
    drawings = []
    for size, width in (("wide", WIDE), ("narrow", NARROW)):
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
    return {**_fields(figure), "is_figure": True, "drawings": drawings, "left_out": left_out}


def _shown_table(table: TableView) -> dict[str, Any]:
    more = len(table.reasons) >= MOST_REASONS
    return {**_fields(table), "is_figure": False, "more_reasons": more}


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
