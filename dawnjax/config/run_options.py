"""Run options: mesh, checkpoints, processes, deadlines, profiles.

Nothing here is part of an experiment's identity: a run may be resumed with other options.
"""

import dataclasses
import os
from typing import Annotated, Literal

from dawnjax.cluster.options import ProcessOptions
from dawnjax.errors import ConfigError
from dawnjax.limits import Limit, OneOrMore, check_fields, require
from dawnjax.machine.mesh_shape import MeshShape
from dawnjax.runs.trackers import refuse_unknown

_REMOTE = ("gs://", "s3://", "az://", "hf://")
"""Stores that Orbax's paths know."""

_Seconds = Annotated[float, Limit(lambda value: value >= 0, "be 0 (never) or more")]
_Steps = Annotated[int, Limit(lambda value: value >= 0, "be 0 (never) or more")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointOptions:
    """When the state is saved; saving is asynchronous and counts as time of the run.

    Attributes:
      directory: Where checkpoints go; empty takes `checkpoints` in the run directory. It must be
        one place for all hosts (a shared disk, or `gs://...`).
      every_seconds: Save at the first end of an epoch or evaluation once this many seconds have
        passed since the last save, and between the calls that make examples; 0 turns it off. The
        first saves come after 10, 20 and 40 seconds.
      every_steps: Also save after each multiple of this many steps; 0 turns it off.
      keep: Number of checkpoints to keep.
    """

    directory: Annotated[
        str,
        Limit(
            lambda value: "://" not in value or value.startswith(_REMOTE),
            f"be a local path or begin with one of {', '.join(_REMOTE)}",
        ),
    ] = ""
    every_seconds: _Seconds = 60.0
    every_steps: _Steps = 0
    keep: OneOrMore[int] = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProfileOptions:
    """Profiles of the run.

    Attributes:
      after_run: Take a profile after the run, as a separate phase outside the time to accuracy.
      seconds: Approximate length of the trace after the run, which has 2 to 20 steps.
      measured_peaks: Measure a CPU's peaks if they are not known yet.
    """

    after_run: bool = True
    seconds: Annotated[float, Limit(lambda value: 0 < value <= 60, "lie above 0, up to 60")] = 1.0
    measured_peaks: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of a run on this machine; no part of the experiment's identity.

    Attributes:
      run_dir: Directory of the run's log, result and checkpoints; empty makes a new one under
        `runs/`. An existing run of the same experiment and seed is resumed.
      mesh: Arrangement of the devices.
      weight_update_sharding: Split the optimizer's state and each update over all devices, while
        the parameters stay whole on each; the mathematics stays the same. It excludes
        `mesh.fsdp` and `mesh.model`, which also split the parameters.
      context_keys: Devices along `mesh.context` gather all keys and values, or pass them around in
        a `ring`, so that no device holds a whole text's keys.
      steps_per_call: Steps in one call of the compiled program; 0 chooses by dataset, model and
        platform.
      data_placement: Keep the dataset on each device, feed each batch from the host, or choose
        by size.
      checkpoint: When the state is saved.
      deterministic: On GPUs, compile with only XLA's deterministic operations and without
        autotuning: the same program gives the same bits again, but may be slower. No effect
        elsewhere.
      tensorboard: Write scalars for TensorBoard.
      gradient_norm: Record the norm of the gradient beside each loss. This reads the gradient once
        more and, with split parameters, sums one more number over all devices.
      tracker: Also send scalars and the result to `wandb`, `mlflow` or both.
      price_per_hour_usd: Price of one host; the cost is null without it.
      compile_cache_dir: Directory of compiled programs, kept between runs, here or in a bucket
        (`gs://...`); empty takes `~/.cache/dawnjax/compiled`, `none` keeps nothing.
      processes: How this process finds the others, and when it gives them up.
      profile: Profiles of the run.
      chooses: A search uses this run to choose a recipe, so entries, comparisons and boards leave
        it out.
    """

    run_dir: Annotated[
        str,
        Limit(
            lambda value: "://" not in value,
            "be a local path: a bucket cannot append to a log; only checkpoints can go to a "
            "bucket, by --checkpoint.directory",
        ),
    ] = ""
    mesh: MeshShape = MeshShape()
    weight_update_sharding: bool = False
    context_keys: Literal["gather", "ring"] = "gather"
    steps_per_call: Annotated[
        int, Limit(lambda value: 0 <= value <= 1000, "lie in 0 (chosen) to 1000")
    ] = 0
    data_placement: Literal["auto", "device", "host"] = "auto"
    checkpoint: CheckpointOptions = CheckpointOptions()
    deterministic: bool = False
    tensorboard: bool = True
    gradient_norm: bool = False
    tracker: tuple[str, ...] = ()
    price_per_hour_usd: Annotated[
        float | None, Limit(lambda value: value is None or value >= 0, "be 0 or more")
    ] = None
    compile_cache_dir: str = ""
    processes: ProcessOptions = ProcessOptions()
    profile: ProfileOptions = ProfileOptions()
    chooses: bool = False

    def validate(self) -> None:
        """Refuse impossible values, naming the option, its value and the limit."""
        check_fields(self)
        paths = {"run_dir": self.run_dir, "checkpoint.directory": self.checkpoint.directory}
        for name, path in paths.items():
            if patterns := sorted(set("[]*?") & set(os.path.abspath(path))):
                raise ConfigError(
                    f"{name}={path}: its path contains {' and '.join(patterns)}, which Orbax "
                    "reads as a pattern: its checkpoints could not be read; choose another"
                )
        refuse_unknown(self.tracker)
        is_split = self.context_keys == "gather" or self.mesh.context > 1
        rule = "be gather if mesh.context is 1: one device makes no ring"
        require(is_split, "context_keys", self.context_keys, rule)
        for axis in ("fsdp", "expert", "context", "model") if self.weight_update_sharding else ():
            if getattr(self.mesh, axis) > 1:
                raise ConfigError(
                    f"mesh.{axis}={getattr(self.mesh, axis)} already splits the optimizer's "
                    "state; choose it or weight_update_sharding"
                )
