"""A Ctrl-C while the command line itself is loaded: one line and status 5, not a traceback.

The package imports this first, so it imports only what Python has loaded by then. A program that
imports the package keeps its own handler.
"""

import _signal  # pyright: ignore[reportMissingImports]  # `signal` takes milliseconds more
import os
import sys


def begin() -> None:
    """End the command by a line from now on; does nothing in any other program."""
    if is_command() and _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _end)


def end(handler: object) -> None:
    """Hand Ctrl-C over to a handler, if `begin` has taken it."""
    if _signal.getsignal(_signal.SIGINT) is _end:
        _signal.signal(_signal.SIGINT, handler)


def is_command() -> bool:
    """True if this process was started as `dawnjax` or `python -m dawnjax`, as far as is known."""
    if sys.argv[:1] == ["-m"]:  # while Python looks for the module
        for option, following in zip(sys.orig_argv, [*sys.orig_argv[1:], ""], strict=True):
            before, _, name = option.partition("m")  # -m NAME, -mNAME, or behind others: -Im NAME
            is_module = before[:1] == "-" and "m" in option and not {*before[1:]} & {*"-XWc"}
            if is_module:
                return (name or following) == "dawnjax"
        return False
    return os.path.basename(sys.argv[0] if sys.argv else "") == "dawnjax"


def _end(number: int, frame: object) -> None:
    os.write(2, b"dawnjax: interrupted before it began\n")
    os._exit(5)  # `ExitStatus.INTERRUPTED`, whose module takes longer to import
