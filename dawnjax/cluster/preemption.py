"""Stopping when asked to: a signal to any process ends all of them at the same step.

SIGTERM (a machine is taken back), SIGUSR1 (a time limit is near), SIGINT (Ctrl-C) and SIGHUP (a
lost connection) ask the run to save and end. All processes must stop after the same step, or the
others wait in a collective for the one that stopped. So each process that hears of the request
holds still at its next step boundary and says its number. All continue to the first boundary after
the latest of these.

Source: `jax.experimental.multihost_utils.reached_preemption_sync_point` agrees in this way. It
knows no SIGINT and no process alone, wants a call at each step, and swallows a SIGTERM that comes
before the first step.
"""

import contextlib
import os
import signal
import threading
from signal import Signals

from dawnjax.cluster.children import REQUESTS
from dawnjax.cluster.key_value_store import KeyValueStore
from dawnjax.cluster.watchdog import Watchdog
from dawnjax.errors import ExitStatus

_FOLDER = "dawnjax/preemption"

POLL_SECONDS = 1.0
"""Seconds between two looks for another process's request."""

_AGREEMENT_POLL_SECONDS = 0.02
"""Seconds between two looks while all hold still; beyond 16 processes in proportion to their
number, since each then reads a note of every process."""

_BUDGET = "the budget of time"


class Preemption:
    """Request to stop this run, and the step boundary at which all processes do.

    A request before the first step, or a second SIGINT, ends the process at once.

    Attributes:
      holding: Call `stops_at` at each step boundary from now on. Until then a boundary costs the
        loop one look at this.
    """

    def __init__(self, watchdog: Watchdog):
        self._watchdog = watchdog
        self._store: KeyValueStore | None = watchdog.store
        self._begun_after: int | None = None
        self._has_ended = False
        self._wanted = ""
        self._interrupts = 0
        self.holding = False
        self._held_at: int | None = None
        self._stop_at = 0
        self._agreed = threading.Event()
        self._closed = threading.Event()
        self._wake = threading.Event()  # Set when there is something for the agreement to do.
        self._hearing = contextlib.ExitStack()
        self._thread = threading.Thread(target=self._agreement_loop, daemon=True)

    def install(self) -> None:
        """Listen to the signals from now on; outside the main thread, do nothing."""
        for number in REQUESTS:
            if signal.getsignal(number) != signal.SIG_IGN:  # as by nohup
                with contextlib.suppress(ValueError):
                    earlier = signal.signal(number, lambda number, _: self.ask(Signals(number)))
                    self._hearing.callback(signal.signal, number, earlier)
        if self._store is not None:
            self._thread.start()

    def close(self) -> None:
        """Return the signals to their earlier listeners; a second call does nothing."""
        self._closed.set()
        self._wake.set()
        self._hearing.close()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def begin(self, step: int) -> None:
        """Mark the first call: after it there is something to save."""
        self._begun_after = step + self._watchdog.calls

    def end(self) -> None:
        """Mark the end of the steps: a request from now on ends the profile."""
        self._has_ended = True

    def spend_budget(self) -> None:
        """Ask for a stop since the time is spent; the run then ends, and is not interrupted."""
        if not self._wanted:
            self._wanted = _BUDGET
            self.holding = self._store is None
            self._wake.set()

    @property
    def is_budget_spent(self) -> bool:
        """True if all processes stop since the time is spent; the same on all once they agreed."""
        return self._wanted == _BUDGET

    def is_asked(self) -> bool:
        return self.holding or bool(self._wanted)

    def stops_at(self, step: int) -> bool:
        """True if all processes stop at this boundary: after `step`, and the watchdog's calls.

        All processes must have the same boundaries. Each must set its watchdog's `step` or `calls`
        to a boundary's before it reads `holding` there.
        """
        if not self.holding or self._store is None:
            return self.holding
        # The others answer from a thread of their own, whatever their main threads do; should one
        # of them be gone, the watchdog ends this process while it waits.
        if not self._agreed.is_set():
            self._watchdog.report("agree to stop", step)
            self._agreed.wait()
        return step + self._watchdog.calls >= self._stop_at

    def ask(self, number: signal.Signals) -> None:
        self._interrupts += number == signal.SIGINT
        if self._interrupts > 1:
            what = "after its last step" if self._has_ended else "without saving"
            self._watchdog.end(f"was interrupted twice, {what},", ExitStatus.INTERRUPTED)
        if self._begun_after is None or self._boundary <= self._begun_after:
            self._watchdog.end(f"was told to stop by {number.name}", ExitStatus.INTERRUPTED)
        if self._wanted:
            return
        self._wanted = number.name
        what = "saving and stopping after this step"
        if self._has_ended:
            what = "the steps are over; their profile is left out"
        once_more = "; once more ends it at once" if number == signal.SIGINT else ""
        with contextlib.suppress(OSError):  # a terminal that is lost is why SIGHUP comes
            os.write(2, f"dawnjax: {number.name}: {what}{once_more}\n".encode())
        if self._store is None:
            self.holding = True
        self._wake.set()

    @property
    def _boundary(self) -> int:
        """Number of the boundary that the main thread reaches next, the same on all processes."""
        return self._watchdog.step + self._watchdog.calls

    def _agreement_loop(self) -> None:
        store = self._store
        assert store is not None
        while not self._closed.is_set():
            # The service may be gone, which is the watchdog's matter.
            with contextlib.suppress(Exception):
                if self._wanted:
                    store.put_first(f"{_FOLDER}/wanted", self._wanted)
                if self._wanted or "wanted" in store.read(_FOLDER):
                    self._agree(store)
                    return
            if self._wake.wait(POLL_SECONDS):
                self._closed.wait(_AGREEMENT_POLL_SECONDS)  # what failed is tried again, not hotly

    def _agree(self, store: KeyValueStore) -> None:
        self._wanted = store.read(_FOLDER)["wanted"]  # the first request, which all must see alike
        # In this order: the main thread cannot pass a boundary after the one that is read here,
        # and after a failed message this process must not say another.
        self.holding = True
        if self._held_at is None:
            self._held_at = self._boundary
        folder = f"{_FOLDER}/steps"
        store.put(f"{folder}/{store.process_index}", str(self._held_at))
        while len(steps := store.read(folder)) < store.num_processes:
            if self._closed.wait(_AGREEMENT_POLL_SECONDS * max(1, store.num_processes // 16)):
                return
        self._stop_at = max(map(int, steps.values())) + 1
        self._agreed.set()
