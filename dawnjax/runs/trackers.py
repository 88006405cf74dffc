"""Scalars for trackers: W&B and MLflow, each an extra of its own.

A thread serves them, so that neither a slow network nor their errors delay or end a run. A failing
tracker is dropped with a warning; the log has everything. Trackers load before the run's clock
starts. The thread's later work runs during the timed phase, like everything else.
"""

import contextlib
import importlib.util
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from dawnjax import records
from dawnjax.errors import ConfigError

OPEN_SECONDS = 60.0
"""A run waits so long for its trackers before its clock starts: their imports hold Python up."""

CLOSE_SECONDS = 30.0
"""The end of a run waits so long for its trackers, after its result is written."""


MOST_AT_ONCE = 500
"""Points that a tracker gets together, where they wait."""

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
            raise ConfigError(f"tracker={name} is not installed: pip install -e '.[{name}]'")


class Trackers:
    """Trackers of a run, served by a thread; without names there is no thread."""

    def __init__(
        self,
        names: Sequence[str],
        run_id: str,
        directory: Path,
        config: Mapping[str, Any],
        warn: Callable[[str], None],
    ):
        """Start the thread for `names` of `ENGINES`.

        Trackers append to the run `run_id`, the same in all attempts. `warn` runs on the caller's
        thread, with a line for each tracker that is dropped.
        """
        self._warn = warn
        self._notes: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._items: queue.SimpleQueue[Point | None] = queue.SimpleQueue()
        self._summary: dict[str, Any] = {}
        self._is_open = threading.Event()
        self._thread: threading.Thread | None = None
        if names:
            # A daemon, because a tracker that hangs must not keep the process alive.
            self._thread = threading.Thread(
                target=self._serve, args=(names, run_id, directory, config), daemon=True
            )
            self._thread.start()

    def wait_until_open(self) -> None:
        """Wait until each tracker is open or dropped."""
        if self._thread is not None and not self._is_open.wait(OPEN_SECONDS):
            self._notes.put(f"trackers not open after {OPEN_SECONDS:g} s load on the clock")
        self._pass_notes_on()

    def write(self, step: int, scalars: dict[str, float]) -> None:
        if self._thread is not None:
            self._items.put((step, dict(scalars)))
            self._pass_notes_on()

    def close(self, summary: Mapping[str, Any] | None = None) -> None:
        """Wait until all is sent, at most `CLOSE_SECONDS`; a second call does nothing."""
        if self._thread is None:
            return
        thread, self._thread = self._thread, None
        self._summary = dict(summary or {})
        self._items.put(None)
        thread.join(CLOSE_SECONDS)
        if thread.is_alive():
            self._notes.put(
                f"trackers did not finish within {CLOSE_SECONDS:g} s; their last points may be "
                "missing"
            )
        self._pass_notes_on()

    def _pass_notes_on(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._warn(self._notes.get_nowait())

    def _serve(
        self, names: Sequence[str], run_id: str, directory: Path, config: Mapping[str, Any]
    ) -> None:
        open_now = {}
        for name in names:
            with self._noting(name, open_now):
                open_now[name] = ENGINES[name](run_id, directory, config)
        # Set even if every tracker failed, because the run waits for it.
        self._is_open.set()
        for points in self._received():
            for name in list(open_now):
                with self._noting(name, open_now):
                    open_now[name].write(points)
        for name in list(open_now):
            with self._noting(name, open_now):
                open_now[name].close(self._summary)

    def _received(self) -> Iterator[list[Point]]:
        """Points as they come, those together that wait; ends with `close`."""
        while (item := self._items.get()) is not None:
            points = [item]
            with contextlib.suppress(queue.Empty):
                while len(points) < MOST_AT_ONCE:
                    if (item := self._items.get_nowait()) is None:
                        break
                    points.append(item)
            yield points
            if item is None:
                return

    @contextlib.contextmanager
    def _noting(self, name: str, open_now: dict[str, Tracker]) -> Any:
        """Drop a tracker at its first error."""
        try:
            yield
        except BaseException as error:  # another's code: it may raise SystemExit too
            open_now.pop(name, None)
            why = " ".join(str(error).split())[:200] or type(error).__name__
            self._notes.put(f"no more of this run goes to {name}: {why}")


class _Wandb:
    """W&B; without a key or a mode it keeps its files in the run directory (`wandb sync`)."""

    def __init__(self, run_id: str, directory: Path, config: Mapping[str, Any]):
        import wandb  # pyright: ignore[reportMissingImports]

        has_key = bool(os.environ.get("WANDB_API_KEY")) or records.path_of("~/.netrc").exists()
        mode: Any = os.environ.get("WANDB_MODE") or ("online" if has_key else "offline")
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
            # W&B leaves out a step below its newest, as those that a resumed run makes again.
            self._run.log(scalars, step=step)

    def close(self, summary: Mapping[str, Any]) -> None:
        self._run.summary.update(dict(summary))
        self._run.finish()


_MLFLOWS_MOST = 1000
"""Metrics that MLflow takes in one request."""


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
        self._newest: dict[str, int] = {}
        self._is_resumed = bool(earlier)
        if earlier:
            self._run = earlier[0].info.run_id
            return
        made = self._client.create_run(experiment, tags={"dawnjax.run_id": run_id}, run_name=run_id)
        self._run = made.info.run_id
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
            if step > self._newest_before(name)
        ]
        for first in range(0, len(metrics), _MLFLOWS_MOST):
            self._client.log_batch(self._run, metrics=metrics[first : first + _MLFLOWS_MOST])

    def _newest_before(self, name: str) -> int:
        """Newest step that an earlier attempt sent; MLflow would show a step twice."""
        if name not in self._newest:
            history = self._client.get_metric_history(self._run, name) if self._is_resumed else []
            self._newest[name] = max((metric.step for metric in history), default=-1)
        return self._newest[name]

    def close(self, summary: Mapping[str, Any]) -> None:
        for name, value in summary.items():
            if isinstance(value, int | float):
                self._client.log_metric(self._run, name, float(value))
            else:
                self._client.set_tag(self._run, f"dawnjax.{name}", str(value))
        status = (
            "FINISHED" if summary.get("status") in ("reached", "not_reached", "over") else "FAILED"
        )
        self._client.set_terminated(self._run, status)


ENGINES: dict[str, Callable[[str, Path, Mapping[str, Any]], Tracker]] = {
    "wandb": _Wandb,
    "mlflow": _Mlflow,
}
