"""A run directory for an export: its trial, and its log's events by name.

Only numbers and names of the experiment go out. Host names, paths, addresses and the environment
stay in the log.
"""

import contextlib
import dataclasses
import datetime
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dawnjax import records
from dawnjax.errors import ConfigError, RunError
from dawnjax.official.outcome import printable
from dawnjax.runs.log import Event
from dawnjax.runs.logged_run import FINAL_STATUSES
from dawnjax.tasks.metric import Metric, declared_metrics
from dawnjax.trials import ours
from dawnjax.trials.from_log import of_another_kind
from dawnjax.trials.trial import Trial


@dataclasses.dataclass(frozen=True)
class ExportedRun:
    """One trial of ours, with the events of process 0."""

    path: Path
    trial: Trial
    events: tuple[Event, ...]

    @property
    def experiment(self) -> dict[str, Any]:
        return self.of("experiment")[-1]["experiment"]

    @property
    def num_train_examples(self) -> int:
        return self.of("experiment")[-1]["num_train_examples"]

    @property
    def num_eval_examples(self) -> int:
        return self.of("experiment")[-1]["num_eval_examples"]

    @property
    def num_hosts(self) -> int:
        """Machines of the last attempt."""
        return self.of("devices")[-1]["num_hosts"]

    @property
    def date(self) -> str:
        """Day, in UTC, on which the clock started."""
        seconds = self.of("run_start")[0]["unix_seconds"]
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC).date().isoformat()

    @property
    def framework(self) -> str:
        """DawnJAX and its libraries, with versions."""
        versions = self.trial.versions
        parts = [
            f"{name} {versions[name]}" for name in ("jax", "flax", "optax") if name in versions
        ]
        return printable(f"DawnJAX {versions.get('dawnjax', '')} ({', '.join(parts)})".strip(), 120)

    @property
    def software(self) -> dict[str, str]:
        """Versions of Python and of the libraries that compute."""
        return {
            name: printable(str(version), 40)
            for name, version in self.trial.versions.items()
            if name in ("python", "jax", "jaxlib", "flax", "optax", "numpy")
        }

    def of(self, name: str) -> list[Event]:
        return [event for event in self.events if event["event"] == name]


def read_run(path: Path) -> ExportedRun:
    """Read a run that has ended; `RunError` for any other, or for a damaged log."""
    trial, events = ours.read_with_events(path)
    if not trial.reached and trial.status not in FINAL_STATUSES:
        raise RunError(f"{path}: the trial has not ended ({trial.status}); it is not a result yet")
    if trial.initialized_from and not trial.begins_by_the_rules:
        raise ConfigError(
            f"{path}: the run began with the parameters of {trial.initialized_from}; an entry of "
            "a benchmark begins anew"
        )
    if trial.chooses:
        raise ConfigError(
            f"{path}: a search chose its recipe by this run, so its time would flatter the recipe; "
            "export trials that judged it"
        )
    run = ExportedRun(path, trial, tuple(events))
    if not run.of("run_start"):
        raise RunError(f"{path}: the log has no run_start")
    return run


def benchmark_data(told: Any, wanted: Collection[str], source: Path) -> str:
    """Published set behind the data of a run or measurement; `ConfigError` for any other data."""
    names = " or ".join(wanted)
    if not isinstance(told, dict) or not told:
        raise ConfigError(
            f"{source}: its data are not recorded, so it is not a result on {names}; run it again"
        )
    name, benchmark = (str(told.get(key) or "") for key in ("name", "benchmark"))
    if benchmark not in wanted:
        why = "" if benchmark else f": {printable(str(told.get('evidence') or 'no reason'), 300)}"
        raise ConfigError(
            f"{source}: its data are {printable(name, 120) or 'not named'}{why}; the benchmark's "
            f"are {names}"
        )
    return benchmark


@contextlib.contextmanager
def naming_faults(*sources: Path) -> Iterator[None]:
    """Turn a missing or mistyped field into one `RunError` that names the sources."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        names = ", ".join(str(source) for source in sources[:3])
        why = printable(of_another_kind(error), 300)
        raise RunError(f"{names}: {why}; not exported") from None


def metrics_of(declarations: Sequence[dict[str, Any]], source: Path) -> Mapping[str, Metric]:
    """Declared metrics of a source, by name."""
    try:
        return declared_metrics(declarations)
    except records.FieldError as error:
        raise ConfigError(f"{source}: its metrics are not declared as Metric is: {error}") from None
