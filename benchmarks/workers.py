"""Sides in processes of their own, which are compiled once and asked for one round at a time.

So the rounds of two processes alternate as those of two functions do.
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
    """A side's process ended, or did not answer in its time; the text says which."""


class Worker:
    """A side in a process of its own, started once and asked for one round at a time.

    The process prints one line of JSON when it is ready, then one for each line that it reads; it
    ends when there is no more to read. Other lines that it prints are ignored. `serve` is the other
    end.

    Attributes:
      ready: What the process said when it was ready.
    """

    def __init__(
        self, command: Sequence[str], *, limit_seconds: float, environment: dict[str, str]
    ):
        """Starts the process and waits until it is ready.

        Args:
          command: The command line.
          limit_seconds: How long it may take to be ready, and then for each round.
          environment: Variables that it has beside those of this process.

        Raises:
          SideFailed: It ended, or took longer; its last words are in the text.
        """
        self._limit = limit_seconds
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
        """Runs one round; returns its answer."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(b"round\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise SideFailed(self._last_words()) from None
        return self._answer()

    def close(self) -> None:
        """Ends the process and all that it started; a second call does nothing."""
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
    """Serves a `Worker`: says that it is ready, then runs a round for each line of input."""
    print(json.dumps(ready), flush=True)
    for _ in sys.stdin:
        print(json.dumps(run()), flush=True)


def fastest(
    start: Mapping[str, Callable[[], Worker]],
    seconds: Callable[[dict[str, Any]], float],
    rounds: int = 3,
) -> tuple[str, Worker, dict[str, Any]]:
    """Finds the fastest of several ways to run a side.

    Each way in turn is measured in alternation with the best so far, and the slower of the two is
    closed. The figures only choose: what is quoted of the winner is measured again.

    Args:
      start: Starts each way's process, by the way's name.
      seconds: Of a round's answer; less is better.
      rounds: Of each pair.

    Returns:
      The winner's name, its process, and of each way what its process said when it was ready with
      its rounds beside those of the best so far, or why it failed.

    Raises:
      SideFailed: Every way failed.
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
    """Ends a process that leads its own group, with all that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _tail(errors: Any, lines: int = 3, characters: int = 600) -> str:
    errors.seek(0)
    text = errors.read().decode(errors="replace").strip().splitlines()
    return " | ".join(text[-lines:])[-characters:] or "none"
