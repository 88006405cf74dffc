"""When a study looks at its trials, what they say then, and which arms need no more of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dawnjax.errors import ConfigError
from dawnjax.study.design import Arm, Study, Trial
from dawnjax.study.stopping import ALPHA, looks_of, nominal_levels
from dawnjax.study.verdict import UNDECIDED, Verdict, judge

MARGIN = 0.05
"""Ratios of expected times within this of 1 are equivalent."""

Rows = dict[int, tuple[float, float]]
"""Of an arm's trials by seed: how long each ran in seconds, and 1 if it reached, else 0."""


class Looks:
    """The looks of a study; with one, the end of it."""

    def __init__(self, study: Study):
        """Args:
        study: The study.

        Raises:
          ConfigError: It looks before a verdict is possible.
        """
        self._seeds = range(study.first_seed, study.first_seed + study.seeds)
        try:
            self._at = looks_of(study.seeds, study.looks) if study.looks > 1 else (study.seeds,)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        self._levels = nominal_levels(self._at) if study.looks > 1 else [ALPHA]

    def verdict(self, first: Rows, second: Rows) -> dict[str, Any] | None:
        """The verdict of the first look that tells two arms apart, or of the last look so far.

        Args:
          first: The study's first arm.
          second: Another arm.

        Returns:
          The verdict as JSON; None while an arm has no trial. Between the looks of a study that
          has several nothing is claimed.
        """
        if not first or not second:
            return None
        told = None
        for count, alpha in zip(self._at, self._levels, strict=True):
            if any(seed not in rows for seed in self._seeds[:count] for rows in (first, second)):
                break
            told = self._judge(first, second, count, alpha)
            if told.word != UNDECIDED:
                break
        if told is None and len(self._at) == 1:
            told = judge(_table(first), _table(second), MARGIN)
        if told is None:
            level = 1 - self._levels[0]
            told = judge(_table(first), _table(second), MARGIN, level=level, is_last=False)
            told = told.before_a_look(self._at[0])
        return told.to_json()

    def has_been_told(self, rows: Mapping[Arm, Rows], first: Arm, trial: Trial) -> bool:
        """Whether a look before a trial has told its arm apart, so that it need not run.

        Args:
          rows: The trials that are over, by arm.
          first: The study's first arm, which needs no more trials once all other arms are told.
          trial: The trial.
        """
        place = self._seeds.index(trial.seed)
        before = [look for look in zip(self._at, self._levels, strict=True) if look[0] <= place]
        others = [arm for arm in rows if arm != first] if trial.arm == first else [trial.arm]

        def is_told(arm: Arm) -> bool:
            sets = rows.get(first, {}), rows.get(arm, {})
            for count, alpha in before:
                if any(seed not in one for seed in self._seeds[:count] for one in sets):
                    return False
                if self._judge(*sets, count, alpha).word != UNDECIDED:
                    return True
            return False

        return bool(before) and all(is_told(arm) for arm in others)

    def _judge(self, first: Rows, second: Rows, count: int, alpha: float) -> Verdict:
        """The verdict of a look after so many trials of each arm."""
        seeds: Sequence[int] = self._seeds[:count]
        before, after = (_table({seed: rows[seed] for seed in seeds}) for rows in (first, second))
        is_last = count == self._at[-1]
        return judge(before, after, MARGIN, level=1 - alpha, is_last=is_last)


def _table(rows: Rows) -> np.ndarray:
    return np.array([rows[seed] for seed in sorted(rows)], np.float64).reshape(-1, 2)
