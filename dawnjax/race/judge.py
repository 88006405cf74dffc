"""The judge: an entry against the baseline and the standing record, in turn, on fresh seeds.

    static rules    `rules`: nothing of the entry has run
    heats           rounds of all sides in drawn order, each run in a sandbox, by the judge's clock
    measurement     the weights, in a process without the entry's code
    verdict         the project's judge of samples, at 1 %

A verification of one state of entry and project is made once: a second would be another draw.
"""

import contextlib
import datetime
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dawnjax.checkpointed.judged_weights import NO_WEIGHTS
from dawnjax.config.config_json import to_json
from dawnjax.errors import ConfigError, RunError
from dawnjax.machine.hosts import visible_cores
from dawnjax.page import words
from dawnjax.race import rules, sandbox, tracks
from dawnjax.race.entry import SOURCE, VERDICTS, Beside, Trial, content_hash, entries_in
from dawnjax.race.guarded import LimitError
from dawnjax.race.handover import Handover
from dawnjax.race.heats import Course, Heat, Side, clock_fault, log_of, preparation_fault
from dawnjax.race.rules import Fault
from dawnjax.race.tracks import Track
from dawnjax.race.verdicts import (
    BASELINE,
    JudgedEntry,
    SideResult,
    Word,
    read_verdict,
    standing,
    state_of,
    write_verdict,
)
from dawnjax.runs.versions import installed
from dawnjax.statistics.interval import FEWEST_TRIALS
from dawnjax.statistics.verdict import FASTER, ONLY_FIRST, ONLY_SECOND, SLOWER
from dawnjax.study import devices

MOST_ROUNDS = 200

Tell = Callable[[str], None]


class BrokenRuleError(Exception):
    """An entry broke a rule in its run."""

    def __init__(self, fault: Fault):
        super().__init__(str(fault))
        self.fault = fault


def verify(
    folder: Path,
    *,
    data_dir: Path | None = None,
    rounds: int = 0,
    without_sandbox: bool = False,
    verdicts: Path | None = None,
    price_per_hour_usd: float | None = None,
    tell: Tell,
) -> tuple[JudgedEntry, bool]:
    """Judge an entry; returns the verdict, and whether it was made before.

    Args:
      data_dir: Where the track's data lie; None where they come with the installation.
      rounds: 0 takes the track's.
      verdicts: Folder of the verdicts; None takes `verdicts` beside the entry.

    Raises:
      ConfigError: The entry breaks a rule that needs no run, or this machine cannot judge it.
      RunError: The baseline failed.
    """
    read = rules.read(folder)
    entry, track = read.entry, tracks.read_track(read.entry.track)
    rounds = rounds or track.rounds
    if not FEWEST_TRIALS <= rounds <= MOST_ROUNDS:
        raise ConfigError(f"--rounds={rounds} must lie in {FEWEST_TRIALS} to {MOST_ROUNDS}")
    fault = rules.first_fault(folder, read, track, tracks.baseline_fields(track))
    if fault is not None:
        raise ConfigError(f"{folder}: {fault}")
    beside = folder.absolute().parent
    verdicts = beside / VERDICTS if verdicts is None else verdicts
    place = next(path for path in (verdicts, *verdicts.absolute().parents) if path.exists())
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise ConfigError(f"no verdict can be written in {place}: choose another --verdicts")
    entry_hash, versions = content_hash(read.hashes), installed()
    state = state_of(entry_hash, versions)
    earlier = read_verdict(verdicts, entry.name)
    is_judged = earlier is not None and earlier.state == state and earlier.word != "not_judged"
    if earlier is not None and is_judged and (without_sandbox or earlier.sandbox != sandbox.NONE):
        return earlier, True
    record, rival_hash = standing_record(
        beside, verdicts, track, entry.name, trusts=without_sandbox
    )

    def judged(word: Word, **more: Any) -> JudgedEntry:
        return JudgedEntry(
            name=entry.name,
            track=track.name,
            state=state,
            entry_hash=entry_hash,
            date=datetime.datetime.now(datetime.UTC).date().isoformat(),
            word=word,
            versions=versions,
            **more,
        )

    if track.platform == "gpu" and not devices.gpus():
        why = "time and weights: no GPU is here; its folder, hashes, code and trials hold"
        verdict = judged("not_judged", why=why)
        if earlier is None or earlier.entry_hash != entry_hash:  # a judged one stays
            write_verdict(verdicts, verdict)
        return verdict, False
    baseline, data, spec = _baseline(track, data_dir)
    own = _side(entry.name, entry.experiment, entry.options, folder, entry.source)
    sides = [baseline, own, *([record] if record else [])]
    with _work() as work:
        (work / "try").mkdir()
        kind = sandbox.NONE if without_sandbox else sandbox.choose(work / "try")
        if data_dir is not None and kind != sandbox.NONE:
            sandbox.refuse_shown(data_dir)
        handover = Handover.prepare(data, spec, work / "train")
        course = Course(track=track, handover=handover, sandbox=kind, work=work, data_dir=data_dir)
        try:
            heats = _heats(course, sides, own, rounds, tell)
            results = {side.name: _measured(course, side, heats[side.name], own) for side in sides}
            hardware = _hardware(heats[baseline.name])
        except BrokenRuleError as error:
            verdict = judged("refused", rule=error.fault.rule, why=error.fault.why, sandbox=kind)
            write_verdict(verdicts, verdict)
            return verdict, False
    rival = record.name if record else BASELINE
    besides = {side.name: _beside(results, own.name, side.name) for side in sides if side != own}
    word, why = _word(besides[rival])
    seconds = results[own.name].mean_seconds
    is_gpu = track.platform == "gpu"
    price = price_per_hour_usd
    verdict = judged(
        word,
        why=why,
        rival=rival,
        rival_hash=rival_hash,
        baseline=besides[BASELINE],
        record=besides[rival] if record else None,
        sides=results,
        sandbox=kind,
        hardware=hardware,
        gpu_seconds=seconds if is_gpu else None,
        cost_usd=None if price is None else price * seconds / 3600,
    )
    write_verdict(verdicts, verdict)
    return verdict, False


@contextlib.contextmanager
def _work() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="dawnjax-race-")).resolve()
    try:
        yield path
    finally:
        # A run may have left what cannot be removed, such as a thousand folders in each other.
        with contextlib.suppress(OSError, RecursionError):
            shutil.rmtree(path)


def _baseline(track: Track, data_dir: Path | None) -> tuple[Side, Any, Any]:
    """The baseline, its dataset and the specification of the data, which are the track's."""
    experiment, spec = tracks.data_at(track, data_dir)
    if why := track.wrong_data(spec):
        raise ConfigError(f"the data are not those of the track {track.name}: {why}")
    fields = rules.without_place(to_json(experiment))
    return Side(name=BASELINE, experiment=fields, options={}), experiment.data, spec


def _side(
    name: str, experiment: dict[str, Any], options: dict[str, Any], folder: Path, main: str
) -> Side:
    sources = (folder / SOURCE).resolve() if main else None
    return Side(name=name, experiment=experiment, options=options, sources=sources, main=main)


def standing_record(
    folder: Path, verdicts: Path, track: Track, name: str, *, trusts: bool
) -> tuple[Side | None, str]:
    """Accepted entry of a track that stands first beside another, and its hash.

    None where the baseline is the record. One that was judged without a sandbox counts only where
    the judge `trusts` code again.
    """
    accepted: dict[str, JudgedEntry] = {}
    sides: dict[str, Side] = {}
    for other, (path, entry) in entries_in(folder).items():
        if other == name or entry.track != track.name:
            continue
        verdict = read_verdict(verdicts, other)
        if verdict is None or verdict.word != "accepted":
            continue
        if verdict.sandbox == sandbox.NONE and not trusts:
            continue
        if content_hash(rules.read(path).hashes) == verdict.entry_hash:
            accepted[other] = verdict
            sides[other] = _side(other, entry.experiment, entry.options, path, entry.source)
    if not accepted:
        return None, ""
    first = min(accepted.values(), key=lambda verdict: (standing(verdict, accepted), verdict.name))
    return sides[first.name], first.entry_hash


def _heats(
    course: Course, sides: Sequence[Side], own: Side, rounds: int, tell: Tell
) -> dict[str, list[Heat]]:
    """Run all sides in turn, each round on a seed that nobody knew before."""
    draw = secrets.SystemRandom()
    heats: dict[str, list[Heat]] = {side.name: [] for side in sides}
    seeds = draw.sample(range(2**31), rounds)
    number = 0
    for place, seed in enumerate(seeds, 1):
        course.handover.shuffle()
        order = [*sides]
        draw.shuffle(order)
        for side in order:
            number += 1
            try:
                heat = course.run(side, seed, number)
            except LimitError as error:
                raise _failed(Fault("run", f"seed {seed}: {error}"), side, own) from None
            fault = clock_fault(log_of(heat), heat.seconds)
            if fault is not None:
                raise _failed(Fault(fault.rule, f"seed {seed}: {fault.why}"), side, own)
            heats[side.name].append(heat)
        # The first runs of a machine read all from a cold disk.
        fault = preparation_fault(course.track, heats[own.name], heats[BASELINE])
        if fault is not None and place >= FEWEST_TRIALS:
            raise BrokenRuleError(fault)
        times = ", ".join(f"{s.name} {words.rounded(heats[s.name][-1].seconds)} s" for s in sides)
        tell(f"round {place} of {rounds}, seed {seed}: {times}")
    return heats


def _failed(fault: Fault, side: Side, own: Side) -> Exception:
    if side == own:
        return BrokenRuleError(fault)
    return RunError(f"{side.name} failed, so that nothing is judged: {fault}")


def _measured(course: Course, side: Side, heats: list[Heat], own: Side) -> SideResult:
    try:
        answers = course.measure(side, heats)
    except RunError as error:  # also of weights that were made to stop the measurement
        raise _failed(Fault("weights", str(error)), side, own) from None
    trials, seeds = [], dict[str, int]()
    for heat, measured in zip(heats, answers, strict=True):
        if measured.fault and measured.fault != NO_WEIGHTS:
            raise _failed(Fault("weights", f"seed {heat.seed}: {measured.fault}"), side, own)
        other = seeds.setdefault(measured.digest or f"{heat.seed}", heat.seed)
        if other != heat.seed:
            why = f"seeds {other} and {heat.seed} gave equal weights: it takes a seed of its own"
            raise _failed(Fault("seed", why), side, own)
        trials.append(
            Trial(
                seed=heat.seed,
                reached=measured.reached,
                seconds=round(heat.seconds, 6),
                quality=measured.quality,
            )
        )
    return SideResult(
        trials=tuple(trials),
        mean_seconds=sum(heat.seconds for heat in heats) / len(heats),
        preparation_seconds=sum(heat.preparation_seconds for heat in heats) / len(heats),
    )


def _beside(results: dict[str, SideResult], own: str, other: str) -> Beside:
    found = rules.compared(results[own].trials, results[other].trials, in_turn=True)
    assert found is not None  # every heat has a time
    return found


def _word(beside: Beside) -> tuple[Word, str]:
    if beside.word in (FASTER, ONLY_SECOND):
        return "accepted", ""
    if beside.word in (SLOWER, ONLY_FIRST):
        return "slower", ""
    return "tie", beside.why


def _hardware(heats: Sequence[Heat]) -> str:
    """Device of the baseline's first run, with the cores of a CPU."""
    event = next((e for e in log_of(heats[0]) if e["event"] == "devices"), {})
    cores = words.count(visible_cores(), "core")
    kind = str(event.get("device_kind", "not known"))
    return f"{kind} ({cores})" if event.get("platform") == "cpu" else kind
