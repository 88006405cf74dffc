"""A section of the page; a section without data is absent."""

import dataclasses

from dawnjax.analysis.tables import Table
from dawnjax.report.figures import Figure
from dawnjax.report.table_view import TableView

Block = Figure | TableView


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the page.

    Attributes:
      name: For its address in the page.
      title: Its heading.
      lead: What it shows and how to read it.
      blocks: Figures and tables from above to below.
      folded: Tables that are shown when asked for.
      tables: Tables whose files belong to it.
    """

    name: str
    title: str
    lead: tuple[str, ...] = ()
    blocks: tuple[Block, ...] = ()
    folded: tuple[TableView, ...] = ()
    tables: tuple[Table, ...] = ()
