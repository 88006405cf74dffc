"""Archives that are hostile or damaged: names, links, bombs, cuts and flipped bits."""

import gzip
import io
import os
import pathlib
import struct
import tarfile
import tracemalloc
from typing import Any

import numpy as np
import pytest
from packed import Files, write_folder, write_tar, write_zip

from dawnjax.input_pipeline.reading import archives
from dawnjax.input_pipeline.reading.dataset import DataError

RANDOM = np.random.default_rng(0)
FILES = {
    f"{folder}/{label}/{number:04}.bin": RANDOM.bytes(3000)
    for folder in ("train", "test")
    for label in ("cat", "frog")
    for number in range(5)
}


def read(path: pathlib.Path, *limits: archives.Limits) -> Files:
    return {member.name: member.read() for member in archives.members(path, *limits)}


def refusal(path: pathlib.Path) -> str:
    with pytest.raises(DataError) as error:
        read(path)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("container", ["folder", "tar", "tar.gz", "tar.xz", "tar.bz2", "zip"])
def test_the_kind_is_known_by_content(container, tmp_path):
    path = tmp_path / "download"
    if container == "folder":
        write_folder(path, FILES)
    elif container == "zip":
        write_zip(path, FILES)
    else:
        write_tar(path, {f"./{name}": FILES[name] for name in FILES}, f"w:{container[4:]}")
    assert archives.kind_of(path) == container
    assert read(path) == FILES
    (tmp_path / "text").write_text("hello")
    assert "not a folder, .tar" in refusal(tmp_path / "text")
    assert refusal(tmp_path / "none") == f"{tmp_path / 'none'}: no such file or folder"


@pytest.mark.parametrize("container", ["tar.gz", "tar.xz", "zip"])
def test_bombs_are_stopped_early(container, tmp_path):
    """12 MB of zeros pack into some kB; far less than that is read before it ends."""
    files = {f"train/cat/{number}.png": bytes(2**20) for number in range(12)}
    path = tmp_path / "bomb"
    if container == "zip":
        write_zip(path, files)
    else:
        write_tar(path, files, "w:" + container.partition(".")[2])
    assert path.stat().st_size < 10**5
    for limits in (
        archives.Limits(member_bytes=2**20 - 1),
        archives.Limits(total_bytes=5 * 2**20),
        archives.Limits(num_members=5),
    ):
        count = 0
        with pytest.raises(DataError, match="more than"):
            for member in archives.members(path, limits):
                member.read()
                count += 1
        assert count <= 5


def test_a_bomb_between_the_members_is_stopped(tmp_path):
    """Padding after the last member is unpacked as well, and so are members not needed."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("data_batch_1"))
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(stream.getvalue() + bytes(2**23)))
    with pytest.raises(DataError, match="expands to more than the limit of a data set"):
        list(archives.members(path, archives.Limits(total_bytes=2**22)))
    write_tar(path, {"README": bytes(2**23), "data_batch_1": b""})
    with pytest.raises(DataError, match="'README' expands to 8,388,608 bytes"):
        list(archives.members(path, archives.Limits(total_bytes=2**22)))


def test_a_large_extended_header_is_refused(tmp_path):
    path = tmp_path / "a.tar.gz"
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 2**28
    path.write_bytes(gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + bytes(2**20)))
    assert "an extended header has 268,435,456 bytes" in refusal(path)
    long = {f"train/cat/{'a' * 3000}.png": b"x"}
    assert read(write_tar(path, long)) == long


def test_a_zip_that_states_a_small_size_is_not_unpacked_further(tmp_path):
    path = write_zip(tmp_path / "a.zip", {"train/cat/0001.png": bytes(2**26)})
    content = path.read_bytes()
    # The size stands in the member's own header and in the list at the end.
    path.write_bytes(content.replace(struct.pack("<I", 2**26), struct.pack("<I", 100)))
    tracemalloc.start()
    try:
        assert refusal(path).startswith(f"{path}: damaged or cut short (Bad CRC-32")
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


def test_folders_that_cannot_be_read_or_lead_in_circles(tmp_path, monkeypatch):
    """As root every folder can be read, so the refusal is made up."""
    write_folder(tmp_path / "disk", FILES)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "train").symlink_to(tmp_path / "disk" / "train")
    assert read(tmp_path / "here").keys() == {name for name in FILES if name.startswith("train")}
    (tmp_path / "disk" / "train" / "round").symlink_to(tmp_path / "disk")
    assert "train/round: is a link to a folder above it" in refusal(tmp_path / "here")
    scandir = os.scandir

    def refuse(folder: Any) -> Any:
        if str(folder).endswith("frog"):
            raise PermissionError(13, "Permission denied", str(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refuse)
    path = write_folder(tmp_path / "x", FILES)
    assert refusal(path).endswith("frog: cannot be read (Permission denied)")


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz", "w:bz2"])
def test_cut_and_damaged_tars_are_found(mode, tmp_path):
    path = write_tar(tmp_path / "a.tar", FILES, mode)
    whole = path.read_bytes()
    for part in (0.03, 0.3, 0.6, 0.8):
        path.write_bytes(whole[: int(len(whole) * part)])
        assert refusal(path).startswith(f"{path}: ")
    # A plain tar has checksums of its headers alone, the first 16 bytes of gzip mean nothing.
    places = RANDOM.integers(16, len(whole), 10) if mode != "w" else [3584 * 7 + 20, 3584 * 19]
    for place in places:
        changed = bytearray(whole)
        changed[place] ^= 1 << int(place) % 8
        path.write_bytes(changed)
        assert refusal(path).startswith(f"{path}: ")
