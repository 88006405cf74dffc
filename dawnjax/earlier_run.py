"""A run that was, as what measures its checkpoint needs it: experiment, data and state."""

import dataclasses
import sys
from pathlib import Path
from typing import Any

from dawnjax.config.config_json import from_json
from dawnjax.config.experiment import Experiment
from dawnjax.config.run_options import RunOptions
from dawnjax.errors import ConfigError, RunError
from dawnjax.input_pipeline.dataset import AnySpec
from dawnjax.runs.directory import RunDirectory, read_record


@dataclasses.dataclass(frozen=True)
class EarlierRun:
    """A run directory and what was trained in it.

    Attributes:
      directory: The run directory.
      record: Its `experiment.json`.
      experiment: The experiment, its data where they lie now.
      spec: The data's shapes and counts: those that it was trained on.
    """

    directory: RunDirectory
    record: dict[str, Any]
    experiment: Experiment
    spec: AnySpec


def read_run(path: Path, data_dir: str = "") -> EarlierRun:
    """Reads a run directory; it loads no state.

    Args:
      path: The directory.
      data_dir: Where its data lie, if not where the run had them.

    Raises:
      ConfigError: It is no run directory, or the data are not the run's.
      DataError: The data are missing or damaged.
    """
    directory = RunDirectory(path)
    record = read_record(directory)
    if record is None:
        raise ConfigError(f"{directory.path} is no run directory: it has no experiment.json")
    experiment = from_json(Experiment, record["experiment"])
    if data_dir and not hasattr(experiment.data, "data_dir"):
        raise ConfigError(f"--data_dir: {experiment.data.TAG} is read from no directory")
    if data_dir:
        data: Any = dataclasses.replace(experiment.data, data_dir=data_dir)
        experiment = dataclasses.replace(experiment, data=data)
    spec = experiment.data.spec()
    if experiment.identity(spec) != record["identity"]:
        raise ConfigError(
            f"{directory.path} was trained on other data or by another version of the experiment"
        )
    return EarlierRun(directory, record, experiment, spec)


def restore(run: EarlierRun, mesh: Any, options: RunOptions, command: str) -> tuple[Any, Any]:
    """Gives the newest checkpoint that verifies, on other devices than the run's if need be.

    Args:
      run: The run.
      mesh: The devices.
      options: Where the checkpoints are, if not in the run directory.
      command: Whose warnings they are.

    Returns:
      The `Recipe` as the run itself evaluated at that step, where its image size changes on the
      way, and the `checkpoint.Restored`.

    Raises:
      RunError: There is none.
    """
    from dawnjax.checkpoints.store import Checkpoints
    from dawnjax.programs import state_shapes
    from dawnjax.runs.stages import span_of_last
    from dawnjax.train_step import make_recipe

    checkpoints = Checkpoints(
        options.checkpoint.directory or str(run.directory.checkpoints),
        keep=1,
        warn=lambda message: print(f"dawnjax {command}: warning: {message}", file=sys.stderr),
    )
    # What the run's own compiler was asked for need not be known where this runs.
    experiment = dataclasses.replace(run.experiment, xla_options=())
    recipe = make_recipe(experiment, run.spec, mesh)
    restored = checkpoints.restore_newest(state_shapes(recipe))
    checkpoints.close()
    if restored is None:
        raise RunError(f"{run.directory.path} has no checkpoint")
    span = span_of_last(run.experiment.spans(run.spec), restored.step)
    return make_recipe(experiment, run.spec, mesh, span.index), restored
