"""A program after XLA's passes and its assignment of memory: no kernel is made.

Kernels take most of a compilation, and change no op and no byte of the program. XLA cannot be told
to stop before them. So it writes what it has into a folder, nobody waits for the rest, and the
process ends (`leave`).
"""

import contextlib
import dataclasses
import os
import re
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from dawnjax.errors import RunError

_POLL_SECONDS = 0.02

_LAST = 19
"""The lowest priority of a thread."""

_LATER = ("*.ir-no-opt.ll", "*.after_optimizations_after_buffer_assignment.txt")
"""Files that XLA writes for a GPU and a TPU after all that is read here."""


class Buffer(NamedTuple):
    """An array on one device: what made it, and its shape as XLA writes it."""

    name: str
    shape: str
    num_bytes: int


@dataclasses.dataclass(frozen=True)
class Assigned:
    """A program's text, and bytes on a device at its peak, without its code.

    Attributes:
      argument_bytes: Bytes of its arguments.
      buffers: The largest, in order.
    """

    text: str
    num_bytes: int
    argument_bytes: int
    buffers: tuple[Buffer, ...]


def assigned(lowered: Any, options: Mapping[str, Any], folder: Path) -> Assigned:
    """Program of a function that JAX lowered; its kernels may still be made when this returns.

    Args:
      options: XLA's compiler options.
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
    while compiling.is_alive() and not _is_assigned(folder):
        compiling.join(_POLL_SECONDS)
    _take_the_cores()
    # A kernel that fails at once says no more than one that fails later.
    if failures and not _is_assigned(folder):
        raise failures[0]
    return _read(folder)


def _is_assigned(folder: Path) -> bool:
    return any(any(folder.glob(name)) for name in _LATER)


def _take_the_cores() -> None:
    """Let this thread, and all other processes, run before the threads that make kernels."""
    if sys.platform.startswith("linux"):  # which alone has priorities of threads
        own = threading.get_native_id()
        for thread in {int(name) for name in os.listdir("/proc/self/task")} - {own}:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.setpriority(os.PRIO_PROCESS, thread, _LAST)


def _read(folder: Path) -> Assigned:
    """The program in XLA's files; RunError where they are not whole.

    XLA does not say that it could not write. A program ends with its entry, and a report of its
    own has the sum of all allocations.
    """
    endings = ("-buffer-assignment.txt", "-memory-usage-report.txt", "-live-range.txt", ".txt")
    [assignment, report, ranges, text] = (
        "".join(file.read_text() for file in folder.glob(f"*after_optimizations{ending}"))
        for ending in endings
    )
    allocations = re.findall(r"^allocation \d+: size (\d+), (.*)", assignment, re.MULTILINE)
    totals = re.findall(r"^Total bytes: (\d+)", report, re.MULTILINE)
    is_whole = "\nENTRY " in text and text.rstrip().endswith("\n}")
    if not is_whole or sum(map(int, totals)) != sum(int(size) for size, _ in allocations):
        raise RunError(
            "the compiler's files are incomplete: is the disk for temporary files full? Set "
            "TMPDIR=FOLDER to use another"
        )
    # A constant belongs to the code; what is local to a thread lies in registers.
    counted = [
        (int(size), kind)
        for size, kind in allocations
        if not re.search(r"\b(constant|thread-local)\b", kind)
    ]
    return Assigned(
        text=text,
        num_bytes=sum(size for size, _ in counted),
        argument_bytes=sum(size for size, kind in counted if re.search(r"\bparameter \d", kind)),
        buffers=_largest_at_peak(ranges, assignment, text),
    )


NUM_BUFFERS = 12


def _largest_at_peak(ranges: str, assignment: str, text: str) -> tuple[Buffer, ...]:
    """The largest arrays that are alive when most is, with the ops that make them."""
    _, _, at_peak = ranges.partition("(peak):\n")
    alive = re.findall(r"^ +(\S+?)(?:\{\})?: \d+ bytes", at_peak, re.MULTILINE)
    # With a TPU's padding, which the list of what is alive leaves out.
    value = r"^ value: <\d+ (\S+) @.*?\(size=(\d+),.*?\): (\w+\[[\d,]*\])"
    values = {
        name: (int(size), shape)
        for name, size, shape in re.findall(value, assignment, re.MULTILINE)
    }
    made = r"^ +(?:ROOT )?%?(\S+) = .*?metadata=\{op_name=\"((?:[^\"\\]|\\.)*)\""
    ops = dict(re.findall(made, text, re.MULTILINE))
    largest = sorted((name for name in alive if name in values), key=lambda n: -values[n][0])
    return tuple(
        Buffer(_in_words(ops.get(name.partition("{")[0], name)), values[name][1], values[name][0])
        for name in largest[:NUM_BUFFERS]
    )


def _in_words(name: str) -> str:
    """Path of an argument or op: `state.params/stem/kernel` for `state.params['stem']['kernel']`"""
    return re.sub(r"\\?'\]", "", re.sub(r"\[\\?'", "/", name)).removeprefix("jit(call)/")


def leave() -> NoReturn:
    """End this process at once, with the compiler's threads that still make kernels."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
