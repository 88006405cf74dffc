"""A profile of a few fresh steps of an experiment, without a run."""

import time
from pathlib import Path

import jax
import numpy as np

from dawnjax.capture.traced_steps import Trainer, profile_run
from dawnjax.cluster import processes
from dawnjax.config.experiment_flags import Request
from dawnjax.errors import ConfigError
from dawnjax.feed import TrainFeed, input_shapes
from dawnjax.machine import compilation, host_memory
from dawnjax.machine.mesh import all_devices, batch_shards, make_mesh, place, replicated
from dawnjax.programs import compile_training
from dawnjax.train import calls_in_flight
from dawnjax.train_step import PRNG_IMPLEMENTATION, make_recipe, platform_of


def profile_experiment(request: Request) -> tuple[Path, bool]:
    """Makes some steps of an experiment from its initial state, and profiles them.

    Returns:
      The directory whose `profile/` holds what was seen, and whether this is the first process.

    Raises:
      ConfigError: The experiment does not fit the data or the devices, or the directory holds a
        profile already.
      RunError: There are no devices.
    """
    experiment, options = request.experiment, request.options
    try:
        spec = experiment.data.spec()
    except ValueError as error:
        raise ConfigError(str(error)) from None
    experiment.validate(spec)
    options.validate()
    name = f"{experiment.name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    if options.keep_freed_memory:
        host_memory.keep_freed()
    compilation.configure(options.compile_cache_dir)
    processes.join(options.processes)
    mesh = make_mesh(options.mesh, all_devices())
    compilation.share_between_processes()
    # Of a run of several stages these are the steps of the last.
    batch_size = experiment.spans(spec)[-1].global_batch_size
    if batch_size % batch_shards(mesh):
        raise ConfigError(
            f"global_batch_size={batch_size} does not divide among {batch_shards(mesh)} devices"
        )
    directory = Path(options.run_dir or Path("profiles") / processes.same_text(name))
    folder = directory / "profile" / f"process_{jax.process_index():05d}" / "fresh"
    if folder.exists():
        raise ConfigError(f"{folder} exists; choose another --run_dir")
    recipe = make_recipe(experiment, spec, mesh, None, options.weight_update_sharding)
    shapes = input_shapes(recipe.experiment, spec, options, mesh)
    programs = compile_training(recipe, shapes, options.steps_per_call, lambda *_: None)
    make_key = jax.jit(
        lambda: jax.random.key(request.seed, impl=PRNG_IMPLEMENTATION),
        out_shardings=replicated(mesh),
    )
    key = make_key()
    feed = TrainFeed(
        shapes, mesh, experiment.data.load("train"), request.seed, programs.steps_per_call
    )
    counts = {
        n: place(np.array(n, np.int32), replicated(mesh))
        for n in range(programs.steps_per_call + 1)
    }
    in_flight = calls_in_flight(platform_of(mesh), programs.steps_per_call)
    state = programs.initialize(key)
    trainer = Trainer(recipe, programs, feed, state, 0, counts, key, in_flight)
    profile_run(trainer, options.profile, folder, None, lambda *_: None)
    feed.close()
    processes.gather("written")  # the first process reads what all have written
    return directory, jax.process_index() == 0
