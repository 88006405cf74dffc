"""Packing pairs of sentences into rows of one shape, so that one program serves all batches."""

import numpy as np

PLAIN_PAIRS_LEFT = 2.8
"""While a row has room for more pairs of mean length than this, the commonest lengths are taken;
then those that fill the row."""


def row_lengths(source_lengths: np.ndarray, target_lengths: np.ndarray, longer: int) -> tuple:
    """Source and target tokens of a row, in the proportion of all; `longer` is the greater."""
    ratio = int(source_lengths.sum()) / int(target_lengths.sum())
    if ratio <= 1:
        return max(1, round(longer * ratio)), longer
    return longer, max(1, round(longer / ratio))


def pack(
    source_lengths: np.ndarray, target_lengths: np.ndarray, source_room: int, target_room: int
) -> list[list[int]]:
    """Positions of the pairs of each row; every pair is in one row, equal lengths in their order.

    A row begins with the largest pair left. Then come pairs of the commonest lengths that keep both
    sides in balance. The last two leave at most one token of room on a side, if any two do; else
    the pair that leaves the least room is taken.

    Args:
      source_lengths: int [pairs], each 1 to `source_room`; `target_lengths` likewise.
      source_room: Source tokens of a row; `target_room` likewise.
    """
    for lengths, room in ((source_lengths, source_room), (target_lengths, target_room)):
        if len(lengths) and not 1 <= lengths.min() <= lengths.max() <= room:
            raise ValueError(f"lengths {lengths.min()} to {lengths.max()} do not fit 1 to {room}")
    left = np.zeros((source_room + 1, target_room + 1), np.int64)
    np.add.at(left, (source_lengths, target_lengths), 1)
    means = (source_lengths.mean(), target_lengths.mean()) if len(source_lengths) else (1, 1)
    # How much of a row a pair of lengths (s, t) takes on each side.
    source_share = np.arange(source_room + 1)[:, None] / source_room
    target_share = np.arange(target_room + 1)[None] / target_room
    # The pairs of equal lengths follow each other here; each is taken from its run's front.
    order = np.lexsort((target_lengths, source_lengths))
    cells = source_lengths * (target_room + 1) + target_lengths
    front = np.searchsorted(cells[order], np.arange(left.size))
    rows = []
    total = len(source_lengths)
    while total:
        source_left, target_left = source_room, target_room
        row: list[int] = []
        while True:
            window = (slice(source_left + 1), slice(target_left + 1))
            counts = left[window]
            if not counts.any():
                break
            size = source_share[: source_left + 1] + target_share[:, : target_left + 1]
            pairs_left = min(source_left / means[0], target_left / means[1])
            if not row:
                wish = size
            elif pairs_left > PLAIN_PAIRS_LEFT:
                balance = (source_left / source_room - source_share[: source_left + 1]) - (
                    target_left / target_room - target_share[:, : target_left + 1]
                )
                wish = counts / counts.max() - 4 * abs(balance)
            else:
                wish = _last_two(counts, size)
            source, target = divmod(
                int(np.argmax(np.where(counts > 0, wish, -np.inf))), target_left + 1
            )
            left[source, target] -= 1
            cell = source * (target_room + 1) + target
            row.append(int(order[front[cell]]))
            front[cell] += 1
            total -= 1
            source_left, target_left = source_left - source, target_left - target
        rows.append(row)
    return rows


def _last_two(counts: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Wish for each pair of lengths where a row has room for about two pairs more."""
    there = counts > 0
    alone = np.where(there, size, -np.inf)
    if alone.max() >= size[-1, -1] - 0.02:  # one pair fills the row
        return alone
    # Two pairs that leave at most one token on a side: a cell and the cell of what it leaves.
    for source_waste, target_waste in ((0, 0), (0, 1), (1, 0), (1, 1)):
        part = there[: len(there) - source_waste, : there.shape[1] - target_waste]
        if not part.size:
            continue
        both = part & part[::-1, ::-1]
        if both.any():
            wish = np.full(counts.shape, -np.inf)
            wish[: part.shape[0], : part.shape[1]] = np.where(
                both, counts[: part.shape[0], : part.shape[1]], -np.inf
            )
            return wish
    return alone
