"""Time and cost of a trial until its training ended, even short of the target."""

from collections.abc import Sequence
from typing import NamedTuple

from dawnjax.runs.log import Event
from dawnjax.runs.logged_run import FINAL_STATUSES, LoggedRun, events_of, last_event


class Spent(NamedTuple):
    """Time and cost of a trial; an entry's expected ones are made of it.

    Attributes:
      seconds: On the run's clock until the training ended: the end of the last step or evaluation,
        before the last save and the profile. Until the last event of an attempt that was killed or
        failed in training. None if the clock never started.
      cost_usd: Of the time to accuracy, or of `seconds` short of the target; each attempt's part at
        its own price. None if unknown.
      hourly_prices: Distinct prices per hour of the attempts' systems; None among them where an
        attempt has no price.
    """

    seconds: float | None
    cost_usd: float | None
    hourly_prices: tuple[float | None, ...]


def spent(events: Sequence[Event]) -> Spent:
    run = LoggedRun.from_events(events)
    end = _training_end(run)
    seconds = run.run_seconds(end)
    cost, _ = run.run_cost(run.reached or end)
    prices = dict.fromkeys(attempt.usd_per_hour for attempt in run.attempts)
    return Spent(None if seconds is None else round(seconds, 6), cost, tuple(prices))


def _training_end(run: LoggedRun) -> Event:
    last = run.attempts[-1]
    trained = [e for e in run.events if e["event"] in ("train", "evaluation", "diverged")]
    end = last_event(last.events, "attempt_end")
    status = None if end is None else end["status"]
    profiled = any(event["name"] == "profile" for event in events_of(last.events, "phase"))
    if trained and trained[-1]["attempt"] == last.number:
        ended = profiled or status not in (None, "failed")
    else:
        # It only took up what an earlier attempt had finished, or it did not come to train.
        ended = profiled or status in FINAL_STATUSES
    return trained[-1] if ended and trained else last.events[-1]
