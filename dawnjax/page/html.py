"""One HTML file: sections in their order, with figures first.

Tables with many rows and later figures are folded.
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

from dawnjax.page import words
from dawnjax.page.html_table import files, to_html
from dawnjax.page.rows import HALF, WIDE
from dawnjax.page.section import Figure, Picture, Section
from dawnjax.page.table import Table
from dawnjax.text import escaped

MOST_OPEN_ROWS = 6
"""Rows of a section's tables that are shown; the tables after them are folded."""

MOST_OPEN_FIGURES = 4
"""Figures of a section that are shown; further ones are folded."""

MOST_LEFT_OUT = 3
"""Fold the list of entries that a figure omits when it has more lines than this."""


def render(
    *,
    title: str,
    facts: Sequence[tuple[str, str]],
    conclusions: Sequence[str],
    summary: Section,
    sections: Sequence[Section],
    definitions: Sequence[tuple[str, str]],
    version: str,
) -> str:
    """One HTML page that fetches nothing; the same parts make the same bytes.

    Facts are (number, noun) and stand at the top; definitions are (term, meaning) and stand last.
    """
    folder = resources.files("dawnjax.page") / "templates"
    style = "".join((folder / f"{n}.css").read_text(encoding="utf-8") for n in ("figure", "page"))
    script = (folder / "page.js").read_text(encoding="utf-8")
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
        finalize=_printable,
    )
    template = environment.from_string((folder / "page.html").read_text(encoding="utf-8"))
    return template.render(
        title=title,
        facts=facts,
        conclusions=conclusions,
        summary=_drawn_section(summary),
        # Some have tables for files alone.
        sections=[_drawn_section(it) for it in sections if it.blocks or it.folded or it.pictures],
        definitions=definitions,
        style=markupsafe.Markup(style),
        script=markupsafe.Markup(script),
        policy=policy,
        version=version,
    )


def _fields(record: Figure | Picture | Section) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}


def _drawn_section(section: Section) -> dict[str, Any]:
    figures = [block for block in section.blocks if isinstance(block, Figure)]
    tables = [block for block in section.blocks if isinstance(block, Table)]
    wide = WIDE if len(figures) == 1 else HALF
    drawn = [_drawn_figure(figure, wide) for figure in figures]
    rows = [len(table.rows) for table in tables]
    number_open = sum(sum(rows[: place + 1]) <= MOST_OPEN_ROWS for place in range(len(rows)))
    folded = (*tables[number_open:], *section.folded)
    more = drawn[MOST_OPEN_FIGURES:]
    name = section.name
    return {
        **_fields(section),
        "figures": drawn[:MOST_OPEN_FIGURES],
        "more_figures": more,
        "more_title": more[0]["title"] if more else "",
        "pictures": [_shown_picture(picture) for picture in section.pictures],
        "open_tables": [
            to_html(table, f"table-{name}-{number}")
            for number, table in enumerate(tables[:number_open], start=1)
        ],
        "folded": [
            {
                "title": table.title,
                "rows": words.count(len(table.rows), "row"),
                "table": to_html(table, f"folded-{name}-{number}"),
            }
            for number, table in enumerate(folded, start=1)
        ],
    }


def _drawn_figure(figure: Figure, wide: float) -> dict[str, Any]:
    canvas = figure.draw(wide)
    reasons: dict[str, list[str]] = {}
    for name, reason in figure.left_out:
        reasons.setdefault(reason, []).append(name)
    left_out = [(reason, ", ".join(names)) for reason, names in reasons.items()]
    return {
        **_fields(figure),
        "width": math.ceil(canvas.width),
        "height": math.ceil(canvas.height),
        # Every text in it went through `Canvas.text`, which escapes.
        "body": markupsafe.Markup(canvas.body()),
        "left_out": left_out,
        "number_left_out": len(figure.left_out),
        "fold_left_out": len(figure.left_out) > MOST_LEFT_OUT,
        "files": files(*figure.tables),
    }


def _shown_picture(picture: Picture) -> dict[str, Any]:
    content = base64.b64encode(picture.content).decode("ascii")
    return {**_fields(picture), "address": f"data:image/jpeg;base64,{content}"}


def _printable(value: Any) -> Any:
    is_made_here = isinstance(value, markupsafe.Markup)  # from the templates and `Canvas`
    return escaped(value) if isinstance(value, str) and not is_made_here else value


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
