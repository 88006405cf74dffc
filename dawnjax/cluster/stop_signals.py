"""Signals that ask a process to stop, heard from its first moments on.

Python runs a signal's handler in the main thread alone, between two instructions. A long
computation delays it, and an exception from it comes up anywhere: a callback of JAX's garbage
collector swallows it. So the handlers do nothing; the interpreter also writes each signal's number
to a pipe, at once, and a thread hands it to a listener.

A program listens before its other imports, which take seconds; so this module imports little.
"""

import _thread
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

INTERRUPTED = 5
"""`ExitStatus.INTERRUPTED`, whose module takes longer to import."""

NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
"""SIGHUP comes when a terminal is lost, SIGUSR1 where a batch system warns of its time limit."""

ONE_REQUEST_SECONDS = 1.0
"""A signal that comes again within this time is the same request: `timeout -s INT`, a terminal's
process group and wrappers of shells send a Ctrl-C twice."""

AGAIN_SECONDS = 1.0
"""Time after which a KeyboardInterrupt that nobody caught comes again."""

Listener = Callable[[signal.Signals], object]

_listener: Listener | None = None
_earlier: dict[signal.Signals, Any] = {}
_earlier_wakeup = -1
_writer = -1


def listen(listener: Listener | None) -> Listener | None:
    """Hand each signal to a listener from now on, in a thread of its own; returns the earlier one.

    An ignored SIGHUP, as by `nohup`, stays ignored. Blocked signals are unblocked, and come now.
    None gives signals back to their earlier handlers. Outside the main thread it is a ValueError.
    """
    global _listener, _writer, _earlier_wakeup
    if listener is None:
        for number, handler in _earlier.items():
            signal.signal(number, handler)
        if _earlier:
            signal.set_wakeup_fd(_earlier_wakeup)
        _earlier.clear()
        previous, _listener = _listener, None
        return previous
    with blocked():  # one that came between the handler and the pipe would be lost
        if _writer < 0:
            reader, _writer = os.pipe()
            # The interpreter writes from a signal handler, which a full pipe must not block.
            os.set_blocking(_writer, False)
            _thread.start_new_thread(_tell, (reader,))
        # Where there is a handler, the interpreter writes to the pipe. A library may have put its
        # own there since the last call.
        for number in NUMBERS:
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue
            handler = signal.signal(number, lambda *_: None)
            _earlier.setdefault(number, handler)
        wakeup = signal.set_wakeup_fd(_writer, warn_on_full_buffer=False)
        if wakeup != _writer:
            _earlier_wakeup = wakeup
        previous, _listener = _listener, listener
    signal.pthread_sigmask(signal.SIG_UNBLOCK, NUMBERS)
    return previous


@contextlib.contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Hand the signals inside a block to a listener; does nothing outside the main thread."""
    try:
        previous = listen(listener)
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        listen(previous)


@contextlib.contextmanager
def blocked() -> Iterator[None]:
    """Let processes that are started inside a block hear of signals only once they listen."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def interrupt(*_: Any) -> None:
    """Raise KeyboardInterrupt, and again until `end_interrupts`; a handler of SIGINT.

    It comes up anywhere, and there it may be lost: in an `except:` of a library's, such as JAX has,
    in a finalizer, or in a callback of an import or of the garbage collector.
    """
    _thread.start_new_thread(_interrupt_again, ())
    raise KeyboardInterrupt


def end_interrupts() -> None:
    """Ignore SIGINT where `interrupt` handled it: the command has ended."""
    if signal.getsignal(signal.SIGINT) is interrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def end_at_once(who: str, why: str) -> Listener:
    """Listener that ends this process with status 5 and the line `WHO: ended by SIGNAL WHY`."""

    def end(number: signal.Signals) -> None:
        write_line(f"{who}: ended by {number.name} {why}")
        os._exit(INTERRUPTED)

    return end


def write_line(line: str) -> None:
    """Write to standard error past Python's buffer, whose lock a stuck thread may hold."""
    # A live display hides the cursor of a terminal and leaves it on the display's line.
    before = "\x1b[?25h\n" if os.isatty(2) else ""
    with contextlib.suppress(OSError):  # its terminal may be gone
        os.write(2, f"{before}{line}\n".encode())


def end_with(status: int) -> None:
    """Keep the status of a program that has done its work: the first signal changes nothing.

    A second ends the process at once, with that status.
    """
    heard: list[signal.Signals] = []

    def end(number: signal.Signals) -> None:
        heard.append(number)
        if len(heard) > 1:
            os._exit(status)

    if _listener is not None:
        listen(end)


def ignore() -> None:
    """Ignore the signals where someone listened: Python's own end would let them kill again."""
    if _listener is not None:
        for number in NUMBERS:
            signal.signal(number, signal.SIG_IGN)


def _tell(reader: int) -> None:
    told: dict[int, tuple[Listener, float]] = {}
    while True:
        for number in os.read(reader, 16):
            listener, now = _listener, time.monotonic()
            heard_by, at = told.get(number, (None, 0.0))
            # From the first of them on, or a sender that never rests would never be heard again.
            is_repeated = heard_by == listener and now - at < ONE_REQUEST_SECONDS
            if number in NUMBERS and listener is not None and not is_repeated:
                told[number] = listener, now
                # A listener that fails must not keep the next signal from being heard.
                with contextlib.suppress(Exception):
                    listener(signal.Signals(number))


def _interrupt_again() -> None:
    time.sleep(AGAIN_SECONDS)
    if signal.getsignal(signal.SIGINT) is interrupt:
        os.kill(os.getpid(), signal.SIGINT)
