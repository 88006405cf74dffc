"""One MLPerf log as one trial: its clock, its end, its evaluations and its epochs.

The time to accuracy is the stamp of `run_stop` minus that of `run_start`. Stamps alone order the
records, because several ranks write, some of them twice.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from dawnjax.official import mlperf_epochs, mlperf_rounds
from dawnjax.official.mlperf_epochs import Evaluated
from dawnjax.official.mlperf_log import Record, line_of, parse
from dawnjax.official.outcome import Refused, printable, quoted
from dawnjax.official.text import count, finite, number_of, words
from dawnjax.trials.trial import Evaluation

_SUCCESS = ("success", "succeeded", "true")
_FAILURE = ("abort", "aborted", "fail", "failed", "failure", "false")

MAX_EPOCHS = 1e6
"""More epochs than any training has; a larger label is a mistake."""

MAX_EVALUATIONS = 20_000
"""Evaluations of one log."""

_YEARS = (1e9, 2.1e9)
"""Unix times of 2001 and 2036. A run_start outside of them has another unit or clock than its name
says, and so would the trial's time."""

_DESCRIPTIONS = (
    "submission_org",
    "submission_division",
    "submission_status",
    "submission_platform",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialLog:
    """Trial of a log. Times are seconds.

    Attributes:
      version: Kind of lines: `v0.5`, `v0.6` or `v0.7+`.
      seconds: From `run_start` to `run_stop`, or to the last record if there is none.
      status: The log's word for the end.
      epochs: Epochs up to the last evaluation; None if unknown, for `epoch_reason`.
      targets: Distinct values of `eval_target` or `target_accuracy`, each as the names of its
        metrics with their numbers; the name of a plain number is empty.
      batch_sizes: Distinct values of `input_batch_size`, ascending.
      iterations_per_epoch: Of the first epoch, where iterations are logged; else None.
      num_cache_clears: Number of `run_clear_caches` or `cache_clear` lines.
      descriptions: Values of `submission_...`.
    """

    version: str
    benchmark: str
    start_unix_seconds: float
    seconds: float
    reached: bool
    status: str
    epochs: float | None
    epoch_rule: str
    epoch_reason: str
    evaluations: tuple[Evaluation, ...]
    targets: tuple[tuple[tuple[str, float], ...], ...]
    batch_sizes: tuple[int, ...]
    global_batch_size: int | None
    iterations_per_epoch: int | None
    num_cache_clears: int
    seeds: tuple[int, ...]
    descriptions: dict[str, str]
    warnings: tuple[str, ...]


def read_trial(data: bytes, folder: str = "", round_name: str = "") -> TrialLog:
    """Read the trial of a log; `Refused` names the line of a contradiction.

    `folder` is the benchmark by the log's folder, for logs that name none; the unit of epochs
    depends on the benchmark and `round_name`.
    """
    log = parse(data)
    by_key: dict[str, list[Record]] = {}
    last = 0.0
    for record in log.records:
        by_key.setdefault(record.key, []).append(record)
        if record.seconds is None:
            continue
        if not 0 <= record.seconds <= _YEARS[1]:
            raise _misstamped(record, data)
        last = max(last, record.seconds)
    warnings: list[str] = []
    if log.unreadable:
        line = line_of(data, log.unreadable[0])
        warnings.append(f"{len(log.unreadable)} marked lines are unreadable, the first at {line}")
        if not {"run_start", "run_stop"} <= by_key.keys():
            raise Refused("has no readable run_start or run_stop; this line cannot be read", line)
    start, stop = _stamp(by_key, "run_start", data), _stamp(by_key, "run_stop", data)
    if start is None:
        raise Refused("has no run_start: no time can be taken")
    status, reached = _end(by_key, data, log.version, warnings)
    # A float64 of Unix seconds has 0.24 microseconds.
    seconds = round((last if stop is None else stop) - start, 6)
    if seconds <= 0:
        raise Refused(f"takes {seconds:g} s from run_start to its end")
    if seconds > 3.2e8:
        raise Refused(f"takes {seconds:g} s, more than ten years: the stamps are wrong")
    benchmark = mlperf_rounds.benchmark_of(
        log.benchmark or _description(by_key, "submission_benchmark")
    )
    named = benchmark or mlperf_rounds.benchmark_of(folder)
    evaluated = _evaluated(by_key, data, start, named, warnings)
    if log.version == "v0.5":
        evaluations = _timed(evaluated, [e.label for e in evaluated])
        epochs, rule = mlperf_epochs.of_v05(by_key, start, evaluations)
        reason = ""
    else:
        meaning = mlperf_rounds.epoch_rule(named, round_name)
        counted = mlperf_epochs.of_later(by_key, evaluated, meaning, seconds)
        evaluations = _timed(evaluated, counted.at_evaluations)
        epochs, rule, reason = counted.epochs, counted.rule, counted.reason
    if epochs is not None and not 0 < epochs <= MAX_EPOCHS:
        reason = f"{epochs:g} is not a number of epochs"
        epochs, rule = None, mlperf_epochs.NONE
    asked = by_key.get("eval_target", []) + by_key.get("target_accuracy", [])
    cleared = by_key.get("run_clear_caches", []) + by_key.get("cache_clear", [])
    return TrialLog(
        version=log.version,
        benchmark=benchmark,
        start_unix_seconds=start,
        seconds=seconds,
        reached=reached,
        status=status,
        epochs=epochs,
        epoch_rule=rule,
        epoch_reason=reason,
        evaluations=evaluations,
        targets=tuple(dict.fromkeys(filter(None, (_by_metric(record.value) for record in asked)))),
        batch_sizes=_sizes(by_key.get("input_batch_size", ())),
        global_batch_size=_single(by_key, "global_batch_size", warnings),
        iterations_per_epoch=_iterations(by_key),
        num_cache_clears=len(cleared),
        seeds=_counts(by_key.get("seed", []) + by_key.get("run_set_random_seed", [])),
        descriptions={key: text for key in _DESCRIPTIONS if (text := _description(by_key, key))},
        warnings=tuple(warnings),
    )


def _misstamped(record: Record, data: bytes) -> Refused:
    return Refused(
        f"{quoted(record.key)} is stamped {record.seconds:g} s after 1970, no time of a run",
        line_of(data, record.offset),
    )


def _stamp(by_key: dict[str, list[Record]], key: str, data: bytes) -> float | None:
    """Time of the one start or end of a run, which a log may write twice; None without a record."""
    records = by_key.get(key, [])
    if not records:
        return None
    stamps = {record.seconds for record in records if record.seconds is not None}
    if not stamps:
        raise Refused(f"{key} has no time", line_of(data, records[0].offset))
    if len(stamps) > 1:
        line = line_of(data, records[-1].offset)
        raise Refused(f"has {key} at {len(stamps)} times: two runs in one log", line)
    if min(stamps) < _YEARS[0]:
        raise _misstamped(records[0], data)
    return stamps.pop()


def _end(
    by_key: dict[str, list[Record]], data: bytes, version: str, warnings: list[str]
) -> tuple[str, bool]:
    """Word of `run_stop` for the end, and True if the target was reached."""
    records = by_key.get("run_stop", [])
    if not records:
        warnings.append("no run_stop: counted as not reached, up to its last record")
        return "no run_stop", False
    ends = {_status(record, version, data) for record in records}
    if len(ends) > 1:
        raise Refused("its run_stop lines contradict each other", line_of(data, records[-1].offset))
    return ends.pop()


def _status(record: Record, version: str, data: bytes) -> tuple[str, bool]:
    if version == "v0.5":
        if record.value is None:
            return "success", True  # no value means that the target was reached
        answer = record.value.get("success") if isinstance(record.value, dict) else record.value
    else:
        answer = record.metadata.get("status", record.value)
        if answer is None and isinstance(record.metadata.get("success"), bool | str):
            answer = record.metadata["success"]
    if isinstance(answer, dict):
        answer = answer.get("status", answer.get("success"))
    word = str(answer).strip().lower() if isinstance(answer, str | bool) else ""
    if word in _SUCCESS:
        return "success", True
    if word in _FAILURE:
        return ("not reached" if word == "false" else word), False
    raise Refused(
        f"run_stop says {quoted(answer)}: the log does not show whether the target was reached",
        line_of(data, record.offset),
    )


def _evaluated(
    by_key: dict[str, list[Record]], data: bytes, start: float, benchmark: str, warnings: list[str]
) -> list[Evaluated]:
    """Evaluations of one metric in the order of time."""
    records = by_key.get("eval_accuracy", [])
    if len(records) > MAX_EVALUATIONS:
        raise Refused(f"has more than {MAX_EVALUATIONS:,} eval_accuracy")
    metric, records = _of_one_metric(records, benchmark, warnings)
    seen: set[tuple[Any, ...]] = set()
    evaluated: list[Evaluated] = []
    early, bad = 0, list[Record]()
    for record in records:
        label, samples, value = _labelled(record, metric)
        if value is None:
            bad.append(record)
            continue
        if (record.seconds, label, samples, value) in seen:
            continue  # a log that writes every record twice
        seen.add((record.seconds, label, samples, value))
        since = None if record.seconds is None else round(record.seconds - start, 6)
        if since is not None and since < 0:
            # Values that were kept on the accelerator can carry a stamp of another clock.
            early += 1
            since = None
        evaluated.append(Evaluated(since, label, samples, value))
    if bad:
        warnings.append(
            f"{len(bad)} eval_accuracy are no number, the first, {quoted(bad[0].value)}, at line "
            f"{line_of(data, bad[0].offset)}"
        )
    if early:
        warnings.append(f"{early} evaluations are stamped before run_start; their times are null")
    timed = [e for e in evaluated if e.seconds is not None]
    untimed = [e for e in evaluated if e.seconds is None]
    timed.sort(key=lambda e: (e.seconds, e.label is None, e.label or 0))
    return untimed + timed


def _of_one_metric(
    records: list[Record], benchmark: str, warnings: list[str]
) -> tuple[str, list[Record]]:
    """Records of the metric shown; others under the same key are left out with a warning."""
    named = [(words(record.metadata.get("metric"), 40), record) for record in records]
    names = list(dict.fromkeys(name for name, _ in named))
    metric = mlperf_rounds.curve_metric(benchmark) or next(filter(None, names), "")
    # An object without a name may hold all metrics, as a list of box and mask does.
    whole = dict | list if metric == "BBOX" else dict
    kept = [
        record
        for name, record in named
        if name.lower() == metric.lower() or (not name and isinstance(record.value, whole))
    ]
    if len(kept) < len(records):
        others = ", ".join(name or "no name" for name in names if name.lower() != metric.lower())
        warnings.append(
            f"{len(records) - len(kept)} evaluations of {printable(others, 80)} are left out: the "
            f"curve shows {metric}"
        )
    return metric, kept


def _timed(evaluated: list[Evaluated], epochs: Sequence[float | None]) -> tuple[Evaluation, ...]:
    return tuple(
        Evaluation(
            epoch=None if epoch is None or abs(epoch) > MAX_EPOCHS else epoch,
            seconds_since_run_start=e.seconds,
            value=e.value,
        )
        for e, epoch in zip(evaluated, epochs, strict=True)
    )


def _labelled(record: Record, metric: str) -> tuple[float | None, float | None, float | None]:
    """Label, number of samples and value of an evaluation."""
    value, label, samples = record.value, None, None
    if isinstance(value, dict) and "value" in value:
        label, value = finite(value.get("epoch")), value["value"]
    if record.metadata:
        label = finite(record.metadata.get("epoch_num", record.metadata.get("epoch")))
        samples = finite(record.metadata.get("samples_count"))
    return label, samples, finite(_number_in(value, metric))


def _number_in(value: Any, metric: str = "") -> Any:
    """Number in a value that may be a string, a list or an object.

    Of a list it is the first (v0.6 has box and mask), of an object that of `metric` or the boxes.
    """
    if isinstance(value, str):
        return number_of(value.strip())
    if isinstance(value, list) and value:
        return _number_in(value[0]) if not isinstance(value[0], list | dict) else None
    if isinstance(value, dict):
        names = ("bbox", "box") if metric in ("", "BBOX") else (metric.lower(),)
        for key, item in _metrics_in(value).items():
            if str(key).lower() in names:
                return _number_in(item) if not isinstance(item, dict | list) else None
        return None
    return value


def _metrics_in(value: dict[str, Any]) -> dict[str, Any]:
    """Metrics of an object by name; v0.6 has `{"accuracy": {"BBOX": ...}}`."""
    inner = value.get("accuracy")
    return inner if isinstance(inner, dict) else value


def _by_metric(value: Any) -> tuple[tuple[str, float], ...]:
    """Names of metrics with the numbers of a logged target; empty if any is not a number."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    given = _metrics_in(value) if isinstance(value, dict) else {"": value}
    # A list is not a number here: which metrics it holds is not told.
    numbers = {
        words(name, 40): None if isinstance(item, dict | list) else finite(_number_in(item))
        for name, item in given.items()
    }
    known = [(name, number) for name, number in numbers.items() if number is not None]
    return tuple(sorted(known)) if len(known) == len(given) else ()


def _counts(records: Any) -> tuple[int, ...]:
    values = (count(record.value) for record in records)
    return tuple(sorted({value for value in values if value is not None}))


def _sizes(records: Any) -> tuple[int, ...]:
    """Counts without 0, which is no size of a batch."""
    return tuple(value for value in _counts(records) if value > 0)


def _single(by_key: dict[str, list[Record]], key: str, warnings: list[str]) -> int | None:
    values = _sizes(by_key.get(key, ()))
    if len(values) > 1:
        warnings.append(f"{key} is logged as {', '.join(map(str, values[:4]))}; left out")
    return values[0] if len(values) == 1 else None


def _iterations(by_key: dict[str, list[Record]]) -> int | None:
    """First iteration of the second epoch, if learning rates are logged with both."""
    firsts = [
        iteration
        for record in by_key.get("opt_learning_rate", ())
        if isinstance(record.value, dict)
        and record.value.get("epoch") == 1
        and (iteration := count(record.value.get("iteration"))) is not None
    ]
    return min(firsts, default=None)


def _description(by_key: dict[str, list[Record]], key: str) -> str:
    for record in by_key.get(key, ()):
        text = words(record.value, 120)
        if text:
            return text
    return ""
