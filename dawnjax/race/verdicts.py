"""The judge's verdicts: one file for each entry, bound to the code that it was made with."""

import dataclasses
import hashlib
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import dawnjax
from dawnjax import records
from dawnjax.errors import ConfigError
from dawnjax.page import words
from dawnjax.race.entry import Beside, Trial, content_hash
from dawnjax.runs.directory import names_a_file

SCHEMA_VERSION = 1

Word = Literal["accepted", "tie", "slower", "refused", "not_judged"]

BASELINE = "the baseline"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SideResult:
    """Trials of one side, in the order of the rounds, by the judge's clock and evaluation."""

    trials: tuple[Trial, ...]
    mean_seconds: float
    preparation_seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class JudgedEntry:
    """Verdict on an entry.

    Attributes:
      state: Hash of the entry, the project and its libraries: one verification for each.
      entry_hash: Of the entry alone.
      word: `accepted`, where it is faster than the standing record.
      rule: Rule that it broke; empty for none.
      rival: The standing record's name, or the baseline.
      rival_hash: `entry_hash` of the standing record; empty for the baseline.
      baseline, record: The entry beside both; `record` is None where the baseline is the rival.
      sandbox: `none` where the entry ran with all that the judge may do.
      gpu_seconds, cost_usd: Of one trial, on average; None where there is no GPU or no price.
    """

    schema_version: int = SCHEMA_VERSION
    name: str
    track: str
    state: str
    entry_hash: str
    date: str
    word: Word
    rule: str = ""
    why: str = ""
    rival: str = BASELINE
    rival_hash: str = ""
    baseline: Beside | None = None
    record: Beside | None = None
    sides: dict[str, SideResult] = dataclasses.field(default_factory=dict)
    sandbox: str = ""
    hardware: str = ""
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    gpu_seconds: float | None = None
    cost_usd: float | None = None

    def text(self) -> str:
        """Verdict in words: a line, and what belongs to it."""
        own = self.sides.get(self.name)
        lines = [f"{self.word.replace('_', ' ')}: {self._because()}"]
        if own is not None:
            reached = sum(trial.reached for trial in own.trials)
            lines.append(
                f"{reached} of {len(own.trials)} trials on fresh seeds reached the target, "
                f"{words.rounded(own.mean_seconds)} s a trial on average"
            )
        if self.baseline is not None:
            lines.append(f"beside {BASELINE}: {self.baseline.text()}")
        if self.record is not None:
            lines.append(f"beside {self.rival}: {self.record.text()}")
        if self.gpu_seconds is not None:
            cost = "" if self.cost_usd is None else f", {words.usd(self.cost_usd)}"
            lines.append(f"{words.rounded(self.gpu_seconds)} GPU-seconds a trial{cost}")
        if self.sandbox == "none":
            lines.append("it ran without a sandbox: the verdict holds only if its code is honest")
        return "\n".join(lines)

    def _because(self) -> str:
        if self.word == "refused":
            return f"{self.rule}: {self.why}"
        if self.word == "not_judged":
            return self.why
        how = {"accepted": "faster than", "slower": "slower than"}.get(self.word, "a tie with")
        return f"{self.name} is {how} {self.rival}" + (f" ({self.why})" if self.why else "")


def standing(verdict: JudgedEntry, accepted: Mapping[str, JudgedEntry]) -> tuple[float, int]:
    """Place of an accepted entry among those of its track, by name: the least stands first.

    The least ratio to the baseline counts, its own or that of a record that it beat. Two ratios to
    the baseline are of different days; beside the record it ran in turn.
    """
    ratios: dict[str, float] = {}
    beaten: JudgedEntry | None = verdict
    while beaten is not None and beaten.name not in ratios:
        ratio = beaten.baseline.ratio if beaten.baseline else None
        ratios[beaten.name] = math.inf if ratio is None else ratio
        before = accepted.get(beaten.rival)
        is_same = before is not None and before.entry_hash == beaten.rival_hash
        beaten = before if is_same else None
    return min(ratios.values()), -len(ratios)


def verdict_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.json"


def read_verdict(folder: Path, name: str) -> JudgedEntry | None:
    """Read the verdict on an entry; None where there is none, `ConfigError` if it is damaged."""
    file = verdict_file(folder, name)
    try:
        verdict = records.read_json(file, JudgedEntry)
        if verdict.schema_version != SCHEMA_VERSION or verdict.name != name:
            raise ValueError("it is of another entry or version")
        return verdict
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} is no verdict ({error}); remove it") from None


def write_verdict(folder: Path, verdict: JudgedEntry) -> Path:
    assert names_a_file(verdict.name)
    file = verdict_file(folder, verdict.name)
    records.write_json(file, records.plain(verdict), durable=True)
    return file


def state_of(entry_hash: str, versions: dict[str, str]) -> str:
    """Hash of all that a verdict depends on but the machine and chance.

    The commit is none of it: committing a verdict would make it one of another state.
    """
    named = sorted((name, version) for name, version in versions.items() if name != "commit")
    libraries = "".join(f"{name} {version}\n" for name, version in named)
    return hashlib.sha256(f"{entry_hash}\n{_project()}\n{libraries}".encode()).hexdigest()


def _project() -> str:
    """Hash of the package's code and tables."""
    package = Path(dawnjax.__file__).resolve().parent
    hashes = {}
    for folder, folders, names in os.walk(package, followlinks=True):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            if name.endswith((".py", ".toml", ".csv", ".json")):
                path = Path(folder, name)
                data = records.read_plain(path)
                hashes[path.relative_to(package).as_posix()] = hashlib.sha256(data).hexdigest()
    return content_hash(hashes)
