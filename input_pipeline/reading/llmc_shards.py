"""Shards of tokens in the form of llm.c and modded-nanogpt.

256 little-endian int32 (20240520, version 1, the number of tokens, zeros), and the tokens as
uint16; a shard of a large vocabulary begins with 20240801 and version 7, and has uint32 tokens.

Source: karpathy/llm.c, `dev/data/data_common.py`.
"""

import pathlib
import re
from collections.abc import Iterator

import numpy as np

from dawnjax import records
from dawnjax.input_pipeline.reading import text_files
from dawnjax.input_pipeline.reading.dataset import DataError, MissingDataError, Split
from dawnjax.input_pipeline.reading.image_set import SPLITS

MAGIC, VERSION = 20240520, 1
WIDE_MAGIC, WIDE_VERSION = 20240801, 7
HEADER_BYTES = 256 * 4

_NAMES: dict[Split, re.Pattern[str]] = {
    "train": re.compile(r"(?<![a-z])train(?:ing)?(?![a-z])", re.IGNORECASE),
    "eval": re.compile(r"(?<![a-z])val(?:id|idation)?(?![a-z])", re.IGNORECASE),
}
"""Whole words alone: `retrieval_train_000001.bin` is not a file to evaluate."""


def shards_in(folder: pathlib.Path) -> dict[Split, list[np.ndarray]]:
    """Tokens of a folder's shards, mapped; those of a split, sorted by name, are one stream."""
    found: dict[Split, list[np.ndarray]] = {"train": [], "eval": []}
    for path in sorted(folder.glob("*.bin")):
        splits: list[Split] = [split for split, name in _NAMES.items() if name.search(path.name)]
        if len(splits) != 1:
            raise DataError(
                f"{path}: its name needs either train or val, to tell its split; rename it"
            )
        found[splits[0]].append(_shard(path))
    for split in SPLITS:
        name = "train" if split == "train" else "val"
        if not found[split]:
            raise MissingDataError(f"{folder}: no file *{name}*.bin is there")
        kinds = {shard.dtype.str for shard in found[split]}
        if len(kinds) > 1:
            raise DataError(
                f"{folder}: *{name}*.bin have tokens of two sizes; convert them to one size"
            )
    return found


def _shard(path: pathlib.Path) -> np.ndarray:
    with text_files.named_errors(path), records.open_plain(path) as file:
        start = file.read(HEADER_BYTES)
        magic, version, count, *_ = np.frombuffer(start.ljust(HEADER_BYTES, b"\0"), "<i4").tolist()
        size, known = file.seek(0, 2), {MAGIC: (VERSION, "<u2"), WIDE_MAGIC: (WIDE_VERSION, "<u4")}
        if magic not in known or version != known[magic][0]:
            raise DataError(
                f"{path}: begins with {magic} and version {version}; a shard of tokens has "
                f"{MAGIC} and {VERSION}, or {WIDE_MAGIC} and {WIDE_VERSION}"
            )
        dtype = np.dtype(known[magic][1])
        wanted = HEADER_BYTES + dtype.itemsize * count
        if size != wanted or count < 1:
            raise DataError(
                f"{path}: its header has {count} tokens, so it should end at byte {wanted}; it "
                f"ends at {size}"
            )
        return np.memmap(file, dtype, "r", HEADER_BYTES, (count,))


def blocks(shards: list[np.ndarray], at_once: int) -> Iterator[np.ndarray]:
    """Yield the tokens of shards, `at_once` at most."""
    for shard in shards:
        for start in range(0, len(shard), at_once):
            yield shard[start : start + at_once]
