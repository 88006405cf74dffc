"""Small prepared streams of tokens, and shards of tokens in llm.c's form to prepare."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dawnjax.input_pipeline.datasets import token_shards
from dawnjax.input_pipeline.reading.dataset import Split
from dawnjax.input_pipeline.reading.token_sources import Part


def write(
    directory: Path,
    train: Sequence[int] | np.ndarray,
    val: Sequence[int] | np.ndarray,
    *,
    mask: Sequence[bool] | None = None,
    vocabulary: bytes = b"",
) -> None:
    """Write streams in the place of those that are there."""
    parts: dict[Split, Part] = {
        "train": Part([np.asarray(train, np.int64)]),
        "eval": Part([np.asarray(val, np.int64)]),
    }
    if mask is not None:
        parts["eval"].masks = [np.array(mask, bool)]
    files = {"vocabulary.json": vocabulary} if vocabulary else {}
    token_shards.made(directory, parts, files).write(overwrite=True)


def shard(tokens: Sequence[int] | np.ndarray) -> bytes:
    """Content of a shard; wide if its tokens need it."""
    numbers, header = np.asarray(tokens), np.zeros(256, "<i4")
    is_wide = numbers.max(initial=0) >= 2**16
    header[:3] = *((20240801, 7) if is_wide else (20240520, 1)), len(numbers)
    return header.tobytes() + numbers.astype("<u4" if is_wide else "<u2").tobytes()
