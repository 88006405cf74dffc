"""The one reader of strangers' texts: plain, .gz or .xz by content, of bounded size, without mark.

Every text that a person gives is read here, so that a byte-order mark, a pipe, a packed bomb or a
wrong encoding is met alike whatever the text means.
"""

import contextlib
import gzip
import io
import json
import lzma
import pathlib
import re
import zlib
from collections.abc import Iterator
from typing import Any

from dawnjax import records
from dawnjax.input_pipeline.reading import archives
from dawnjax.input_pipeline.reading.dataset import DataError, MissingDataError

MAX_EXPANSION = 20
LARGEST_SMALL_TEXT = 16 * 2**20
"""A packed text unpacks to 3 to 8 times its size. One that unpacks to more than this many times,
and this many bytes beside, is a bomb."""

_GZIP, _XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"
_MARK = b"\xef\xbb\xbf"
"""Byte-order mark with which some editors begin a file. It is not part of the text: left in, it
would become the first letter of the first word."""

_LF_LINES = re.compile(r"(\r?\n|[\x85\u2028\u2029])")
_CR_LINES = re.compile(r"([\r\x85\u2028\u2029])")
_BLANK = re.compile(r"[\s\u200b\u2060\ufeff]*")
"""White space, that without a break too, and marks without width."""

_OTHER_MARKS = (b"\xff\xfe", b"\xfe\xff")
"""Byte-order marks of UTF-16."""


@contextlib.contextmanager
def named_errors(path: pathlib.Path) -> Iterator[None]:
    """Make a `DataError` that names the file of each way in which it cannot be read."""
    try:
        yield
    except records.BoundError as error:
        raise DataError(f"{path}: {error}") from None
    except FileNotFoundError:
        raise MissingDataError(f"{path}: no such file") from None
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile):
        raise DataError(f"{path}: cannot be read (a damaged or incomplete .gz or .xz)") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None


def read_content(path: pathlib.Path, most_bytes: int) -> bytes:
    """Content of a text, unpacked, without a byte-order mark; at most `most_bytes`."""
    with named_errors(path):
        content = records.read_plain(path, most_bytes)
        most = min(most_bytes, LARGEST_SMALL_TEXT + MAX_EXPANSION * len(content))
        if content.startswith(_GZIP):
            content = gzip.GzipFile(fileobj=io.BytesIO(content)).read(most + 1)
        elif content.startswith(_XZ):
            content = archives.Xz(io.BytesIO(content)).read_whole(most + 1)
        else:
            most = most_bytes
    if len(content) > most:
        raise DataError(
            f"{path}: unpacks to more than {most:,} bytes, too much for a text; unpack it first"
        )
    return unmarked(path, content)


def read(path: pathlib.Path, most_bytes: int) -> str:
    """Text of a file in UTF-8; raises what `read_content` does, and a DataError with the line."""
    content = read_content(path, most_bytes)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}: line {line} is not UTF-8") from None


def lines_of(text: str) -> list[str]:
    """Lines of a text that ends them with LF, CR LF or CR, without these; the last may be empty."""
    # A CR among LFs is a letter of its line: corpora have some, and count lines by LF.
    if "\n" not in text:
        return text.split("\r")
    return [line.removesuffix("\r") for line in text.split("\n")]


def paragraphs_of(text: str) -> list[str]:
    """Parts of a text between blank lines or paragraph separators (U+2029), each as it stands.

    NEL (U+0085) and U+2028 end a line too. A line is blank that shows nothing, whichever spaces it
    holds.
    """
    parts: list[list[str]] = []
    is_open = False
    # Odd places of a split hold what stood between.
    pieces = (_LF_LINES if "\n" in text else _CR_LINES).split(text)
    for line, before in zip(pieces[::2], ["\u2029", *pieces[1::2]], strict=True):
        if _BLANK.fullmatch(line):
            is_open = False
            continue
        if is_open and before != "\u2029":
            parts[-1] += [before, line]
        else:
            parts.append([line])
        is_open = True
    return ["".join(part) for part in parts]


def lines(path: pathlib.Path, most_bytes: int, most_line_bytes: int) -> Iterator[bytes]:
    """Yield the lines of a plain file, one in memory at a time, without a byte-order mark."""
    with named_errors(path):
        for number, line in enumerate(records.lines(path, most_bytes, most_line_bytes)):
            yield line if number else unmarked(path, line)


def read_json(
    path: pathlib.Path,
    most_bytes: int,
    most_marks: int = records.MOST_MARKS,
    bytes_a_mark: int = 2**62,
) -> Any:
    """Plain values of a JSON text; raises what `read_content` does, and a DataError with the line.

    `records.load_json` says which values are refused. A text of `bytes_a_mark` bytes or more for
    each of its marks may have more than `most_marks`.
    """
    content = read_content(path, most_bytes)
    if not content.strip():
        raise DataError(f"{path}: is empty")
    try:
        return records.load_json(content, max(most_marks, len(content) // bytes_a_mark))
    except UnicodeDecodeError:
        raise DataError(f"{path}: is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise DataError(f"{path}:{error.lineno}: no JSON ({error.msg})") from None
    except records.BoundError as error:
        raise DataError(f"{path}: {error}") from None


def unmarked(where: pathlib.Path | str, content: bytes) -> bytes:
    """Content of a text without a byte-order mark; DataError for one of UTF-16."""
    if content.startswith(_OTHER_MARKS):
        raise DataError(f"{where}: is UTF-16; save it as UTF-8")
    return content.removeprefix(_MARK)
