"""The members of a tar stream, with bounds on what a header can ask for.

Python's `tarfile` reads extended headers of any size into memory, and takes time quadratic in the
digits of some (CVE-2024-6232).

Source: POSIX.1-2017, pax interchange format; GNU tar manual, "Basic Tar Format" and the types `L`
and `K` of long names.
"""

import tarfile
from collections.abc import Callable, Iterator
from typing import NamedTuple

BLOCK = 512

MOST_HEADER_BYTES = 2**16
"""Of an extended header; a path has at most 4,096 bytes."""

_EXTENDED = {b"x": "pax", b"g": "pax", b"L": "name", b"K": "link"}
_CHUNK_BYTES = 2**18


class TarMember(NamedTuple):
    """Member of a tar stream.

    Attributes:
      kind: `file`, `folder`, or `other`: a link, a device, a pipe or a sparse file.
      read: Returns the content; to be called before the next member is asked for.
    """

    name: str
    size: int
    kind: str
    read: Callable[[], bytes]


def tar_members(read: Callable[[int], bytes]) -> Iterator[TarMember]:
    """Walk through a tar stream; a damaged one, or too large a header, is a tarfile.ReadError."""
    stream = _Stream(read)
    everywhere: dict[str, str] = {}  # what a global header says of all members after it
    here: dict[str, str] = {}
    while (header := stream.header()) is not None:
        size, kind = _number(header[124:136]), header[156:157]
        if kind in _EXTENDED:
            content = _extended(stream, size)
            if kind in b"LK":
                here[{b"L": "path", b"K": "linkpath"}[kind]] = _text(content)
            else:
                (here if kind == b"x" else everywhere).update(_records(content))
            continue
        stated, here = {**everywhere, **here}, {}
        name = stated.get("path") or _name(header)
        if "size" in stated:
            size = _decimal(stated["size"])
        is_sparse = any(key.startswith("GNU.sparse") for key in stated)
        if kind in (b"0", b"\0", b"7") and not is_sparse:
            # The first tars had no type for folders.
            sort = "folder" if name.endswith("/") else "file"
        else:
            sort = "folder" if kind == b"5" and not is_sparse else "other"
        # Links and devices may state a size, but nothing follows.
        size = 0 if kind in (b"1", b"2", b"3", b"4", b"5", b"6") else size
        stream.begin(size)
        yield TarMember(name, size, sort, stream.content)
        stream.skip()


class _Stream:
    """Tar stream, and the rest of the member that it stands at."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._left = self._padding = 0

    def exactly(self, count: int) -> bytes:
        parts = []
        while count:
            part = self._read(min(count, _CHUNK_BYTES))
            if not part:
                raise tarfile.ReadError("unexpected end of data")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def header(self) -> bytes | None:
        """Next header; None at the end mark, or where the stream ends."""
        block = self._read(BLOCK)
        if not block:
            return None
        if len(block) < BLOCK:
            block += self.exactly(BLOCK - len(block))
        if not any(block):
            return None
        # The checksum is of the header with blanks in its own place.
        rest = block[:148] + b" " * 8 + block[156:]
        difference = sum(rest) - _number(block[148:156])
        # Some old tars added signed bytes.
        if difference and difference != 256 * sum(byte > 127 for byte in rest):
            raise tarfile.ReadError("bad checksum")
        return block

    def begin(self, size: int) -> None:
        self._left, self._padding = size, -size % BLOCK

    def content(self) -> bytes:
        data, self._left = self.exactly(self._left), 0
        return data

    def skip(self) -> None:
        count = self._left + self._padding
        while count:
            count -= len(self.exactly(min(count, _CHUNK_BYTES)))
        self._left = self._padding = 0


def _extended(stream: _Stream, size: int) -> bytes:
    if size > MOST_HEADER_BYTES:
        raise tarfile.ReadError(
            f"an extended header has {size:,} bytes; at most {MOST_HEADER_BYTES:,} are read"
        )
    stream.begin(size)
    content = stream.content()
    stream.skip()
    return content


def _records(content: bytes) -> dict[str, str]:
    """Records `LENGTH KEY=VALUE` of a pax header."""
    records, start = {}, 0
    while start < len(content) and content[start]:
        length, blank, _ = content[start : start + 12].partition(b" ")
        end = start + _decimal(_text(length))
        key, equals, value = content[start + len(length) + 1 : end - 1].partition(b"=")
        if not (blank and equals) or content[end - 1 : end] != b"\n":
            raise tarfile.ReadError("an extended header is damaged")
        records[_text(key)] = value.decode("utf-8", "surrogateescape")
        start = end
    return records


def _name(header: bytes) -> str:
    name, prefix = _text(header[:100]), _text(header[345:500])
    # GNU's own format has other things in the place of the prefix.
    is_posix = header[257:263] == b"ustar\0"
    return f"{prefix}/{name}" if is_posix and prefix else name


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _decimal(digits: str) -> int:
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > 15:
        raise tarfile.ReadError("a number in an extended header is damaged")
    return int(digits)


def _number(field: bytes) -> int:
    """Number of a header: octal digits, or in base 256 where its first bit says so."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.partition(b"\0")[0].strip()
    if digits.strip(b"01234567"):
        raise tarfile.ReadError("a number in a header is damaged")
    return int(digits or b"0", 8)
