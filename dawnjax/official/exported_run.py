"""A run directory for an export: its result, and its log's events by name.

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
from dawnjax.runs import summary
from dawnjax.runs.directory import read_events_of, read_existing
from dawnjax.runs.log import Event
from dawnjax.runs.logged_run import FINAL_STATUSES, chooses, events_of
from dawnjax.runs.summary import RunResult
from dawnjax.tasks.metric import Metric, declared_metrics
from dawnjax.trials.origin import Made, made_of


@dataclasses.dataclass(frozen=True)
class ExportedRun:
    """One trial: its directory, the result computed from its log, and the events of process 0."""

    path: Path
    result: RunResult
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
        versions = self.result.versions
        parts = [
            f"{name} {versions[name]}" for name in ("jax", "flax", "optax") if name in versions
        ]
        return printable(f"DawnJAX {versions.get('dawnjax', '')} ({', '.join(parts)})".strip(), 120)

    @property
    def software(self) -> dict[str, str]:
        """Versions of Python and of the libraries that compute."""
        return {
            name: printable(str(version), 40)
            for name, version in self.result.versions.items()
            if name in ("python", "jax", "jaxlib", "flax", "optax", "numpy")
        }

    @property
    def made(self) -> Made:
        return made_of(self.result.identity, self.events)

    def of(self, name: str) -> list[Event]:
        return [event for event in self.events if event["event"] == name]


def read_run(path: Path) -> ExportedRun:
    """Read a run that has ended; `RunError` for any other, or for a damaged log."""
    record = read_existing(path)
    events = read_events_of(path, record)
    try:
        with naming_faults(path):
            result = summary.summarize_log(events)
    except RunError as error:
        text = str(error)
        raise RunError(text if text.startswith(str(path)) else f"{path}: {text}") from None
    if not result.reached and result.status not in FINAL_STATUSES:
        raise RunError(f"{path}: the trial has not ended ({result.status}); it is no result yet")
    if result.initialized_from and not begins_by_the_rules(events):
        raise ConfigError(
            f"{path}: the run began with the parameters of {result.initialized_from}; an entry of "
            "a benchmark begins anew"
        )
    if chooses(events):
        raise ConfigError(
            f"{path}: a search chose its recipe by this run, so its time would flatter the recipe; "
            "export trials that judged it"
        )
    run = ExportedRun(path, result, tuple(events))
    if not run.of("run_start"):
        raise RunError(f"{path}: the log has no run_start")
    return run


def benchmark_data(told: Any, wanted: Collection[str], source: Path) -> str:
    """Published set behind the data of a run or measurement; `ConfigError` for any other data."""
    names = " or ".join(wanted)
    if not isinstance(told, dict) or not told:
        raise ConfigError(
            f"{source}: what its data are is not said, so it is no result on {names}; run it again"
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
        why = printable(summary.of_another_kind(error), 300)
        raise RunError(f"{names}: {why}; not exported") from None


def metrics_of(declarations: Sequence[dict[str, Any]], source: Path) -> Mapping[str, Metric]:
    """Declared metrics of a source, by name."""
    try:
        return declared_metrics(declarations)
    except records.FieldError as error:
        raise ConfigError(f"{source}: its metrics are not declared as Metric is: {error}") from None


BACKBONE = frozenset({"stem", "stem_norm", "blocks"})
"""Parts of a ResNet that MLPerf's SSD and Mask R-CNN begin with, trained on ImageNet."""


def begins_by_the_rules(events: Sequence[Event]) -> bool:
    """True if MLPerf's rules begin with what a run took from another run: the backbone alone."""
    benchmark = events_of(events, "experiment")[-1]["experiment"].get("mlperf_benchmark")
    told = events_of(events, "initialized_from")
    parts = {name.split("/")[1] for event in told for name in event.get("taken", ())}
    sources = {event.get("source_model") for event in told}
    is_backbone = sources == {"resnet"} and parts <= BACKBONE
    return benchmark in ("ssd", "maskrcnn") and is_backbone
