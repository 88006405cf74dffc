"""Parameters that a run takes from another run's checkpoint, to be tuned further.

`--initialize_from=RUN_DIR` names that run, the source, or its weights as `exported_weights` wrote
them; `published_weights` reads files of other programs. Its content belongs to the experiment's
identity: identity, seed, step and hash of the checkpoint. The optimizer's state and the steps begin
anew. So does the head, the arrays that depend on the number of classes, where the classes differ. A
model with `pretrained_parts`, such as a detector, takes those alone from another model.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from dawnjax import records
from dawnjax.checkpointed.exported_weights import ExportedWeights, exported
from dawnjax.checkpointed.published_weights import PublishedWeights, is_published
from dawnjax.checkpoints.arrays import by_path, signature
from dawnjax.checkpoints.manifest import DamageError, point_of, points_of, read_manifest
from dawnjax.checkpoints.store import Checkpoints, Restored
from dawnjax.config.config_json import identity_of, to_json
from dawnjax.config.experiment import Experiment
from dawnjax.config.experiment_flags import Request
from dawnjax.errors import CheckpointError, ConfigError
from dawnjax.machine.mesh import shardings_of
from dawnjax.runs.directory import RunDirectory, read_record
from dawnjax.tasks.task import make_model
from dawnjax.train_step import Recipe, TrainState


@dataclasses.dataclass(frozen=True)
class Taken:
    """Arrays taken from a source, by name, and the `raw` or `ema` weights that it evaluated.

    `model` is the tag of its model; empty for published weights.
    """

    step: int
    weights: str
    model: str
    taken: tuple[str, ...]
    fresh: tuple[str, ...]

    def text(self, source: str) -> str:
        fresh = f"; made anew: {', '.join(self.fresh)}" if self.fresh else ""
        return (
            f"{len(self.taken)} arrays of {source}, step {self.step}, {self.weights} weights{fresh}"
        )


def resolved(request: Request) -> Request:
    """Request with the state of its source, which is part of the experiment's identity.

    A resumed run keeps the state that it began with, even where the source is gone.
    """
    experiment = request.experiment
    if not experiment.initialize_from:
        return request
    path = records.path_of(experiment.initialize_from)
    state = _recorded(request) or _source_of(path).state
    return dataclasses.replace(
        request, experiment=dataclasses.replace(experiment, initial_state=state)
    )


def _source_of(path: Path) -> "Source | PublishedWeights":
    if is_published(path):
        weights = PublishedWeights(path)
        ours = exported(weights)
        return weights if ours is None else _source_of_export(path, ours)
    return Source(path, _source_record(path), _newest_manifest(path))


def _source_of_export(path: Path, file: ExportedWeights) -> "Source":
    told = file.description
    record = {"experiment": dataclasses.asdict(told.experiment)}
    return Source(path, record, {"step": told.step, "arrays": file.signatures}, file)


def _recorded(request: Request) -> str:
    """Source that the run directory records; empty where its run has another source, or none."""
    if not request.options.run_dir:
        return ""
    directory = RunDirectory(Path(request.options.run_dir))
    record = read_record(directory) if directory.experiment_file.exists() else None
    fields = record.get("experiment") if record else None
    if not isinstance(fields, dict):
        return ""
    is_same = fields.get("initialize_from") == request.experiment.initialize_from
    return str(fields.get("initial_state", "")) if is_same else ""


def _source_record(path: Path) -> dict[str, Any]:
    directory = RunDirectory(path)
    record = read_record(directory) if directory.experiment_file.exists() else None
    if record is None:
        raise ConfigError(
            f"--initialize_from={path}: no run directory: experiment.json is not there"
        )
    return record


def _newest_manifest(path: Path) -> dict[str, Any]:
    checkpoints = RunDirectory(path).checkpoints
    point = max(points_of(checkpoints), default=None)
    if point is None:
        raise ConfigError(
            f"--initialize_from={path}: the run has no checkpoint in {checkpoints}; copy one "
            "there from where it saved"
        )
    try:
        return read_manifest(checkpoints / point.folder, point)
    except DamageError as error:
        raise ConfigError(f"--initialize_from={path}: checkpoint {point.folder}: {error}") from None


def refuse_other_model(request: Request, recipe: Recipe) -> None:
    """Refuse a source of another model before a run begins, from its checkpoint's description."""
    if request.experiment.initialize_from and not _recorded(request):
        source = _unchanged(recipe.experiment)
        if isinstance(source, PublishedWeights):
            source.check(recipe)
        else:
            source.choose(recipe, source.manifest["arrays"])


def take(
    recipe: Recipe, state: TrainState, warn: Callable[[str], None]
) -> tuple[TrainState, Taken]:
    """A fresh state with the source's parameters; CheckpointError if its checkpoint is another."""
    source = _unchanged(recipe.experiment)
    if isinstance(source, PublishedWeights):
        state, names, fresh = source.take(recipe, state)
        return state, Taken(step=0, weights="raw", model="", taken=tuple(names), fresh=tuple(fresh))
    chosen = source.choose(recipe, source.manifest["arrays"])
    both = {"params": state.params, "batch_stats": state.batch_stats}
    shardings = shardings_of(recipe.mesh, both, recipe.named_axes)
    places = {chosen[n]: sharding for n, sharding in by_path(shardings).items() if chosen[n]}
    read = source.read(places, warn)

    def pick(location: Any, fresh: jax.Array) -> jax.Array:
        stored = chosen[jax.tree_util.keystr(location, simple=True, separator="/")]
        return read.state[stored].astype(fresh.dtype) if stored else fresh

    merged = jax.tree_util.tree_map_with_path(pick, both)
    merged = jax.device_put(merged, shardings)
    # A copy: a step takes over the memory of each array of the state.
    ema = jax.tree.map(jnp.copy, merged["params"]) if recipe.experiment.ema_decay else {}
    taken = Taken(
        step=read.step,
        weights=source.weights,
        model=source.model,
        taken=tuple(name for name, stored in chosen.items() if stored),
        fresh=tuple(name for name, stored in chosen.items() if not stored),
    )
    return dataclasses.replace(state, **merged, ema_params=ema), taken


def _unchanged(experiment: Experiment) -> "Source | PublishedWeights":
    path = records.path_of(experiment.initialize_from)
    source = _source_of(path)
    if source.state != experiment.initial_state:
        raise CheckpointError(
            f"{path} has changed since this run began: it held {experiment.initial_state}"
        )
    return source


@dataclasses.dataclass(frozen=True)
class Source:
    """Run whose parameters are taken: of its directory, or of an exported `file`."""

    path: Path
    record: dict[str, Any]
    manifest: dict[str, Any]
    file: ExportedWeights | None = None

    @property
    def state(self) -> str:
        """Its content in words, equal for equal content alone."""
        if self.file is not None:
            return self.file.state
        hashes = identity_of(self.manifest["files"])
        run_id, identity = self.record["run_id"], self.record["identity"]
        return f"{run_id}, identity {identity}, {point_of(self.manifest)}, files {hashes}"

    @property
    def weights(self) -> str:
        return self.record["experiment"].get("evaluation", {}).get("weights", "raw")

    @property
    def model(self) -> str:
        return str(self.record["experiment"].get("model", {}).get("tag", ""))

    def holds(self, name: str) -> bool:
        prefix = "ema_params" if self.weights == "ema" and self.file is None else "params"
        return name.startswith((f"{prefix}/", "batch_stats/"))

    def read(self, places: dict[str, Any], warn: Callable[[str], None]) -> Restored:
        """Arrays that have a sharding in `places`; CheckpointError where they do not verify."""
        step = self.manifest["step"]
        if self.file is not None:
            arrays = {name: self.file.array(name, place) for name, place in places.items()}
            return Restored(step, arrays, {})
        checkpoints = Checkpoints(str(RunDirectory(self.path).checkpoints), keep=1, warn=warn)
        read = checkpoints.read_newest(places.get)
        checkpoints.close()
        if read is None or read.point != point_of(self.manifest):
            raise CheckpointError(f"{self.path}: its newest checkpoint does not verify")
        return read

    def choose(self, recipe: Recipe, signatures: dict[str, str]) -> dict[str, str]:
        """By array of the run, the name of the array that it takes; empty where it is made anew."""
        stored = {
            name.replace("ema_params/", "params/", 1): name
            for name in signatures
            if self.holds(name)
        }
        head = _head(recipe)
        model, theirs = recipe.experiment.model, self.record["experiment"].get("model", {})
        is_other = theirs.get("tag") != model.TAG
        parts = getattr(model, "pretrained_parts", ()) if is_other else ()
        is_fresh = head if _has_other_classes(recipe.experiment, self.record) else set()
        state = recipe.abstract_state
        # Adapters stand beside the parameters of a source that had none.
        adapters = getattr(model, "trained_parts", ())
        new = tuple(f"params/{part}/" for part in adapters)
        chosen = {}
        both = {"params": state.params, "batch_stats": state.batch_stats}
        for name, leaf in by_path(both).items():
            wanted = signature(leaf)
            # A constant of this run, such as of a frozen BatchNorm, may be a parameter there.
            place = stored.get(name) or stored.get(name.replace("batch_stats/", "params/", 1), "")
            there = signatures[place] if place else "absent"
            is_new = there == "absent" and name.startswith(new)
            if adapters and not name.startswith(new) and _shape(there) == _shape(wanted):
                # Frozen parameters are cast to the dtype that the run keeps them in.
                there = wanted
            if is_new or (parts and name.split("/")[1] not in parts):
                chosen[name] = ""
                continue
            if there != wanted and name not in head:
                raise ConfigError(
                    f"--initialize_from={self.path} is of another model: {name} is {there} in it "
                    f"and {wanted} in this run"
                )
            chosen[name] = "" if there != wanted or name in is_fresh else place
        return chosen


def _shape(text: str) -> str:
    return text.partition("[")[2]


def _head(recipe: Recipe) -> set[str]:
    spec = recipe.spec
    if not hasattr(spec, "num_classes"):
        return set()
    # Compare shapes with one class more: no model needs to declare which layer is its head.
    more = dataclasses.replace(spec, num_classes=spec.num_classes + 1)
    setting = dataclasses.replace(recipe.setting, spec=more)
    shapes = jax.eval_shape(make_model(recipe.experiment.task, setting).init, jax.random.key(0))[0]
    leaves, others = by_path(recipe.abstract_state.params), by_path(shapes)
    return {f"params/{n}" for n, leaf in leaves.items() if leaf.shape != others[n].shape}


def _has_other_classes(experiment: Any, source: dict[str, Any]) -> bool:
    mine, theirs = to_json(experiment.data), dict(source["experiment"].get("data", {}))
    for data in (mine, theirs):
        # The same data in another folder have the same classes.
        data.pop("data_dir", None)
    return mine != theirs
