"""Order of training examples, and the batches of a host that feeds its devices.

Training sees one endless stream of examples. Position p, counted from 0, holds example
permutation_e[p % N] of epoch e = p // N, with N training examples. Step s, counted from 0, holds
positions s * B to (s + 1) * B - 1, where B is the global batch size. So nothing is dropped or
padded, and a batch follows from its step alone: a resumed run needs no more state than its step.

Examples of two kinds, where a dataset has such, are kept apart: each kind has such a stream of its
own, with the permutation's order, and a step takes the next batch of the kind whose share is due.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from dawnjax.input_pipeline.reading.rows_on_demand import DrawnRows, RowsOnDemand

APART = "is_turned"
"""Array of a dataset, bool [examples]: no batch has examples of both kinds."""


@dataclasses.dataclass(frozen=True)
class BatchIndices:
    """Examples of consecutive steps.

    Attributes:
      index: int32 [num_steps, batch_size], rows of the train split.
      epoch: int32 [num_steps, batch_size], the epoch, from 0, that each belongs to.
      seed: Of the order.
    """

    index: np.ndarray
    epoch: np.ndarray
    seed: int = 0


class ExampleOrder:
    """Order of training examples, the same on all hosts and under any version of NumPy.

    The permutation of an epoch sorts the examples by the raw output of Philox4x64-10 with the key
    (seed, epoch). Unlike NumPy's `permutation`, that stream never changes between versions. One
    object belongs to one thread: it keeps the last permutation.

    Source: J. K. Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011), section
    3.3.
    """

    def __init__(
        self, *, seed: int, num_train_examples: int, kinds: np.ndarray | None = None
    ) -> None:
        """Take `kinds`, bool [num_train_examples], where examples are kept apart."""
        self._seed = seed
        self._num_examples = num_train_examples
        self._kinds = kinds
        turned = 0 if kinds is None else int(kinds.sum())
        self._sizes = {None: num_train_examples, True: turned, False: num_train_examples - turned}
        self._newest: dict[bool | None, tuple[int, np.ndarray]] = {}

    def steps(self, start: int, count: int, batch_size: int) -> BatchIndices:
        """Examples of `count` steps from `start`, counted from 0; a batch may exceed the split."""
        return self.batches(start * batch_size, count, batch_size)

    def batches(self, first_position: int, count: int, batch_size: int) -> BatchIndices:
        """Examples of consecutive batches from a position in the stream, in any order of calls.

        With two kinds the position must be a multiple of the batch size.
        """
        if self._kinds is None:
            parts = [self._stretch(None, first_position, count * batch_size)]
        elif first_position % batch_size:
            raise ValueError("examples of two kinds need one batch size")
        else:
            first = first_position // batch_size
            parts = [self._batch(number, batch_size) for number in range(first, first + count)]
        index, epochs = (
            np.concatenate(part).reshape(count, -1) for part in zip(*parts, strict=True)
        )
        return BatchIndices(index, epochs, self._seed)

    def _batch(self, number: int, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
        """Batch of one kind; among the first n, the second kind's are its share of n, rounded."""
        share, whole = self._sizes[True], self._num_examples
        before, after = ((2 * n * share + whole) // (2 * whole) for n in (number, number + 1))
        place = before if after > before else number - before
        return self._stretch(after > before, place * batch_size, batch_size)

    def _stretch(self, kind: bool | None, first: int, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Examples and epochs of a stretch of the stream of a kind; None for the only one."""
        index, epochs = np.empty(size, np.int32), np.empty(size, np.int32)
        filled = 0
        while filled < size:
            epoch, offset = divmod(first + filled, self._sizes[kind])
            end = min(size, filled + self._sizes[kind] - offset)
            permutation = self._permutation(kind, epoch)
            index[filled:end] = permutation[offset : offset + end - filled]
            epochs[filled:end] = epoch
            filled = end
        return index, epochs

    def _permutation(self, kind: bool | None, epoch: int) -> np.ndarray:
        # The newest one of a kind is the only one that the next steps can need again.
        newest, permutation = self._newest.get(kind, (-1, None))
        if permutation is None or newest != epoch:
            permutation = self._drawn(epoch)
            if self._kinds is not None:
                permutation = permutation[self._kinds[permutation] == kind]
            self._newest[kind] = epoch, permutation
        return permutation

    def _drawn(self, epoch: int) -> np.ndarray:
        bits = np.uint64((self._num_examples - 1).bit_length())
        key = np.array([self._seed, epoch], np.uint64)
        keys = np.random.Philox(key=key, counter=0).random_raw(self._num_examples)
        # The example's number replaces the lowest bits: then no two keys are equal, and every
        # sorting algorithm makes the same order.
        keys >>= bits
        keys <<= bits
        keys |= np.arange(self._num_examples, dtype=np.uint64)
        keys.sort()
        keys &= (np.uint64(1) << bits) - np.uint64(1)
        return keys.astype(np.int32)


def kinds_of(examples: Mapping[str, np.ndarray | RowsOnDemand]) -> np.ndarray | None:
    """Kind of each example, bool [examples]; None where a dataset has one kind alone."""
    return np.asarray(examples[APART][:]) if APART in examples else None


def host_batch(
    examples: Mapping[str, np.ndarray | RowsOnDemand],
    indices: BatchIndices,
    rows: slice | np.ndarray,
) -> dict[str, np.ndarray]:
    """Gather one process's part of batches on the host, for data that device memory cannot hold.

    Args:
      examples: Arrays, or rows on demand, [num_train_examples, ...]; only the rows returned are
        read.
      indices: The examples of n steps.
      rows: The r rows of each global batch that this process's devices hold.

    Returns:
      Each of the examples' arrays as [n, r, ...] in its own dtype, and `index` and `epoch`, int32
      [n, r].
    """
    index, epoch = indices.index[:, rows], indices.epoch[:, rows]
    batch = {}
    for name, array in examples.items():
        if isinstance(array, DrawnRows):
            batch[name] = array.drawn(index, epoch, indices.seed)
            continue
        # A plain view: indexing a numpy.memmap makes memmap objects, which cost more to handle.
        source = array if isinstance(array, RowsOnDemand) else np.asarray(array)
        batch[name] = source[index]
    return {**batch, "index": np.ascontiguousarray(index), "epoch": np.ascontiguousarray(epoch)}
