"""A program after XLA's passes and its assignment of memory: no kernel is made.

Kernels take most of a compilation, and change no op and no byte of the program. XLA cannot be told
to stop before them. So it writes what it has into a folder, nobody waits for the rest, and the
process ends (`leave`).
"""

import dataclasses
import os
import re
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from dawnjax.errors import RunError

_POLL_SECONDS = 0.02

_LATER = ("*.ir-no-opt.ll", "*.after_optimizations_after_buffer_assignment.txt")
"""Files that XLA writes for a GPU and a TPU after all that is read here."""

_ASSIGNMENT = "-buffer-assignment.txt"


@dataclasses.dataclass(frozen=True)
class Assigned:
    """A program's text, and bytes on a device at its peak, without its code."""

    text: str
    num_bytes: int


def assigned(lowered: Any, options: Mapping[str, Any], folder: Path) -> Assigned:
    """Program of a function that JAX lowered; its kernels may still be made when this returns.

    Args:
      options: Of XLA.
      folder: For XLA's files; it must outlive the compilation, and so this process.

    Raises:
      Exception: What the compiler raises.
    """
    folder.mkdir(parents=True)
    failures: list[Exception] = []

    def compile_to_the_end() -> None:
        try:
            lowered.compile({**options, "xla_dump_to": str(folder), "xla_dump_hlo_as_text": True})
        except Exception as error:  # the compiler is another's: it may raise anything
            failures.append(error)

    compiling = threading.Thread(target=compile_to_the_end, daemon=True)
    compiling.start()
    while compiling.is_alive() and not any(any(folder.glob(name)) for name in _LATER):
        compiling.join(_POLL_SECONDS)
    found = list(folder.glob(f"*{_ASSIGNMENT}"))
    if failures:
        raise failures[0]
    if len(found) != 1:
        raise RunError("the compiler did not write its program: is the temporary folder full?")
    text = found[0].with_name(found[0].name.replace(_ASSIGNMENT, ".txt")).read_text()
    return Assigned(text, assigned_bytes(found[0].read_text()))


def assigned_bytes(text: str) -> int:
    """Bytes on a device by XLA's text of a buffer assignment."""
    return sum(
        int(size)
        for size, kind in re.findall(r"^allocation \d+: size (\d+), (.*):$", text, re.MULTILINE)
        # A constant belongs to the code; what is local to a thread lies in registers.
        if not kind.startswith(("constant", "thread-local"))
    )


def leave() -> NoReturn:
    """End this process at once, with the compiler's threads that still make kernels."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
