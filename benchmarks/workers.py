"""Sides as processes that compile once and then run one round for each request.

So the rounds of two processes can alternate.
"""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks import harness


class SideFailed(Exception):
    """A side's process ended, or did not answer in time; the text says which."""


class Worker:
    """A side in a process of its own; `serve` is the process's end of the pipe.

    The process prints one line of JSON when it is ready (`ready`), then one for each line that it
    reads. It ends when its input ends. Other lines that it prints are ignored.
    """

    def __init__(
        self, command: Sequence[str], *, limit_seconds: float, environment: dict[str, str]
    ):
        """Start the process and wait until it is ready.

        Args:
          limit_seconds: Longest time until it is ready, and then of each round.
          environment: Variables added to those of this process.

        Raises:
          SideFailed: It ended, or took longer; its last words are in the text.
        """
        self._limit = limit_seconds
        # A file: an unread pipe for errors would fill up and block the process.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        self.process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        self._pending = b""
        try:
            self.ready = self._answer()
        except BaseException:
            self.close()
            raise

    def round(self) -> dict[str, Any]:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(b"round\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise SideFailed(self._last_words()) from None
        return self._answer()

    def close(self) -> None:
        """End the process and all that it started; a second call does nothing."""
        if self.process.returncode is not None:
            return
        with contextlib.suppress(OSError):
            if self.process.stdin is not None:
                self.process.stdin.close()
        end_group(self.process)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._errors.close()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        # Raw reads with a deadline: `readline` would wait for ever for a process that hangs.
        stream, end = self.process.stdout.fileno(), time.monotonic() + self._limit
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while True:
                while b"\n" in self._pending:
                    line, self._pending = self._pending.split(b"\n", 1)
                    if line.startswith(b"{"):
                        return json.loads(line)
                left = end - time.monotonic()
                if left <= 0 or not selector.select(left):
                    raise SideFailed(f"no answer in {self._limit:g} s; {self._last_words()}")
                chunk = os.read(stream, 65536)
                if not chunk:
                    raise SideFailed(self._last_words())
                self._pending += chunk

    def _last_words(self) -> str:
        return f"its last words: {_tail(self._errors)}"


def serve(ready: dict[str, Any], run: Callable[[], dict[str, Any]]) -> None:
    """Print a `Worker`'s ready line, then run a round for each line of input."""
    print(json.dumps(ready), flush=True)
    for _ in sys.stdin:
        print(json.dumps(run()), flush=True)


def fastest(
    start: Mapping[str, Callable[[], Worker]],
    seconds: Callable[[dict[str, Any]], float],
    rounds: int = 3,
) -> tuple[str, Worker, dict[str, Any]]:
    """Find the fastest of several ways to run a side.

    Each way alternates with the best so far, and the slower of the two is closed. These figures
    only choose: the winner is measured again. SideFailed if every way failed.

    Args:
      start: Starts each way's process, by the way's name.
      seconds: From a round's answer to its seconds.

    Returns:
      The winner's name, its process, and a record of each way: its ready line and its rounds
      against the best so far, or why it failed.
    """
    best: tuple[str, Worker] | None = None
    tried: dict[str, Any] = {}
    with contextlib.ExitStack() as running:
        for name, begin in start.items():
            try:
                worker = running.enter_context(begin())
            except SideFailed as failure:
                tried[name] = {"failed": str(failure)}
                continue
            tried[name] = dict(worker.ready)
            if best is None:
                best = name, worker
                continue
            holder, held = best
            try:
                duel = harness.alternate(
                    lambda worker=worker: seconds(worker.round()),
                    lambda held=held: seconds(held.round()),
                    rounds,
                )
            except SideFailed as failure:
                tried[name]["failed"] = str(failure)
                worker.close()
                continue
            tried[name] |= {"against": holder, **duel.to_json()}
            is_faster = duel.ratio.value < 1
            (held if is_faster else worker).close()
            best = (name, worker) if is_faster else best
        if best is None:
            raise SideFailed("; ".join(f"{name}: {way['failed']}" for name, way in tried.items()))
        running.pop_all()
    return *best, tried


def end_group(process: subprocess.Popen) -> None:
    """End a process that leads its own group, with all that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _tail(errors: Any, lines: int = 3, characters: int = 600) -> str:
    errors.seek(0)
    text = errors.read().decode(errors="replace").strip().splitlines()
    return " | ".join(text[-lines:])[-characters:] or "none"
