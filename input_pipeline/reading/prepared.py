"""The prepared form of a labelled image dataset: plain arrays on disk, and their description.

A prepared directory holds

    train_images.npy   uint8 [num_train_examples, height, width, channels]
    train_labels.npy   int32 [num_train_examples]
    eval_images.npy    uint8 [num_eval_examples, height, width, channels]
    eval_labels.npy    int32 [num_eval_examples]
    dataset.json       counts, shapes, classes, source, size and checksums of each file

`dataset.json` is written last and appears whole or not at all, so a directory without it is
half-converted, whatever else it holds. Nothing in it is ever unpickled.
"""

import concurrent.futures
import contextlib
import dataclasses
import fcntl
import hashlib
import io
import json
import math
import os
import pathlib
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import numpy as np

from dawnjax import records
from dawnjax.input_pipeline.reading.dataset import DataError, MissingDataError, Split
from dawnjax.input_pipeline.reading.published import ImageFacts

SCHEMA_VERSION = 1

DESCRIPTION_FILE = "dataset.json"
DESCRIPTION_BYTES = 16 * 2**20
"""What it may have; that of ImageNet has 0.5 MB, for 33,000 checksums."""

UNFINISHED_FILE = "prepare_unfinished"
"""Stands beside the arrays while they are written; locked by the process that writes them."""

BLOCK_BYTES = 8 * 2**20
"""A file has one checksum for each block of this size, so that damage is located."""

_SPLITS: tuple[Split, ...] = ("train", "eval")
FILES = tuple(f"{split}_{part}.npy" for split in _SPLITS for part in ("images", "labels"))
_AGAIN = "run `dawnjax prepare` again"

OTHER_DIRECTORY = "choose another directory"
"""The way out where a description is whole, but of another kind of data."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileRecord:
    """What one array file must be.

    Attributes:
      dtype: NumPy's name of the dtype.
      shape: Shape of the array.
      num_bytes: Size of the whole file, header included.
      crc32: Of each block of `BLOCK_BYTES`, 8 hex digits each.
    """

    dtype: str
    shape: tuple[int, ...]
    num_bytes: int
    crc32: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Description:
    """The content of `dataset.json`.

    Attributes:
      dataset: Name of the dataset, such as "cifar10".
      classes: Name of each class; a label is a position in it.
      train_mean: Per channel, of pixel / 255 over the train split.
      train_std: Per channel, of pixel / 255 over the train split.
      source: What it was made from; names no path of this machine.
      files: The four array files by name.
      eval_mean: Per channel, of pixel / 255 over the eval split; empty in a directory that an
        earlier version wrote, as are the next two.
      eval_std: Per channel, of pixel / 255 over the eval split.
      class_counts: Images of each class, by split.
    """

    dataset: str
    classes: tuple[str, ...]
    train_mean: tuple[float, ...]
    train_std: tuple[float, ...]
    source: dict[str, str]
    files: dict[str, FileRecord]
    eval_mean: tuple[float, ...] = ()
    eval_std: tuple[float, ...] = ()
    class_counts: dict[Split, tuple[int, ...]] = dataclasses.field(default_factory=dict)

    @property
    def facts(self) -> ImageFacts:
        """What is compared with a published set."""
        return ImageFacts(
            num_examples={split: self.num_examples(split) for split in _SPLITS},
            classes=self.classes,
            class_counts=self.class_counts,
            statistics={
                "train": (self.train_mean, self.train_std),
                "eval": (self.eval_mean, self.eval_std),
            },
        )

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(height, width, channels)."""
        height, width, channels = self.files["train_images.npy"].shape[1:]
        return height, width, channels

    def num_examples(self, split: Split) -> int:
        """Number of examples of a split."""
        return self.files[f"{split}_labels.npy"].shape[0]

    @property
    def fingerprint(self) -> str:
        """Hash of classes and arrays, 16 hex digits; the same wherever they were made from."""
        content = [self.classes, {name: file.crc32 for name, file in sorted(self.files.items())}]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def directory_of(dataset: str, data_dir: str = "") -> pathlib.Path:
    """Where a dataset lies: `data_dir`, or else `dataset` in $DAWNJAX_DATA or in `./data`."""
    if data_dir:
        return pathlib.Path(data_dir).expanduser()
    return pathlib.Path(os.environ.get("DAWNJAX_DATA") or "data") / dataset


def is_prepared(directory: pathlib.Path) -> bool:
    """Says whether this is a directory that `write` began, finished or not."""
    return any((directory / name).exists() for name in (DESCRIPTION_FILE, UNFINISHED_FILE, *FILES))


def read_description(directory: pathlib.Path) -> Description:
    """Reads the description of a prepared directory; the arrays are there, with the right shapes.

    It reads `dataset.json`, and of the arrays only sizes and headers: less than a millisecond.

    Raises:
      DataError: Missing, half-converted or damaged; one line that names the file.
    """
    path = directory / DESCRIPTION_FILE
    try:
        text = records.read_plain(path, DESCRIPTION_BYTES)
    except FileNotFoundError:
        if is_prepared(directory):
            raise DataError(
                f"{directory}: half-converted ({DESCRIPTION_FILE} is missing); {_AGAIN}"
            ) from None
        raise MissingDataError(f"{directory}: no prepared dataset there") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    except records.BoundError as error:
        raise DataError(f"{path}: {error}; {_AGAIN}") from None
    description = _parse(path, text)
    for name, file in description.files.items():
        _check_form(directory / name, file)
    return description


LARGEST_VERIFIED_BYTES = 2**31
"""What a run takes as `most_bytes` of `read_split`: 2 GiB."""


def read_split(
    directory: pathlib.Path,
    description: Description,
    split: Split,
    *,
    most_bytes: int | None = None,
) -> dict[str, np.ndarray]:
    """Maps the examples of a split into memory, read only, and verifies them.

    Every byte is read and compared with its checksum (about 0.07 s for 180 MB on two cores).

    Args:
      directory: The prepared directory.
      description: What `read_description` returned for it.
      split: Which split.
      most_bytes: Images in a larger file stay unread; `read_description` has compared its size and
        header. None reads all.

    Returns:
      `image` uint8 [num_examples, height, width, channels] and `label` int32 [num_examples].

    Raises:
      DataError: A file that is missing, truncated, changed, or holds a label out of range.
    """
    name = f"{split}_images.npy"
    is_read = most_bytes is None or description.files[name].num_bytes <= most_bytes
    images = (_verified if is_read else _mapped)(directory, description, name)
    labels = _verified(directory, description, f"{split}_labels.npy")
    check_labels(f"{directory / f'{split}_labels.npy'}:", labels, len(description.classes))
    return {"image": images, "label": labels}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Examples:
    """Both splits of a labelled image dataset in memory.

    Attributes:
      classes: Name of each class; a label is a position in it.
      images: Per split, uint8 [num_examples, height, width, channels].
      labels: Per split, int [num_examples].
      source: What they were made from; names no path of this machine.
    """

    classes: tuple[str, ...]
    images: dict[Split, np.ndarray]
    labels: dict[Split, np.ndarray]
    source: dict[str, str]


Outcome = Literal["written", "unchanged"]


def write(
    directory: pathlib.Path,
    read_examples: Callable[[], Examples],
    *,
    dataset: str,
    overwrite: bool = False,
) -> tuple[Description, Outcome]:
    """Writes the prepared form of a dataset, or finds that it is there already.

    Killed at any moment, it leaves a directory that the reader calls half-converted and that a
    second call completes; a dataset that was there before stays until the new one is read whole.
    Files that are not the prepared form's own are never touched.

    Args:
      directory: Where to; made where it does not exist.
      read_examples: Returns both splits; called once the directory can surely be used.
      dataset: Name of the dataset.
      overwrite: Replace another content, or write beside other files.

    Returns:
      The description, and "unchanged" where the directory held the same content, intact.

    Raises:
      DataError: `read_examples` raised it, the directory holds something else, another process
        writes to it, or it cannot be written.
    """
    refuse_other_files(directory, overwrite)
    with only_writer(directory):
        examples = read_examples()
        arrays = _arrays(examples)
        description = describe(dataset, examples.classes, arrays, examples.source)
        same = (description.dataset, description.fingerprint)
        there = held(directory, lambda it: (it.dataset, it.fingerprint) == same, overwrite)
        if there is not None:
            return with_facts(directory, there), "unchanged"
        # From here to the end no description exists, so a reader cannot mistake the files.
        with named_write_errors(directory / DESCRIPTION_FILE):
            (directory / DESCRIPTION_FILE).unlink(missing_ok=True)
        for name, array in arrays.items():
            _write_synced(directory / name, _blocks(array))
        write_description(directory, description)
    return description, "written"


def describe(
    dataset: str, classes: tuple[str, ...], arrays: dict[str, np.ndarray], source: dict[str, str]
) -> Description:
    """The description of the four arrays, by name, as they are stored."""
    mean, std = channel_statistics(arrays["train_images.npy"])
    eval_mean, eval_std = channel_statistics(arrays["eval_images.npy"])
    files = {}
    for name, array in arrays.items():
        blocks = list(_blocks(array))
        files[name] = FileRecord(
            dtype=array.dtype.name,
            shape=array.shape,
            num_bytes=sum(len(block) for block in blocks),
            crc32=tuple(f"{zlib.crc32(block):08x}" for block in blocks),
        )
    return Description(
        dataset=dataset,
        classes=classes,
        train_mean=mean,
        train_std=std,
        source=source,
        files=files,
        eval_mean=eval_mean,
        eval_std=eval_std,
        class_counts={
            split: class_counts(arrays[f"{split}_labels.npy"], len(classes)) for split in _SPLITS
        },
    )


def with_facts(directory: pathlib.Path, description: Description) -> Description:
    """Completes a description that an earlier version wrote, on disk too."""
    if description.class_counts:
        return description
    arrays = {split: read_split(directory, description, split) for split in _SPLITS}
    mean, std = channel_statistics(arrays["eval"]["image"])
    whole = dataclasses.replace(
        description,
        eval_mean=mean,
        eval_std=std,
        class_counts={
            split: class_counts(arrays[split]["label"], len(description.classes))
            for split in _SPLITS
        },
    )
    write_description(directory, whole)
    return whole


def class_counts(labels: np.ndarray, num_classes: int) -> tuple[int, ...]:
    """Number of images of each class, of labels that were checked."""
    return tuple(np.bincount(labels, minlength=num_classes).tolist())


def write_description(directory: pathlib.Path, description: Description) -> None:
    """Writes `dataset.json`, whole or not at all; the arrays must be on disk before."""
    partial = directory / f"{DESCRIPTION_FILE}.partial"
    _write_synced(partial, [_format(description)])
    with named_write_errors(directory / DESCRIPTION_FILE):
        os.replace(partial, directory / DESCRIPTION_FILE)
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def refuse_other_files(directory: pathlib.Path, overwrite: bool) -> None:
    if not directory.exists():
        return
    if not directory.is_dir():
        raise DataError(f"{directory}: is not a directory")
    if overwrite or is_prepared(directory):
        return
    for file in directory.iterdir():
        raise DataError(
            f"{directory}: holds other files ({file.name}); choose another directory, or give "
            "--overwrite to write beside them"
        )


@contextlib.contextmanager
def only_writer(directory: pathlib.Path) -> Iterator[None]:
    """Marks the directory as unfinished until the body is done, and keeps other writers out.

    The mark stays if the process is killed or interrupted, or if files could not be written; it
    goes if the body fails before it wrote anything, and so do the directories made for it.
    """
    path = directory / UNFINISHED_FILE
    made = [folder for folder in (directory, *directory.parents) if not folder.exists()]
    was_unfinished = is_prepared(directory)
    with contextlib.ExitStack() as stack:
        with named_write_errors(directory):
            directory.mkdir(parents=True, exist_ok=True)
            marker = stack.enter_context(path.open("ab"))
        try:
            # The lock dies with its process, so a killed one does not block the next.
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(f"{directory}: another process is writing to it") from None
        try:
            yield
        except Exception:
            whole = (directory / DESCRIPTION_FILE).exists()
            begun = any((directory / name).exists() for name in FILES)
            if whole or not (was_unfinished or begun):
                path.unlink(missing_ok=True)
            if not begun:
                with contextlib.suppress(OSError):  # others may have put something there
                    for folder in made:
                        folder.rmdir()
            raise
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def named_write_errors(path: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror})") from None


def _arrays(examples: Examples) -> dict[str, np.ndarray]:
    """The arrays of each file as they are stored, checked."""
    arrays = {}
    for split in _SPLITS:
        images, labels = examples.images[split], examples.labels[split]
        if images.ndim != 4 or images.dtype != np.uint8 or labels.shape != images.shape[:1]:
            raise DataError(
                f"{split}: images {images.dtype} {images.shape} with labels {labels.shape}; "
                "wanted uint8 [n, height, width, channels] and [n]"
            )
        if not len(images):
            raise DataError(f"{split}: no images")
        check_labels(f"{split} labels:", labels, len(examples.classes))
        arrays[f"{split}_images.npy"] = np.ascontiguousarray(images)
        arrays[f"{split}_labels.npy"] = labels.astype("<i4")
    return arrays


def check_labels(where: str, labels: np.ndarray, num_classes: int) -> None:
    """Refuses labels outside 0 to num_classes - 1 by a DataError that begins with `where`."""
    wrong = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if wrong.size:
        raise DataError(
            f"{where} label {labels[wrong[0]]} of example {wrong[0]} is out of range "
            f"0 to {num_classes - 1}"
        )


def held(
    directory: pathlib.Path, is_same: Callable[[Description], bool], overwrite: bool
) -> Description | None:
    """Reads what a directory to be written to holds already, every byte checked.

    Args:
      directory: The directory.
      is_same: Says whether a description is of the content to be written.
      overwrite: Whether other content may be replaced.

    Returns:
      The description of the same content; None where it is to be written.

    Raises:
      DataError: The directory holds other or damaged content that must stay.
    """
    if not (directory / DESCRIPTION_FILE).exists():
        return None
    try:
        description = read_description(directory)
        for split in _SPLITS:
            read_split(directory, description, split)
    except DataError as error:
        if overwrite:
            return None
        raise DataError(with_overwrite(error)) from None
    if is_same(description):
        return description
    if overwrite:
        return None
    counts = " + ".join(f"{description.num_examples(split):,}" for split in _SPLITS)
    raise DataError(
        f"{directory}: holds other content ({description.dataset}, {counts} examples, from "
        f"{description.source.get('kind', 'an unknown source')}); give --overwrite to replace it"
    )


def with_overwrite(error: DataError) -> str:
    """The error of a directory to be written to, with the way to replace what it holds."""
    text = str(error)
    if text.endswith(OTHER_DIRECTORY):
        return f"{text}, or give --overwrite to replace it"
    return f"{text}, with --overwrite"


def _blocks(array: np.ndarray) -> Iterator[bytes | memoryview]:
    """The .npy file of a C-ordered array, in blocks of `BLOCK_BYTES` but the last."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(array))
    data = memoryview(array.reshape(-1).view(np.uint8).data)
    first = BLOCK_BYTES - len(header.getvalue())
    yield header.getvalue() + bytes(data[:first])
    for start in range(first, len(data), BLOCK_BYTES):
        yield data[start : start + BLOCK_BYTES]


def _write_synced(path: pathlib.Path, blocks: Iterable[bytes | memoryview]) -> None:
    with named_write_errors(path), path.open("wb") as file:
        for block in blocks:
            file.write(block)
        file.flush()
        os.fsync(file.fileno())


def channel_statistics(images: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of pixel / 255 per channel, from exact counts of levels.

    A channel of one level has no deviation to divide by; it is taken as 1.
    """
    channels = images.shape[-1]
    counts = np.zeros((channels, 256), np.int64)
    for start in range(0, len(images), 1024):
        chunk = images[start : start + 1024].reshape(-1, channels)
        for channel in range(channels):
            counts[channel] += np.bincount(chunk[:, channel], minlength=256)
    levels = np.arange(256) / 255
    mean = counts @ levels / counts.sum(axis=1)
    variance = counts @ levels**2 / counts.sum(axis=1) - mean**2
    std = [round(math.sqrt(max(0.0, value)), 6) or 1.0 for value in variance]
    return tuple(round(float(value), 6) for value in mean), tuple(std)


def _format(description: Description) -> bytes:
    """The text of `dataset.json`, which carries a checksum of itself."""
    body = {
        "schema_version": SCHEMA_VERSION,
        **dataclasses.asdict(description),
        "num_train_examples": description.num_examples("train"),
        "num_eval_examples": description.num_examples("eval"),
        "image_shape": description.image_shape,
    }
    body["crc32"] = _body_crc32(body)
    return (json.dumps(body, indent=1) + "\n").encode()


def _body_crc32(body: dict[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(body, sort_keys=True).encode()):08x}"


def _parse(path: pathlib.Path, text: bytes) -> Description:
    try:
        body = records.load_json(text)
        if "crc32" not in body and "sha256" in body:  # the checksum of parallel text
            raise DataError(
                f"{path}: describes {body.get('dataset')}, no images; {OTHER_DIRECTORY}"
            )
        crc32, version = body.pop("crc32"), body["schema_version"]
        intact = crc32 == _body_crc32(body)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DataError(f"{path}: damaged (no complete description); {_AGAIN}") from None
    if version != SCHEMA_VERSION:
        raise DataError(
            f"{path}: has schema version {version!r}, but this program reads {SCHEMA_VERSION}; "
            f"{_AGAIN}"
        )
    if not intact:
        raise DataError(f"{path}: damaged (its checksum does not fit); {_AGAIN}")
    return Description(
        dataset=body["dataset"],
        classes=tuple(body["classes"]),
        train_mean=tuple(body["train_mean"]),
        train_std=tuple(body["train_std"]),
        source=body["source"],
        files={
            name: FileRecord(
                dtype=file["dtype"],
                shape=tuple(file["shape"]),
                num_bytes=file["num_bytes"],
                crc32=tuple(file["crc32"]),
            )
            for name, file in body["files"].items()
        },
        eval_mean=tuple(body.get("eval_mean", ())),
        eval_std=tuple(body.get("eval_std", ())),
        class_counts={
            split: tuple(counts) for split, counts in body.get("class_counts", {}).items()
        },
    )


def _check_form(path: pathlib.Path, file: FileRecord) -> None:
    try:
        if path.exists() and not path.is_file():
            raise DataError(f"{path}: is no plain file; {_AGAIN}")
        num_bytes = path.stat().st_size
    except FileNotFoundError:
        raise DataError(f"{path}: missing; {_AGAIN}") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    form = _form_in_header(path)
    if form is not None and form != (file.dtype, file.shape):
        raise DataError(
            f"{path}: holds {form[0]} {form[1]}, but should hold {file.dtype} {file.shape}; "
            f"{_AGAIN}"
        )
    if num_bytes == file.num_bytes:
        return
    change = "truncated" if num_bytes < file.num_bytes else "too long"
    raise DataError(f"{path}: {change} ({num_bytes:,} of {file.num_bytes:,} bytes); {_AGAIN}")


def _form_in_header(path: pathlib.Path) -> tuple[str, tuple[int, ...]] | None:
    """Dtype and shape as a file's header has them, or None where it has no header."""
    try:
        with path.open("rb") as file, warnings.catch_warnings(action="ignore"):
            np.lib.format.read_magic(file)
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            return dtype.name, shape
    except Exception:
        # A damaged header is parsed as Python and fails in many ways; the checksum will tell.
        return None


def _mapped(directory: pathlib.Path, description: Description, name: str) -> np.ndarray:
    """An array file in memory, unread; it has the right size and header."""
    path = directory / name
    _check_form(path, description.files[name])
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from None


def _verified(directory: pathlib.Path, description: Description, name: str) -> np.ndarray:
    """An array file in memory, all of it compared with its checksums."""
    path, file = directory / name, description.files[name]
    _check_form(path, file)
    try:
        content = np.memmap(path, np.uint8, "r")
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from None
    starts = range(0, file.num_bytes, BLOCK_BYTES)
    # zlib lets other threads run, and one thread's checksums are slower than the memory.
    with concurrent.futures.ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:
        checksums = threads.map(
            lambda start: f"{zlib.crc32(content[start : start + BLOCK_BYTES].data):08x}", starts
        )
        for start, crc32, expected in zip(starts, checksums, file.crc32, strict=True):
            if crc32 != expected:
                end = min(start + BLOCK_BYTES, file.num_bytes)
                raise DataError(
                    f"{path}: damaged between bytes {start:,} and {end:,} (checksum {crc32}, "
                    f"should be {expected}); {_AGAIN}"
                )
    return _mapped(directory, description, name)
