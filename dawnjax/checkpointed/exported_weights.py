"""Weights of a run in one file of safetensors: written here, and read back by `--initialize_from`.

    OUT/model.safetensors    the arrays, by their names in a checkpoint, such as `params/0/bias`
    OUT/model.json           the `Description`, which the metadata of the file hold too

Arrays keep their dtype, bit for bit. A moving average that the run evaluated has the names of the
parameters. The data are not needed, and no model is built.

Source: huggingface/safetensors, `README.md`, "Format".
"""

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from dawnjax import records
from dawnjax.checkpointed.earlier_run import read_directory, refuse_other_run
from dawnjax.checkpointed.published_weights import SINGLE, PublishedWeights
from dawnjax.checkpoints.store import Checkpoints
from dawnjax.errors import ConfigError
from dawnjax.models.published_llama import Published
from dawnjax.runs.versions import installed
from dawnjax.text import escaped

SCHEMA_VERSION = 1
KEY = "dawnjax"
"""Of the metadata that hold the description."""

DESCRIPTION = "model.json"
EMA = "ema_params/"

DTYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    **{f"int{bits}": f"I{bits}" for bits in (64, 32, 16, 8)},
    **{f"uint{bits}": f"U{bits}" for bits in (64, 32, 16, 8)},
    "bool": "BOOL",
}
"""Names of dtypes in a file, by NumPy's."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DescribedExperiment:
    """Fields of a run's experiment, without paths; `experiment.json` has them all."""

    name: str
    task: dict[str, Any]
    model: dict[str, Any]
    data: dict[str, Any]
    evaluation: dict[str, Any]
    compute_dtype: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Description:
    """Origin of exported weights.

    Attributes:
      weights: Which parameters of the run these are: `raw` or their moving average, `ema`.
    """

    run_id: str
    identity: str
    seed: int
    step: int
    weights: Literal["raw", "ema"]
    experiment: DescribedExperiment
    versions: dict[str, str]
    schema_version: int = SCHEMA_VERSION


class Saved(NamedTuple):
    """Parameters that a run evaluated, and statistics, by their names in a checkpoint."""

    arrays: dict[str, np.ndarray]
    description: Description

    @property
    def experiment(self) -> DescribedExperiment:
        return self.description.experiment


def export(path: Path, out: Path, checkpoint_directory: str = "") -> list[Path]:
    """Write the newest checkpoint of a run that verifies into a new folder; return the files."""
    arrays, description = saved_arrays(path, checkpoint_directory)

    def fill(folder: Path) -> None:
        write_file(folder / SINGLE, arrays, description)
        records.write_json(folder / DESCRIPTION, dataclasses.asdict(description))

    records.write_folder(out, fill)
    return [out / SINGLE, out / DESCRIPTION]


def saved_arrays(
    path: Path,
    checkpoint_directory: str = "",
    check: Callable[[DescribedExperiment], Any] | None = None,
) -> Saved:
    """Read the newest checkpoint of a run that verifies; `check` may refuse its experiment."""
    directory, record = read_directory(path)
    try:
        told = _without_paths(record["experiment"])
        experiment = records.convert(told, DescribedExperiment, at="experiment", others=True)
    except records.FieldError as error:
        raise ConfigError(f"{directory.experiment_file}: {error}; restore it") from None
    if check is not None:
        check(experiment)
    is_average = experiment.evaluation.get("weights") == "ema"
    parts = (EMA if is_average else "params/", "batch_stats/")
    # The arrays pass through memory alone: no accelerator is taken from a run on this machine.
    jax.config.update("jax_platforms", "cpu")
    place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    place_of = lambda name: place if name.startswith(parts) else None  # noqa: E731
    checkpoints = Checkpoints(
        checkpoint_directory or str(directory.checkpoints),
        keep=1,
        warn=lambda line: print(escaped(f"dawnjax export: warning: {line}"), file=sys.stderr),
    )
    restored = checkpoints.read_newest(place_of)
    checkpoints.close()
    restored = refuse_other_run(restored, directory, record, checkpoint_directory)
    arrays = {
        name.replace(EMA, "params/", 1): np.asarray(array) for name, array in restored.state.items()
    }
    description = Description(
        run_id=record["run_id"],
        identity=record["identity"],
        seed=record["seed"],
        step=restored.step,
        weights="ema" if is_average else "raw",
        experiment=experiment,
        versions=installed(),
    )

    return Saved(arrays, description)


def write_file(path: Path, arrays: dict[str, np.ndarray], description: Description) -> None:
    write_tensors(path, arrays, {"format": "np", KEY: json.dumps(dataclasses.asdict(description))})


def write_tensors(path: Path, arrays: dict[str, np.ndarray], metadata: dict[str, str]) -> None:
    """Write arrays as they are, one after another, behind the header."""
    # Wide dtypes first, so that each array begins at a multiple of its own size.
    ordered = sorted(arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, array in ordered:
        kind = DTYPES.get(array.dtype.name)
        if kind is None:
            raise ConfigError(f"{name} is {array.dtype.name}, which safetensors has no name for")
        start, end = end, end + array.nbytes
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": (start, end)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("xb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for _, array in ordered:
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


class ExportedWeights:
    """Weights that `export` wrote, of which only the header was read."""

    def __init__(self, weights: PublishedWeights, description: Description):
        self.description, self._weights = description, weights

    @property
    def state(self) -> str:
        """Content in words, equal for equal content alone."""
        return self._weights.state.replace("published", "exported", 1)

    @property
    def signatures(self) -> dict[str, str]:
        """Dtype and shape of each array, as `arrays.signature` has them."""
        names = {kind: name for name, kind in DTYPES.items()}
        return {
            name: f"{names.get(there.dtype, there.dtype)}[{','.join(map(str, there.shape))}]"
            for name, there in self._weights.tensors.items()
        }

    def array(self, name: str, sharding: Any) -> jax.Array:
        """Array on the devices of a sharding, each of which reads its part alone."""
        shape = self._weights.tensors[name].shape
        return self._weights.array(Published(name), shape, sharding)


def exported(weights: PublishedWeights) -> ExportedWeights | None:
    """Files as an export of ours; None for those of any other program."""
    if len(weights.files) != 1:
        return None
    with weights.opened(weights.files[0]) as reader:
        text = (reader.metadata() or {}).get(KEY)
    if text is None:
        return None
    try:
        description = records.decode(text, Description)
        if description.schema_version != SCHEMA_VERSION:
            raise ValueError(f"schema_version is not {SCHEMA_VERSION}")
    except ValueError as error:
        raise weights.fault(f"its metadata are none that this version writes: {error}") from None
    return ExportedWeights(weights, description)


def _without_paths(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_paths(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_without_paths(part) for part in value]
    return "" if isinstance(value, str) and ("/" in value or "\\" in value) else value
