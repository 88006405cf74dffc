"""Scalars for trackers: W&B and MLflow, each an extra of its own.

A thread serves them, so that a slow network delays no step. A tracker that fails is dropped with a
warning; the log has everything.
"""

import functools
import importlib.util
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from dawnjax import records
from dawnjax.errors import ConfigError, install

OPEN_SECONDS = 60.0
"""A run waits so long for its trackers before its clock starts: their imports hold Python up."""

CLOSE_SECONDS = 30.0
"""The end of a run waits so long for its trackers, after its result is written."""

MOST_AT_ONCE = 500
"""Points that a tracker gets together, where they wait."""

MOST_METRICS = 1000
"""Metrics that MLflow takes in one request."""

_OPENING = threading.Lock()

Point = tuple[int, dict[str, float]]
"""A step, and scalars by name."""


class Tracker(Protocol):
    def write(self, points: Sequence[Point]) -> None: ...

    def close(self, summary: Mapping[str, Any]) -> None: ...


def refuse_unknown(names: Sequence[str]) -> None:
    """Refuse trackers that are unknown or not installed; the `ConfigError` says what to install."""
    for name in names:
        if name not in ENGINES:
            raise ConfigError(f"tracker={name} is not known; there are {', '.join(ENGINES)}")
        if importlib.util.find_spec(name) is None:
            raise ConfigError(f"tracker={name} is not installed: {install(name)}")


class Trackers:
    """Trackers of a run, each served by a thread of its own."""

    def __init__(
        self,
        names: Sequence[str],
        run_id: str,
        directory: Path,
        config: Mapping[str, Any],
        warn: Callable[[str], None],
    ):
        """Open `names` of `ENGINES`; all attempts append to the tracker's run `run_id`.

        A thread calls `warn` with one line if its tracker fails.
        """
        self._warn = warn
        self._served = [
            _Served(name, functools.partial(ENGINES[name], run_id, directory, config), warn)
            for name in names
        ]

    def wait_until_open(self) -> None:
        """Wait until each tracker is open or dropped."""
        for served in self._served:
            if not served.is_open.wait(OPEN_SECONDS):
                self._warn(f"{served.name} is not open after {OPEN_SECONDS:g} s")

    def write(self, step: int, scalars: dict[str, float]) -> None:
        for served in self._served:
            served.items.put((step, dict(scalars)))

    def close(self, summary: Mapping[str, Any]) -> None:
        """Wait until all is sent, at most `CLOSE_SECONDS`; a second call does nothing."""
        closing, self._served = self._served, []
        for served in closing:
            served.summary = dict(summary)
            served.items.put(None)
        for served in closing:
            served.join(CLOSE_SECONDS)
            if served.is_alive():
                served.warn = lambda message: None  # the log is closed after this
                self._warn(f"{served.name} did not finish within {CLOSE_SECONDS:g} s")


class _Served(threading.Thread):
    """One tracker, which gets what waits together; given up with a line when it fails."""

    def __init__(self, name: str, make: Callable[[], Tracker], warn: Callable[[str], None]):
        super().__init__(name=name, daemon=True)  # one that hangs keeps no process alive
        self._make, self.warn = make, warn
        self.items: queue.SimpleQueue[Point | None] = queue.SimpleQueue()
        self.summary: Mapping[str, Any] = {}
        self.is_open = threading.Event()
        self.start()

    def run(self) -> None:
        try:
            with _OPENING:  # their imports share libraries
                tracker = self._make()
            self.is_open.set()
            while points := self._waiting():
                tracker.write(points)
            tracker.close(self.summary)
        except BaseException as error:  # another's code: it may raise SystemExit too
            why = " ".join(str(error).split())[:200] or type(error).__name__
            self.warn(f"no more of this run goes to {self.name}: {why}")
        self.is_open.set()

    def _waiting(self) -> list[Point]:
        """Points that wait, at least one; none at the end."""
        items = [self.items.get()]
        while items[-1] is not None and len(items) < MOST_AT_ONCE and not self.items.empty():
            items.append(self.items.get())
        if items[-1] is None:
            self.items.put(None)  # ends the next call
        return [item for item in items if item is not None]


class _Wandb:
    """W&B; without a key or a mode it keeps its files in the run directory (`wandb sync`)."""

    def __init__(self, run_id: str, directory: Path, config: Mapping[str, Any]):
        import wandb  # pyright: ignore[reportMissingImports]

        has_key = bool(os.environ.get("WANDB_API_KEY")) or records.path_of("~/.netrc").exists()
        mode: Any = os.environ.get("WANDB_MODE") or ("online" if has_key else "offline")
        # A service leaves out steps below its newest, as those that a resumed run makes again; the
        # files of several attempts offline would all be sent.
        self._sent_file = directory / "wandb" / "sent.json" if mode == "offline" else None
        self._sent: dict[str, int] = {}
        if self._sent_file is not None and self._sent_file.exists():
            self._sent = records.read_json(self._sent_file, dict[str, int])
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "dawnjax"),
            id=run_id,
            name=run_id,
            resume="allow",
            dir=str(directory),
            config=dict(config),
            mode=mode,
            settings=wandb.Settings(silent=True, console="off", disable_git=True),
        )

    def write(self, points: Sequence[Point]) -> None:
        for step, scalars in points:
            new = {name: x for name, x in scalars.items() if step > self._sent.get(name, -1)}
            if new:
                self._run.log(new, step=step)
            if self._sent_file is not None:
                self._sent |= dict.fromkeys(new, step)
        if self._sent_file is not None:
            records.write_json(self._sent_file, self._sent)

    def close(self, summary: Mapping[str, Any]) -> None:
        self._run.summary.update(dict(summary))
        self._run.finish()


class _Mlflow:
    """MLflow; without MLFLOW_TRACKING_URI it keeps its files in the run directory."""

    def __init__(self, run_id: str, directory: Path, config: Mapping[str, Any]):
        # New versions of MLflow refuse their own store of files without this variable.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        from mlflow.tracking import MlflowClient  # pyright: ignore[reportMissingImports]

        place = os.environ.get("MLFLOW_TRACKING_URI") or (directory / "mlruns").absolute().as_uri()
        self._client = MlflowClient(tracking_uri=place)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "dawnjax")
        known = self._client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else self._client.create_experiment(name)
        wanted = f"tags.`dawnjax.run_id` = '{run_id}'"
        earlier = self._client.search_runs([experiment], filter_string=wanted, max_results=1)
        if earlier:
            self._run = earlier[0].info.run_id
            return
        tags = {"dawnjax.run_id": run_id}
        self._run = self._client.create_run(experiment, tags=tags, run_name=run_id).info.run_id
        for field, value in config.items():
            # Some versions of MLflow refuse longer values.
            self._client.log_param(self._run, field, str(value)[:500])

    def write(self, points: Sequence[Point]) -> None:
        from mlflow.entities import Metric  # pyright: ignore[reportMissingImports]

        now = int(1000 * time.time())
        metrics = [
            Metric(name, value, now, step)
            for step, scalars in points
            for name, value in scalars.items()
        ]
        for first in range(0, len(metrics), MOST_METRICS):
            self._client.log_batch(self._run, metrics=metrics[first : first + MOST_METRICS])

    def close(self, summary: Mapping[str, Any]) -> None:
        for name, value in summary.items():
            if isinstance(value, int | float):
                self._client.log_metric(self._run, name, float(value))
            else:
                self._client.set_tag(self._run, f"dawnjax.{name}", str(value))
        is_whole = summary.get("status") in ("reached", "not_reached", "over")
        self._client.set_terminated(self._run, "FINISHED" if is_whole else "FAILED")


ENGINES: dict[str, Callable[[str, Path, Mapping[str, Any]], Tracker]] = {
    "wandb": _Wandb,
    "mlflow": _Mlflow,
}
