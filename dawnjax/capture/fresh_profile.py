"""Profile of an experiment's first steps, without a run."""

import time
from pathlib import Path

import jax

from dawnjax.call_queue import CallQueue
from dawnjax.capture.traced_steps import Hooks, profile_run
from dawnjax.capture.twin import why_not
from dawnjax.cluster import processes
from dawnjax.config.experiment_flags import Request
from dawnjax.errors import ConfigError
from dawnjax.feed import TrainFeed, input_shapes
from dawnjax.programs import compile_training
from dawnjax.session import checked, joined
from dawnjax.stepper import Stepper, calls_in_flight
from dawnjax.stops import Stops


def profile_experiment(request: Request, with_twin: bool = False) -> tuple[Path, bool]:
    """Profile some steps of an experiment from its initial state.

    Returns the directory whose `profile/` holds the profiles, and True on the first process.
    """
    experiment, options = request.experiment, request.options
    spec = checked(experiment, options)
    name = f"{experiment.name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    session, watchdog = joined(experiment, spec, options)
    directory = Path(options.run_dir or Path("profiles") / processes.same_text(name))
    folder = directory / "profile" / f"process_{jax.process_index():05d}" / "fresh"
    if folder.exists():
        raise ConfigError(f"{folder} exists; choose another --run_dir")
    recipe = session.recipes[-1]  # of a run of several stages the last
    if with_twin and (reason := why_not(recipe)):
        raise ConfigError(f"--twin: {reason}")
    shapes = input_shapes(recipe.experiment, session.spec, options, session.mesh)
    programs = compile_training(recipe, shapes, options.steps_per_call, lambda *_: None)
    key, calls = session.root_key(request.seed), programs.steps_per_call
    feed = TrainFeed(shapes, session.mesh, experiment.data.load("train"), request.seed, calls)
    stepper = Stepper(
        recipe,
        programs,
        feed,
        programs.initialize(key),
        0,
        key,
        session.counts(calls),
        CallQueue(calls_in_flight(recipe, shapes, calls)),
        watchdog,
        Stops(session.mesh),
    )
    profile_run(stepper, options.profile, folder, None, Hooks(), with_twin=with_twin)
    feed.close()
    processes.gather("written")  # the first process reads what all have written
    return directory, jax.process_index() == 0
