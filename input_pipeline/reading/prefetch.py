"""Batches made in the background, a bounded number ahead of the device."""

import collections
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
        if depth < 1:
            raise ValueError(f"depth={depth} must be 1 or more")
        self.wait_seconds = 0.0
        self._depth = depth
        self._ready: collections.deque[Item] = collections.deque()
        self._error: BaseException | None = None
        self._made_all = False
        self._closed = False
        self._changed = threading.Condition()
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
        with self._changed:
            if not self._has_more():
                self._wait(is_busy)
            if self._ready:
                item = self._ready.popleft()
                self._changed.notify_all()
                return item
            # Raised once: a consumer that goes on gets the end of the iteration.
            error, self._error = self._error, None
        if error is not None:
            raise error
        raise StopIteration

    def _has_more(self) -> bool:
        return bool(self._ready) or self._made_all or self._closed

    def _wait(self, is_busy: Callable[[], bool]) -> None:
        idle_since, is_there = time.perf_counter(), False
        while not is_there and is_busy():
            idle_since = time.perf_counter()
            is_there = self._changed.wait_for(self._has_more, POLL_SECONDS)
        if not is_there:
            self._changed.wait_for(self._has_more)
        if not is_busy():
            self.wait_seconds += time.perf_counter() - idle_since

    def close(self) -> None:
        """End the thread and drop the ready items; later `next` calls end the iteration."""
        with self._changed:
            self._closed = True
            self._ready.clear()
            self._changed.notify_all()
        # A thread stuck in a read (a dead network disk) must not hold the program.
        self._thread.join(CLOSE_SECONDS)

    def __enter__(self) -> "Prefetch[Item]":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make(self, items: Iterable[Item]) -> None:
        error = None
        try:
            iterator = iter(items)
            try:
                while self._make_one(iterator):
                    pass
            finally:
                # A generator releases its files here, on the thread that runs it.
                close = getattr(iterator, "close", None)
                if close is not None:
                    close()
        except BaseException as caught:
            error = caught
        with self._changed:
            self._error = None if self._closed else error
            self._made_all = True
            self._changed.notify_all()

    def _make_one(self, iterator: Iterator[Item]) -> bool:
        """Move one item to the ready ones; False ends the thread."""
        with self._changed:
            # Room first: then never more than `depth` ready ones and the one under way exist.
            self._changed.wait_for(lambda: len(self._ready) < self._depth or self._closed)
            if self._closed:
                return False
        for item in iterator:
            with self._changed:
                if not self._closed:
                    self._ready.append(item)
                    self._changed.notify_all()
                return not self._closed
        return False
