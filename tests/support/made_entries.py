"""Entries for tests: small ones made by hand, and those of the official archives."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dawnjax.analysis.counts import ListedEntry, read_entry_list
from dawnjax.trials.group import Entry
from dawnjax.trials.target import Target
from dawnjax.trials.trial import Evaluation, Trial


def make_trial(
    seconds: float | None,
    epochs: float | None = None,
    total: float | None = None,
    curve: Sequence[tuple[float | None, float | None, float]] = (),
    **fields: Any,
) -> Trial:
    """Makes a trial; the curve is (epoch, seconds, value)."""
    return Trial(
        name=fields.pop("name", "result_0.txt"),
        reached=seconds is not None,
        time_to_accuracy_seconds=seconds,
        clock_seconds=total if total is not None else seconds,
        epochs=epochs,
        epochs_to_target=epochs if seconds is not None else None,
        evaluations=tuple(
            Evaluation(epoch=epoch, seconds_since_run_start=moment, value=value)
            for epoch, moment, value in curve
        ),
        **fields,
    )


def make_entry(trials: Sequence[Trial], **fields: Any) -> Entry:
    """Makes a training entry."""
    given = {
        "source": "folder/entry",
        "suite": "dawnbench",
        "benchmark": "ImageNet",
        "target": Target(metric="top5Accuracy", value=93.0, unit="percent"),
    }
    return Entry(**{**given, **fields}, trials=tuple(trials))


def entry_of(times: Sequence[float | None], total: float | None = None, **fields: Any) -> Entry:
    """Makes an entry of times to accuracy; `total` is the time of trials that did not reach."""
    return make_entry(
        [make_trial(time, total=total if time is None else None) for time in times], **fields
    )


def official_list(test_data: Path) -> list[ListedEntry]:
    """The list of all official entries of MLPerf v0.5."""
    return read_entry_list(test_data / "official" / "mlperf_v0.5_entries.tsv")
