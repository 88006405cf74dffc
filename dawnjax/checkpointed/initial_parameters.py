"""Parameters that a run takes from another run's checkpoint, to be tuned further.

`--initialize_from=RUN_DIR` names that run, the source; `published_weights` reads files of
safetensors. Its content belongs to the experiment's identity: of a run, its identity, seed, step
and the names and sizes of the checkpoint's files, which Orbax draws anew for each save. The
optimizer's state and the steps begin anew. So does the head, the arrays that depend on the number
of classes, where the classes differ. A model with `pretrained_parts`, such as a detector, takes
those alone from another model.

What a model with `trained_parts` (adapters) takes is never trained. So a checkpoint leaves it out,
and whoever restores one takes it from the source again.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from dawnjax import records
from dawnjax.checkpointed.published_weights import PublishedWeights, is_published
from dawnjax.checkpoints.arrays import by_path, signature
from dawnjax.checkpoints.location import folder_at
from dawnjax.checkpoints.saved import Content, content_of, folders
from dawnjax.checkpoints.store import Checkpoints, Restored
from dawnjax.config.config_json import identity_of, to_json
from dawnjax.config.experiment import Experiment
from dawnjax.config.experiment_flags import Request
from dawnjax.errors import CheckpointError, ConfigError
from dawnjax.machine.mesh import shardings_of
from dawnjax.runs.directory import RunDirectory, read_record
from dawnjax.tasks.task import make_model
from dawnjax.train_step import Recipe, TrainState

Progress = Callable[[], object]

TRAINING_FIELDS = frozenset(
    {
        *("dropout_rate", "dropout_keep", "drop_path_keep", "layer_survival"),
        *("auxiliary_loss_weight", "batch_norm_momentum"),
        *("initial_bound", "embedding_bound", "initial_std", "last_scale", "classifier_std"),
        *("scales_projections", "zero_projections", "balance", "frozen_stages"),
        *("param_dtype", "remat", "loss_chunk"),
    }
)
"""Fields of a model that do not change what trained parameters compute: two runs may differ in
them. A user's own model names others as `training_fields`."""


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
        return PublishedWeights(path)
    return Source(path, _source_record(path), *_newest_save(path))


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


def _newest_save(path: Path) -> tuple[Content, dict[str, int]]:
    """What a run's newest save holds, and the sizes of its files."""
    directory = RunDirectory(path).checkpoints
    for folder in folders(folder_at(str(directory))).values():
        try:
            content = content_of(folder)
            sizes = {
                str((here / name).relative_to(folder)): (here / name).stat().st_size
                for here, _, names in records.walk(Path(folder))
                for name in names
            }
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"--initialize_from={path}: checkpoint {folder.name} is damaged: {error}"
            ) from None
        return content, sizes
    raise ConfigError(
        f"--initialize_from={path}: the run has no checkpoint in {directory}; copy one there from "
        "where it saved"
    )


def refuse_other_model(request: Request, recipe: Recipe) -> None:
    """Refuse a source of another model before a run begins, from its checkpoint's description."""
    if request.experiment.initialize_from and not _recorded(request):
        _unchanged(recipe.experiment).choose(recipe)


def take(
    recipe: Recipe, state: TrainState, progress: Progress = lambda: None
) -> tuple[TrainState, Taken]:
    """A fresh state with the source's parameters; CheckpointError if its checkpoint is another."""
    source = _unchanged(recipe.experiment)
    chosen = source.choose(recipe)
    both = {"params": state.params, "batch_stats": state.batch_stats}
    leaves = _placed(recipe, both)
    arrays = by_path(both) | source.read(
        recipe, {name: leaf for name, leaf in leaves.items() if chosen[name]}, progress
    )
    merged = jax.tree.unflatten(jax.tree.structure(both), [arrays[name] for name in leaves])
    merged = jax.device_put(merged, shardings_of(recipe.mesh, both, recipe.named_axes))
    # A copy: a step takes over the memory of each array of the state.
    ema = jax.tree.map(jnp.copy, merged["params"]) if recipe.experiment.ema_decay else {}
    taken = Taken(
        step=source.step,
        weights=source.weights,
        model=source.model,
        taken=tuple(name for name, stored in chosen.items() if stored),
        fresh=tuple(name for name, stored in chosen.items() if not stored),
    )
    return dataclasses.replace(state, **merged, ema_params=ema), taken


def left_out(recipe: Recipe) -> frozenset[str]:
    """Paths of the frozen parameters that a checkpoint leaves out."""
    experiment = recipe.experiment
    if not experiment.initialize_from or not getattr(experiment.model, "trained_parts", ()):
        return frozenset()
    _, frozen = recipe.split_params(recipe.abstract_state.params)
    return frozenset(by_path({"params": frozen}))


def saved_part(recipe: Recipe, state: TrainState) -> dict[str, Any]:
    """Arrays of a state that a checkpoint holds, by path."""
    out = left_out(recipe)
    return {name: array for name, array in by_path(state).items() if name not in out}


def restore_newest(
    checkpoints: Checkpoints, recipe: Recipe, like: TrainState, progress: Progress = lambda: None
) -> Restored | None:
    """Restore the newest checkpoint, and take from the source what it leaves out."""
    restored = checkpoints.restore_newest(saved_part(recipe, like), progress)
    if restored is None:
        return None
    arrays, out = restored.state, left_out(recipe)
    if out:
        wanted = {name: leaf for name, leaf in by_path(like).items() if name in out}
        arrays |= _unchanged(recipe.experiment).read(recipe, wanted, progress)
    leaves = [arrays[name] for name in by_path(like)]
    state = jax.tree.unflatten(jax.tree.structure(like), leaves)
    return dataclasses.replace(restored, state=state)


def _placed(recipe: Recipe, tree: Any) -> dict[str, jax.ShapeDtypeStruct]:
    shardings = by_path(shardings_of(recipe.mesh, tree, recipe.named_axes))
    return {
        name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=shardings[name])
        for name, leaf in by_path(tree).items()
    }


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
    """Run whose parameters are taken: its record, and its newest save with the sizes of files."""

    path: Path
    record: dict[str, Any]
    content: Content
    files: dict[str, int]

    @property
    def state(self) -> str:
        """Its content in words, equal for equal content alone."""
        run_id, identity = self.record["run_id"], self.record["identity"]
        files = identity_of(self.files)
        return f"{run_id}, identity {identity}, {self.content.point}, files {files}"

    @property
    def step(self) -> int:
        return self.content.step

    @property
    def weights(self) -> str:
        return self.record["experiment"].get("evaluation", {}).get("weights", "raw")

    @property
    def model(self) -> str:
        return str(self.record["experiment"].get("model", {}).get("tag", ""))

    def holds(self, name: str) -> bool:
        prefix = "ema_params" if self.weights == "ema" else "params"
        return name.startswith((f"{prefix}/", "batch_stats/"))

    def read(
        self, recipe: Recipe, wanted: Mapping[str, jax.ShapeDtypeStruct], progress: Progress
    ) -> dict[str, jax.Array]:
        """Arrays of the run by their paths; CheckpointError where they cannot be read."""
        chosen = self.choose(recipe)
        places = {chosen[name]: leaf.sharding for name, leaf in wanted.items()}
        warnings: list[str] = []
        checkpoints = Checkpoints(
            str(RunDirectory(self.path).checkpoints), keep=1, warn=warnings.append
        )
        read = checkpoints.read_newest(places.get, progress)
        checkpoints.close()
        if read is None or read.point != self.content.point or warnings:
            raise CheckpointError("; ".join(warnings) or f"{self.path}: its checkpoint changed")
        return {name: read.state[chosen[name]].astype(leaf.dtype) for name, leaf in wanted.items()}

    def choose(self, recipe: Recipe) -> dict[str, str]:
        """By array of the run, the name of the array that it takes; empty where it is made anew."""
        self._refuse_other_settings(recipe.experiment.model)
        signatures = self.content.arrays
        stored = {
            name.replace("ema_params/", "params/", 1): name
            for name in signatures
            if self.holds(name)
        }
        model, theirs = recipe.experiment.model, self.record["experiment"].get("model", {})
        is_other = theirs.get("tag") != model.TAG
        parts = getattr(model, "pretrained_parts", ()) if is_other else ()
        # Adapters stand beside the parameters of a source that had none, and it gives all others.
        adapters = getattr(model, "trained_parts", ())
        head = set() if adapters else _head(recipe)
        is_fresh = head if _has_other_classes(recipe.experiment, self.record) else set()
        state = recipe.abstract_state
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

    def _refuse_other_settings(self, model: Any) -> None:
        """Refuse a model with a setting, such as a norm's epsilon, that no array's shape shows."""
        theirs, place = self.record["experiment"].get("model", {}), "model."
        free = TRAINING_FIELDS | {*getattr(model, "training_fields", ())}
        if theirs.get("tag") != model.TAG and hasattr(model, "backbone"):
            model, place = model.backbone, "model.backbone."
            free |= {"stage_sizes", "stage_widths"}  # a trunk may have fewer stages
        if theirs.get("tag") != getattr(model, "TAG", None):
            return
        if not theirs.get("lora", {}).get("rank"):
            free |= {"lora"}
        for name, there, here in _differences(theirs, to_json(model), free):
            raise ConfigError(
                f"--initialize_from={self.path} is of another model: {place}{name} is {there} in "
                f"it and {here} in this run; give --{place}{name}={there}"
            )


def _differences(theirs: Any, ours: Any, free: frozenset[str]) -> Iterator[tuple[str, Any, Any]]:
    """Name and values of each field that both have and that differs."""
    for name in sorted(theirs.keys() & ours.keys() - free):
        there, here = theirs[name], ours[name]
        if isinstance(there, dict) and isinstance(here, dict):
            yield from ((f"{name}.{n}", t, h) for n, t, h in _differences(there, here, free))
        elif there != here:
            yield name, _as_flag(there), _as_flag(here)


def _as_flag(value: Any) -> Any:
    return ",".join(map(str, value)) if isinstance(value, list) else value


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
