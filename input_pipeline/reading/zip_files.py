"""Zip files, .npz among them, that cannot make a reader allocate more than it should."""

import io
import pathlib
import zipfile
from collections.abc import Iterator

from dawnjax import records
from dawnjax.input_pipeline.reading.dataset import DataError

MOST_MEMBERS = 100_000
MOST_NAME_BYTES = 32 * 2**20
MOST_MEMBER_BYTES = 160 * 2**20

_LARGEST_SMALL = 64 * 2**20
_MOST_EXPANSION = 100
"""A zip that unpacks to more than this many times its size, and those bytes beside, is a bomb."""


class ZipBytes(io.BufferedReader):
    """Bytes of a zip, whose members are counted before Python makes objects of them."""

    def __init__(
        self,
        path: pathlib.Path,
        *,
        most_members: int = MOST_MEMBERS,
        most_name_bytes: int = MOST_NAME_BYTES,
        most_member_bytes: int = MOST_MEMBER_BYTES,
    ) -> None:
        super().__init__(records.open_plain(path).detach())
        self._path, self._most_members = path, most_members
        self._most_name_bytes, self._most_member_bytes = most_name_bytes, most_member_bytes

    def read(self, size: int | None = -1) -> bytes:
        # `zipfile` reads the list of members in one piece, of the size that the file states.
        is_list = self.peek(4)[:4] == b"PK\x01\x02"
        most = self._most_name_bytes if is_list else self._most_member_bytes + 1
        if size is not None and size > most:
            raise DataError(
                f"{self._path}: its list of members has {size:,} bytes, more than {most:,}"
            )
        data = super().read(size)
        if is_list and data.count(b"PK\x01\x02") > self._most_members:
            raise DataError(f"{self._path}: more than {self._most_members:,} files")
        return data


def unpacked(path: pathlib.Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of each file in a zip; a DataError names the zip.

    A zip that unpacks to far more than its size, or has many members, is refused.
    """
    try:
        # Its arrays may be larger than a file of another archive.
        with ZipBytes(path, most_member_bytes=2**62) as file, zipfile.ZipFile(file) as archive:
            infos = archive.infolist()
            size = sum(info.file_size for info in infos)
            if size > _LARGEST_SMALL + _MOST_EXPANSION * path.stat().st_size:
                raise DataError(f"{path}: expands to {size:,} bytes, more than a data set may")
            for info in infos:
                with archive.open(info) as member:
                    # One byte more makes zipfile compare the checksum at the end.
                    yield info.filename, member.read(info.file_size + 1)
    except DataError:
        raise
    except Exception as error:  # zipfile raises many kinds on damaged files
        text = getattr(error, "strerror", None) or str(error)
        reason = " ".join(text.split())[:200] or type(error).__name__
        raise DataError(f"{path}: cannot be read ({reason})") from None
