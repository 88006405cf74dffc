"""Weights of a run in one file of safetensors, for other programs.

    OUT/model.safetensors    the arrays, by their names in a checkpoint, such as `params/0/bias`
    OUT/model.json           what they are: run, step, model, versions

Arrays keep their dtype, bit for bit. A moving average that the run evaluated has the names of the
parameters. Where a checkpoint leaves a frozen base out, it is taken from its source, as for any
other use; without one the data are not needed, and no model is built.
"""

import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dawnjax import records
from dawnjax.checkpointed.earlier_run import read_directory, read_run, refuse_other_run, restore
from dawnjax.checkpoints.arrays import by_path
from dawnjax.checkpoints.store import Checkpoints
from dawnjax.config.run_options import CheckpointOptions, RunOptions
from dawnjax.errors import ConfigError, install
from dawnjax.runs.versions import installed
from dawnjax.session import alone
from dawnjax.text import escaped

FIELDS = ("name", "task", "model", "data", "evaluation", "compute_dtype")
"""Fields of an experiment in the description; `experiment.json` has all."""

EMA = "ema_params/"


def export(path: Path, out: Path, checkpoint_directory: str = "") -> list[Path]:
    """Write the newest checkpoint of a run into a new folder; return the files."""
    try:
        from safetensors.numpy import save_file
    except ImportError:
        raise ConfigError(
            f"--format=safetensors needs safetensors ({install('weights')})"
        ) from None
    directory, record = read_directory(path)
    is_average = record["experiment"].get("evaluation", {}).get("weights") == "ema"
    parts = (EMA if is_average else "params/", "batch_stats/")
    # The arrays pass through memory alone: no accelerator is taken from a run on this machine.
    jax.config.update("jax_platforms", "cpu")
    place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    checkpoints = Checkpoints(
        checkpoint_directory or str(directory.checkpoints),
        keep=1,
        warn=lambda line: print(escaped(f"dawnjax export: warning: {line}"), file=sys.stderr),
    )
    restored = checkpoints.read_newest(lambda name: place if name.startswith(parts) else None)
    checkpoints.close()
    restored = refuse_other_run(restored, directory, record, checkpoint_directory)
    state = restored.state
    if restored.metadata.get("base"):
        state = _with_base(path, checkpoint_directory)
    arrays = {
        name.replace(EMA, "params/", 1): np.asarray(array)
        for name, array in state.items()
        if name.startswith(parts)
    }
    description = {
        "run_id": record["run_id"],
        "identity": record["identity"],
        "seed": record["seed"],
        "step": restored.step,
        "weights": "ema" if is_average else "raw",
        "experiment": _without_paths({name: record["experiment"].get(name) for name in FIELDS}),
        "versions": installed(),
    }

    def fill(folder: Path) -> None:
        save_file(arrays, folder / "model.safetensors")
        records.write_json(folder / "model.json", description)

    records.write_folder(out, fill)
    return [out / "model.safetensors", out / "model.json"]


def _with_base(path: Path, checkpoint_directory: str) -> dict[str, Any]:
    run = read_run(path)
    options = RunOptions(checkpoint=CheckpointOptions(directory=checkpoint_directory))
    mesh = alone(run.experiment, run.spec, options, num_devices=1).mesh
    return by_path(restore(run, mesh, options, "export")[1].state)


def _without_paths(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_paths(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_without_paths(part) for part in value]
    return "" if isinstance(value, str) and ("/" in value or "\\" in value) else value
