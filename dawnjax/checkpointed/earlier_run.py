"""A finished or stopped run: its experiment, data and saved state."""

import dataclasses
import datetime
import functools
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from absl import flags

from dawnjax import records
from dawnjax.config import command_line
from dawnjax.config.config_json import from_json
from dawnjax.config.experiment import Experiment
from dawnjax.config.experiment_modules import classes_of_file
from dawnjax.config.own_files import own_code, source_of
from dawnjax.config.run_options import RunOptions
from dawnjax.errors import ConfigError, RunError
from dawnjax.input_pipeline.reading.dataset import AnySpec
from dawnjax.models.execution import Execution
from dawnjax.runs.directory import RunDirectory, changed_texts, read_existing
from dawnjax.runs.versions import installed
from dawnjax.tasks.task import Setting
from dawnjax.text import escaped


@dataclasses.dataclass(frozen=True)
class EarlierRun:
    """A run directory and its experiment, with the data where they lie now."""

    directory: RunDirectory
    record: dict[str, Any]
    experiment: Experiment
    spec: AnySpec

    @property
    def setting(self) -> Setting:
        """Setting that reads the run's data and texts, before there is a machine."""
        execution = Execution(platform="cpu", compute_dtype="float32", batch_norm_group_size=0)
        experiment = self.experiment
        return Setting(
            model=experiment.model, data=experiment.data, spec=self.spec, execution=execution
        )

    def described(self, step: int) -> dict[str, Any]:
        """Fields of a record of what was measured, now, of the state after a step."""
        return {
            "run_id": self.record["run_id"],
            "experiment": self.experiment.name,
            "identity": self.record["identity"],
            "seed": self.record["seed"],
            "step": step,
            "weights": self.experiment.evaluation.weights,
            "compute_dtype": self.experiment.compute_dtype,
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "versions": installed(),
        }


def add_run_flags(flag_values: flags.FlagValues) -> None:
    text = functools.partial(flags.DEFINE_string, flag_values=flag_values)
    text("data_dir", "", "The new place of the run's data, if they have moved.")
    moved = "The file with the run's own classes, if it has moved; it is executed."
    text("experiment", "", moved)


def run_argument(flag_values: flags.FlagValues, argv: Sequence[str]) -> EarlierRun | None:
    """The run that a command line names, before all its flags are known; None if it names none."""
    for text in command_line.known(flag_values, argv):
        if not text.startswith("-") and (Path(text) / "experiment.json").is_file():
            return run_at(text, flag_values)
    return None


def run_at(path: str, flag_values: flags.FlagValues) -> EarlierRun:
    """The run in a directory, with the places that its flags give."""
    data_dir, file = (str(flag_values[name].value or "") for name in ("data_dir", "experiment"))
    return read_run(Path(path), data_dir, file)


def read_run(path: Path, data_dir: str = "", experiment_file: str = "") -> EarlierRun:
    """Read a run directory, without its state; executes the file of its own classes, if any.

    Without `experiment_file` that is the file that the run was made with, where it still lies there
    with the same text.

    ConfigError if it is not a run directory, or the data are not the run's.
    """
    directory, record = read_directory(path)
    experiment_file = experiment_file or _recorded_file(record)
    classes = classes_of_file(experiment_file) if experiment_file else {}
    try:
        experiment = from_json(Experiment, record["experiment"], classes)
    except ConfigError as error:
        raise ConfigError(f"{directory.experiment_file}: {error}") from None
    if data_dir and not hasattr(experiment.data, "data_dir"):
        raise ConfigError(f"--data_dir: {experiment.data.TAG} is read from no directory")
    if data_dir:
        data: Any = dataclasses.replace(experiment.data, data_dir=data_dir)
        experiment = dataclasses.replace(experiment, data=data)
    if experiment_file:
        _compare_texts(directory, record, experiment, Path(experiment_file))
    with own_code("the data"):
        try:
            spec = experiment.data.spec()
            identity = experiment.identity(spec)
        except records.FORGED as error:
            if classes:  # a class of the user's own says itself where it fails
                raise
            raise ConfigError(
                f"{directory.experiment_file}: a field is of another kind ({error}); restore it"
            ) from None
    if identity != record["identity"]:
        raise ConfigError(
            f"{directory.path} was trained on other data or by another version of the experiment"
        )
    return EarlierRun(directory, record, experiment, spec)


def _recorded_file(record: dict[str, Any]) -> str:
    """File of one's own classes that a run was made with; empty without one.

    A stranger's run may name any file: only one of the user's own, with the run's text, is taken.
    """
    source = record.get("source")
    if not isinstance(source, dict) or "code" not in record["identity_fields"]:
        return ""
    try:
        file, text = Path(source["path"]), source["text"]
        is_own = file.stat().st_uid == os.getuid()
        return str(file) if is_own and records.read_plain(file).decode() == text else ""
    except (OSError, *records.FORGED):
        return ""


def read_directory(path: Path) -> tuple[RunDirectory, dict[str, Any]]:
    """Read what a run directory says of its run; `ConfigError` if it contradicts itself."""
    directory = RunDirectory(path)
    record = read_existing(path)
    if not isinstance(record.get("experiment"), dict):
        raise ConfigError(f"{directory.experiment_file} holds no experiment; restore it")
    return directory, record


def _compare_texts(
    directory: RunDirectory, record: dict[str, Any], experiment: Experiment, file: Path
) -> None:
    """Refuse other code of one's own than the run's; warn of other comments."""
    own = source_of(experiment, file)
    if own is None:
        return
    code, now = record["identity_fields"].get("code", {}), own.code()
    for name in sorted(code.keys() | now.keys()) if code else ():
        if code.get(name) != now.get(name):
            raise ConfigError(
                f"{name}: its code differs from the run in {directory.path}; "
                f"{directory.experiment_file} has the old text: restore it"
            )
    for name in changed_texts(record.get("source"), own.to_json()):
        print(
            f"dawnjax: warning: {name} was changed since the run: its text differs from the one "
            f"in {directory.experiment_file}",
            file=sys.stderr,
        )


def restore(
    run: EarlierRun,
    mesh: Any,
    options: RunOptions,
    command: str,
    progress: Callable[[], object] = lambda: None,
) -> tuple[Any, Any]:
    """The newest checkpoint that can be restored, on other devices than the run's if need be.

    Returns the `Recipe` of the stage in which that step was evaluated, and the `Restored`.
    """
    # Imported here: `--help` and a wrong path must not wait for JAX.
    from dawnjax.checkpointed import initial_parameters
    from dawnjax.checkpoints.store import Checkpoints
    from dawnjax.programs import state_shapes
    from dawnjax.runs.stages import span_of_last
    from dawnjax.train_step import make_recipe

    directory = options.checkpoint.directory or str(run.directory.checkpoints)
    checkpoints = Checkpoints(
        directory,
        keep=1,
        warn=lambda message: print(
            escaped(f"dawnjax {command}: warning: {message}"), file=sys.stderr
        ),
    )
    # The compiler here may not know the XLA options of the run's own.
    experiment = dataclasses.replace(run.experiment, xla_options=())
    recipe = make_recipe(experiment, run.spec, mesh)
    restored = initial_parameters.restore_newest(
        checkpoints, recipe, state_shapes(recipe), progress
    )
    checkpoints.close()
    restored = refuse_other_run(restored, run.directory, run.record, options.checkpoint.directory)
    span = span_of_last(run.experiment.spans(run.spec), restored.step)
    return make_recipe(experiment, run.spec, mesh, span.index), restored


def refuse_other_run(
    restored: Any, directory: RunDirectory, record: dict[str, Any], checkpoints: str = ""
) -> Any:
    """A checkpoint that was read, or None; returned where it is this run's, refused elsewhere."""
    if restored is None:
        raise ConfigError(
            f"{directory.path} has no checkpoint in {checkpoints or directory.checkpoints}; if the "
            "run saved elsewhere, name that: --checkpoint.directory=..."
        )
    for name in ("identity", "seed"):
        if restored.metadata[name] != record[name]:
            raise RunError(
                f"the checkpoints are of another run: {name} is {restored.metadata[name]!r} there "
                f"and {record[name]!r} in {directory.experiment_file}"
            )
    return restored
