"""The judge: an entry against the baseline and the standing record, in turn, on fresh seeds.

    static rules    `rules`: before any code of the entry runs
    ledger          the try is recorded, and gets its share of 1 %
    heats           rounds of all sides in drawn order, each run in a sandbox, by the judge's clock
    measurement     the saved weights, in a process without the entry's code
    look            half-way and at the end: the verdict, if it is certain

A recipe is judged once: a second verification would be a second chance.
"""

import dataclasses
import datetime
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from dawnjax.checkpointed.judged_weights import NO_WEIGHTS
from dawnjax.config.config_json import to_json
from dawnjax.errors import ConfigError, RunError
from dawnjax.machine.hosts import visible_cores
from dawnjax.page import words
from dawnjax.race import rules, sandbox, tracks
from dawnjax.race.entry import SOURCE, VERDICTS, Entry, entries_in, read_entry
from dawnjax.race.handover import Handover
from dawnjax.race.heats import Course, Heat, Side
from dawnjax.race.rules import RuleError
from dawnjax.race.sandbox import LimitError
from dawnjax.race.tracks import Track
from dawnjax.race.verdicts import (
    BASELINE,
    JudgedEntry,
    JudgedTrial,
    SideResult,
    compared,
    enter_try,
    first_of,
    looks,
    read_verdict,
    verdict_on,
    write_verdict,
)
from dawnjax.runs.versions import installed
from dawnjax.statistics.looks import nominal_levels
from dawnjax.study import devices

PREPARATION_RATIO = 1.5
PREPARATION_SLACK_SECONDS = 3.0
"""Allowed preparation time relative to the baseline's: more could hide training."""

Tell = Callable[[str], None]


def verify(
    folder: Path, *, data_dir: Path | None = None, rounds: int = 0, tell: Tell
) -> tuple[JudgedEntry, bool]:
    """Judge an entry; returns the verdict, and whether it was made before.

    Args:
      data_dir: Folder of the track's data; None if they come with the installation.
      rounds: Most rounds; 0 takes the track's, which is the minimum.

    Raises:
      ConfigError: The entry breaks a rule that needs no run, or this machine cannot judge it.
      RunError: The baseline failed.
    """
    entry = read_entry(folder)
    track = tracks.read_track(entry.track)
    rules.check(folder, entry, track)
    if rounds and rounds < track.rounds:
        raise ConfigError(f"--rounds={rounds}: {track.name} needs at least {track.rounds}")
    verdicts = folder.absolute().parent / VERDICTS
    if earlier := verdict_on(verdicts, entry.recipe):
        return earlier, True
    _refuse_unready(track, verdicts)
    experiment, spec = tracks.data_at(track, data_dir)
    rules.check_budget(entry, track, spec)
    baseline = Side(name=BASELINE, experiment=rules.without_place(to_json(experiment)))
    record, record_verdict = _standing_record(folder, entry)
    rival = record or baseline
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    tries, level = enter_try(verdicts, entry, rival.name, date)
    made = JudgedEntry(
        name=entry.name,
        track=track.name,
        recipe=entry.recipe,
        code=entry.code,
        date=date,
        word="refused",
        rival=rival.name,
        records_before=record_verdict.records_before + 1 if record_verdict else 0,
        tries=tries,
        error_probability=level,
        versions=installed(),
    )
    with tempfile.TemporaryDirectory(prefix="dawnjax-race-") as work:
        handover = Handover(experiment.data, spec, Path(work) / "data")
        course = Course(track=track, handover=handover, work=Path(work), data_dir=data_dir)
        race = _Race(course, _side(folder, entry), baseline, rival, tell)
        try:
            verdict = race.judged(made, rounds or track.rounds)
        except RuleError as error:
            verdict = dataclasses.replace(made, rule=error.rule, why=error.why)
    write_verdict(verdicts, verdict)
    return verdict, False


def _refuse_unready(track: Track, verdicts: Path) -> None:
    """Refuse to begin if a verdict could not be made or written; `ConfigError` says why."""
    place = next(path for path in (verdicts, *verdicts.parents) if path.exists())
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise ConfigError(f"cannot write a verdict in {place}")
    if track.platform == "gpu" and not devices.gpus():
        raise ConfigError(
            f"{track.name} is judged on a GPU, and this machine has none; the entry itself is valid"
        )
    sandbox.check(track.needs_bounds)


def _side(folder: Path, entry: Entry) -> Side:
    sources = (folder / SOURCE).resolve() if entry.source else None
    return Side(name=entry.name, experiment=entry.experiment, sources=sources, main=entry.source)


def _standing_record(folder: Path, entry: Entry) -> tuple[Side | None, JudgedEntry | None]:
    """The record of an entry's track among the others beside it, and the verdict on it."""
    found: dict[str, tuple[Side, JudgedEntry]] = {}
    for place, other in entries_in(folder.absolute().parent):
        verdict = read_verdict(place.parent / VERDICTS, other.name, other.recipe)
        if verdict and other.track == entry.track and other.name != entry.name:
            found[other.name] = _side(place, other), verdict
    record = first_of([verdict for _, verdict in found.values()])
    return found[record.name] if record else (None, None)


@dataclasses.dataclass
class _Race:
    """Rounds of an entry, its rival and the baseline, with the results so far."""

    course: Course
    own: Side
    baseline: Side
    rival: Side
    tell: Tell
    trials: dict[str, list[JudgedTrial]] = dataclasses.field(default_factory=dict)
    heats: dict[str, list[Heat]] = dataclasses.field(default_factory=dict)
    device: str = ""

    @property
    def sides(self) -> list[Side]:
        others = [self.baseline] if self.rival == self.baseline else [self.baseline, self.rival]
        return [*others, self.own]

    def judged(self, made: JudgedEntry, rounds: int) -> JudgedEntry:
        """Complete a verdict by rounds up to the look at which it is certain, or the last."""
        at = looks(rounds, is_at_budget=self.course.track.budget is not None)
        first, began = 0, time.monotonic()
        seeds = secrets.SystemRandom().sample(range(2**31), rounds)
        for look, level in zip(at, nominal_levels(at, made.error_probability), strict=True):
            for place in range(first + 1, look + 1):
                times = self._round(seeds[place - 1])
                left = (time.monotonic() - began) / place * (rounds - place)
                at_most = f"; at most {words.duration(left)} left" if place < rounds else ""
                self.tell(f"round {place} of {rounds}, seed {seeds[place - 1]}: {times}{at_most}")
            results = {side.name: self._measured(side, first) for side in self.sides}
            check_preparation(self.heats[self.own.name], self.heats[BASELINE])
            first = look
            own = results[self.own.name]
            besides = {
                it.name: compared(own, results[it.name], level, self.course.track)
                for it in self.sides
            }
            beside = besides[self.rival.name]
            made = dataclasses.replace(
                made,
                word=beside.verdict,
                baseline=besides[BASELINE],
                record=None if self.rival == self.baseline else beside,
                sides=results,
                hardware=f"{self.device} ({words.count(visible_cores(), 'core')})",
            )
            if made.word != "tie":
                break
        return made

    def _round(self, seed: int) -> str:
        """Run all sides once, in drawn order; returns their times in words."""
        names, sides = self.course.handover.new_round(), self.sides
        for side in secrets.SystemRandom().sample(sides, len(sides)):
            number = sum(map(len, self.heats.values()))
            try:
                heat = self.course.run(side, seed, names, number)
            except LimitError as error:
                raise self._failed("run", f"seed {seed}: {error}", side) from None
            self.heats.setdefault(side.name, []).append(heat)
        last = {side.name: self.heats[side.name][-1].seconds for side in sides}
        return ", ".join(f"{name} {words.rounded(last[name])} s" for name in last)

    def _measured(self, side: Side, first: int) -> SideResult:
        """Results of a side; heats from a place on still need measuring."""
        heats, trials = self.heats[side.name], self.trials.setdefault(side.name, [])
        try:
            measured = self.course.measure(side, heats[first:])
        except RunError as error:  # also of weights that were made to stop the measurement
            raise self._failed("weights", str(error), side) from None
        self.device = measured.device or self.device
        for heat, weights in zip(heats[first:], measured.weights, strict=True):
            if weights.fault and weights.fault != NO_WEIGHTS:
                raise self._failed("weights", f"seed {heat.seed}: {weights.fault}", side)
            trials.append(
                JudgedTrial(
                    seed=heat.seed,
                    reached=weights.reached,
                    seconds=round(heat.seconds, 6),
                    quality=weights.quality,
                )
            )
        preparation = _mean_preparation(heats)
        return SideResult(trials=tuple(trials), preparation_seconds=preparation)

    def _failed(self, rule: str, why: str, side: Side) -> Exception:
        if side == self.own:
            return RuleError(rule, why)
        return RunError(f"{side.name} failed, so nothing was judged: {rule}: {why}")


def check_preparation(own: Sequence[Heat], baseline: Sequence[Heat]) -> None:
    """Raise `RuleError` if an entry prepares far longer than the baseline before its data."""
    mean, other = map(_mean_preparation, (own, baseline))
    most = PREPARATION_RATIO * other + PREPARATION_SLACK_SECONDS
    if mean > most:
        raise RuleError(
            "compile",
            f"it took {mean:.1f} s before its data, and the baseline {other:.1f} s; at most "
            f"{most:.1f} s are allowed, because more could hide training",
        )


def _mean_preparation(heats: Sequence[Heat]) -> float:
    return sum(heat.preparation_seconds for heat in heats) / len(heats)
