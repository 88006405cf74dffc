"""Tables of published numbers: what the reader refuses, and that every row names its source."""

from pathlib import Path

import pytest

import dawnjax
from dawnjax import records
from dawnjax.errors import ConfigError
from dawnjax.machine.hardware import find_device

PACKAGE = Path(dawnjax.__file__).parent
TABLES = sorted(path for path in PACKAGE.rglob("*.csv"))


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.name)
def test_every_row_names_its_source(path):
    rows = [row for _, row in records.csv_rows(path, ("source",))]
    assert rows
    # No row twice: of two prices or peaks for one thing only one can be right.
    assert len({tuple(row.values()) for row in rows}) == len(rows)


def test_a_fault_names_the_file_and_the_line(tmp_path):
    path = tmp_path / "made.csv"
    path.write_text("name,value,source\na,1,here\n\nb,2,\n")
    rows = records.csv_rows(path, ("name", "source"))
    assert next(rows) == (f"{path}:2", {"name": "a", "value": "1", "source": "here"})
    with pytest.raises(ConfigError, match=r"made\.csv:4: source is empty"):
        next(rows)
    path.write_text("name,value\na,1\n")
    with pytest.raises(ConfigError, match="lacks the column source"):
        list(records.csv_rows(path, ("name", "source")))
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot read"):
        list(records.csv_rows(path, ("name",)))


def test_a_pattern_takes_whole_names_of_devices():
    # A space or a hyphen may stand before a GPU's name, nothing before a TPU's.
    assert find_device("TPU v5e")[0] == find_device("TPU v5 lite")[0] is not None
    assert find_device("Cloud TPU v5e")[0] is None and find_device("TPU v5e pod")[0] is None
    assert find_device("GB200")[0] is not None and find_device("XB200")[0] is None
