"""`dawnjax report`: a user's results and official ones, as one HTML page and as tables."""

import dataclasses
import functools
import sys
from pathlib import Path

from absl import flags

from dawnjax import records
from dawnjax.commands.answer import Answer
from dawnjax.config import command_line
from dawnjax.errors import ConfigError
from dawnjax.other_logs import flags as column_flags
from dawnjax.other_logs.columns import Columns

USAGE = "dawnjax report FILE|RUN_DIR... --out=DIR [--until=YYYY-MM-DD] [--paper]"

DESCRIPTION = """
Writes one self-contained page, DIR/index.html, and each of its tables as DIR/tables/NAME.csv and
NAME.json with exact numbers. Sources are, in any mixture:

  FILE.jsonl   entries, as `dawnjax import` writes them
  RUN_DIR      a run directory of `dawnjax train`, or a folder of them
  STUDY, STUDY/ARM  a study, or one of its arms
  other        official results, as `dawnjax import` reads them, or logs of another program, as
               `dawnjax compare` does

Trials of one experiment on one system are one entry. Other files in DIR are left alone.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """The report that was written.

    Attributes:
      page: Path of the page.
      tables: Paths of its tables, each as CSV and as JSON.
      entries: Entries that it shows.
      problems: Sources that were not read, and why.
    """

    page: str
    page_bytes: int
    tables: tuple[str, ...]
    entries: int
    problems: tuple[str, ...]


RESULT = Result


def main(argv: list[str]) -> Answer:
    flag_values = flags.FlagValues()
    text = functools.partial(flags.DEFINE_string, flag_values=flag_values)
    switch = functools.partial(flags.DEFINE_bool, flag_values=flag_values)
    text("out", None, "Directory to write to.")
    text("until", None, "Last day, YYYY-MM-DD, of the entries to rank.")
    tables = "Add the tables of arXiv 1806.01427, published beside recomputed, with errata."
    switch("paper", False, tables)
    listed = "With --paper: a TSV list of all official MLPerf v0.5 entries, for Table 1."
    text("entry_list", None, listed)
    text("title", "", "Title of the page.")
    hosts = "Keep host names and addresses, paths and e-mail addresses."
    switch("include_hosts", False, hosts)
    column_flags.define(flag_values)
    sources = command_line.parse("report", flag_values, argv, USAGE, DESCRIPTION)
    if not sources:
        raise ConfigError(
            "no source given; name a file of entries, a run directory or a folder of runs"
        )
    if not flag_values["out"].value:
        raise ConfigError("--out is missing: the directory to write the report to")
    if flag_values["entry_list"].value and not flag_values["paper"].value:
        raise ConfigError("--entry_list needs --paper")
    return _write_report(
        [records.path_of(source) for source in sources],
        records.path_of(flag_values["out"].value),
        until=flag_values["until"].value,
        title=flag_values["title"].value or "",
        with_paper=bool(flag_values["paper"].value),
        entry_list=flag_values["entry_list"].value,
        include_hosts=bool(flag_values["include_hosts"].value),
        columns=column_flags.columns(flag_values),
    )


def _write_report(
    sources: list[Path],
    out: Path,
    *,
    until: str | None,
    title: str,
    with_paper: bool,
    entry_list: str | None,
    include_hosts: bool,
    columns: Columns,
) -> Answer:
    # Imported here so that --help does without them.
    from dawnjax.analysis import counts, paper
    from dawnjax.page.words import count, counted
    from dawnjax.report import contents, inputs, writing
    from dawnjax.study.reading import arm_at
    from dawnjax.text import escaped

    sources = [arm_at(source)[0] for source in sources]
    column_flags.refuse_unused(columns, sources)
    read = inputs.read(sources, include_hosts=include_hosts, columns=columns)
    for problem in counted(read.problems):
        print(escaped(f"dawnjax report: not read: {problem}"), file=sys.stderr)
    published = None
    if with_paper:
        listed = counts.read_entry_list(records.path_of(entry_list)) if entry_list else None
        published = paper.recomputed(read.entries, listed)
    report = contents.make(read, until=until, paper=published, title=title)
    files = writing.write(report, out)
    *tables, page = files
    size = len(report.html.encode())
    entries = count(len(read.entries), "entry", "entries")
    return Answer(
        result=Result(
            page=str(page),
            page_bytes=size,
            tables=tuple(map(str, tables)),
            entries=len(read.entries),
            problems=tuple(read.problems),
        ),
        text=f"{page}: {entries}, {size / 1e6:.2f} MB; {len(report.tables)} tables as CSV and "
        f"JSON in {files[0].parent}",
    )
