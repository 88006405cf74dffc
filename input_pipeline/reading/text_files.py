"""Texts of strangers, read whole: plain, .gz or .xz by content, and of bounded size."""

import gzip
import io
import lzma
import pathlib
import zlib

from dawnjax import records
from dawnjax.input_pipeline.reading.dataset import DataError, MissingDataError

MAX_EXPANSION = 20
LARGEST_SMALL_TEXT = 16 * 2**20
"""A packed text unpacks to 3 to 8 times its size. One that unpacks to more than this many times,
and this many bytes beside, is a bomb."""

_GZIP, _XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"
_XZ_MEMORY = 132 * 2**20
"""Enough for the highest preset of xz, which asks for 65 MiB."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Some editors begin a file with it. It is no part of the text: left in, it would become the first
letter of the first word."""


def read_bytes(path: pathlib.Path, most_bytes: int) -> bytes:
    """Content of a text, unpacked, without a byte-order mark; at most `most_bytes`."""
    try:
        content = records.read_plain(path, most_bytes)
        most = min(most_bytes, LARGEST_SMALL_TEXT + MAX_EXPANSION * len(content))
        if content.startswith(_GZIP):
            content = gzip.GzipFile(fileobj=io.BytesIO(content)).read(most + 1)
        elif content.startswith(_XZ):
            decoder = lzma.LZMADecompressor(memlimit=_XZ_MEMORY)
            content = decoder.decompress(content, most + 1)
            if not decoder.eof and len(content) <= most:
                raise EOFError
        else:
            most = most_bytes
    except records.BoundError as error:
        raise DataError(f"{path}: {error}") from None
    except FileNotFoundError:
        raise MissingDataError(f"{path}: no such file") from None
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile):
        raise DataError(f"{path}: cannot be read (a damaged or incomplete .gz or .xz)") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    if len(content) > most:
        raise DataError(
            f"{path}: unpacks to more than {most:,} bytes, which no text does; unpack it first"
        )
    return content.removeprefix(BYTE_ORDER_MARK)


def read_text(path: pathlib.Path, most_bytes: int) -> str:
    """Text of a file in UTF-8; raises what `read_bytes` does, and a DataError with the line."""
    content = read_bytes(path, most_bytes)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}: line {line} is not UTF-8") from None
