"""Epochs trained, from an MLPerf log and the rules of its benchmark.

In v0.5 logs print `train_epoch` once, or only at the end, or not for the first epoch, and count
from different origins. The labels present and the time of their printing select the rule:

  train        `train_epoch` is printed at the start of every epoch: the number of its labels.
  n_eval       the first evaluation comes before the first `train_epoch`, so the first epoch has
               no label: the number of evaluations.
  last_eval    all `train_epoch` lines come after the last evaluation, whose label is one more than
               the last of them: evaluations are labelled from 1.
  last_eval+1  `train_epoch` is printed once or now and then: the label of the last evaluation,
               from 0, plus 1.

From v0.6 the benchmark says what a label counts (`mlperf_epochs.csv`), and a training may end
within an epoch, so an evaluation's label decides and not the number of epochs begun:

  eval_label     whole epochs: the last evaluation's label; plus 1 if labels begin at 0.
  epoch_start    whole epochs, evaluations without labels: the number of epochs begun.
  amount         epochs trained, with parts: the last evaluation's label.
  fraction       parts of an epoch: the last evaluation's label, less 1 if the labels begin at 1.
  label_samples  the label is a number of examples: label / examples of an epoch.
  samples        `samples_count` / examples of an epoch, if the log has the same `train_samples`.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from dawnjax.official.mlperf_log import Record
from dawnjax.official.mlperf_rounds import EpochRule
from dawnjax.official.text import count, finite
from dawnjax.trials.trial import Evaluation

NONE = "none"


def of_v05(
    by_key: dict[str, list[Record]], start: float, evaluations: Sequence[Evaluation]
) -> tuple[float | None, str]:
    """Epochs of a v0.5 log, and the name of the rule; None and `none` if no rule applies."""
    records = [r for r in by_key.get("train_epoch", ()) if _label(r) is not None]
    labels = sorted({label for r in records if (label := _label(r)) is not None})
    evaluated = [e.epoch for e in evaluations if e.epoch is not None]
    if not labels:
        return (None, NONE) if not evaluated else (evaluated[-1] + 1, "last_eval+1")
    whole = labels == list(range(labels[0], labels[0] + len(labels)))
    if not evaluated:
        return (float(len(labels)), "train") if whole else (None, NONE)
    last = max(evaluated)
    first_train = min(r.seconds or 0.0 for r in records) - start
    times = [t for e in evaluations if (t := e.seconds_since_run_start) is not None]
    if whole and times and first_train > 0:
        if max(times) <= first_train:
            rule = "last_eval" if last == labels[-1] + 1 else "last_eval+1"
            return (last if rule == "last_eval" else last + 1), rule
        if min(times) < first_train and last <= labels[-1]:
            return float(len({e.epoch for e in evaluations})), "n_eval"
    if whole and last <= labels[-1]:
        return float(len(labels)), "train"
    return last + 1, "last_eval+1"


class Evaluated(NamedTuple):
    """Evaluation as a log has it: `label` is its `epoch_num`, `samples` its `samples_count`."""

    seconds: float | None
    label: float | None
    samples: float | None
    value: float


@dataclasses.dataclass(frozen=True)
class Counted:
    """Epochs up to the last evaluation and up to each; None with a `reason`."""

    epochs: float | None
    rule: str
    reason: str
    at_evaluations: tuple[float | None, ...]


def of_later(
    by_key: dict[str, list[Record]], evaluated: Sequence[Evaluated], rule: EpochRule, seconds: float
) -> Counted:
    """Epochs of a log from v0.6 on; `seconds` is its length.

    Evaluations after `run_stop` are of training that the clock does not hold.
    """
    if rule.name == "samples":
        counted = _by_samples(by_key, evaluated, rule)
    elif rule.name == "label_samples":
        assert rule.examples is not None
        at = [None if e.label is None else e.label / rule.examples for e in evaluated]
        counted = _counted(at, rule.name)
    elif rule.name == "amount":
        counted = _counted([e.label for e in evaluated], rule.name)
    elif rule.name == "fraction":
        counted = _by_fraction(evaluated)
    elif rule.name == "labels":
        counted = _by_labels(by_key, evaluated)
    else:
        counted = _unknown(rule.reason, evaluated)
    if counted.epochs is None:
        return counted
    timed = [
        epochs
        for epochs, e in zip(counted.at_evaluations, evaluated, strict=True)
        if epochs is not None and (e.seconds is None or e.seconds <= seconds)
    ]
    return dataclasses.replace(counted, epochs=max(timed, default=counted.epochs))


def _by_labels(by_key: dict[str, list[Record]], evaluated: Sequence[Evaluated]) -> Counted:
    begun = (finite(r.metadata.get("epoch_num")) for r in by_key.get("epoch_start", ()))
    starts = sorted({number for number in begun if number is not None})
    labels = sorted({e.label for e in evaluated if e.label is not None})
    if not labels:
        if starts and starts[0] in (0, 1) and starts == [starts[0] + n for n in range(len(starts))]:
            return Counted(float(len(starts)), "epoch_start", "", tuple(None for _ in evaluated))
        return _unknown("the log labels no evaluation", evaluated)
    is_whole = all(label == int(label) for label in labels)
    origin = 1 if is_whole and _from_zero(by_key, starts, labels) else 0
    at = [None if e.label is None else e.label + origin for e in evaluated]
    return _counted(at, "eval_label")


def _from_zero(
    by_key: dict[str, list[Record]], starts: Sequence[float], labels: Sequence[float]
) -> bool:
    """True if whole labels name epochs from 0; False if they count epochs trained."""
    blocks = [
        (first, finite(record.metadata.get("epoch_count")) or 0.0)
        for record in by_key.get("block_start", ())
        if (first := finite(record.metadata.get("first_epoch_num"))) is not None
    ]
    begun = sorted({*starts, *(first for first, _ in blocks)})
    if not begun or begun[0] != 0 or labels[-1] + 1 > max(sum(n for _, n in blocks), len(starts)):
        return False
    # The second block begins where the first one ended; its own count can be wrong.
    if len(begun) > 1 and labels[0] in (begun[1], begun[1] - 1):
        return labels[0] != begun[1]
    return True


def _by_fraction(evaluated: Sequence[Evaluated]) -> Counted:
    """Epochs by labels such as 0.05, 0.1, 0.15 or, of the same trainings, 1.05, 1.1, 1.15."""
    labels = sorted({e.label for e in evaluated if e.label is not None})
    if all(label == int(label) for label in labels):
        return _unknown("its whole labels number the evaluations within an epoch", evaluated)
    # Evaluations are equally far apart, so the labels begin one distance before the first. Ranks
    # differ in the last figures.
    labels = sorted({round(label, 4) for label in labels})
    step = labels[1] - labels[0] if len(labels) > 1 else 0.0
    origin = 0 if labels[0] < 1 else 1
    if origin == 1 and not abs(labels[0] - step - 1) <= step / 2:
        return _unknown("its labels do not show whether they begin at 0 or at 1", evaluated)
    at = [None if e.label is None else round(e.label - origin, 9) for e in evaluated]
    return _counted(at, "fraction")


def _by_samples(
    by_key: dict[str, list[Record]], evaluated: Sequence[Evaluated], rule: EpochRule
) -> Counted:
    assert rule.examples is not None
    logged = {n for r in by_key.get("train_samples", ()) if (n := count(r.value)) is not None}
    if logged != {rule.examples}:
        shown = ", ".join(str(n) for n in sorted(logged)[:3]) or "nothing"
        return _unknown(f"train_samples says {shown}; an epoch has {rule.examples:,}", evaluated)
    if all(e.samples is None for e in evaluated):
        return _unknown("its evaluations have no number of samples", evaluated)
    at = [None if e.samples is None else e.samples / rule.examples for e in evaluated]
    return _counted(at, rule.name)


def _counted(at: Sequence[float | None], rule: str) -> Counted:
    known = [epochs for epochs in at if epochs is not None]
    if not known:
        return Counted(None, NONE, "the log labels no evaluation", tuple(at))
    return Counted(max(known), rule, "", tuple(at))


def _unknown(reason: str, evaluated: Sequence[Evaluated]) -> Counted:
    return Counted(None, NONE, reason, tuple(None for _ in evaluated))


def _label(record: Record) -> int | None:
    value = record.value
    if isinstance(value, dict):
        value = value.get("value", value.get("epoch"))
    return value if isinstance(value, int) and not isinstance(value, bool) else None
