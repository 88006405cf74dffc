"""An array whose rows several threads make when they are asked for.

A row depends on its position alone, so a batch is the same in any process and in any order.
"""

import concurrent.futures
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from dawnjax.input_pipeline.reading.dataset import DataError


class RowsOnDemand:
    """Rows [n, ...] of one shape and dtype, indexed like a memory map."""

    def __init__(
        self,
        num_rows: int,
        row_shape: tuple[int, ...],
        dtype: str,
        make_row: Callable[[int], np.ndarray | int],
        num_threads: int | None = None,
    ):
        """Make no row yet; several threads, by default one a core, will call `make_row` at once."""
        self.shape = (num_rows, *row_shape)
        self.dtype = np.dtype(dtype)
        self._make_row = make_row
        self._num_threads = num_threads or os.cpu_count() or 1
        self._threads: concurrent.futures.ThreadPoolExecutor | None = None

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        """Make the rows at positions in an array of any shape, or in a slice."""
        index = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else rows
        if index.size and not 0 <= index.min() <= index.max() < len(self):
            raise IndexError(f"rows {index.min()} to {index.max()} of {len(self)}")
        return self._made(index, self._make_row)

    def _made(self, index: np.ndarray, make_row: Callable[[int], np.ndarray | int]) -> np.ndarray:
        # Padding repeats a row many times; make each row once.
        distinct, places = np.unique(index, return_inverse=True)
        made = np.empty((len(distinct), *self.shape[1:]), self.dtype)

        failed = threading.Event()

        def fill(first: int) -> None:
            for place in range(first, len(distinct), self._num_threads):
                if failed.is_set():
                    return
                try:
                    made[place] = make_row(int(distinct[place]))
                except BaseException:
                    failed.set()
                    raise

        if self._threads is None:
            self._threads = concurrent.futures.ThreadPoolExecutor(
                self._num_threads, thread_name_prefix="rows"
            )
        shares = range(min(self._num_threads, len(distinct)))
        for job in [self._threads.submit(fill, first) for first in shares]:
            job.result()
        in_order = len(distinct) == index.size and (np.diff(index.reshape(-1)) > 0).all()
        rows_made = made if in_order else made[places.reshape(-1)]
        return rows_made.reshape(*index.shape, *self.shape[1:])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("rows made on demand are always a new array")
        return self[:] if dtype is None else self[:].astype(dtype, copy=False)


class LookedUp(RowsOnDemand):
    """Rows `table[index[row]]`, each step of it by NumPy, without a copy for each row.

    With `values` they are `values[table[index[row]]]`.
    """

    def __init__(self, table: np.ndarray, index: np.ndarray, values: np.ndarray | None = None):
        kind = table if values is None else values
        shape = table.shape[1:] + (() if values is None else values.shape[1:])
        super().__init__(len(index), shape, kind.dtype.name, lambda row: self[np.array(row)])
        self._table, self._index, self._values = table, index, values

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        found = self._table[self._index[rows]]
        return found if self._values is None else self._values[found]


class DrawnRows(RowsOnDemand):
    """Rows that are drawn anew in each epoch, such as random parts of photographs.

    A row follows from the seed, its epoch and its position.
    """

    def __init__(
        self,
        num_rows: int,
        row_shape: tuple[int, ...],
        dtype: str,
        draw_row: Callable[[int, int, int], np.ndarray],
    ):
        """Take `draw_row`, a function of position, epoch and seed."""
        super().__init__(num_rows, row_shape, dtype, lambda index: draw_row(index, 0, 0))
        self._draw_row = draw_row

    def drawn(self, index: np.ndarray, epoch: np.ndarray, seed: int) -> np.ndarray:
        """Draw the rows at positions of epochs, int [...] both."""

        def row(place: int) -> np.ndarray:
            epoch, index = divmod(place, len(self))
            return self._draw_row(index, epoch, seed)

        return self._made(epoch.astype(np.int64) * len(self) + index, row)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise DataError(
            "training images are cropped again in each epoch, so they stay on the host: give "
            "--data_placement=host, or prepare squares"
        )
