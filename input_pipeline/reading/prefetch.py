"""Batches made in the background, a bounded number ahead of the device."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")

CLOSE_SECONDS = 10.0
"""How long closing waits for an item under way; a thread stuck in a read is left behind."""

POLL_SECONDS = 1e-3
"""Time between two looks at a waiting consumer's devices: the most that a wait is too long by."""


class Prefetch(Generic[Item]):
    """Iterator whose items a background thread makes ahead of time, in their order.

    Let the iterable make device arrays, so that the transfer runs ahead too.

    Attributes:
      wait_seconds: Time that the consumer has waited for items so far, without other work (`get`).

    Example:
      parts = (host_batch(examples, order.steps(*call), rows) for call in calls)
      with Prefetch(parts, depth=2) as batches:
          for batch in batches:
              ...
    """

    def __init__(self, items: Iterable[Item], depth: int = 2) -> None:
        """Start the thread, which makes at most `depth` items ahead, the one under way included."""
        self.wait_seconds = 0.0
        self._room = threading.Semaphore(depth)
        # An item, or the error behind the last one.
        self._ready: queue.SimpleQueue[tuple[Item, None] | tuple[None, BaseException]]
        self._ready = queue.SimpleQueue()
        self._closed = threading.Event()
        # A daemon: a thread stuck in a read (a dead network disk) must not hold the program.
        self._thread = threading.Thread(
            target=self._make, args=(items,), name="prefetch", daemon=True
        )
        self._thread.start()

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        """Next item; an error of the iterable is raised here, after its last item."""
        return self.get()

    def get(self, is_busy: Callable[[], bool] = lambda: False) -> Item:
        """Next item, as `next` gives it.

        Args:
          is_busy: Whether the consumer's devices still have work. Such a wait costs nothing, and is
            no part of `wait_seconds`. It is asked once every `POLL_SECONDS` of a wait, and not
            where an item is ready.
        """
        item, error = self._next(is_busy)
        if error is None and not self._closed.is_set():
            self._room.release()
            return item  # type: ignore[return-value]
        # Raised once: a consumer that goes on gets the end of the iteration.
        self._ready.put((None, StopIteration()))
        raise error if error is not None and not self._closed.is_set() else StopIteration

    def _next(self, is_busy: Callable[[], bool]) -> tuple[Item, None] | tuple[None, BaseException]:
        if not self._ready.empty():
            return self._ready.get()
        found, idle_since = None, time.perf_counter()
        while found is None and is_busy():
            idle_since = time.perf_counter()
            with contextlib.suppress(queue.Empty):
                found = self._ready.get(timeout=POLL_SECONDS)
        found = found or self._ready.get()
        if not is_busy():
            self.wait_seconds += time.perf_counter() - idle_since
        return found

    def close(self) -> None:
        """End the thread and drop the ready items; later `next` calls end the iteration."""
        self._closed.set()
        while not self._ready.empty():
            self._ready.get()
        self._room.release()
        self._thread.join(CLOSE_SECONDS)

    def __enter__(self) -> "Prefetch[Item]":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make(self, items: Iterable[Item]) -> None:
        error: BaseException = StopIteration()
        try:
            iterator = iter(items)
            try:
                # Room first: then never more than `depth` items exist.
                while self._room.acquire() and not self._closed.is_set():
                    self._ready.put((next(iterator), None))
            finally:
                # A generator releases its files here, on the thread that runs it.
                close = getattr(iterator, "close", None)
                if close is not None:
                    close()
        except BaseException as caught:
            error = caught
        self._ready.put((None, error))
