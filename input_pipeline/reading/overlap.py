"""Examples to evaluate whose content is in the training split too.

Contents are compared by hashes of 128 bits when data are prepared or, up to a bound, before a run's
clock starts.
"""

import collections
import hashlib
from collections.abc import Callable, Iterable, Iterator

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


def shared_files(
    sizes: tuple[np.ndarray, np.ndarray],
    readers: tuple[Callable[[int], bytes], Callable[[int], bytes]],
    unit: str,
    most_bytes: int = 2**28,
) -> Overlap | None:
    """Compare files of equal size, of the training split and of that to evaluate.

    None where they have more than `most_bytes` in all.
    """
    common = np.intersect1d(*sizes)
    of_common = [np.flatnonzero(np.isin(side, common)) for side in sizes]
    if sum(int(side[rows].sum()) for side, rows in zip(sizes, of_common, strict=True)) > most_bytes:
        return None
    contents = [map(read, rows.tolist()) for read, rows in zip(readers, of_common, strict=True)]
    found = shared(contents[0], contents[1], unit)
    return Overlap(shared=found.shared, compared=len(sizes[1]), unit=unit)


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()
