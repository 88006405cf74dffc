"""An object in a process of bounded memory and time, for what a stranger's file can make explode.

Four normalizers in a tokenizer of 2 KB can ask for 20 GB, an outline of a few numbers for billions
of pixels, and a panic of a library in Rust prints hundreds of lines. Here the kernel bounds memory
and time, and nothing is printed.

Each message is a length, the CPU seconds and the bytes of addresses that the call may take, 8 bytes
each, and so many bytes of msgpack: a method's name and its arguments.
Each answer is a length, 8 bytes, and [true, value] or [false, words]; or none where the process
has ended.
"""

import contextlib
import importlib
import io
import math
import os
import pathlib
import resource
import selectors
import signal
import struct
import subprocess
import sys
import time
import weakref
from typing import Any

import msgspec
import numpy as np

import dawnjax

HEADER, LENGTH = struct.Struct("<QdQ"), struct.Struct("<Q")
MOST_ANSWER_BYTES = 2**32

MEMORY_BYTES = 768 * 2**20
"""Limit of the address space: the interpreter, its libraries and the needs of a small file."""

MEMORY_A_MESSAGE_BYTE = 128
"""And more for what a call is given: a token of one letter takes as much."""

SECONDS, MESSAGE_BYTES_A_SECOND = 7.0, 2**18
"""CPU time of a call on a small file, and a second more for so many bytes of what it is given."""

WAITS = 10
"""As much wall time is waited for an answer: a busy machine gives a process a part of a core."""


class BoundedError(Exception):
    """What a call says of its file, in one line."""


class Bounded:
    """An instance of a class of another module; its arguments and results are of msgpack or NumPy.

    For each of the `num_bytes` of the file, memory grows by `memory_a_byte` bytes, and the CPU time
    of a call by a second for every `bytes_a_second`. The `arguments` are the file, or none.
    """

    def __init__(
        self,
        made: type,
        *arguments: Any,
        num_bytes: int = 0,
        memory: int = MEMORY_BYTES,
        memory_a_byte: int = 32,
        bytes_a_second: int,
    ):
        self._memory = memory + memory_a_byte * num_bytes
        home = str(pathlib.Path(dawnjax.__file__).parents[1])
        paths = [home, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, made.__module__, made.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Each thread, and each arena of one, would take 64 MiB of the addresses.
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(paths),
                "MALLOC_ARENA_MAX": "2",
                "OPENBLAS_NUM_THREADS": "1",
                "RAYON_NUM_THREADS": str(min(8, os.cpu_count() or 1)),
            },
        )
        weakref.finalize(self, _end, self._process)
        self._num_bytes, self._bytes_a_second = num_bytes, bytes_a_second
        self.ask("", *arguments)

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method; BoundedError for what it raises, and where it needs more than is given."""
        content = msgspec.msgpack.encode((method, arguments), enc_hook=_packed)
        given = len(content) if method else 0
        seconds = SECONDS + self._num_bytes / self._bytes_a_second + given / MESSAGE_BYTES_A_SECOND
        memory = self._memory + MEMORY_A_MESSAGE_BYTE * given
        ends = time.monotonic() + WAITS * seconds
        stdin, answer = self._process.stdin, None
        assert stdin is not None
        # A process that has died reads and answers nothing.
        with contextlib.suppress(BrokenPipeError, EOFError):
            stdin.write(HEADER.pack(len(content), seconds, memory) + content)
            stdin.flush()
            [size] = LENGTH.unpack(self._read(LENGTH.size, ends))
            if size <= MOST_ANSWER_BYTES:
                answer = msgspec.msgpack.decode(self._read(size, ends), ext_hook=_unpacked)
        if answer is None:
            took_long = time.monotonic() >= ends
            with contextlib.suppress(subprocess.TimeoutExpired):
                took_long |= self._process.wait(1.0) == -signal.SIGXCPU
            _end(self._process)
            limit = f"{seconds:.0f} s" if took_long else f"{memory / 2**20:.0f} MiB of memory"
            raise BoundedError(f"it needs more than {limit}")
        is_there, value = answer
        if not is_there:
            raise BoundedError(value)
        return value

    def _read(self, size: int, ends: float) -> bytes:
        """Read so many bytes of the process's answer; EOFError where it ends or takes too long."""
        stdout, parts = self._process.stdout, []
        assert stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while size:
                if not selector.select(max(0.0, ends - time.monotonic())):
                    raise EOFError
                part = os.read(stdout.fileno(), min(size, 2**20))
                if not part:
                    raise EOFError
                parts.append(part)
                size -= len(part)
        return b"".join(parts)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()
    process.wait()


def _packed(array: Any) -> msgspec.msgpack.Ext:
    content = io.BytesIO()
    np.lib.format.write_array(content, array, allow_pickle=False)
    return msgspec.msgpack.Ext(1, content.getvalue())


def _unpacked(_: int, content: memoryview) -> np.ndarray:
    return np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)


def main(module: str, name: str) -> None:
    made, served = getattr(importlib.import_module(module), name), None
    while header := sys.stdin.buffer.read(HEADER.size):
        size, seconds, memory = HEADER.unpack(header)
        method, arguments = msgspec.msgpack.decode(sys.stdin.buffer.read(size), ext_hook=_unpacked)
        most_seconds = math.ceil(time.process_time() + max(0.0, seconds))
        for kind, most in ((resource.RLIMIT_CPU, most_seconds), (resource.RLIMIT_AS, memory)):
            hard = resource.getrlimit(kind)[1]
            is_free = hard == resource.RLIM_INFINITY
            resource.setrlimit(kind, (most if is_free else min(most, hard), hard))
        try:
            if served is None:
                served, answer = made(*arguments), (True, None)
            else:
                answer = True, getattr(served, method)(*arguments)
        except MemoryError:
            return
        except BaseException as error:  # a panic of a library's Rust is no Exception
            words = " ".join(str(error).split())[:1000] or type(error).__name__
            answer = False, words
        content = msgspec.msgpack.encode(answer, enc_hook=_packed)
        sys.stdout.buffer.write(LENGTH.pack(len(content)) + content)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
