"""Hours of an imported entry."""

from dawnjax.trials.group import Entry


def hours_of(entry: Entry) -> float | None:
    seconds = entry.trials[0].time_to_accuracy_seconds
    return None if seconds is None else seconds / 3600
