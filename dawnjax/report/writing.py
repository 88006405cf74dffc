"""The files of a report: each whole or not at all, and nothing outside the directory."""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dawnjax.errors import ConfigError, RunError
from dawnjax.report.contents import Report

PAGE = "index.html"
TABLES = "tables"


def write(report: Report, directory: Path) -> list[Path]:
    """Writes `index.html`, `tables/NAME.csv` and `tables/NAME.json`; other files stay.

    The page is written last, so that a page is never there without its tables.

    Returns:
      The files, the page at the end.

    Raises:
      ConfigError: The directory is a file, or its `tables` leads elsewhere.
      RunError: A file cannot be written.
    """
    tables = directory / TABLES
    if directory.exists() and not directory.is_dir():
        raise ConfigError(f"--out={directory} is a file; choose a directory")
    if tables.is_symlink() or (tables.exists() and not tables.is_dir()):
        raise ConfigError(f"{tables} is no directory of its own; choose another --out")
    written = []
    try:
        tables.mkdir(parents=True, exist_ok=True)
        for name, text in _files(report):
            file = directory / name
            if file.is_dir():
                raise ConfigError(f"{file} is a directory; choose another --out")
            _write_whole(file, text.encode("utf-8", errors="backslashreplace"))
            written.append(file)
    except OSError as error:
        raise RunError(f"cannot write {error.filename or directory}: {error.strerror}") from None
    return written


def _files(report: Report) -> Iterator[tuple[str, str]]:
    for table in report.tables:
        yield f"{TABLES}/{table.name}.csv", table.to_csv()
        yield f"{TABLES}/{table.name}.json", _json(table.to_json())
    yield PAGE, report.html


def _json(value: object) -> str:
    return json.dumps(value, indent=1, allow_nan=False) + "\n"


def _write_whole(file: Path, data: bytes) -> None:
    # The new name cannot be a link; renaming replaces a link itself and not its target.
    handle, partial = tempfile.mkstemp(prefix=f".{file.name}.", suffix=".part", dir=file.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        os.chmod(partial, 0o666 & ~_umask())
        os.replace(partial, file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
