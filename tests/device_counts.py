"""The first losses of a small residual network on 1 to 8 simulated devices, as JSON.

    python tests/device_counts.py

It needs more devices than the other tests' process has, so it is one of its own.
"""

import json
import os
import sys

from quick_compilation import QUICK

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["NPROC"] = "16"
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count=8 {QUICK}"

import jax
import numpy as np

from dawnjax.config.experiment_flags import parse_request
from dawnjax.feed import TrainFeed, input_shapes
from dawnjax.machine.mesh import make_mesh, place, replicated
from dawnjax.programs import compile_training
from dawnjax.train_step import PRNG_IMPLEMENTATION, make_recipe

NUM_STEPS = 4

FLAGS = [
    "--experiment=synthetic_image",
    "--data.num_train_examples=96",
    "--data.num_eval_examples=40",
    "--num_epochs=3",
    "--global_batch_size=16",
    "--batch_norm_group_size=2",
    "--model.stage_sizes=1",
    "--model.stage_widths=64",  # kernels of 36,864 parameters: large enough to be split
    "--steps_per_call=1",
]


def first_losses(num_devices: int, *flags: str) -> list[float]:
    """Trains the first steps and returns their losses."""
    request, _ = parse_request("train", [*FLAGS, *flags])
    experiment, options = request.experiment, request.options
    spec = experiment.data.spec()
    mesh = make_mesh(options.mesh, jax.devices()[:num_devices])
    recipe = make_recipe(experiment, spec, mesh, None, options.weight_update_sharding)
    shapes = input_shapes(experiment, spec, options, mesh)
    programs = compile_training(recipe, shapes, 1, lambda *_: None)
    make_key = jax.jit(
        lambda: jax.random.key(3, impl=PRNG_IMPLEMENTATION), out_shardings=replicated(mesh)
    )
    key = make_key()
    feed = TrainFeed(shapes, mesh, experiment.data.load("train"), seed=3, steps_per_call=1)
    state, one_step = programs.initialize(key), place(np.array(1, np.int32), replicated(mesh))
    losses = []
    for step in range(NUM_STEPS):
        state, metrics = programs.train(state, feed.resident, feed.inputs(step, 1), one_step, key)
        losses.append(float(metrics.losses[0]))
    return losses


if __name__ == "__main__":
    losses_by_case = {f"plain on {count}": first_losses(count) for count in (1, 2, 4, 8)}
    losses_by_case |= {
        f"sharded update on {count}": first_losses(count, "--weight_update_sharding")
        for count in (2, 4, 8)
    }
    losses_by_case["accumulated on 4"] = first_losses(4, "--accumulation_steps=2")
    json.dump(losses_by_case, sys.stdout)
