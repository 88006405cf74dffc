"""The parts of a page: figures, and sections that hold figures and tables."""

import dataclasses
from collections.abc import Callable

from dawnjax.page.svg import Canvas
from dawnjax.page.table import Table

Draw = Callable[[float], Canvas]
"""From a width in CSS pixels to the drawing."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure, drawn when the page is written.

    Attributes:
      summary: Its main numbers in words, for readers who do not see it.
      draw: From a width in CSS pixels to a drawing.
      left_out: (name, reason) of what it omits.
      tables: Names of the tables that hold its numbers.
    """

    name: str
    title: str
    summary: str
    caption: str
    draw: Draw
    left_out: tuple[tuple[str, str], ...] = ()
    tables: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Picture:
    """A JPEG within the page; `text` says what it shows."""

    content: bytes
    text: str


Block = Figure | Table


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the page, `name` in its address.

    Attributes:
      folded: Tables that open on request.
      tables: Further tables, that only files have.
    """

    name: str
    title: str
    lead: tuple[str, ...] = ()
    blocks: tuple[Block, ...] = ()
    folded: tuple[Table, ...] = ()
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()

    @property
    def every_table(self) -> list[Table]:
        shown = [block for block in self.blocks if isinstance(block, Table)]
        return [*shown, *self.folded, *self.tables]
