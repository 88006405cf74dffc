"""Sections of a report in their order, and the meaning of its numbers."""

import dataclasses
from collections.abc import Sequence

import dawnjax
from dawnjax.page import html
from dawnjax.page.section import Section
from dawnjax.page.table import Table
from dawnjax.report import (
    boards,
    curves,
    losses,
    own,
    pictures,
    reached,
    rooflines,
    steps,
    studies,
    summary,
    systems,
    trials,
)
from dawnjax.report.inputs import Inputs
from dawnjax.report.swept import with_config

DEFINITIONS = (
    (
        "Time to accuracy",
        "From the start of the run's clock, when every program is compiled, to the end of the"
        " first evaluation that reaches the target. Official results keep the clock of their "
        "suite: DAWNBench's hours, MLPerf's run_start to run_stop.",
    ),
    (
        "Expected time",
        "Time of all trials over the number that reached: what one success costs, failures "
        "included.",
    ),
    (
        "MLPerf score",
        "The mean without the fastest and the slowest trial. A trial that did not reach "
        "counts as the slowest; more than one of them, or fewer than three trials, and there "
        "is no score. Of unet3d four are left out at each end, and nine trials are needed. "
        "The review of a round may multiply a score; the remark of the entry gives both.",
    ),
    (
        "Coefficient of variation (CV)",
        "Population standard deviation over mean, of the trials that reached the target.",
    ),
    (
        "95% interval",
        "Student's t on the logarithms of times; Wilson's interval for fractions. Fewer than 5 "
        "trials have their range instead, and fewer than 20 none where a trial did not reach.",
    ),
    (
        "Cost",
        "Time at the price of the whole system: the entry's own, else a dated list price "
        "where its hardware names one. The mean cost is that of the time to accuracy, over "
        "the trials that reached; the expected cost is that of all trials over the number "
        "that reached. Nothing is assumed.",
    ),
    (
        "Not reached, not known",
        "A trial that did not reach the target has no time to accuracy. What results do not "
        "tell is not known, with the reason beside it or below; it is never counted as 0.",
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
    paper: tuple[Sequence[Table], Table] | None = None,
    title: str = "",
) -> Report:
    """Make the report of entries and runs; the same inputs make the same bytes.

    Args:
      until: Last day of the entries that the leaderboards rank, `YYYY-MM-DD`.
      paper: The paper's tables and their errata.
      title: Replaces the title made from the suites.

    Raises:
      ConfigError: `until` is no date.
    """
    entries, runs = inputs.entries, inputs.runs
    all_boards = boards.boards(entries, until)
    # What a person with runs of their own looks for first.
    first = summary.summary_section(all_boards, *reached.own_figures(entries))
    sections: list[Section | None] = [
        *studies.studies_sections(inputs.studies),
        own.runs_section(runs),
        pictures.pictures_section(inputs.pictures),
        steps.steps_section(runs),
        rooflines.rooflines_section(runs),
        boards.leaderboards_section(all_boards, until),
        reached.reached_section(entries, without_own=True),
        curves.learning_section(entries),
        trials.stability_section(entries),
        trials.comparisons_section(entries),
        trials.epochs_section(entries),
        systems.speedups_section(entries),
        curves.thresholds_section(entries),
        systems.scaling_section(entries),
        boards.inference_section(all_boards),
        systems.counts_section(entries),
        losses.losses_section(runs),
        own.mathematics_section(runs),
        summary.paper_section(*paper) if paper else None,
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
    tables = {table.name: table for section in [first, *present] for table in section.tables}
    return Report(page, tuple(with_config(table, entries, runs) for table in tables.values()))
