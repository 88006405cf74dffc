"""One run of the race, and the measurement of its weights: the judge's side of both.

The clock is this process's. It starts when the data are handed over and stops when the run says
that its weights are saved; at that moment the run is ended, so that nothing changes after it.
"""

import dataclasses
import shutil
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from dawnjax import records
from dawnjax.checkpointed.judged_weights import Measured, Question
from dawnjax.errors import RunError
from dawnjax.machine.hosts import visible_cores
from dawnjax.race.contestant import DONE, GO, READY, Task
from dawnjax.race.guarded import Guarded, LimitError
from dawnjax.race.handover import Handover
from dawnjax.race.rules import Fault
from dawnjax.race.sandbox import INSIDE, NONE, Bind, Box, environment
from dawnjax.race.tracks import Track
from dawnjax.runs.log import Event, log_path, read_events

CLOCK_SLACK_SECONDS = 1.0
CLOCK_RATIO = 1.25
"""Own time of a run and the judge's time for it differ by less: by pipes and the end of the log."""

PREPARATION_SLACK_SECONDS = 3.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Side:
    """A recipe that runs: an entry's, the standing record's or the baseline's.

    Attributes:
      sources: Folder of its Python files; None where it has none.
      main: The recipe's file in it.
    """

    name: str
    experiment: dict[str, Any]
    options: dict[str, Any]
    sources: Path | None = None
    main: str = ""


class Heat(NamedTuple):
    """A run that ended in time.

    Attributes:
      folder: What is left of it, with `run` in it.
      preparation_seconds: Before it asked for its data.
      seconds: From its data to its weights.
    """

    seed: int
    folder: Path
    preparation_seconds: float
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Course:
    """Where runs take place: the track, its data, the sandbox, and a folder for all of it."""

    track: Track
    handover: Handover
    sandbox: str
    work: Path
    data_dir: Path | None = None

    def run(self, side: Side, seed: int, number: int) -> Heat:
        """Run a recipe once.

        Raises:
          LimitError: It broke a limit, or ended without weights.
        """
        folder = self.work / f"{number:04d}"
        data, run, root = folder / "data", folder / "run", folder / "root"
        self.handover.describe(data)
        run.mkdir()
        root.mkdir()
        binds = [_bind(data, "data"), _bind(run, "run", writable=True)]
        binds += [_bind(side.sources, "source")] if side.sources else []
        inside = {bind.inside.name: self._seen(bind) for bind in binds}
        with Guarded(self.track.limits, run) as process:
            task = Task(
                experiment=side.experiment,
                source=f"{inside['source']}/{side.main}" if side.sources else "",
                options=side.options,
                seed=seed,
                data=inside["data"],
                run_dir=inside["run"],
                say=process.say,
                hear=process.hear,
            )
            command = self._command("dawnjax.race.contestant", task, folder, binds, hidden=True)
            process.start(command, environment(self.track.platform))
            ready = process.wait_for(READY)
            given = time.monotonic()
            self.handover.hand_over(data)
            process.tell(GO)
            saved = process.wait_for(DONE)
            process.end()
        shutil.rmtree(data, ignore_errors=True)
        return Heat(seed, folder, ready - process.began, saved - given)

    def measure(self, side: Side, heats: list[Heat]) -> list[Measured]:
        """Measure the weights of a recipe's runs, in a process without its code.

        Raises:
          RunError: The process failed.
        """
        folder = self.work / f"measured_with_{heats[0].folder.name}"
        (folder / "out").mkdir(parents=True)
        (folder / "root").mkdir()
        binds = [_bind(folder / "out", "out", writable=True)]
        runs = [_bind(heat.folder / "run", f"run_{heat.folder.name}") for heat in heats]
        binds += runs
        experiment = side.experiment
        if self.data_dir is not None:
            where = _bind(self.data_dir, "data_dir")
            binds.append(where)
            experiment = {**experiment, "data": {**experiment["data"]}}
            experiment["data"]["data_dir"] = self._seen(where)
        with Guarded(self.track.limits, folder / "out") as process:
            question = Question(
                experiment=experiment,
                checkpoints=tuple(f"{self._seen(run)}/checkpoints" for run in runs),
                out=f"{self._seen(binds[0])}/measured.json",
                say=process.say,
            )
            command = self._command(
                "dawnjax.checkpointed.judged_weights", question, folder, binds, hidden=False
            )
            process.start(command, environment(self.track.platform))
            try:
                process.wait_for(DONE)
            except LimitError as error:
                raise RunError(
                    f"the weights of {side.name} could not be measured: {error}"
                ) from None
        try:
            return records.read_json(folder / "out" / "measured.json", list[Measured])
        except (OSError, ValueError) as error:
            raise RunError(f"the weights of {side.name} were not measured: {error}") from None

    def _seen(self, bind: Bind) -> str:
        return str(bind.outside.resolve() if self.sandbox == NONE else bind.inside)

    def _command(
        self, module: str, task: Any, folder: Path, binds: list[Bind], *, hidden: bool
    ) -> list[str]:
        records.write_json(folder / "task.json", records.plain(task))
        told = _bind(folder / "task.json", "task.json")
        box = Box(
            kind=self.sandbox,
            binds=(*binds, told),
            hidden=self.track.hidden if hidden else (),
            platform=self.track.platform,
            cpu_seconds=int(self.track.limits.seconds * visible_cores()) + 1,
            processes=self.track.limits.processes,
        )
        # -P: no module of the folder that the judge was called in.
        return box.command([sys.executable, "-P", "-m", module, self._seen(told)], folder / "root")


def _bind(outside: Path, name: str, *, writable: bool = False) -> Bind:
    return Bind(outside=outside, inside=INSIDE / name, writable=writable)


def clock_fault(events: list[Event], seconds: float) -> Fault | None:
    """Fault of a run's own log beside the judge's clock; None without one.

    It decides no time. It names cheats, and mistakes, that the judge's clock makes vain.
    """
    start = next((event for event in events if event["event"] == "run_start"), None)
    if start is None:
        return Fault("clock", "its log has no run_start")
    place = events.index(start)
    if any(event["event"] in ("train", "evaluation") for event in events[:place]):
        return Fault("compile", "it made steps before its clock started")
    own = events[-1]["t"] - start["t"]
    if not seconds / CLOCK_RATIO - CLOCK_SLACK_SECONDS <= own:
        return Fault(
            "clock", f"its own clock counted {own:.2f} s, and the judge's {seconds:.2f} s: it stood"
        )
    if own > seconds * CLOCK_RATIO + CLOCK_SLACK_SECONDS:
        return Fault(
            "clock",
            f"its own clock counted {own:.2f} s, and the judge's {seconds:.2f} s: it trained "
            "before it had its data",
        )
    if sum(event["event"] == "evaluation" for event in events) > 1:
        return Fault("evaluation", "it evaluated more than once")
    return None


def log_of(heat: Heat) -> list[Event]:
    """Log that a run left; empty where it left none that can be read."""
    path = log_path(heat.folder / "run")
    if path.is_symlink() or path.parent.is_symlink():
        return []
    try:
        return read_events(path)
    except (RunError, *records.FORGED):
        return []


def preparation_fault(track: Track, own: list[Heat], baseline: list[Heat]) -> Fault | None:
    """Fault of an entry that prepares far longer than the baseline before it takes its data."""
    mean, other = (sum(h.preparation_seconds for h in side) / len(side) for side in (own, baseline))
    most = track.limits.preparation_ratio * other + PREPARATION_SLACK_SECONDS
    if mean <= most:
        return None
    return Fault(
        "compile",
        f"it took {mean:.1f} s before its data, and the baseline {other:.1f} s; at most {most:.1f} "
        "s may pass, for more could be training",
    )
