"""Masks as run lengths, in the text that COCO packs them into.

A mask is read column by column; the counts of its pixels that are 0, 1, 0, ... in turn are written
five bits a character, the lowest first, each but the first two as its difference to the last but
one.

Source: `rleToString` and `rleFrString` in `common/maskApi.c` of github.com/cocodataset/cocoapi.
"""

import numpy as np

MOST_RUNS = 1_000_000
"""Of a mask; a checkerboard of a thousand pixels a side has as many."""

LARGEST = 2**40
"""Of a run; the sum of `MOST_RUNS` of them fits into 64 bits."""


def counts_of(packed: bytes) -> np.ndarray:
    """Counts int64 [runs] of a packed mask; a ValueError says what is wrong with it."""
    counts: list[int] = []
    place, end = 0, len(packed)
    while place < end:
        value = shift = 0
        while True:
            if place == end:
                raise ValueError("the run lengths are cut short")
            character = packed[place] - 48
            if not 0 <= character < 64 or shift > 50:
                raise ValueError(f"byte {place} of the run lengths is none")
            value |= (character & 0x1F) << shift
            place, shift = place + 1, shift + 5
            if not character & 0x20:
                if character & 0x10:
                    value -= 1 << shift
                break
        if len(counts) > 2:
            value += counts[-2]
        if not 0 <= value <= LARGEST:
            raise ValueError("a run length is negative or too large")
        counts.append(value)
        if len(counts) > MOST_RUNS:
            raise ValueError(f"there are more than {MOST_RUNS:,} run lengths")
    return np.array(counts, np.int64)


def packed_counts(counts: np.ndarray) -> bytes:
    values = np.asarray(counts, np.int64).tolist()
    characters = bytearray()
    for place, value in enumerate(values):
        if place > 2:
            value -= values[place - 2]
        while True:
            character, value = value & 0x1F, value >> 5
            is_last = value == (-1 if character & 0x10 else 0)
            characters.append((character if is_last else character | 0x20) + 48)
            if is_last:
                break
    return bytes(characters)


def pack(mask: np.ndarray) -> bytes:
    """Text of a mask, bool [height, width]."""
    return pack_at(mask, 0, 0, *mask.shape)


def pack_at(part: np.ndarray, left: int, top: int, height: int, width: int) -> bytes:
    """Text of a mask of `height` by `width` pixels that is False outside of a part.

    `part` is bool [rows, columns] and lies inside of it, with its first pixel at `left`, `top`.
    """
    columns, rows = np.nonzero(np.asarray(part, bool).T)
    places = (left + columns.astype(np.int64)) * height + top + rows
    is_first = np.diff(places, prepend=-2) != 1
    starts, ends = places[is_first], places[np.roll(is_first, -1)] + 1
    changes = np.stack([starts, ends], axis=1).reshape(-1)
    # A run up to the last pixel ends there, and no empty one follows it.
    changes = changes[changes < height * width]
    return packed_counts(np.diff(np.concatenate([[0], changes, [height * width]])))


def unpack(packed: bytes, height: int, width: int) -> np.ndarray:
    """Mask bool [height, width]; a ValueError where the counts do not sum to its pixels."""
    counts = counts_of(packed)
    check_sum(counts, height, width)
    values = np.arange(len(counts)) % 2 == 1
    return np.repeat(values, counts).reshape(width, height).T


def check_sum(counts: np.ndarray, height: int, width: int) -> None:
    if counts.sum() != height * width:
        raise ValueError(
            f"the run lengths sum to {counts.sum():,}, and {width}x{height} pixels are "
            f"{height * width:,}"
        )
