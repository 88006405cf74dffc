"""Examples to evaluate whose content is in the training split too.

Contents are compared by hashes of 128 bits when data are prepared, and those of arrays, up to a
bound, before a run's clock starts.
"""

import collections
import hashlib
from collections.abc import Iterable, Iterator

import numpy as np

from dawnjax.input_pipeline.reading.dataset import Overlap


def shared(train: Iterable[bytes], evaluated: Iterable[bytes], unit: str) -> Overlap:
    """Compare the contents of all examples; those to evaluate are hashed first and kept."""
    wanted = collections.Counter(map(_digest, evaluated))
    found = {digest for content in train if (digest := _digest(content)) in wanted}
    return Overlap(
        shared=sum(wanted[digest] for digest in found), compared=wanted.total(), unit=unit
    )


def rows(*arrays: np.ndarray) -> Iterator[bytes]:
    """Bytes of each example in arrays [n, ...], which may be mapped and larger than memory."""
    for start in range(0, len(arrays[0]), 1024):
        parts = [np.ascontiguousarray(array[start : start + 1024]) for array in arrays]
        for example in zip(*parts, strict=True):
            yield b"".join(part.tobytes() for part in example)


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()
