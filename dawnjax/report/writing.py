"""Files of a report, each written atomically and inside the directory alone."""

from collections.abc import Iterator
from pathlib import Path

from dawnjax import records
from dawnjax.errors import ConfigError
from dawnjax.report.contents import Report

PAGE = "index.html"
TABLES = "tables"


def write(report: Report, directory: Path) -> list[Path]:
    """Write `index.html`, `tables/NAME.csv` and `tables/NAME.json`; keep other files.

    Returns the paths. The page comes last, so that it never stands there without its tables.

    Raises:
      ConfigError: The directory is a file, or its `tables` leads elsewhere.
    """
    tables = directory / TABLES
    if directory.exists() and not directory.is_dir():
        raise ConfigError(f"--out={directory} is a file; choose a directory")
    # A link would let the report overwrite files outside of its directory.
    if tables.is_symlink() or (tables.exists() and not tables.is_dir()):
        raise ConfigError(f"{tables} is a link or a file, not a directory; choose another --out")
    written = []
    for name, text in files_of(report):
        file = directory / name
        if file.is_dir():
            raise ConfigError(f"{file} is a directory; choose another --out")
        records.write(file, text)
        written.append(file)
    return written


def files_of(report: Report) -> Iterator[tuple[str, str]]:
    for table in report.tables:
        yield f"{TABLES}/{table.name}.csv", table.to_csv()
        yield f"{TABLES}/{table.name}.json", records.json_text(table.to_json(), indent=1) + "\n"
    yield PAGE, report.html
