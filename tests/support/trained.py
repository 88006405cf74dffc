"""Small runs on made-up images, and their files, for tests that compare runs."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from dawnjax.call_queue import CallQueue
from dawnjax.checkpointed import initial_parameters
from dawnjax.checkpointed.earlier_run import read_run
from dawnjax.checkpoints.location import folder_at
from dawnjax.checkpoints.saved import SavePoint, content_of, folders
from dawnjax.checkpoints.store import Checkpoints, Restored
from dawnjax.config.run_options import MeshShape
from dawnjax.machine.mesh import make_mesh
from dawnjax.programs import state_shapes
from dawnjax.train_step import Recipe, TrainState, make_recipe

SMALL = (
    *("--experiment=synthetic_image", "--data.num_train_examples=96", "--num_epochs=3"),
    *("--data.num_eval_examples=40", "--global_batch_size=16", "--batch_norm_group_size=4"),
    *("--model.stage_sizes=1", "--model.stage_widths=8", "--tensorboard=false"),
    "--profile.after_run=false",
)
"""Flags of `dawnjax train`: 18 steps of a network of one block."""


def result_of(run_dir: Path) -> dict[str, Any]:
    """The run's result."""
    return json.loads((run_dir / "result.json").read_text())


def evaluations_of(run_dir: Path) -> list[tuple[int, dict[str, float]]]:
    """Step and metrics of each evaluation, without times."""
    return [
        (row["step"], {name: row[name] for name in ("top_1_accuracy", "loss")})
        for row in result_of(run_dir)["evaluations"]
    ]


def final_state_of(run_dir: Path, experiment_file: str = "") -> tuple[int, np.ndarray]:
    """The newest checkpoint's step, and all of its arrays' bytes as one vector."""
    run = read_run(run_dir, experiment_file=experiment_file)
    mesh = make_mesh(MeshShape(), jax.devices()[:1])
    recipe = make_recipe(run.experiment, run.spec, mesh)
    restored = restored_checkpoint(recipe, run_dir)
    leaves = [np.ascontiguousarray(leaf) for leaf in jax.tree.leaves(restored.state)]
    return restored.step, np.concatenate([leaf.view(np.uint8).ravel() for leaf in leaves])


def restored_state(recipe: Recipe, run_dir: Path) -> TrainState:
    """The state of the newest checkpoint."""
    return restored_checkpoint(recipe, run_dir).state


def restored_checkpoint(recipe: Recipe, run_dir: Path) -> Restored:
    """The newest checkpoint."""
    checkpoints = Checkpoints(str(run_dir / "checkpoints"), keep=2, warn=print)
    restored = initial_parameters.restore_newest(checkpoints, recipe, state_shapes(recipe))
    checkpoints.close()
    assert restored is not None
    return restored


@contextlib.contextmanager
def at_call(number: int, act: Callable[[], object]) -> Iterator[None]:
    """Does something after a call of a run's train program, counted from 1."""
    real, calls = CallQueue.add, []

    def add(queue: CallQueue, metrics: Any, num_steps: int) -> None:
        real(queue, metrics, num_steps)
        calls.append(num_steps)
        if len(calls) == number:
            act()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CallQueue, "add", add)
        yield


def failing_at_call(number: int) -> contextlib.AbstractContextManager[None]:
    """Lets a run fail at a call of its train program, counted from 1, as if it were killed."""

    def fail() -> None:
        raise RuntimeError("as if killed")

    return at_call(number, fail)


def saves_of(run_dir: Path) -> dict[SavePoint, Path]:
    """Folders of the saves that were committed, by what they are of."""
    found = {}
    for folder in folders(folder_at(str(run_dir / "checkpoints"))).values():
        with contextlib.suppress(FileNotFoundError):  # it is being deleted
            found[content_of(folder).point] = Path(folder)
    return found
