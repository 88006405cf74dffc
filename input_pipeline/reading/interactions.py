"""Ratings as implicit feedback: the leave-one-out split, items not seen, and fixed negatives.

Each user's last rating is held out to evaluate. How high a rating is plays no part. The arrays are

    train: {"user", "item": int32 [ratings], "seen": uint32 [ratings, words]}
    eval:  {"user": int32 [users], "items": int32 [users, 1 + negatives]}

Bit i of word w of `seen` is set if the user rated item 32 w + i to train on, or if there is no such
item. The first of `items` is held out; the user never rated the rest. They are drawn with
replacement, as in MLPerf v0.5; a repeated item is replaced by -1, so that it counts once.

Source: X. He et al., "Neural Collaborative Filtering" (WWW 2017), section 4.1; MLPerf Training
v0.5, logs of `ncf` (`preproc_hp_sample_eval_replacement: true`); mlcommons/training, v0.5,
`recommendation/pytorch/ncf.py`, `eval_one`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from dawnjax.input_pipeline.reading.dataset import Shapes, Spec, Split
from dawnjax.input_pipeline.reading.rows_on_demand import LookedUp

WORD_BITS = 32
REPEATED = -1

# Second word of the Philox key, beyond those of epochs; the first is the seed.
_NEGATIVE_STREAM = 2**63 + 3

_USERS_AT_ONCE = 256
"""Rows that are drawn, and searched for repeated items, together: they stay in a core's cache."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class InteractionsSpec(Spec):
    """Counts and shapes of interactions; the fingerprint covers the negatives too.

    Attributes:
      num_train_examples: Ratings to train on; an epoch is this many.
      num_eval_examples: Users, each with one held-out rating.
      num_eval_negatives: Items that a held-out one is ranked among, repetitions included.
    """

    num_users: int
    num_items: int
    num_eval_negatives: int

    def example_shapes(self, split: Split) -> Shapes:
        if split == "eval":
            return {"user": ((), "int32"), "items": ((1 + self.num_eval_negatives,), "int32")}
        words = (num_words(self.num_items),)
        return {"user": ((), "int32"), "item": ((), "int32"), "seen": (words, "uint32")}

    def batch_elements(self, batch_size: int) -> int:
        return batch_size * num_words(self.num_items)


def num_words(num_items: int) -> int:
    return -(-num_items // WORD_BITS)


def split_of(
    pairs: np.ndarray,
    num_items: int,
    split: Split,
    negatives: Callable[[np.ndarray], np.ndarray],
) -> dict[str, Any]:
    """Arrays of a split of pairs int32 [ratings, 2], user and item, by user and then by time.

    Each user has two or more, and none twice. `negatives` makes the items, int32 [users, n], that
    held-out ones are ranked among.
    """
    is_last = np.append(pairs[1:, 0] != pairs[:-1, 0], True)
    if split == "eval":
        held_out = pairs[is_last]
        items = np.concatenate([held_out[:, 1:], negatives(pairs)], axis=1, dtype=np.int32)
        return {"user": np.ascontiguousarray(held_out[:, 0]), "items": items}
    user, item = (np.ascontiguousarray(column) for column in pairs[~is_last].T)
    return {"user": user, "item": item, "seen": LookedUp(rated(user, item, num_items), user)}


def rated(users: np.ndarray, items: np.ndarray, num_items: int) -> np.ndarray:
    """Bit for each item that a user rated, and after the last item: uint32 [users, words].

    Users ascend from 0, none left out; no pair appears twice.
    """
    table = np.zeros((int(users[-1]) + 1, num_words(num_items)), np.uint32)
    words, bits = np.divmod(items, WORD_BITS)
    for bit in range(WORD_BITS):  # of one bit no word appears twice
        rows = bits == bit
        table[users[rows], words[rows]] |= np.uint32(1 << bit)
    if num_items % WORD_BITS:
        # Places after the last item count as seen, so that they are never drawn in training.
        table[:, -1] |= np.uint32(2**WORD_BITS - 2 ** (num_items % WORD_BITS))
    return table


def is_rated(table: np.ndarray, users: np.ndarray, items: np.ndarray) -> np.ndarray:
    """Bits of pairs in a table of `rated`; arrays broadcast."""
    return (table[users, items // WORD_BITS] >> (items % WORD_BITS).astype(np.uint32)) & 1 > 0


def draw_negatives(pairs: np.ndarray, num_items: int, count: int, seed: int) -> np.ndarray:
    """Draw `count` items that each user never rated: int32 [users, count]; -1 if drawn before."""
    table = rated(pairs[:, 0], pairs[:, 1], num_items)
    # Raw output, which is the same under any version of NumPy.
    stream = np.random.Philox(key=np.array([seed, _NEGATIVE_STREAM], np.uint64))
    drawn = np.empty(len(table) * count, np.int32)

    def draw(places: np.ndarray) -> np.ndarray:
        """Draw for some places; return those to draw again."""
        # The modulus prefers small items by less than one part in 10**14.
        items = (stream.random_raw(len(places)) % np.uint64(num_items)).astype(np.int32)
        drawn[places] = items
        return places[is_rated(table, places // count, items)]

    block = _USERS_AT_ONCE * count
    starts = range(0, len(drawn), block)
    again = [draw(np.arange(start, min(start + block, len(drawn)))) for start in starts]
    places = np.concatenate(again)
    while len(places):
        places = draw(places)
    drawn = drawn.reshape(-1, count)
    for start in range(0, len(drawn), _USERS_AT_ONCE):
        _mark_repeated(drawn[start : start + _USERS_AT_ONCE])
    return drawn


def _mark_repeated(drawn: np.ndarray) -> None:
    """Replace an item that stands further left in its row by -1, in place."""
    count = drawn.shape[1]
    # Sorted by item, then by place: NumPy sorts plain numbers much faster than it makes an order.
    keys = np.sort(drawn.astype(np.int64) * count + np.arange(count), axis=1)
    again = np.zeros(keys.shape, bool)
    again[:, 1:] = keys[:, 1:] // count == keys[:, :-1] // count
    drawn[np.nonzero(again)[0], keys[again] % count] = REPEATED
