"""Profiles without a run: of an experiment's first steps, or of a run's state once more."""

import time
from pathlib import Path
from typing import Any

import jax

from dawnjax.call_queue import CallQueue
from dawnjax.capture.traced_steps import Hooks, profile_run
from dawnjax.checkpointed.earlier_run import EarlierRun, restore
from dawnjax.cluster import processes
from dawnjax.cluster.watchdog import Watchdog
from dawnjax.config.experiment_flags import Request
from dawnjax.config.run_options import RunOptions
from dawnjax.errors import ConfigError
from dawnjax.feed import TrainFeed, input_shapes
from dawnjax.programs import compile_training
from dawnjax.session import Session, checked, joined
from dawnjax.stepper import Stepper, calls_in_flight
from dawnjax.train_step import Recipe


def profile_experiment(request: Request) -> tuple[Path, bool]:
    """Profile some steps of an experiment from its initial state.

    Returns the directory whose `profile/` holds the profiles, and True on the first process.
    """
    experiment, options = request.experiment, request.options
    spec = checked(experiment, options)
    name = f"{experiment.name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    session, watchdog = joined(experiment, spec, options)
    directory = Path(options.run_dir or Path("profiles") / processes.same_text(name))
    folder = _window(directory, "fresh")
    if folder.exists():
        raise ConfigError(f"{folder} exists; choose another --run_dir")
    # Of a run of several stages these are the steps of the last.
    _profile(session, session.recipes[-1], watchdog, request.seed, folder)
    return directory, jax.process_index() == 0


def profile_again(run: EarlierRun, options: RunOptions) -> tuple[Path, bool]:
    """Profile further steps of a run from its newest checkpoint, as another window of it.

    The run's log and result stay as they are. Returns its directory, and True on the first process.
    """
    session, watchdog = joined(run.experiment, run.spec, options)
    directory = run.directory.path
    recipe, restored = restore(run, session.mesh, options, "profile")
    taken = len(list(directory.glob("profile/process_00000/again_*")))
    folder = _window(directory, f"again_{processes.same_text(str(taken + 1))}")
    # With the run's own XLA options, which `restore` leaves out.
    recipe = session.recipes[recipe.span.index]
    _profile(session, recipe, watchdog, run.record["seed"], folder, restored)
    return directory, jax.process_index() == 0


def _window(directory: Path, name: str) -> Path:
    return directory / "profile" / f"process_{jax.process_index():05d}" / name


def _profile(
    session: Session,
    recipe: Recipe,
    watchdog: Watchdog,
    seed: int,
    folder: Path,
    restored: Any = None,
) -> None:
    """Compile a recipe's steps, and profile some from a restored state or the initial one."""
    options = session.options
    shapes = input_shapes(recipe.experiment, session.spec, options, session.mesh)
    programs = compile_training(recipe, shapes, options.steps_per_call, lambda *_: None)
    key, calls = session.root_key(seed), programs.steps_per_call
    feed = TrainFeed(shapes, session.mesh, session.experiment.data.load("train"), seed, calls)
    if restored is not None:
        feed.stay_in(recipe.span)  # the run's budget is spent: its last stage's batches again
    stepper = Stepper(
        recipe,
        programs,
        feed,
        programs.initialize(key) if restored is None else restored.state,
        0 if restored is None else restored.step,
        key,
        session.counts(calls),
        CallQueue(calls_in_flight(recipe, shapes, calls)),
        watchdog,
    )
    profile_run(stepper, options.profile, folder, None, Hooks())
    feed.close()
    processes.gather("written")  # the first process reads what all have written
