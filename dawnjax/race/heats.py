"""One run of the race, and the measurement of its weights: the judge's side of both.

The clock is this process's. It starts when the data are handed over and stops when the run says
that its weights are saved; at that moment the run is ended, so that nothing changes after it.
"""

import dataclasses
import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dawnjax import records
from dawnjax.checkpointed.judged_weights import Measured, Question
from dawnjax.errors import RunError
from dawnjax.race.contestant import DONE, GO, READY, Task
from dawnjax.race.handover import Handover
from dawnjax.race.sandbox import INSIDE, SAVED, Boxed, LimitError, Walls
from dawnjax.race.tracks import Track


@dataclasses.dataclass(frozen=True, kw_only=True)
class Side:
    """A recipe that runs: an entry's, the standing record's or the baseline's.

    Attributes:
      sources: Folder of its Python files; None where it has none.
      main: The recipe's file in it.
    """

    name: str
    experiment: dict[str, Any]
    sources: Path | None = None
    main: str = ""


class Heat(NamedTuple):
    """A run that ended in time.

    Attributes:
      checkpoints: What it saved.
      preparation_seconds: Before it asked for its data.
      seconds: From its data to its weights.
      names: What its classes or tokens were called (`Handover.names`).
    """

    seed: int
    checkpoints: Path
    preparation_seconds: float
    seconds: float
    names: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Course:
    """Where runs take place: the track, its data, and a folder for all of it."""

    track: Track
    handover: Handover
    work: Path
    data_dir: Path | None = None

    def run(self, side: Side, seed: int, number: int) -> Heat:
        """Run a recipe once.

        Raises:
          LimitError: It broke a limit, or ended without weights.
        """
        data, checkpoints = self.work / f"data_{number}", self.work / f"run_{number}"
        self.handover.describe(data)
        binds = {"data": data} | ({"source": side.sources} if side.sources else {})
        task = Task(
            experiment=side.experiment,
            source=f"{INSIDE}/source/{side.main}" if side.sources else "",
            seed=seed,
            data=f"{INSIDE}/data",
            run_dir=str(SAVED),
        )
        with self._boxed("dawnjax.race.contestant", binds, hidden=self.track.hidden) as process:
            process.tell(_line(task))
            ready = process.expect(READY)
            given = time.monotonic()
            self.handover.hand_over(data)
            process.tell(GO)
            saved = process.expect(DONE)
            process.end_and_keep("checkpoints", checkpoints)
        shutil.rmtree(data)
        names = tuple(self.handover.names.tolist())
        return Heat(seed, checkpoints, ready - process.began, saved - given, names)

    def measure(self, side: Side, heats: Sequence[Heat]) -> Measured:
        """Measure the weights of a recipe's runs, in a process without its code.

        Raises:
          RunError: The process failed.
        """
        runs = {heat.checkpoints.name: heat.checkpoints for heat in heats}
        binds = {name: path for name, path in runs.items() if path.is_dir()}
        experiment = side.experiment
        if self.data_dir is not None:
            binds["data_dir"] = self.data_dir
            place = {"data_dir": f"{INSIDE}/data_dir"}
            experiment = {**experiment, "data": {**experiment["data"], **place}}
        question = Question(
            experiment=experiment,
            checkpoints=tuple(f"{INSIDE}/{name}" for name in runs),
            array=self.handover.array,
            names=tuple(heat.names for heat in heats),
        )
        try:
            with self._boxed("dawnjax.checkpointed.judged_weights", binds) as process:
                process.tell(_line(question))
                return records.decode(process.hear(), Measured)
        except (LimitError, ValueError) as error:
            raise RunError(f"the weights of {side.name} could not be measured: {error}") from None

    def _boxed(self, module: str, binds: dict[str, Path], hidden: Sequence[str] = ()) -> Boxed:
        walls = Walls(
            limits=self.track.limits, binds=binds, hidden=hidden, platform=self.track.platform
        )
        # -P: no module of the folder that the judge was called in.
        return Boxed(walls, ["-P", "-m", module])


def _line(told: Any) -> bytes:
    return json.dumps(records.plain(told)).encode()
