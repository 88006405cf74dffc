"""Examples to evaluate whose content is in the training split too.

Contents are compared by hashes of 128 bits, or of 64 for passages of tokens, when data are prepared
or, up to a bound, before a run's clock starts.
"""

import collections
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from dawnjax.input_pipeline.reading.dataset import Overlap

PASSAGE_TOKENS = 128
"""About 20 words by the byte: shorter ones occur in unrelated texts."""

_SAMPLED = 16
"""One passage of so many is compared, chosen by its content, so that both splits choose alike."""

_BLOCK_TOKENS = 2**17
_FACTOR = 0x9E3779B97F4A7C15
_INVERSE = pow(_FACTOR, -1, 2**64)
_ONE_OF_SAMPLED = np.uint64(64 - (_SAMPLED - 1).bit_length())


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


def shared_passages(train: Sequence[np.ndarray], evaluated: Sequence[np.ndarray]) -> Overlap | None:
    """Compare passages of streams of tokens, uint16 or uint32 [tokens] each, wherever they begin.

    None where no passage to evaluate is among those that are compared.
    """
    wanted = np.unique(np.concatenate([np.zeros(0, np.uint64), *_passages(evaluated)]))
    if not wanted.size:
        return None
    found = np.zeros(len(wanted), bool)
    for digests in _passages(train):
        places = np.minimum(np.searchsorted(wanted, digests), len(wanted) - 1)
        found[places[wanted[places] == digests]] = True
    unit = f"sampled passages of {PASSAGE_TOKENS} tokens"
    return Overlap(shared=int(found.sum()), compared=len(wanted), unit=unit)


def _passages(streams: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
    """Hashes of the chosen passages, block by block."""
    count = _BLOCK_TOKENS + PASSAGE_TOKENS
    with np.errstate(over="ignore"):
        powers = np.multiply.accumulate(np.full(count, _FACTOR, np.uint64))
        inverses = np.multiply.accumulate(np.full(count, _INVERSE, np.uint64))
    for stream in streams:
        for start in range(0, max(0, len(stream) - PASSAGE_TOKENS + 1), _BLOCK_TOKENS):
            tokens = _numbers(stream[start : start + count - 1])
            sums = np.concatenate([[np.uint64(0)], np.cumsum(tokens * powers[: len(tokens)])])
            windows = sums[PASSAGE_TOKENS:] - sums[:-PASSAGE_TOKENS]
            # Divided by the power of its place, a passage has one hash wherever it begins.
            hashes = windows * inverses[: len(windows)] * np.uint64(_FACTOR)
            hashes ^= hashes >> np.uint64(29)
            hashes *= np.uint64(_FACTOR)
            yield hashes[hashes >> _ONE_OF_SAMPLED == 0]


def _numbers(tokens: np.ndarray) -> np.ndarray:
    """Unrelated numbers for the tokens, uint64: sums of small ones would often be equal.

    Source: `mix64` of SplitMix64 (Steele et al. 2014), which gives no two tokens one number.
    """
    mixed = (tokens.astype(np.uint64) + np.uint64(1)) * np.uint64(_FACTOR)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()
