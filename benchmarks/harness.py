"""Two sides in turn, their ratio with its spread, and a record of the machine and every round.

A comparison has three parts. `Comparison` holds the figures of both sides and its statistics,
`alternate` measures them, and a check says that both did the same work: `same_losses` where two
programs compute the same mathematics, `both_reached` where two recipes reach one quality. `Results`
keeps every figure on disk as soon as it is there, so that a time limit costs the rest and no more.

A side that needs a process of its own (another framework, other XLA flags) is a `Worker`: it is
started and compiled once and then asked for one round at a time, so that the rounds of two
processes alternate as those of two functions do. `run_json` runs one that has a single answer.
"""

import contextlib
import dataclasses
import datetime
import importlib.metadata
import json
import math
import os
import platform
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dawnjax.runs import versions

RESULTS = Path(__file__).parent / "results"
RESULTS_VARIABLE = "DAWNJAX_BENCHMARK_RESULTS"
"""The environment variable that names another folder for results."""


class NotTheSame(Exception):
    """The two sides did not do the same work, so their ratio would say nothing."""


class SideFailed(Exception):
    """A side's process ended, or did not answer in its time; the text says which."""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two sides, measured in pairs.

    Attributes:
      first: One figure a round of the first side, such as seconds.
      second: The same of the second.
      unit: What a figure is, such as `ms a step`; the ratio is below 1 where the first has less.
    """

    first: list[float]
    second: list[float]
    unit: str = ""

    def __post_init__(self) -> None:
        """Refuses figures that have no ratio.

        Raises:
          ValueError: Unequal numbers of rounds, none, or a figure that is not above 0 and finite.
        """
        if len(self.first) != len(self.second) or not self.first:
            raise ValueError(f"{len(self.first)} and {len(self.second)} rounds are no pairs")
        for figure in (*self.first, *self.second):
            if not (math.isfinite(figure) and figure > 0):
                raise ValueError(f"a figure of {figure} has no ratio to another")

    @property
    def ratio(self) -> float:
        """Median over the rounds of first / second."""
        return float(np.median(np.divide(self.first, self.second)))

    def interval(self, level: float = 0.95, draws: int = 10_000) -> tuple[float, float]:
        """The bootstrap interval of `ratio`: rounds are drawn again, as pairs."""
        return bootstrap_of_median(np.divide(self.first, self.second), level, draws)

    def to_json(self) -> dict[str, Any]:
        """Every round, and the ratio with its interval."""
        low, high = self.interval()
        return {
            "unit": self.unit,
            "first": self.first,
            "second": self.second,
            "first_median": float(np.median(self.first)),
            "second_median": float(np.median(self.second)),
            "ratio_median": self.ratio,
            "ratio_interval_95": [low, high],
        }

    def row(self, name: str, digits: int = 3) -> list[str]:
        """The row of a table under `HEAD`: both medians, the ratio and its interval."""
        low, high = self.interval()
        medians = [f"{np.median(side):.{digits}f}" for side in (self.first, self.second)]
        return [
            f"{name}, {self.unit}" if self.unit else name,
            *medians,
            f"{self.ratio:.3f}",
            f"{low:.3f} to {high:.3f}",
        ]


def head(first: str, second: str) -> list[str]:
    """The head of a table of `Comparison.row`."""
    return ["", first, second, "ratio", "95 % interval"]


def bootstrap_of_median(
    values: Sequence[float] | np.ndarray, level: float = 0.95, draws: int = 10_000
) -> tuple[float, float]:
    """The percentile interval of the median of values that are drawn again."""
    random = np.random.default_rng(0)
    values = np.asarray(values, float)
    medians = np.median(random.choice(values, (draws, len(values))), axis=1)
    low, high = np.quantile(medians, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


@dataclasses.dataclass(frozen=True)
class RatioOfMeans:
    """Two sides whose rounds have nothing to do with each other, such as trials of seeds.

    Attributes:
      first: Figures of the first side.
      second: Figures of the second; they may be more or fewer.
    """

    first: list[float]
    second: list[float]

    @property
    def ratio(self) -> float:
        """Mean of the first / mean of the second."""
        return float(np.mean(self.first) / np.mean(self.second))

    def interval(self, level: float = 0.95, draws: int = 10_000) -> tuple[float, float]:
        """The bootstrap interval of `ratio`: each side is drawn again by itself."""
        random = np.random.default_rng(0)
        first, second = (
            random.choice(np.asarray(side, float), (draws, len(side))).mean(1)
            for side in (self.first, self.second)
        )
        low, high = np.quantile(first / second, [(1 - level) / 2, (1 + level) / 2])
        return float(low), float(high)

    def to_json(self) -> dict[str, Any]:
        """Both means, the ratio and its interval."""
        return {
            "first_mean": float(np.mean(self.first)),
            "second_mean": float(np.mean(self.second)),
            "first_rounds": len(self.first),
            "second_rounds": len(self.second),
            "ratio_of_means": self.ratio,
            "ratio_interval_95": list(self.interval()),
        }


def alternate(
    first: Callable[[], float],
    second: Callable[[], float],
    rounds: int,
    warm_ups: int = 1,
    unit: str = "",
) -> Comparison:
    """Measures two sides in turn, so that a machine that changes speed changes it for both.

    Args:
      first: Runs the first side once and gives its figure.
      second: Runs the second side once and gives its figure.
      rounds: Pairs that count; in every other one the second side goes first.
      warm_ups: Pairs before them that do not.
      unit: What a figure is.
    """
    figures: tuple[list[float], list[float]] = ([], [])
    for number in range(-warm_ups, rounds):
        order = ((0, first), (1, second)) if number % 2 == 0 else ((1, second), (0, first))
        for side, run in order:
            figure = run()
            if number >= 0:
                figures[side].append(figure)
    return Comparison(*figures, unit)


def same_losses(
    first: Sequence[float], second: Sequence[float], tolerance: float
) -> dict[str, Any]:
    """Checks that two programs have the same losses at their first steps.

    Args:
      first: Losses of the first side, step by step, from the same parameters and the same data.
      second: Those of the second.
      tolerance: The largest difference, as a fraction of the second's loss; it must lie well below
        how far the losses move over these steps, or two untrained networks would pass.

    Returns:
      What a result keeps of the check.

    Raises:
      NotTheSame: They differ by more, are not finite, or do not move enough to tell.
    """
    ours, theirs = np.asarray(first, float), np.asarray(second, float)
    if ours.shape != theirs.shape or len(ours) < 2:
        raise NotTheSame(f"{len(ours)} and {len(theirs)} losses; two or more of each are needed")
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        raise NotTheSame(f"losses that are not finite: {ours.tolist()} and {theirs.tolist()}")
    difference = float(np.max(np.abs(ours - theirs) / np.abs(theirs)))
    movement = float((theirs.max() - theirs.min()) / np.abs(theirs).max())
    if difference > tolerance:
        raise NotTheSame(
            f"losses differ by {difference:.2%}, more than {tolerance:.2%}: "
            f"{ours.round(5).tolist()} and {theirs.round(5).tolist()}"
        )
    if movement < 2 * tolerance:
        raise NotTheSame(
            f"losses move by {movement:.2%} only, which a tolerance of {tolerance:.2%} cannot tell"
        )
    return {
        "check": "losses of the first steps",
        "first_losses": ours.tolist(),
        "second_losses": theirs.tolist(),
        "largest_difference": difference,
        "tolerance": tolerance,
        "movement": movement,
    }


def both_reached(first: Iterable[bool], second: Iterable[bool]) -> dict[str, Any]:
    """Checks that trials of both sides reached their target.

    Raises:
      NotTheSame: A side has no trial, or none that reached.
    """
    counts = []
    for name, side in (("first", list(first)), ("second", list(second))):
        if not any(side):
            raise NotTheSame(f"no trial of the {name} side reached the target, of {len(side)}")
        counts += [sum(side), len(side)]
    names = ("first_reached", "first_trials", "second_reached", "second_trials")
    return {"check": "both reach the target", **dict(zip(names, counts, strict=True))}


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
        self._process = subprocess.Popen(
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
        """Runs one round and gives its answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"round\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise SideFailed(self._last_words()) from None
        return self._answer()

    def close(self) -> None:
        """Ends the process and all that it started; a second call does nothing."""
        if self._process.returncode is not None:
            return
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        end_group(self._process)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        stream, end = self._process.stdout.fileno(), time.monotonic() + self._limit
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
    """Is the other end of a `Worker`: says that it is ready, then runs a round for each line."""
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
                duel = alternate(
                    lambda worker=worker: seconds(worker.round()),
                    lambda held=held: seconds(held.round()),
                    rounds,
                )
            except SideFailed as failure:
                tried[name]["failed"] = str(failure)
                worker.close()
                continue
            tried[name] |= {"against": holder, **duel.to_json()}
            is_faster = duel.ratio < 1
            (held if is_faster else worker).close()
            best = (name, worker) if is_faster else best
        if best is None:
            raise SideFailed("; ".join(f"{name}: {way['failed']}" for name, way in tried.items()))
        running.pop_all()
    return *best, tried


def run_json(
    command: Sequence[str],
    *,
    limit_seconds: float,
    environment: dict[str, str] | None = None,
    ok_statuses: tuple[int, ...] = (0,),
) -> dict[str, Any]:
    """Runs a process whose last line is a JSON object, and gives it.

    Raises:
      SideFailed: Another exit status, no such line, or more time than it has.
    """
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        try:
            status = process.wait(limit_seconds)
        except subprocess.TimeoutExpired:
            raise SideFailed(f"not done in {limit_seconds:g} s; {_tail(errors)}") from None
        finally:
            end_group(process)
        output.seek(0)
        lines = output.read().decode(errors="replace").strip().splitlines()
        if status not in ok_statuses or not lines or not lines[-1].startswith("{"):
            raise SideFailed(f"exit status {status}; its last words: {_tail(errors)}")
        return json.loads(lines[-1])


class Results:
    """A result file that is written anew whenever something is added.

    Attributes:
      path: The file.
    """

    def __init__(self, name: str, **facts: Any):
        """Begins a record with its environment.

        Args:
          name: Of the file, without its ending.
          facts: What is known before the first figure.
        """
        self.path = folder() / f"{name}.json"
        self._record: dict[str, Any] = {"environment": environment(), **facts}

    def add(self, **facts: Any) -> None:
        """Adds figures, and writes all that there is."""
        self._record.update(facts)
        text = json.dumps(self._record, indent=1) + "\n"
        beside = self.path.with_suffix(".part")
        beside.write_text(text)
        beside.replace(self.path)  # a reader, or a time limit, never meets half a file


def folder() -> Path:
    """The folder of results, made where it does not exist."""
    path = Path(os.environ.get(RESULTS_VARIABLE) or RESULTS)
    path.mkdir(parents=True, exist_ok=True)
    return path


def environment() -> dict[str, Any]:
    """The machine, its load, the versions and the day.

    It starts no JAX and no PyTorch: the process that compares may hold no memory of an accelerator.
    """
    installed = versions.installed()
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        installed["torch"] = importlib.metadata.version("torch")
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load_before": round(os.getloadavg()[0], 2),
        "accelerators": _accelerators(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": installed,
    }


def write(name: str, record: dict[str, Any]) -> Path:
    """Writes a record with its environment to `NAME.json`, and gives the path."""
    results = Results(name)
    results.add(**record)
    return results.path


def table(rows: Sequence[Sequence[str]]) -> str:
    """Aligns rows as text, the first one as the head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor()


def _accelerators() -> list[str]:
    """Name, memory and driver of each NVIDIA GPU; empty where there is none."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        listing = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in listing.stdout.splitlines() if line.strip()]


def end_group(process: subprocess.Popen) -> None:
    """Ends a process that leads its own group, with all that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _tail(errors: Any, lines: int = 3, characters: int = 600) -> str:
    errors.seek(0)
    text = errors.read().decode(errors="replace").strip().splitlines()
    return " | ".join(text[-lines:])[-characters:] or "none"
