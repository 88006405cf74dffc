"""The reader of published numbers: CSV files in which every row names its source."""

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from dawnjax import records
from dawnjax.errors import ConfigError

FOLDER = Path(__file__).parent
"""Holds `hardware.csv`, `instances.csv` and `prices.csv`."""


def rows(path: Path, filled: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield `FILE:LINE` and the cells by column of each row of a CSV file.

    A missing column of `filled`, or an empty cell in it, is a ConfigError that names the line.
    """
    try:
        text = records.read_plain(path).decode("utf-8-sig")
        reader = csv.DictReader(io.StringIO(text, newline=""))
        missing = [name for name in filled if name not in (reader.fieldnames or ())]
        if missing:
            raise ConfigError(f"{path} lacks the column {missing[0]}; it needs {list(filled)}")
        for row in reader:
            cells = {name: (cell or "").strip() for name, cell in row.items() if name}
            empty = [name for name in filled if not cells[name]]
            if empty:
                raise ConfigError(f"{path}:{reader.line_num}: {empty[0]} is empty")
            yield f"{path}:{reader.line_num}", cells
    except (OSError, UnicodeDecodeError, csv.Error, records.BoundError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None
