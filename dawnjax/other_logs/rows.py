"""Rows of a log by the form of its file: JSON lines, tables, printed text.

Each reader yields a place (a line's number) and cells by name. It keeps nothing, so that a log of a
million lines takes little memory.
"""

import collections
import csv
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from dawnjax import records
from dawnjax.errors import RunError
from dawnjax.other_logs import text_lines

MOST_BYTES = 512 * 2**20
"""Limit of a log."""

MOST_LINES, MOST_LINE_BYTES, MOST_BROKEN = 2_000_000, 2**20, 200_000

MOST_CELLS, CELLS_A_ROW = 20_000_000, 10
"""Limit of a log, and a row's cost besides its cells: two readings take some ten seconds."""

MOST_COLUMNS, LONGEST_NAME = 10_000, 1000

LONG_LINE_BYTES, MOST_MARKS = 2**14, 5_000_000
"""Commas, colons and brackets of all longer lines of JSON; each may become a list."""

Cells = dict[str, Any]
Row = tuple[int, Cells]

RUN = "run"
"""Cell that names the trial in a file of several: of W&B's and MLflow's exports."""


class Form(NamedTuple):
    """A kind of log.

    Attributes:
      name: As it is called in messages.
      rows: Yields the rows of a file or a folder.
      is_in_order: Whether rows follow the training, so that a step which goes back shows two runs.
    """

    name: str
    rows: Callable[[Path], Iterable[Row]]
    is_in_order: bool = True


def json_lines(path: Path) -> Iterator[Row]:
    """Rows of JSON lines; objects within an object become cells `outer/inner`.

    Raises:
      RunError: A line is not a JSON object. A torn last line is dropped.
    """
    torn: RunError | None = None
    for number, line in _bounded(path):
        if torn is not None:
            raise torn
        if not line.strip():
            continue
        try:
            value = json_value(line)
            if not isinstance(value, dict):
                raise ValueError("no object")
        except ValueError as error:
            torn = RunError(f"{path}:{number} is not a JSON object: {' '.join(str(error).split())}")
            continue
        yield number, flat(value)


def json_value(line: bytes) -> Any:
    """Value of a line of JSON, in which programs may write NaN; `ValueError` if it is not JSON."""
    try:
        return _DECODER.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        if not _OTHERS.search(line):
            raise ValueError(str(error)) from None
        return records.load_json(line, with_nan=True)


_DECODER = msgspec.json.Decoder()
_OTHERS = re.compile(rb"NaN|Infinity|\\u[dD][89a-fA-F]")
"""What JSON has not, or not so, and Python writes: numbers that are none, halves of pairs."""


def flat(value: Cells) -> Cells:
    """Cells of an object and of the objects directly within it."""
    if not any(isinstance(cell, dict) for cell in value.values()):
        return value
    cells: Cells = {}
    for name, cell in value.items():
        within = cell.items() if isinstance(cell, dict) else ()
        cells |= {f"{name}/{inner}": part for inner, part in within} or {name: cell}
    return cells


def table(path: Path) -> Iterator[Row]:
    """Rows of CSV or TSV, as a program writes them or W&B, MLflow and TensorBoard export them.

    Raises:
      RunError: The file has no header, or a row has more cells than that.
    """
    texts = (line.decode("utf-8-sig" if number == 1 else "utf-8") for number, line in lines(path))
    reader = csv.reader(texts, delimiter="\t" if path.suffix == ".tsv" else ",", strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        if len(header) > MOST_COLUMNS:
            raise RunError(f"{path} has {len(header):,} columns; at most {MOST_COLUMNS:,} are read")
        if not any(header) or all(map(_is_number, header)):
            raise RunError(f"{path} has no header; its first line must name the columns")
        if repeated := [name for name, n in collections.Counter(header).items() if name and n > 1]:
            raise RunError(f"{path} has two columns called {repeated[0]!r}")
        made, num_cells = _row_maker(path, header), 0
        for cells in reader:
            num_cells += len(cells)
            if num_cells > MOST_CELLS:
                raise RunError(f"{path}:{reader.line_num} comes after {MOST_CELLS:,} values")
            if len(cells) > len(header):
                raise RunError(
                    f"{path}:{reader.line_num} has {len(cells)} cells, but the header has "
                    f"{len(header)}"
                )
            for row in made(cells):
                yield reader.line_num, row
    except (csv.Error, UnicodeDecodeError) as error:
        raise RunError(f"{path}:{reader.line_num} is not a table of UTF-8 text: {error}") from None


def _row_maker(path: Path, header: list[str]) -> Callable[[list[str]], list[Cells]]:
    """Maker of rows from the cells of a line, by what the header shows."""
    if header == ["Wall time", "Step", "Value"]:  # TensorBoard's download of one scalar
        tag = re.sub(r"^run-.*-tag-", "", path.stem)
        return lambda cells: [dict(zip(["wall_time", "step", tag], cells, strict=False))]
    if {"key", "value"} <= set(header):  # MLflow's export, a measurement a row
        key, value = header.index("key"), header.index("value")
        others = [(place, name) for place, name in enumerate(header) if place not in (key, value)]
        names = {"run_id": RUN}
        return lambda cells: [
            {names.get(name, name): cells[place] for place, name in others if place < len(cells)}
            | {cells[key]: cells[value]}
        ]
    of_runs = {place: name.rpartition(" - ") for place, name in enumerate(header) if " - " in name}
    if of_runs and not any(name == header[0] for name in of_runs):  # W&B's download of a panel
        wanted = {place: it for place, it in of_runs.items() if not it[2].endswith(_BOUNDS)}
        shared = [(place, name) for place, name in enumerate(header) if place not in of_runs]
        return lambda cells: [
            {name: cells[at] for at, name in shared} | {RUN: run, metric: cells[place]}
            for place, (run, _, metric) in wanted.items()
            if place < len(cells) and cells[place]
        ]
    return lambda cells: [dict(zip(header, cells, strict=False))]


_BOUNDS = ("__MIN", "__MAX")
"""Ends of the columns in which W&B puts the least and greatest of the runs that it joined."""


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def text(path: Path) -> Iterator[Row]:
    """Rows of printed text: lines of a known form, or JSON objects among other output."""
    reader, number, broken = text_lines.Reader(), 0, 0
    for number, line in _bounded(path):
        if line.startswith((b'{"', b'{ "')):
            try:
                value = json_value(line)
            except ValueError:
                broken += 1
                if broken > MOST_BROKEN:
                    raise RunError(
                        f"{path}:{number}: too many lines are not complete JSON"
                    ) from None
                continue
            if isinstance(value, dict):
                yield number, flat(value)
        elif cells := reader.cells(line):
            yield number, cells
    if cells := reader.summary:
        yield number, cells


def _bounded(path: Path) -> Iterator[tuple[int, bytes]]:
    """Numbered lines that may be JSON."""
    marks = 0
    for number, line in lines(path):
        if len(line) > LONG_LINE_BYTES:
            marks += records.count_marks(line)
            if marks > MOST_MARKS:
                raise RunError(f"{path}:{number}: its long lines have too many values")
        yield number, line


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Numbered lines of a file; `RunError` where it cannot be read."""
    try:
        for number, line in enumerate(records.lines(path, MOST_BYTES, MOST_LINE_BYTES), start=1):
            if number > MOST_LINES:
                raise records.BoundError(f"has more than {MOST_LINES:,} lines; log fewer steps")
            yield number, line
    except (OSError, records.BoundError) as error:
        raise RunError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
