"""Stopping when asked to: a signal to any process ends all of them at the same step.

A cluster that takes a machine back (SIGTERM) or warns of its time limit (SIGUSR1), a person who
presses Ctrl-C (SIGINT) and a connection that is lost (SIGHUP) want the run to save and end.
With several processes all must stop after the same step, or the others wait in a collective for the
one that stopped. So the processes agree: each that hears of the wish holds still at its next step
boundary and says which step it came from, and all continue to the first boundary after the latest.

Source: the agreement is that of `jax.experimental.multihost_utils.reached_preemption_sync_point`,
which knows no SIGINT and no process alone, wants a call at each step, and swallows a SIGTERM that
comes before the first step.
"""

import contextlib
import os
import signal
import threading

from dawnjax.cluster import stop_signals
from dawnjax.cluster.key_value_store import KeyValueStore
from dawnjax.cluster.watchdog import Watchdog
from dawnjax.errors import ExitStatus

_FOLDER = "dawnjax/preemption"

POLL_SECONDS = 1.0
"""How often a process looks whether another was asked to stop."""

_AGREEMENT_POLL_SECONDS = 0.02
"""How often it looks while all hold still; times the number of processes over 16 beyond that, since
each then reads what each said."""

_BUDGET = "the budget of time"


class Preemption:
    """Whether this run was asked to stop, and at which step boundary all processes do.

    A request before the first step has nothing to save and ends all processes at once. A second
    SIGINT ends this process at once.

    Attributes:
      holding: A stop was asked for: `stops_at` is to be asked at each step boundary from now on.
        Before, a boundary costs the loop one look at this.
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
        """Hears of the signals from now on; does nothing for them outside the main thread."""
        self._hearing.enter_context(stop_signals.heard_by(self.ask))
        if self._store is not None:
            self._thread.start()

    def close(self) -> None:
        """Returns the signals to who heard of them before; a second call does nothing."""
        self._closed.set()
        self._wake.set()
        self._hearing.close()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def begin(self, step: int) -> None:
        """Says that the steps begin.

        Args:
          step: Steps done before; there is something to save once the watchdog's `step` is above.
        """
        self._begun_after = step
        # Loading an accelerator's runtime may have taken the signals away since `install`.
        self._hearing.enter_context(stop_signals.heard_by(self.ask))

    def end(self) -> None:
        """Says that the steps are over: what a request ends from now on is the profile."""
        self._has_ended = True

    def spend_budget(self) -> None:
        """Asks for a stop since the time is spent; the run then ends, and is not interrupted."""
        if not self._wanted:
            self._wanted = _BUDGET
            self.holding = self._store is None
            self._wake.set()

    @property
    def is_budget_spent(self) -> bool:
        """Whether all processes stop since the time is spent; the same on all once they agreed."""
        return self._wanted == _BUDGET

    def is_asked(self) -> bool:
        """Whether this process knows of a request to stop."""
        return self.holding or bool(self._wanted)

    def stops_at(self, step: int) -> bool:
        """Whether all processes stop at this step boundary.

        All processes must have the same boundaries, and must have set their watchdog's `step` to a
        boundary's before they come to it and look whether they are `holding`.
        """
        if not self.holding or self._store is None:
            return self.holding
        # The others answer from a thread of their own, whatever their main threads do; should one
        # of them be gone, the watchdog ends this process while it waits.
        if not self._agreed.is_set():
            self._watchdog.report("agree to stop", step)
            self._agreed.wait()
        return step >= self._stop_at

    def ask(self, number: signal.Signals) -> None:
        """Asks for a stop, as that signal does."""
        self._interrupts += number == signal.SIGINT
        if self._interrupts > 1:
            what = "after its last step" if self._has_ended else "without saving"
            self._watchdog.end(f"was interrupted twice, {what},", ExitStatus.INTERRUPTED)
        if self._begun_after is None or self._watchdog.step <= self._begun_after:
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
        # In this order: the main thread cannot pass a boundary after the step that is read here,
        # and after a failed message this process must not say another.
        self.holding = True
        if self._held_at is None:
            self._held_at = self._watchdog.step
        folder = f"{_FOLDER}/steps"
        store.put(f"{folder}/{store.process_index}", str(self._held_at))
        while len(steps := store.read(folder)) < store.num_processes:
            if self._closed.wait(_AGREEMENT_POLL_SECONDS * max(1, store.num_processes // 16)):
                return
        self._stop_at = max(map(int, steps.values())) + 1
        self._agreed.set()
