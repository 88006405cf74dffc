"""Two sides with and without the trials that other work disturbed."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dawnjax.statistics.sample import Sample
from dawnjax.statistics.verdict import Verdict, judge
from dawnjax.trials import load
from dawnjax.trials.figures import figures
from dawnjax.trials.group import Entry
from dawnjax.trials.trial import Trial


@dataclasses.dataclass(frozen=True, kw_only=True)
class Disturbed:
    """Disturbed trials of two sides.

    Attributes:
      sides: Those of A and B, in words; empty where a side has none.
      left: The undisturbed trials of A and B; for pairs, both halves must be undisturbed.
    """

    sides: tuple[str, str]
    left: tuple[tuple[Trial, ...], tuple[Trial, ...]]

    @property
    def alone(self) -> list[str]:
        """Names of the sides without an undisturbed trial."""
        return [name for name, trials in zip("AB", self.left, strict=True) if not trials]

    @property
    def samples(self) -> tuple[Sample, Sample] | None:
        """Of the other trials; None where a side has none, or one of unknown length."""
        first, second = (figures(trials).sample if trials else None for trials in self.left)
        return (first, second) if first and second else None

    def verdict(self, margin: float) -> Verdict | None:
        """Verdict on the undisturbed trials, at 5 %; None without samples."""
        return judge(*self.samples, margin) if self.samples else None

    def entries_left(self, entries: Sequence[Entry]) -> list[Entry]:
        return [
            dataclasses.replace(entry, trials=trials)
            for entry, trials in zip(entries, self.left, strict=True)
        ]

    def sentence(self) -> str:
        return words_of_disturbed(zip("AB", self.sides, strict=True))

    @property
    def gate_words(self) -> str:
        """Why a gate on these trials decides nothing; empty where it may decide."""
        if not self.alone:
            return ""
        return f"every trial of {' and of '.join(self.alone)} was disturbed: nothing is decided"

    def to_json(self, without: Any) -> dict[str, Any]:
        """Plain JSON values; `without` is what holds without these trials."""
        return {"a": self.sides[0], "b": self.sides[1], "alone": self.alone, "without": without}


def words_of_disturbed(sides: Iterable[tuple[str, str]]) -> str:
    """A sentence on the sides with disturbed trials."""
    parts = [f"{name} {trials}" for name, trials in sides if trials]
    return f"other work took much of the machine's processor time in {' and '.join(parts)}"


def disturbed(first: Sequence[Trial], second: Sequence[Trial]) -> Disturbed | None:
    """Disturbed trials of two sides; None without any."""
    sides = load.in_words(first), load.in_words(second)
    if not any(sides):
        return None
    left = tuple(load.undisturbed(first)), tuple(load.undisturbed(second))
    pairs = _pairing(first).pairs(_pairing(second))
    calm = [
        (first[a], second[b])
        for a, b in pairs
        if not (load.is_disturbed(first[a]) or load.is_disturbed(second[b]))
    ]
    if calm:
        left = tuple(a for a, _ in calm), tuple(b for _, b in calm)
    return Disturbed(sides=sides, left=left)


def _pairing(trials: Sequence[Trial]) -> Sample:
    """Seeds and first losses, which decide on pairs, without the times."""
    firsts = [trial.finite_losses for trial in trials]
    return Sample(
        np.ones(len(trials)),
        np.ones(len(trials), bool),
        tuple(trial.seed for trial in trials),
        tuple(firsts) if any(firsts) else (),
    )
