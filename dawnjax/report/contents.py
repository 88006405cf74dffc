"""Sections of a report in their order, and the meaning of its numbers."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import dawnjax
from dawnjax.analysis import leaderboard as ranking
from dawnjax.analysis.paper import Recomputed
from dawnjax.page import html
from dawnjax.page.section import Section
from dawnjax.page.table import Table, with_fields
from dawnjax.report import (
    boards,
    curves,
    iso_quality,
    losses,
    own,
    pictures,
    stability,
    steps,
    studies,
    summary,
    systems,
)
from dawnjax.report.inputs import Inputs
from dawnjax.report.paper import paper_section
from dawnjax.statistics.interval import FEWEST_TRIALS, IF_ALL_REACH, IF_SOME_MISS
from dawnjax.statistics.sample import FEWEST_WITH_FAILURES

DEFINITIONS = (
    (
        "Time to accuracy",
        "From the start of the run's clock, when every program is compiled, to the end of the"
        " first evaluation that reaches the target. Official results keep the clock of their "
        "suite: DAWNBench's hours, MLPerf's run_start to run_stop.",
    ),
    (
        "Expected time",
        "Time of all trials divided by the number that reached: what one success costs, failures "
        "included.",
    ),
    (
        "MLPerf score",
        "The mean without the fastest and the slowest trial. A trial that did not reach "
        "counts as the slowest. With more than one such trial, or fewer than three trials, "
        "there is no score. For unet3d, four are left out at each end, and nine trials are "
        "needed. A round's review may multiply a score; the entry's remark gives both.",
    ),
    ("Rank", ranking.RULE),
    (
        "Coefficient of variation (CV)",
        "Population standard deviation divided by mean, for the trials that reached the target.",
    ),
    (
        "95% interval",
        "For means, expected times and their ratios, the t interval of the logarithm over the "
        f"trials; for fractions, Wilson's interval. Fewer than {FEWEST_TRIALS} trials have no "
        "interval but a range. An expected time has no interval with fewer than "
        f"{FEWEST_WITH_FAILURES} trials if some did not reach. If all trials reached, an interval "
        f"{IF_ALL_REACH} counts no miss; the upper end of an interval {IF_SOME_MISS} adds as "
        "many misses as that many trials may hide, each at the experiment's whole budget.",
    ),
    (
        "Cost",
        "Time at the price of the whole system: the entry's own price, otherwise a dated list "
        "price for its hardware. The mean cost is the cost of the time to accuracy, over the "
        "trials that reached; the expected cost is the cost of all trials divided by the number "
        "that reached. No price is assumed.",
    ),
    (
        "Not reached, not known",
        "A trial that did not reach the target has no time to accuracy. A figure that the results "
        "lack is shown as not known, with the reason beside it or below; it never counts as 0.",
    ),
)
"""Terms and their meanings, for the end of the page."""


@dataclasses.dataclass(frozen=True)
class Report:
    """Report, ready to be written.

    Attributes:
      tables: All tables, whole; the page may show a part of one.
    """

    html: str
    tables: tuple[Table, ...]


def make(
    inputs: Inputs,
    *,
    until: str | None = None,
    paper: Mapping[str, Sequence[Recomputed]] | None = None,
    title: str = "",
) -> Report:
    """Make the report of entries and runs; the same inputs make the same bytes.

    Args:
      until: Last day of the entries that the leaderboards rank, `YYYY-MM-DD`.
      paper: The paper's cells (`analysis.paper.recomputed`).
      title: Replaces the title made from the suites.

    Raises:
      ConfigError: `until` is not a date.
    """
    entries, runs = inputs.entries, inputs.runs
    all_boards = boards.boards(entries, until)
    # What a person with runs of their own looks for first.
    figures = [*curves.own_curves(entries), *losses.losses_figures(runs)]
    first = summary.summary_section(all_boards, figures, curves.curve_tables(entries))
    sections: list[Section | None] = [
        *studies.studies_sections(inputs.studies),
        own.runs_section(runs),
        pictures.pictures_section(inputs.pictures),
        steps.steps_section(runs),
        boards.leaderboards_section(all_boards, until),
        curves.learning_section(entries),
        iso_quality.iso_quality_section(entries),
        stability.stability_section(entries),
        systems.scaling_section(entries),
        boards.inference_section(all_boards),
        paper_section(paper) if paper else None,
        summary.warnings_section(inputs),
    ]
    present = [section for section in sections if section is not None]
    page = html.render(
        title=title or summary.title_of(inputs),
        facts=summary.facts(inputs),
        summary=first,
        conclusions=summary.conclusions(inputs),
        sections=present,
        definitions=DEFINITIONS,
        version=dawnjax.__version__,
    )
    every = {table.name: table for section in [first, *present] for table in section.every_table}
    # A leaderboard's name is that of all in one table.
    every |= {table.name: table for section in [first, *present] for table in section.tables}
    return Report(page, tuple(_with_config(table, inputs) for table in every.values()))


def _with_config(table: Table, inputs: Inputs) -> Table:
    """A table whose rows are entries or runs, with the fields that a flag changed in any of them.

    Any other table stays as it is.
    """
    names = {column.name for column in table.columns}
    values: Mapping[str, Mapping[str, Any]]
    if "source" in names:
        key, values = "source", {entry.source: entry.config for entry in inputs.entries}
    elif "run" in names:
        key, values = "run", {run.name: run.fields for run in inputs.runs}
    else:
        return table
    return with_fields(table, [values.get(str(cell), {}) for cell in table.column(key)])
