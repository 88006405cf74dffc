"""The judge's verdicts: one file for each entry, and the ledger of tries beside them."""

import dataclasses
import functools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from dawnjax import records
from dawnjax.errors import ConfigError
from dawnjax.page import words
from dawnjax.race.entry import Entry
from dawnjax.race.tracks import Track, read_track
from dawnjax.runs.directory import names_a_file
from dawnjax.statistics.fixed_length import FixedLength
from dawnjax.statistics.interval import FEWEST_TRIALS, percent
from dawnjax.statistics.looks import looks_of
from dawnjax.statistics.sample import Sample

SCHEMA_VERSION = 4

LEVEL = 0.01
"""Chance of a false verdict over all tries against one record."""

LEDGER = "ledger.jsonl"

Word = Literal["accepted", "tie", "slower", "worse", "refused"]

BASELINE = "the baseline"


@dataclasses.dataclass(frozen=True, kw_only=True)
class JudgedTrial:
    """A trial by the judge's clock and evaluation; `quality` is the target metric's value."""

    seed: int
    reached: bool
    seconds: float
    quality: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SideResult:
    """Trials of one side, in the order of the rounds.

    Attributes:
      preparation_seconds: Before a trial asks for its data, on average.
    """

    trials: tuple[JudgedTrial, ...]
    preparation_seconds: float

    @functools.cached_property
    def sample(self) -> Sample:
        """Times and successes; the length is fixed, so a trial that misses takes as long."""
        seconds = np.array([trial.seconds for trial in self.trials])
        return Sample(seconds, np.array([trial.reached for trial in self.trials]))

    @property
    def time(self) -> str:
        """Expected time in words, the basis of a verdict's ratio."""
        expected = self.sample.expected
        return "none reached" if expected is None else f"{words.rounded(expected)} s"

    def worths(self, direction: str) -> list[float]:
        """Qualities, negated if lower is better; a trial without one ranks lowest."""
        sign = 1 if direction == "at_least" else -1
        return [-math.inf if it.quality is None else sign * it.quality for it in self.trials]

    def text(self, track: Track) -> str:
        if track.budget is None:
            return f"{self.sample.num_reached} of {len(self.trials)} reached, {self.time} expected"
        mean = abs(float(np.mean(self.worths(track.target.direction))))
        return f"{words.rounded(mean)} on average" if mean < math.inf else "a trial saved nothing"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Beside:
    """Trials beside those of a rival.

    Attributes:
      word: `faster` or `slower`, at a budget `better` or `worse`, if this look decides it.
      ratio: Expected time divided by the rival's; None at a budget.
      better: Of the rounds that differ, the fraction that ended better than the rival's; None
        without any.
      differ: Rounds that ended with another quality than the rival's; None unless at a budget.
      equal: Rounds that ended with the same; None likewise.
      low: Lower end of the interval of the ratio or of the fraction.
      high: Upper end likewise.
      gain: Gain in mean quality; None if a trial has none.
      error_probability: Chance of a false verdict that this look has.
      p_value: Probability of such a difference between equal sides.
    """

    word: Literal["faster", "slower", "better", "worse", "undecided"]
    ratio: float | None = None
    better: float | None = None
    differ: int | None = None
    equal: int | None = None
    low: float | None
    high: float | None
    gain: float | None = None
    error_probability: float
    p_value: float

    @property
    def verdict(self) -> Word:
        if self.word in ("slower", "worse"):
            return self.word
        return "tie" if self.word == "undecided" else "accepted"

    def text(self) -> str:
        low, high = ("no end" if end is None else f"{end:.3f}" for end in (self.low, self.high))
        ends = f"({percent(1 - self.error_probability)}: {low} to {high}), p {self.p_value:.2g}"
        if self.differ == 0:
            return "all rounds ended equal"
        if self.better is not None and self.differ is not None:
            gain = "" if self.gain is None else f"; by {self.gain:+.4g} on average"
            rounds = f"{round(self.better * self.differ)} of {self.differ} rounds that differ"
            return f"better in {rounds} ({self.equal} equal), {self.better:.3f} {ends}{gain}"
        if self.ratio is None:
            return f"a side never reached the target, p {self.p_value:.2g}"
        return f"{self.ratio:.3f} of the time {ends}"


def compared(own: SideResult, rival: SideResult, level: float, track: Track) -> Beside:
    """Trials beside a rival's, run in turn, at the level of a look."""
    if track.budget is not None:
        return _compared_at_budget(own, rival, level, track.target.direction)
    pair = FixedLength(own.sample, rival.sample)
    interval, p_value = pair.interval(level), pair.p_value()
    is_decided = p_value <= level
    return Beside(
        word=("faster" if pair.is_faster else "slower") if is_decided else "undecided",
        ratio=pair.ratio,
        low=interval and interval.low,
        high=interval and interval.high,
        error_probability=level,
        p_value=p_value,
    )


def _compared_at_budget(own: SideResult, rival: SideResult, level: float, direction: str) -> Beside:
    """The exact sign test of pairs: which side ends a round better, more often than not.

    A test of means misses rare collapses that so few rounds may not show; here a collapse loses its
    round. A trial without a quality loses to any other. Equal rounds count for neither side.
    """
    from scipy import stats

    ours, theirs = own.worths(direction), rival.worths(direction)
    better = sum(a > b for a, b in zip(ours, theirs, strict=True))
    decided = better + sum(a < b for a, b in zip(ours, theirs, strict=True))
    test = stats.binomtest(better, decided) if decided else None
    ends = test.proportion_ci(1 - level) if test else None
    p_value = float(test.pvalue) if test else 1.0
    means = float(np.mean(ours)), float(np.mean(theirs))
    is_better, is_decided = better > decided / 2, p_value <= level
    found = "better" if is_better and means[0] > means[1] else "undecided" if is_better else "worse"
    return Beside(
        word=found if is_decided else "undecided",
        better=better / decided if decided else None,
        differ=decided,
        equal=len(ours) - decided,
        low=ends and float(ends.low),
        high=ends and float(ends.high),
        gain=means[0] - means[1] if min(means) > -math.inf else None,
        error_probability=level,
        p_value=p_value,
    )


def looks(rounds: int, *, is_at_budget: bool = False) -> tuple[int, ...]:
    """Rounds after which the judge looks whether a verdict is certain.

    At a budget only the last: half of 20 rounds decide no sign test at the level of a first look.
    """
    if is_at_budget:
        return (rounds,)
    return looks_of(rounds, 2) if rounds >= 2 * FEWEST_TRIALS else (rounds,)


@dataclasses.dataclass(frozen=True, kw_only=True)
class JudgedEntry:
    """Verdict on an entry.

    Attributes:
      schema_version: Of the verdict's file.
      recipe: Hash of what was judged.
      code: Whose code a run executed.
      word: `accepted` if it is faster than the standing record.
      rule: Rule that it broke; empty for none.
      why: How it broke it.
      rival: The standing record's name, or the baseline.
      records_before: Number of successive records before this one; 0 if the baseline was the rival.
        The accepted entry with the most is the standing record.
      tries: Tries against this rival, including this one.
      error_probability: Chance of a false verdict that this try has.
      baseline: The entry beside the baseline.
      record: The entry beside the standing record; None if the baseline is the rival.
      sides: Trials of each side, by its name.
    """

    schema_version: int = SCHEMA_VERSION
    name: str
    track: str
    recipe: str
    code: str
    date: str
    word: Word
    rule: str = ""
    why: str = ""
    rival: str = BASELINE
    records_before: int = 0
    tries: int = 1
    error_probability: float = LEVEL
    baseline: Beside | None = None
    record: Beside | None = None
    sides: dict[str, SideResult] = dataclasses.field(default_factory=dict)
    hardware: str = ""
    versions: dict[str, str] = dataclasses.field(default_factory=dict)

    def text(self) -> str:
        """Verdict in words: a line, then its details."""
        own = self.sides.get(self.name)
        lines = [f"{self.word}: {self._because()}"]
        if own is not None:
            told = own.text(read_track(self.track))
            lines.append(f"{words.count(len(own.trials), 'trial')} on fresh seeds: {told}")
        if self.baseline is not None:
            lines.append(f"beside {BASELINE}: {self.baseline.text()}")
        if self.record is not None:
            lines.append(f"beside {self.rival}: {self.record.text()}")
        lines.append(
            f"try {self.tries} against {self.rival}, at a level of {self.error_probability:.2g}"
        )
        return "\n".join(lines)

    def _because(self) -> str:
        if self.word == "refused":
            return f"{self.rule}: {self.why}"
        if self.word == "tie":
            return f"{self.name} ties with {self.rival}"
        beside = self.record or self.baseline
        return f"{self.name} is {beside and beside.word} than {self.rival}"

    @property
    def standing(self) -> tuple[int, float]:
        """Sort key among a track's accepted entries: the least comes first.

        An entry and its record ran in turn; two ratios to the baseline come from different days.
        """
        lead = None
        if self.baseline is not None:
            gain = self.baseline.gain
            lead = self.baseline.ratio if gain is None else -gain
        return -self.records_before, math.inf if lead is None else lead


def read_verdict(folder: Path, name: str, recipe: str) -> JudgedEntry | None:
    """Read the verdict on a recipe; None without one, `ConfigError` if it is damaged."""
    file = folder / f"{name}.json"
    try:
        verdict = records.read_json(file, JudgedEntry)
        if verdict.schema_version != SCHEMA_VERSION or verdict.name != name:
            raise ValueError("it is for another entry or version")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} is not a verdict ({error}); remove it") from None
    return verdict if verdict.recipe == recipe else None


def verdict_on(folder: Path, recipe: str) -> JudgedEntry | None:
    """The verdict on a recipe, under any name; None without one."""
    names = sorted(file.stem for file in folder.glob("*.json"))
    found = (read_verdict(folder, name, recipe) for name in names)
    return next((verdict for verdict in found if verdict), None)


def write_verdict(folder: Path, verdict: JudgedEntry) -> None:
    assert names_a_file(verdict.name)
    records.write_json(folder / f"{verdict.name}.json", records.plain(verdict), durable=True)


def first_of(verdicts: Sequence[JudgedEntry]) -> JudgedEntry | None:
    """The standing record among verdicts on a track's entries; None where it is the baseline."""
    accepted = [verdict for verdict in verdicts if verdict.word == "accepted"]
    return min(accepted, key=lambda verdict: (verdict.standing, verdict.name), default=None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Try:
    """A line of the ledger: an entry that began to run against a rival."""

    track: str
    rival: str
    name: str
    recipe: str
    date: str


def enter_try(folder: Path, entry: Entry, rival: str, date: str) -> tuple[int, float]:
    """Write a try into the ledger before anything runs; returns its number and its level.

    Try k against one rival has the share 1 / (k (k + 1)) of `LEVEL`. The shares of any number of
    tries add up to less than 1, so small changes of one recipe, submitted again and again, are
    together accepted by luck no more often than one is.

    Raises:
      ConfigError: The ledger cannot be read or written.
    """
    file = folder / LEDGER
    made = Try(track=entry.track, rival=rival, name=entry.name, recipe=entry.recipe, date=date)
    try:
        text = records.read_plain(file).decode() if file.exists() else ""
        tries = [records.decode(line, Try) for line in text.splitlines()]
        line = json.dumps(records.plain(made)) + "\n"
        records.write(file, text + line, durable=True)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} is not a ledger of tries ({error}); restore it") from None
    count = 1 + sum((it.track, it.rival) == (entry.track, rival) for it in tries)
    return count, LEVEL / (count * (count + 1))
