"""Zip files, .npz among them, that cannot make a reader allocate more than it should."""

import io
import pathlib
import zipfile

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
        super().__init__(io.FileIO(path))
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


def refuse_zip_bomb(path: pathlib.Path) -> None:
    """Refuse, by a DataError, a zip that unpacks to far more than its size or has many members."""
    with ZipBytes(path) as file, zipfile.ZipFile(file) as archive:
        unpacked = sum(info.file_size for info in archive.infolist())
    if unpacked > _LARGEST_SMALL + _MOST_EXPANSION * path.stat().st_size:
        raise DataError(f"{path}: expands to {unpacked:,} bytes, more than a data set may")
