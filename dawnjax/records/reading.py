"""Bounded reading of strangers' files.

Only plain files are opened, because a pipe has no end, and no sparse ones, which hold far more than
they take. Size is checked before a read. JSON values are counted in the text's bytes, because the 3
bytes `[],` become an object of 80.
"""

import csv
import errno
import gzip
import io
import json
import math
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from dawnjax.errors import ConfigError

DEEPEST = 60
"""Lists and objects inside each other; no file of this project has 20."""

MOST_MARKS = 1_000_000
"""Commas, colons and brackets of one JSON text; each costs at most 100 bytes of memory."""

MOST_DIGITS = 20
"""Digits of a whole number in DawnJAX's own files; 64 bits have 20."""

MOST_BYTES = 16 * 2**20
"""Limit of a JSON file, unless its reader names another."""

LARGEST_HOLE = 64 * 2**20
MOST_HOLES = 20
"""A larger file with more than this many times its data is sparse; no program leaves such a file
that has finished to write it."""


DEEPEST_FOLDERS = 60
"""Folders inside each other; Python's own walks end in a RecursionError at a thousand."""


class BoundError(ValueError):
    """A file is larger, deeper or of another kind than its reader accepts; one line."""


def open_plain(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a plain file to read; `BoundError` for a folder, a pipe (without a wait) or a device.

    `BoundError` also for a sparse file.
    """
    try:
        # O_NONBLOCK does not matter to a plain file; the open of a pipe would wait for its writer.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError:  # a stranger's record may name a file so
        raise BoundError("has a name with a zero byte") from None
    file = os.fdopen(fd, "rb")
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise BoundError("is not a plain file")
        size = status.st_size
        if size > LARGEST_HOLE and (data := _data_bytes(fd, size)) * MOST_HOLES < size:
            raise BoundError(f"is sparse: {data:,} bytes of data in a file of {size:,} bytes")
    except BaseException:
        file.close()
        raise
    return file


def _data_bytes(fd: int, size: int) -> int:
    """Bytes of a file outside its holes; more than enough of them are not counted."""
    data = end = 0
    try:
        while end < size and data * MOST_HOLES < size:
            start = os.lseek(fd, end, os.SEEK_DATA)
            end = os.lseek(fd, start, os.SEEK_HOLE)
            data += end - start
    except OSError as error:
        if error.errno != errno.ENXIO:  # the last hole has begun
            return size  # this file system knows no holes
    finally:
        os.lseek(fd, 0, os.SEEK_SET)
    return data


def read_plain(path: str | os.PathLike[str], most_bytes: int = MOST_BYTES) -> bytes:
    """Content of a plain file; `BoundError` if it is not a plain file or exceeds `most_bytes`."""
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        # Not `most_bytes` at once: Python makes room for as many, before it reads.
        data = b"" if size > most_bytes else file.read(size + 1)
        while size < len(data) <= most_bytes and (more := file.read(2**16)):
            data += more
    size = max(size, len(data))  # it may grow meanwhile, and /proc says 0
    if size > most_bytes:
        raise BoundError(f"has {size:,} bytes; at most {most_bytes:,} are read")
    return data


def lines(path: Path, most_bytes: int, most_line_bytes: int) -> Iterator[bytes]:
    """Yield the lines of a plain file, each with its newline; `BoundError` past a limit."""
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most_bytes:
            raise BoundError(f"has {size:,} bytes; at most {most_bytes:,} are read")
        number = 0
        while line := file.readline(most_line_bytes + 1):
            number += 1
            if len(line) > most_line_bytes:
                raise BoundError(f"line {number} has more than {most_line_bytes:,} bytes")
            yield line


def walk(
    path: Path, *, follow_links: bool = False, on_error: Callable[[OSError], object] | None = None
) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Yield a folder and those in it, each with its folders and files by name, as `os.walk` does.

    `BoundError` for one more than `DEEPEST_FOLDERS` deep. What the caller takes out of the list of
    folders is not visited.
    """
    for folder, folders, files in os.walk(path, onerror=on_error, followlinks=follow_links):
        here = Path(folder)
        if len(here.relative_to(path).parts) > DEEPEST_FOLDERS:
            raise BoundError(f"has folders more than {DEEPEST_FOLDERS} deep")
        folders.sort()
        yield here, folders, sorted(files)


def csv_rows(path: Path, filled: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield `FILE:LINE` and the cells by column of each row of a table of published numbers.

    A missing column of `filled`, or an empty cell in it, is a ConfigError that names the line.
    """
    try:
        text = read_plain(path).decode("utf-8-sig")
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
    except (OSError, UnicodeDecodeError, csv.Error, BoundError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None


def gunzip(file: IO[bytes], most_bytes: int) -> bytes:
    """Unpack a gzip file; `BoundError` past `most_bytes`.

    `OSError`, `EOFError` or `zlib.error` if it is damaged.
    """
    # One byte past the limit shows that there is more, without unpacking the rest.
    data = gzip.GzipFile(fileobj=file).read(most_bytes + 1)
    if len(data) > most_bytes:
        raise BoundError(f"unpacks to more than {most_bytes:,} bytes")
    return data


def count_marks(data: bytes) -> int:
    """Number of commas, colons and opening brackets: an upper bound on a JSON text's values."""
    return sum(map(data.count, (b",", b":", b"[", b"{")))


def check_json(data: bytes, most_marks: int = MOST_MARKS) -> None:
    """Refuse a JSON text of too many values, before they are made."""
    marks = count_marks(data)
    if marks > most_marks:
        raise BoundError(f"has {marks:,} commas, colons and brackets; {most_marks:,} are read")


def load_json(data: bytes | str, most_marks: int = MOST_MARKS, *, with_nan: bool = False) -> Any:
    """Decode a JSON text of this project: UTF-8, finite numbers, of bounded size and depth.

    `with_nan` admits NaN and infinities, for a reader that reports their place. `BoundError` for
    too many values, depth or digits, another `ValueError` if it is not JSON.
    """
    data = data.encode(errors="surrogatepass") if isinstance(data, str) else data
    check_json(data, most_marks)
    try:
        # Not by msgspec: names of files may hold lone surrogates, which it takes for a text's end.
        value = (_LENIENT if with_nan else _STRICT).decode(data.decode())
    except RecursionError:
        raise BoundError(f"is nested more than {DEEPEST} deep") from None
    # Fewer brackets cannot be too deep, so that most files skip the walk.
    if data.count(b"[") + data.count(b"{") > DEEPEST:
        check_depth(value)
    return value


def check_depth(value: Any) -> None:
    """Refuse a value too deep for recursive code to walk."""
    layer = [value]
    for _ in range(DEEPEST):
        layer = [part for whole in layer for part in _parts(whole) if isinstance(part, dict | list)]
        if not layer:
            return
    raise BoundError(f"is nested more than {DEEPEST} deep")


def _parts(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise BoundError(f"has a whole number of {len(digits):,} digits")
    return int(digits)


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise BoundError(f"has the number {digits[:40]}, which is too large")
    return value


def _no_constant(name: str) -> Any:
    raise BoundError(f"has {name}, which is not JSON")


_STRICT = json.JSONDecoder(parse_int=_whole, parse_float=_finite, parse_constant=_no_constant)
_LENIENT = json.JSONDecoder(parse_int=_whole)
