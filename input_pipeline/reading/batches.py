"""Order of training examples, and the batches of a host that feeds its devices.

Training sees one endless stream of examples. Position p, counted from 0, holds example
permutation_e[p % N] of epoch e = p // N, with N training examples. Step s, counted from 0, holds
positions s * B to (s + 1) * B - 1, where B is the global batch size. So nothing is dropped or
padded, and a batch follows from its step alone: a resumed run needs no more state than its step.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from dawnjax.input_pipeline.reading.rows_on_demand import RowsOnDemand


class BatchIndices(NamedTuple):
    """Examples of consecutive steps.

    Attributes:
      index: int32 [num_steps, batch_size], rows of the train split.
      epoch: int32 [num_steps, batch_size], the epoch, from 0, that each belongs to.
    """

    index: np.ndarray
    epoch: np.ndarray


class ExampleOrder:
    """Order of training examples, the same on all hosts and under any version of NumPy.

    The permutation of an epoch sorts the examples by the raw output of Philox4x64-10 with the key
    (seed, epoch). Unlike NumPy's `permutation`, that stream never changes between versions. One
    object belongs to one thread: it keeps the last permutation.

    Source: J. K. Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011), section
    3.3.
    """

    def __init__(self, *, seed: int, num_train_examples: int) -> None:
        for name, value, limit in (
            ("seed", seed, 2**64 - 1),
            ("num_train_examples", num_train_examples, 2**31 - 1),
        ):
            least = 0 if name == "seed" else 1
            if not least <= value <= limit:
                raise ValueError(f"{name}={value} must lie in {least} to {limit}")
        self._seed = seed
        self._num_examples = num_train_examples
        self._permutations: dict[int, np.ndarray] = {}

    def steps(self, start: int, count: int, batch_size: int) -> BatchIndices:
        """Examples of `count` steps from `start`, counted from 0; a batch may exceed the split."""
        if start < 0 or count < 1 or batch_size < 1:
            last = start + count - 1
            raise ValueError(f"steps {start} to {last} of {batch_size} examples are no steps")
        return self.batches(start * batch_size, count, batch_size)

    def batches(self, first_position: int, count: int, batch_size: int) -> BatchIndices:
        """Examples of consecutive batches from a position in the stream, in any order of calls."""
        size = count * batch_size
        index, epochs = np.empty(size, np.int32), np.empty(size, np.int32)
        filled = 0
        used = {}
        while filled < size:
            epoch, offset = divmod(first_position + filled, self._num_examples)
            if epoch not in used:
                used[epoch] = self._permutation(epoch)
            end = min(size, filled + self._num_examples - offset)
            index[filled:end] = used[epoch][offset : offset + end - filled]
            epochs[filled:end] = epoch
            filled = end
        # The last epoch used is the only one that the next steps can need again.
        last = max(used)
        self._permutations = {last: used[last]}
        return BatchIndices(index.reshape(count, batch_size), epochs.reshape(count, batch_size))

    def _permutation(self, epoch: int) -> np.ndarray:
        if epoch in self._permutations:
            return self._permutations[epoch]
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
        # A plain view: indexing a numpy.memmap makes memmap objects, which cost more to handle.
        source = array if isinstance(array, RowsOnDemand) else np.asarray(array)
        batch[name] = source[index]
    return {**batch, "index": np.ascontiguousarray(index), "epoch": np.ascontiguousarray(epoch)}
