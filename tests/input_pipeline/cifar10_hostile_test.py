"""CIFAR-10 from sources that are hostile or damaged: archives, links, bombs and pickles."""

import gzip
import io
import os
import pathlib
import pickle
import struct
import tarfile
import tracemalloc
import zipfile
from typing import Any

import numpy as np
import pytest
from cifar10_files import (
    TRAIN,
    binary_files,
    image_tree,
    planes,
    python_2_pickle,
    refusal,
    write_folder,
    write_tar,
    write_zip,
)

from dawnjax.input_pipeline.preparation import archives, pickled_batches
from dawnjax.input_pipeline.preparation.cifar10_sources import read_source
from dawnjax.input_pipeline.reading.dataset import DataError


@pytest.mark.parametrize(
    "name", ["../evil.png", "/etc/evil.png", "train/../../evil", "C:/evil", "train\\..\\evil"]
)
def test_names_that_lead_out_are_refused(tmp_path: pathlib.Path, name: str) -> None:
    files = image_tree() | {name: b"x"}
    for path in (write_tar(tmp_path / "a.tar", files, "w"), write_zip(tmp_path / "a.zip", files)):
        assert "leads out of the archive" in refusal(path)


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]
)
def test_links_and_devices_in_a_tar_are_refused(tmp_path: pathlib.Path, kind: bytes) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        info = tarfile.TarInfo("train/cat/0001.png")
        info.type, info.linkname = kind, "/etc/passwd"
        archive.addfile(info)
    assert "is a link, a device or a sparse file" in refusal(tmp_path / "a.tar")


def test_links_and_encrypted_files_in_a_zip_are_refused(tmp_path: pathlib.Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        info = zipfile.ZipInfo("train/cat/0001.png")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    assert "is a link" in refusal(tmp_path / "a.zip")
    content = bytearray(write_zip(tmp_path / "b.zip", {"data_batch_1": b"x"}).read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "b.zip").write_bytes(content)
    assert "is encrypted" in refusal(tmp_path / "b.zip")


def test_repeated_members_are_refused(tmp_path: pathlib.Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for _ in range(2):
            archive.addfile(tarfile.TarInfo("data_batch_1"))
    with pytest.raises(DataError, match="'data_batch_1' is in it twice"):
        list(archives.members(tmp_path / "a.tar"))


@pytest.mark.parametrize("container", ["tar.gz", "tar.xz", "zip"])
def test_bombs_are_stopped_early(tmp_path: pathlib.Path, container: str) -> None:
    """40 MB of zeros pack into some kB; far less than that is read before it ends."""
    files = {f"train/cat/{number}.png": bytes(2**20) for number in range(40)}
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


def test_a_bomb_between_the_members_is_stopped(tmp_path: pathlib.Path) -> None:
    """Padding after the last member is unpacked as well, and so are members not needed."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("data_batch_1"))
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(stream.getvalue() + bytes(2**23)))
    with pytest.raises(DataError, match="expands to more than a data set may"):
        list(archives.members(path, archives.Limits(total_bytes=2**22)))
    write_tar(path, {"README": bytes(2**23), "data_batch_1": b""})
    with pytest.raises(DataError, match="'README' expands to 8,388,608 bytes"):
        list(archives.members(path, archives.Limits(total_bytes=2**22)))


def test_a_zip_that_states_a_small_size_is_not_unpacked_further(tmp_path: pathlib.Path) -> None:
    path = write_zip(tmp_path / "a.zip", {"train/cat/0001.png": bytes(2**26)})
    content = path.read_bytes()
    # The size stands in the member's own header and in the list at the end.
    content = content.replace(struct.pack("<I", 2**26), struct.pack("<I", 100))
    path.write_bytes(content)
    tracemalloc.start()
    try:
        assert refusal(path).startswith(f"{path}: damaged or cut short (Bad CRC-32")
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


def test_folder_that_cannot_be_read(tmp_path: pathlib.Path, monkeypatch) -> None:
    """As root every folder can be read, so the refusal is made up."""
    write_folder(tmp_path, image_tree())
    scandir = os.scandir

    def refuse(folder: Any) -> Any:
        if str(folder).endswith("frog"):
            raise PermissionError(13, "Permission denied", str(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refuse)
    assert refusal(tmp_path).endswith("frog: cannot be read (Permission denied)")


def test_linked_folders_are_followed(tmp_path: pathlib.Path) -> None:
    write_folder(tmp_path / "disk", image_tree())
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "train").symlink_to(tmp_path / "disk" / "train")
    (tmp_path / "here" / "test").symlink_to(tmp_path / "disk" / "test")
    assert read_source(tmp_path / "here").images["train"].shape == (20, 32, 32, 3)
    # One that leads in circles ends, too.
    (tmp_path / "disk" / "train" / "round").symlink_to(tmp_path / "disk")
    assert "train/round: is a link to a folder above it" in refusal(tmp_path / "here")


def test_sparse_files_are_refused(tmp_path: pathlib.Path) -> None:
    """512 bytes of a sparse file may stand for any number of zeros."""
    info = tarfile.TarInfo("data_batch_1")
    info.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[483:495] = b"77777777777\0"
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    (tmp_path / "a.tar").write_bytes(bytes(header) + bytes(10240 - 512))
    assert "sparse file" in refusal(tmp_path / "a.tar")


def test_pipe_in_a_folder_does_not_block(tmp_path: pathlib.Path) -> None:
    (tmp_path / "train" / "cat").mkdir(parents=True)
    os.mkfifo(tmp_path / "train" / "cat" / "0001.png")
    assert "0001.png: is no plain file" in refusal(tmp_path)


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz", "w:bz2"])
def test_cut_tars_are_found(tmp_path: pathlib.Path, mode: str) -> None:
    path = write_tar(tmp_path / "a.tar", image_tree(), mode)
    whole = path.read_bytes()
    for part in (0.03, 0.3, 0.6, 0.8):
        path.write_bytes(whole[: int(len(whole) * part)])
        assert refusal(path).startswith(f"{path}: ")


def test_tar_cut_between_members_is_found(tmp_path: pathlib.Path) -> None:
    """Each file is whole and each class is there: only the end mark is missing."""
    path = write_tar(tmp_path / "a.tar", image_tree(), "w")
    whole = path.read_bytes()
    end = len(whole.rstrip(b"\0")) + 511 & ~511
    path.write_bytes(whole[:end])
    assert refusal(path) == f"{path}: damaged or cut short (the end mark is missing)"


@pytest.mark.parametrize("mode", ["w:gz", "w:xz", "w:bz2"])
def test_flipped_bits_in_compressed_tars_are_found(tmp_path: pathlib.Path, mode: str) -> None:
    path = write_tar(tmp_path / "a.tar", binary_files(), mode)
    whole = path.read_bytes()
    # The first 16 bytes hold gzip's time stamp and name, which mean nothing.
    for position in np.random.default_rng(1).integers(16, len(whole), 40):
        changed = bytearray(whole)
        changed[position] ^= 1 << int(position) % 8
        path.write_bytes(changed)
        assert refusal(path).startswith(f"{path}: ")


def test_damaged_zips_are_found(tmp_path: pathlib.Path) -> None:
    path = write_zip(tmp_path / "a.zip", binary_files())
    whole = path.read_bytes()
    for changed in (whole[:-30], whole[: len(whole) // 2], whole[:5000] + b"?" + whole[5001:]):
        path.write_bytes(changed)
        assert refusal(path).startswith(f"{path}: damaged or cut short (")


def test_names_are_shown_on_one_line(tmp_path: pathlib.Path) -> None:
    path = write_zip(tmp_path / "a.zip", {"train/cat/a\n\x1b[31m.png": b"x"})
    assert "'train/cat/a\\n\\x1b[31m.png' is neither" in refusal(path)
    path = write_zip(tmp_path / "b.zip", {"train/cat/" + "a" * 5000 + ".png": b"x"})
    assert len(refusal(path)) < 400


class Calls:
    """Calls anything when it is unpickled by the ordinary unpickler."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_a_pickle_cannot_run_anything(tmp_path: pathlib.Path, protocol: int) -> None:
    sprung = tmp_path / "sprung"
    traps: tuple[Any, ...] = (
        Calls(os.mkdir, str(sprung)),
        Calls(os.system, f"mkdir {sprung}"),
        Calls(eval, f"__import__('os').mkdir({str(sprung)!r})"),
        Calls(getattr, str, "mro"),
    )
    for trap in traps:
        for content in (
            trap,
            {"data": trap, "labels": [1]},
            {"data": planes(TRAIN), "labels": [trap]},
        ):
            pickled = pickle.dumps(content, protocol)
            with pytest.raises(DataError, match="asks for '[a-z_.0-9]+', which no batch"):
                pickled_batches.read_pickled_batch(pickled)
    assert not sprung.exists()


def test_the_old_opcodes_cannot_run_anything_either(tmp_path: pathlib.Path) -> None:
    sprung = tmp_path / "sprung"
    command = f"S'mkdir {sprung}'\n".encode()
    for pickled in (
        b"(" + command + b"ios\nsystem\n.",  # INST
        b"(cos\nsystem\n" + command + b"o.",  # OBJ
        b"cos\nsystem\n(" + command + b"tR.",  # GLOBAL, REDUCE
        b"\x80\x02cos\nsystem\n(" + command + b"t\x81.",  # NEWOBJ
        b"\x80\x04\x8c\x02os\x8c\x06system\x93(" + command + b"tR.",  # STACK_GLOBAL
        b"\x82\x01.",  # EXT1
        b"Pperson\n.",  # PERSID
    ):
        with pytest.raises(DataError, match="is no pickled batch of images"):
            pickled_batches.read_pickled_batch(pickled)
    assert not sprung.exists()


def test_what_is_allowed_makes_no_array_by_itself() -> None:
    """NumPy is not called with what a pickle says: these would take 10**15 bytes or crash it."""
    shape = b"(L1000000000000000L\ntt"
    for pickled in (
        b"cnumpy\nndarray\n(" + shape + b"R.",
        b"cnumpy\ndtype\n(S'O'\ntR.",
        b"}S'data'\ncnumpy\nndarray\n(" + shape + b"RsS'labels'\n]s.",
    ):
        with pytest.raises(DataError):
            pickled_batches.read_pickled_batch(pickled)


def test_mutated_pickles_end_in_an_error_or_a_batch() -> None:
    whole = python_2_pickle(planes(TRAIN[:1]), [3])
    random = np.random.default_rng(2)
    # The structure is in the first and the last bytes; the rest is pixels.
    interesting = [*range(350), *range(len(whole) - 5, len(whole))]
    for _ in range(3000):
        changed = bytearray(whole)
        for position in random.choice(interesting, random.integers(1, 4)):
            changed[position] = random.integers(256)
        try:
            pixels, labels = pickled_batches.read_pickled_batch(bytes(changed))
        except DataError:
            continue
        assert pixels.dtype == np.uint8 and pixels.ndim == 2 and labels.ndim == 1
