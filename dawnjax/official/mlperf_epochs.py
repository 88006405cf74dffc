"""Epochs trained, from an MLPerf log alone.

Logs print `train_epoch` once, or only at the end, or not for the first epoch, and count from
different origins. The labels present and the time of their printing select the rule:

  train        `train_epoch` is printed at the start of every epoch: the number of its labels.
  n_eval       the first evaluation comes before the first `train_epoch`, so the first epoch has
               no label: the number of evaluations.
  last_eval    all `train_epoch` lines come after the last evaluation, whose label is one more than
               the last of them: evaluations are labelled from 1.
  last_eval+1  `train_epoch` is printed once or now and then: the label of the last evaluation,
               from 0, plus 1.
  epoch_start  from v0.6: the number of `epoch_start` labels, which skip none.
  eval_label   from v0.6: the label of the last evaluation, which counts epochs trained; plus 1 if
               the first block or epoch is labelled 0.
  samples      from v0.6: samples at the last evaluation / `train_samples`.
"""

from dawnjax.official.mlperf_log import Record
from dawnjax.official.text import count, finite
from dawnjax.results.entries import TimedEvaluation

NONE = "none"


def of_v05(
    by_key: dict[str, list[Record]], start: float, evaluations: list[TimedEvaluation]
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


def of_later(
    by_key: dict[str, list[Record]], evaluations: list[TimedEvaluation]
) -> tuple[float | None, str]:
    """Epochs of a log from v0.6 on, and the rule's name; None and `none` if no rule applies."""
    starts = {n for r in by_key.get("epoch_start", ()) if (n := _epoch_num(r)) is not None}
    labels = [e.epoch for e in evaluations if e.epoch is not None]
    last = max(labels, default=None)
    if starts and all(n == int(n) for n in starts):
        low, high = int(min(starts)), int(max(starts))
        if len(starts) == high - low + 1 and low in (0, 1) and (last is None or last <= high):
            return float(len(starts)), "epoch_start"
    if last is not None:
        firsts = [
            n
            for r in by_key.get("block_start", ())
            if (n := finite(r.metadata.get("first_epoch_num"))) is not None
        ]
        from_zero = min([*firsts, *starts], default=None) == 0 and last == int(last)
        # A fractional label is an amount of epochs, whatever label the first block has.
        whole = all(label == int(label) for label in labels)
        counts = [finite(r.metadata.get("epoch_count")) for r in by_key.get("block_start", ())]
        blocks = sum(n for n in counts if n is not None)
        if from_zero and whole and last + 1 <= max(blocks, len(starts)):
            return last + 1, "eval_label"
        return last, "eval_label"
    samples = [
        n
        for r in by_key.get("eval_accuracy", ())
        if (n := finite(r.metadata.get("samples_count"))) is not None
    ]
    train = [n for r in by_key.get("train_samples", ()) if (n := count(r.value))]
    if samples and train:
        return max(samples) / train[0], "samples"
    return None, NONE


def _label(record: Record) -> int | None:
    value = record.value
    if isinstance(value, dict):
        value = value.get("value", value.get("epoch"))
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _epoch_num(record: Record) -> float | None:
    return finite(record.metadata.get("epoch_num"))
