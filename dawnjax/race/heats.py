"""One run of the race, and the measurement of its weights: the judge's side of both.

The clock belongs to this process. It starts when the data are handed over. A run that reports
itself done is killed, and the clock stops when none of its processes is left, so nothing is written
later.
"""

import contextlib
import dataclasses
import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dawnjax import records
from dawnjax.checkpointed.judged_weights import NO_WEIGHTS, Measured, Question, Weights
from dawnjax.errors import RunError
from dawnjax.input_pipeline.reading import npy_files
from dawnjax.input_pipeline.reading.dataset import DataError, MissingDataError
from dawnjax.race.contestant import DONE, GO, READY
from dawnjax.race.handover import Handover
from dawnjax.race.sandbox import (
    INSIDE,
    SAVED,
    Boxed,
    LimitError,
    Walls,
    boxed,
    read_installation,
)
from dawnjax.race.tracks import Track
from dawnjax.tasks.on_host import OnHost
from dawnjax.trials.target import reaches

CONTESTANT = "dawnjax.race.contestant"

LOGITS = "logits.npy"
"""What a program saves: float32 [inputs, classes], in the order of the inputs."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Side:
    """A recipe or a program that runs: an entry, the standing record or the baseline.

    Attributes:
      experiment: Of a recipe; empty for a program.
      sources: Folder of its Python files; None if a run executes none.
      main: The file in it that is executed.
    """

    name: str
    experiment: dict[str, Any]
    sources: Path | None = None
    main: str = ""


class Heat(NamedTuple):
    """A run that ended within its limits.

    Attributes:
      names: Seed of the names that it learnt.
      saved: Folder of what it saved: checkpoints, or a program's logits.
      preparation_seconds: Before it asked for its data.
      seconds: From its data until all its processes were gone.
      weights: Quality of a program's logits; None for a recipe, which is measured later.
    """

    seed: int
    names: int
    saved: Path
    preparation_seconds: float
    seconds: float
    weights: Weights | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Course:
    """Where runs take place: the track, its data, and a folder for all of it."""

    track: Track
    handover: Handover
    work: Path
    data_dir: Path | None = None

    def run(self, side: Side, seed: int, names: int, number: int) -> Heat:
        """Run a recipe or a program once, in a round whose names were drawn by `names`.

        Raises:
          LimitError: It broke a limit, or ended without reporting.
        """
        data, saved = self.work / f"data_{number}", self.work / f"run_{number}"
        self.handover.describe(data)
        binds = {"data": data} | ({"source": side.sources} if side.sources else {})
        main = f"{INSIDE}/source/{side.main}" if side.sources else ""
        is_program = not side.experiment
        given = [f"{INSIDE}/data", str(SAVED), str(seed)]
        command = [main, *given] if is_program else ["-m", CONTESTANT, *given, main]
        read_installation()
        with self._boxed(command, binds, hidden=self.track.hidden) as process:
            if not is_program:
                process.tell(_line(side.experiment))
            ready = process.expect(READY)
            handed = time.monotonic()
            self.handover.hand_over(data, with_inputs=is_program)
            process.tell(GO)
            process.expect(DONE, until=handed + self.track.seconds)
            ended = process.end_and_keep(saved, "" if is_program else "checkpoints")
        shutil.rmtree(data)
        weights = self._answered(saved) if is_program else None
        return Heat(seed, names, saved, ready - process.began, ended - handed, weights)

    def _answered(self, saved: Path) -> Weights:
        """Compare a program's logits with the true classes of its round, in float64."""
        classes = self.handover.true_classes()
        try:
            logits = npy_files.map_array(saved / LOGITS)  # a stranger's header may claim anything
        except MissingDataError:
            return Weights(fault=NO_WEIGHTS)
        except DataError as error:
            why = str(error).removeprefix(f"{saved / LOGITS}: ")
            return Weights(fault=f"{LOGITS} cannot be read: {why}")
        wanted = len(classes), self.handover.num_classes
        if logits.dtype != np.float32 or logits.shape != wanted:
            given = f"{logits.dtype} {list(logits.shape)}"
            return Weights(fault=f"{LOGITS} is {given}, wanted float32 {list(wanted)}")
        on_host, target = OnHost(), self.track.target
        assert target.value is not None  # every track's has one
        on_host.add(logits, classes)
        value = on_host.metrics()[target.metric]
        return Weights(reached=reaches(value, target.value, target.direction), quality=value)

    def measure(self, side: Side, heats: Sequence[Heat]) -> Measured:
        """Measure the weights that a side's runs saved, in a process without its code; then remove
        them.

        Raises:
          RunError: The process failed.
        """
        runs = {heat.saved.name: heat.saved for heat in heats}
        try:
            if all(heat.weights for heat in heats):
                weights = tuple(heat.weights for heat in heats if heat.weights)
                return Measured(weights=weights, device="")
            return self._measured(side, heats, runs)
        except (LimitError, ValueError) as error:
            raise RunError(f"the weights of {side.name} could not be measured: {error}") from None
        finally:
            for folder in runs.values():
                shutil.rmtree(folder, ignore_errors=True)

    def _measured(self, side: Side, heats: Sequence[Heat], runs: dict[str, Path]) -> Measured:
        binds = {name: path for name, path in runs.items() if path.is_dir()}
        experiment = side.experiment
        if self.data_dir is not None:
            binds["data_dir"] = self.data_dir
            place = {"data_dir": f"{INSIDE}/data_dir"}
            experiment = {**experiment, "data": {**experiment["data"], **place}}
        question = Question(
            experiment=experiment,
            checkpoints=tuple(f"{INSIDE}/{name}" for name in runs),
            names=tuple(heat.names for heat in heats),
        )
        with self._boxed(["-m", "dawnjax.checkpointed.judged_weights"], binds) as process:
            process.tell(_line(question))
            return records.decode(process.hear(), Measured)

    def _boxed(
        self, arguments: Sequence[str], binds: dict[str, Path], hidden: Sequence[str] = ()
    ) -> contextlib.AbstractContextManager[Boxed]:
        walls = Walls(
            limits=self.track.limits, binds=binds, hidden=hidden, platform=self.track.platform
        )
        # -P: no module of the folder that the judge was called in.
        return boxed(walls, ["-P", *arguments])


def _line(told: Any) -> bytes:
    return json.dumps(records.plain(told)).encode()
