"""The judge's verdicts: one file for each entry, on the recipe that it was made of."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from dawnjax import records
from dawnjax.errors import ConfigError
from dawnjax.page import words
from dawnjax.race.ledger import LEVEL
from dawnjax.runs.directory import names_a_file
from dawnjax.statistics.contrast import p_different
from dawnjax.statistics.sample import Sample
from dawnjax.statistics.verdict import judge
from dawnjax.text import ends_text
from dawnjax.trials.figures import Figures, figures
from dawnjax.trials.trial import Trial

SCHEMA_VERSION = 2

Word = Literal["accepted", "tie", "slower", "refused"]

BASELINE = "the baseline"


@dataclasses.dataclass(frozen=True, kw_only=True)
class JudgedTrial:
    """A trial by the judge's clock and evaluation; `quality` is the target's metric."""

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
    def figures(self) -> Figures:
        # The length of a trial is fixed: one that misses the target takes as long.
        return figures(
            [
                Trial(
                    name=str(trial.seed),
                    seed=trial.seed,
                    reached=trial.reached,
                    time_to_accuracy_seconds=trial.seconds if trial.reached else None,
                    clock_seconds=trial.seconds,
                    budget_seconds=trial.seconds,
                )
                for trial in self.trials
            ]
        )

    @property
    def reached(self) -> str:
        return f"{self.figures.reached} of {self.figures.trials}"

    @property
    def time(self) -> str:
        """Expected time in words, of which a verdict's ratio is."""
        expected = self.figures.expected_seconds
        return "none reached" if expected is None else words.rounded(expected)

    def sample(self) -> Sample:
        """The trials as pairs of another side's: the judge ran both in turn."""
        sample = self.figures.sample
        assert sample is not None  # every trial has a time
        return dataclasses.replace(sample, in_turn=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Beside:
    """An entry's trials beside a rival's, by the project's judge of samples.

    Attributes:
      word: Verdict at the race's level.
      ratio: Expected time over the rival's, with the ends of the interval.
      p_value: Probability of such a difference between equal sides.
    """

    word: str
    why: str
    ratio: float | None
    low: float | None
    high: float | None
    ends: str
    p_value: float
    is_paired: bool

    def text(self) -> str:
        if self.ratio is None:
            return self.why
        ends = ends_text(self.low, self.high, self.ends, "{:.3f}".format, known="")
        ends = f" ({ends})" if ends else ""
        return f"{self.ratio:.3f} of the time{ends}, p {self.p_value:.2g}"


def compared(own: SideResult, other: SideResult, level: float = LEVEL) -> Beside:
    """Verdict on an entry's trials beside a rival's, at a level of the race."""
    first, second = other.sample(), own.sample()
    # Equal within a margin is no verdict here: a record may be small, if it is significant.
    verdict = judge(first, second, alpha=level, may_be_equivalent=False)
    ratio = verdict.ratio
    return Beside(
        word=verdict.word,
        why=verdict.why.removesuffix(", and is wider than the margin"),  # the race has none
        ratio=ratio and ratio.value,
        low=ratio and ratio.low,
        high=ratio and ratio.high,
        ends=ratio.ends if ratio else "",
        p_value=p_different(first, second),
        is_paired=verdict.is_paired,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class JudgedEntry:
    """Verdict on an entry.

    Attributes:
      recipe: Hash of what was judged (`Entry.recipe`).
      word: `accepted`, where it is faster than the standing record.
      rule: Rule that it broke; empty for none.
      rival: The standing record's name, or the baseline.
      number: Number of this try among all at the same rival, from 1.
      level: What its claims are held to (`ledger.level_of`).
      records_before: Records that stood one after the other before this one; 0 where the baseline
        was the rival. Of accepted entries the one with the most stands.
      baseline, record: The entry beside both; `record` is None where the baseline is the rival.
      sandbox: What it ran in.
    """

    schema_version: int = SCHEMA_VERSION
    name: str
    track: str
    recipe: str
    date: str
    word: Word
    rule: str = ""
    why: str = ""
    rival: str = BASELINE
    number: int = 1
    level: float = LEVEL
    records_before: int = 0
    baseline: Beside | None = None
    record: Beside | None = None
    sides: dict[str, SideResult] = dataclasses.field(default_factory=dict)
    sandbox: str = "bubblewrap"
    hardware: str = ""
    versions: dict[str, str] = dataclasses.field(default_factory=dict)

    def text(self) -> str:
        """Verdict in words: a line, and what belongs to it."""
        own = self.sides.get(self.name)
        lines = [f"{self.word}: {self._because()}"]
        if own is not None:
            lines.append(
                f"{own.reached} trials on fresh seeds reached the target; expected time, s: "
                f"{own.time}"
            )
            lines.append(
                f"try {self.number} at {self.rival}: held to p < {self.level:.2g}, so that all "
                f"tries together find a difference by chance in {100 * LEVEL:g} % of cases"
            )
        if self.baseline is not None:
            lines.append(f"beside {BASELINE}: {self.baseline.text()}")
        if self.record is not None:
            lines.append(f"beside {self.rival}: {self.record.text()}")
        return "\n".join(lines)

    def _because(self) -> str:
        if self.word == "refused":
            return f"{self.rule}: {self.why}"
        how = {"accepted": "faster than", "slower": "slower than"}.get(self.word, "a tie with")
        return f"{self.name} is {how} {self.rival}" + (f" ({self.why})" if self.why else "")

    @property
    def standing(self) -> tuple[int, float]:
        """Place among accepted entries of a track: the least stands first.

        Beside a record an entry ran in turn; two ratios to the baseline are of different days.
        """
        ratio = self.baseline.ratio if self.baseline else None
        return -self.records_before, float("inf") if ratio is None else ratio


def verdict_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.json"


def read_verdict(folder: Path, name: str, recipe: str) -> JudgedEntry | None:
    """Read the verdict on a recipe; None where there is none, `ConfigError` if it is damaged."""
    file = verdict_file(folder, name)
    try:
        verdict = records.read_json(file, JudgedEntry)
        if verdict.schema_version != SCHEMA_VERSION or verdict.name != name:
            raise ValueError("it is of another entry or version")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} is no verdict ({error}); remove it") from None
    return verdict if verdict.recipe == recipe else None


def write_verdict(folder: Path, verdict: JudgedEntry) -> None:
    assert names_a_file(verdict.name)
    records.write_json(verdict_file(folder, verdict.name), records.plain(verdict), durable=True)


def first_of(verdicts: Sequence[JudgedEntry]) -> JudgedEntry | None:
    """The standing record among verdicts on a track's entries; None where it is the baseline."""
    accepted = [verdict for verdict in verdicts if verdict.word == "accepted"]
    return min(accepted, key=lambda verdict: (verdict.standing, verdict.name), default=None)
