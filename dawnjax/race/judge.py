"""The judge: an entry against the baseline and the standing record, in turn, on fresh seeds.

    static rules    `rules`: nothing of the entry has run
    heats           rounds of all sides in drawn order, each run in a sandbox, by the judge's clock
    measurement     the weights, in a process without the entry's code
    verdict         the project's judge of samples, at the level of this try (`ledger`)

A recipe is judged once: a second verification would be another draw.
"""

import contextlib
import dataclasses
import datetime
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from dawnjax.checkpointed.judged_weights import NO_WEIGHTS
from dawnjax.config.config_json import to_json
from dawnjax.errors import ConfigError, RunError
from dawnjax.machine.hosts import visible_cores
from dawnjax.page import words
from dawnjax.race import ledger, rules, sandbox, tracks
from dawnjax.race.entry import SOURCE, VERDICTS, Entry, entries_in, read_entry
from dawnjax.race.handover import Handover
from dawnjax.race.heats import Course, Heat, Side
from dawnjax.race.ledger import Try
from dawnjax.race.rules import RuleError
from dawnjax.race.sandbox import LimitError
from dawnjax.race.tracks import Track
from dawnjax.race.verdicts import (
    BASELINE,
    Beside,
    JudgedEntry,
    JudgedTrial,
    SideResult,
    Word,
    compared,
    first_of,
    read_verdict,
    write_verdict,
)
from dawnjax.runs.versions import installed
from dawnjax.statistics.interval import FEWEST_TRIALS
from dawnjax.statistics.verdict import (
    BETTER,
    FASTER_IF_ALL_REACH,
    SLOWER_IF_ALL_REACH,
    WORSE,
)
from dawnjax.study import devices

PREPARATION_RATIO = 1.5
PREPARATION_SLACK_SECONDS = 3.0
"""Time that an entry may take before its data, over the baseline's: more could be training."""

Tell = Callable[[str], None]


def verify(folder: Path, *, data_dir: Path | None = None, tell: Tell) -> tuple[JudgedEntry, bool]:
    """Judge an entry; returns the verdict, and whether it was made before.

    Args:
      data_dir: Where the track's data lie; None where they come with the installation.

    Raises:
      ConfigError: The entry breaks a rule that needs no run, or this machine cannot judge it.
      RunError: The baseline failed.
    """
    entry = read_entry(folder)
    track = tracks.read_track(entry.track)
    rules.check(folder, entry, track)
    verdicts = folder.absolute().parent / VERDICTS
    if earlier := read_verdict(verdicts, entry.name, entry.recipe):
        return earlier, True
    _refuse_unready(track, verdicts, data_dir)
    own = _side(folder, entry)
    record, rival = _standing_record(folder.absolute().parent, verdicts, entry)
    with _course(track, data_dir) as (course, baseline):
        made = _begun(entry, rival, verdicts)
        sides = [baseline, own, *([record] if record else [])]
        try:
            heats = _heats(course, sides, own, tell)
            results, device = _measured(course, sides, own, heats)
        except RuleError as error:
            verdict = dataclasses.replace(made, rule=error.rule, why=error.why)
        else:
            besides = {
                it.name: compared(results[own.name], results[it.name], made.level) for it in sides
            }
            word, why = _word(besides[made.rival])
            verdict = dataclasses.replace(
                made,
                word=word,
                why=why,
                baseline=besides[BASELINE],
                record=besides[record.name] if record else None,
                sides=results,
                hardware=f"{device} ({words.count(visible_cores(), 'core')})",
            )
    write_verdict(verdicts, verdict)
    return verdict, False


def _begun(entry: Entry, rival: JudgedEntry | None, verdicts: Path) -> JudgedEntry:
    """A verdict without its outcome, once the try is in the ledger."""
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    beside = f"{rival.name} {rival.recipe}" if rival else BASELINE
    number = ledger.begin(
        verdicts,
        Try(track=entry.track, rival=beside, name=entry.name, recipe=entry.recipe, date=date),
    )
    return JudgedEntry(
        name=entry.name,
        track=entry.track,
        recipe=entry.recipe,
        date=date,
        word="refused",
        rival=rival.name if rival else BASELINE,
        number=number,
        level=ledger.level_of(number),
        records_before=rival.records_before + 1 if rival else 0,
        versions=installed(),
    )


def _refuse_unready(track: Track, verdicts: Path, data_dir: Path | None) -> None:
    """Refuse to begin where a verdict could not be made or written; `ConfigError` says why."""
    place = next(path for path in (verdicts, *verdicts.absolute().parents) if path.exists())
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise ConfigError(f"no verdict can be written in {place}")
    if os.geteuid() == 0:
        raise ConfigError(
            "a judge does not run as root, whom bounds of memory and processes do not bind: "
            "verify as another user, such as by `runuser -u USER -- dawnjax race verify ENTRY`"
        )
    if track.platform == "gpu" and not devices.gpus():
        raise ConfigError(f"{track.name} is judged on a GPU, and none is here; the entry is whole")
    sandbox.check()
    if data_dir is not None:
        sandbox.refuse_shown(data_dir)


@contextlib.contextmanager
def _course(track: Track, data_dir: Path | None) -> Iterator[tuple[Course, Side]]:
    """A course in a folder that ends with the block, and the baseline."""
    experiment, spec = tracks.data_at(track, data_dir)
    if why := track.wrong_data(spec):
        raise ConfigError(f"these are not the data of the track {track.name}: {why}")
    baseline = Side(name=BASELINE, experiment=rules.without_place(to_json(experiment)))
    with tempfile.TemporaryDirectory(prefix="dawnjax-race-", ignore_cleanup_errors=True) as work:
        handover = Handover.prepare(experiment.data, spec, Path(work) / "train")
        yield Course(track=track, handover=handover, work=Path(work), data_dir=data_dir), baseline


def _side(folder: Path, entry: Entry) -> Side:
    sources = (folder / SOURCE).resolve()
    return Side(name=entry.name, experiment=entry.experiment, sources=sources, main=entry.source)


def _standing_record(
    folder: Path, verdicts: Path, entry: Entry
) -> tuple[Side | None, JudgedEntry | None]:
    """The record of an entry's track among the others of a folder, and the verdict on it."""
    others = entries_in(folder)
    found = [
        verdict
        for name, (_, other) in others.items()
        if name != entry.name and other.track == entry.track
        if (verdict := read_verdict(verdicts, name, other.recipe))
    ]
    record = first_of(found)
    return (_side(*others[record.name]), record) if record else (None, None)


def _heats(course: Course, sides: Sequence[Side], own: Side, tell: Tell) -> dict[str, list[Heat]]:
    """Run all sides in turn, each round on a seed that nobody knew before."""
    draw, rounds = secrets.SystemRandom(), course.track.rounds
    heats: dict[str, list[Heat]] = {side.name: [] for side in sides}
    for place, seed in enumerate(draw.sample(range(2**31), rounds), 1):
        course.handover.shuffle()
        for side in draw.sample(sides, len(sides)):
            number = sum(map(len, heats.values()))
            try:
                heats[side.name].append(course.run(side, seed, number))
            except LimitError as error:
                raise _failed("run", f"seed {seed}: {error}", side, own) from None
        # The first runs of a machine read all from a cold disk.
        if place >= FEWEST_TRIALS:
            check_preparation(heats[own.name], heats[BASELINE])
        times = ", ".join(f"{s.name} {words.rounded(heats[s.name][-1].seconds)} s" for s in sides)
        tell(f"round {place} of {rounds}, seed {seed}: {times}")
    return heats


def check_preparation(own: Sequence[Heat], baseline: Sequence[Heat]) -> None:
    """Raise `RuleError` if an entry prepares far longer than the baseline before its data."""
    mean, other = map(_mean_preparation, (own, baseline))
    most = PREPARATION_RATIO * other + PREPARATION_SLACK_SECONDS
    if mean > most:
        raise RuleError(
            "compile",
            f"it took {mean:.1f} s before its data, and the baseline {other:.1f} s; at most "
            f"{most:.1f} s may pass, for more could be training",
        )


def _mean_preparation(heats: Sequence[Heat]) -> float:
    return sum(heat.preparation_seconds for heat in heats) / len(heats)


def _measured(
    course: Course, sides: Sequence[Side], own: Side, heats: dict[str, list[Heat]]
) -> tuple[dict[str, SideResult], str]:
    """Results of all sides by the weights that they saved, and the kind of the device."""
    results, device = dict[str, SideResult](), ""
    for side in sides:
        try:
            measured = course.measure(side, heats[side.name])
        except RunError as error:  # also of weights that were made to stop the measurement
            raise _failed("weights", str(error), side, own) from None
        trials, device = [], measured.device
        for heat, weights in zip(heats[side.name], measured.weights, strict=True):
            if weights.fault and weights.fault != NO_WEIGHTS:
                raise _failed("weights", f"seed {heat.seed}: {weights.fault}", side, own)
            trials.append(
                JudgedTrial(
                    seed=heat.seed,
                    reached=weights.reached,
                    seconds=round(heat.seconds, 6),
                    quality=weights.quality,
                )
            )
        preparation = _mean_preparation(heats[side.name])
        results[side.name] = SideResult(trials=tuple(trials), preparation_seconds=preparation)
    return results, device


def _failed(rule: str, why: str, side: Side, own: Side) -> Exception:
    if side == own:
        return RuleError(rule, why)
    return RunError(f"{side.name} failed, so that nothing is judged: {rule}: {why}")


def _word(beside: Beside) -> tuple[Word, str]:
    if_all = (FASTER_IF_ALL_REACH, SLOWER_IF_ALL_REACH)
    note = "if all trials reach, as all of these did" if beside.word in if_all else ""
    if beside.word in BETTER:
        return "accepted", note
    if beside.word in WORSE:
        return "slower", note
    return "tie", beside.why
