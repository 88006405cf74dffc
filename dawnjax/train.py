"""Training to a target: the whole of a run, top to bottom.

What comes before `run_start` looks at no example: it makes the mesh, compiles every shape and warms
up on a state that is thrown away. What comes after is on the clock. The loop asks the devices for
several steps at a time, runs ahead of them, and waits only where a comment says why.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from dawnjax.attempt import FIRST_LOSSES, Attempt, report_finished
from dawnjax.call_queue import CallQueue
from dawnjax.capture.traced_steps import Trainer
from dawnjax.checkpointed import initial_parameters
from dawnjax.cluster import processes
from dawnjax.config.experiment import Experiment
from dawnjax.config.experiment_flags import Request
from dawnjax.config.run_options import RunOptions
from dawnjax.errors import ConfigError, ExitStatus
from dawnjax.evaluation import EvaluationFeed, evaluate
from dawnjax.feed import Arrays, TrainFeed
from dawnjax.machine import compilation, host_memory
from dawnjax.machine.mesh import (
    all_devices,
    batch_sharding,
    batch_shards,
    make_mesh,
    place,
    replicated,
)
from dawnjax.programs import TrainPrograms, state_shapes
from dawnjax.run_record import open_run
from dawnjax.runs.clock import RunClock
from dawnjax.runs.directory import refuse_unusable_path
from dawnjax.runs.stages import Span
from dawnjax.staged_programs import Stage, compile_stages
from dawnjax.train_step import (
    PRNG_IMPLEMENTATION,
    Recipe,
    TrainState,
    evaluated_params,
    make_recipe,
    platform_of,
)

IN_FLIGHT = {"cpu": 4, "gpu": 32, "tpu": 32}
"""Steps that the host may run ahead. Simulated CPU devices deadlock with many collectives queued;
an accelerator must not run dry while Python collects garbage."""

CHECKED_CALLS = 32
"""Calls between two looks for NaN: a count, so that all hosts look at the same steps. No more than
this many are in flight, so what was said that long ago is there to read."""

EXIT_STATUSES = {
    "reached": ExitStatus.DONE,
    "not_reached": ExitStatus.BUDGET_SPENT,
    "diverged": ExitStatus.DIVERGED,
    "interrupted": ExitStatus.INTERRUPTED,
}


def train_to_target(
    request: Request, clock: RunClock, argv: list[str], *, shows: bool = True
) -> ExitStatus:
    """Trains one trial until an evaluation reaches the target or the budget is spent.

    Args:
      request: The experiment, the seed and how to run it.
      clock: The clock of this process.
      argv: The command line's flags, for the line that says how to resume.
      shows: Whether the run is shown; of a run that is not shown only warnings are.

    Returns:
      The exit status of the command.

    Raises:
      ConfigError: The experiment does not fit the data, the devices or the run directory.
      RunError, DataError, CheckpointError: The run cannot go on; what is written stays valid.
    """
    request = initial_parameters.resolved(request)
    experiment, options = request.experiment, request.options
    try:
        spec = experiment.data.spec()
    except ValueError as error:  # a field of the dataset's config that lies outside its range
        raise ConfigError(str(error)) from None
    experiment.validate(spec)
    options.validate()
    refuse_unusable_path(Path(options.checkpoint.directory or options.run_dir or "runs"))
    if options.keep_freed_memory:
        host_memory.keep_freed()
    compilation.configure(options.compile_cache_dir)
    watchdog = processes.join(options.processes)
    mesh = make_mesh(options.mesh, all_devices())
    compilation.share_between_processes()
    spans = experiment.spans(spec)
    _check_divides(spans, mesh)
    try:
        sharded = options.weight_update_sharding
        recipes = tuple(make_recipe(experiment, spec, mesh, span.index, sharded) for span in spans)
    except (ValueError, TypeError, ZeroDivisionError) as error:
        first_line = str(error).splitlines()[0]
        raise ConfigError(f"the model cannot be built from these fields: {first_line}") from None

    initial_parameters.refuse_other_model(request, recipes[0])
    if request.experiment_file is not None:
        for recipe in recipes:
            recipe.trace()
    run = open_run(request, spec, clock)
    if run.finished:
        return EXIT_STATUSES[report_finished(run, shows=shows)]
    with Attempt(run, mesh, watchdog, argv, shows=shows) as attempt:
        status = _train(experiment, recipes, options, request.seed, attempt)
    return EXIT_STATUSES[status]


def _train(
    experiment: Experiment,
    recipes: tuple[Recipe, ...],
    options: RunOptions,
    seed: int,
    attempt: Attempt,
) -> str:
    spec, mesh, journal, phases = recipes[0].spec, recipes[0].mesh, attempt.journal, attempt.phases
    # Every program is compiled and has run once before the clock starts; none sees an example.
    with phases.phase("compile"):
        # One stage, unless the recipe changes its images or its batch in the course of the run.
        compiled = compile_stages(recipes, options, attempt.record_program)
        shapes, programs = compiled.first.shapes, compiled.first.train
        root_key = _root_key(seed, mesh)
        counts = {
            n: place(np.array(n, np.int32), replicated(mesh))
            for n in range(programs.steps_per_call + 1)
        }
        for stage in compiled.stages:
            _warm_up(stage, root_key, counts)
        attempt.agree(False)
    with phases.phase("restore"):
        restored = attempt.restore(state_shapes(recipes[0]))
    attempt.start_clock()

    # From here on everything counts: reading and uploading data, initialization that looks at it.
    with phases.phase("other"):
        train_examples, eval_examples = experiment.data.load("train"), experiment.data.load("eval")
        feed = TrainFeed(
            shapes, mesh, train_examples, seed, programs.steps_per_call, compiled.spans
        )
        evaluation_feed = EvaluationFeed(shapes, mesh, eval_examples)
        if restored is not None:
            state = restored.state
        else:
            state = programs.initialize(root_key)
            if experiment.initialize_from:
                state = attempt.take_initial(recipes[0], state)
            elif programs.initialize_from_data is not None:
                rows = shapes.initialization_rows
                arrays = {name: np.asarray(array[rows]) for name, array in train_examples.items()}
                state = programs.initialize_from_data(state, place(arrays, replicated(mesh)))

    step = 0 if restored is None else restored.step
    evaluation_steps = set(experiment.evaluation_steps(spec))
    stops = {*_stops(experiment, spec, options), *attempt.profile.stops()}
    stops = [stop for stop in sorted(stops) if step < stop <= experiment.num_steps(spec)]
    in_flight = calls_in_flight(platform_of(mesh), programs.steps_per_call)
    queue = CallQueue(in_flight, first_losses=max(0, FIRST_LOSSES - step))
    status = "not_reached"
    reached_at = attempt.reached_before()
    ends_at_target = bool(reached_at) and experiment.evaluation.stop_at_target
    if reached_at:
        status = "reached"
    if ends_at_target:
        # Killed between the target and the end. The state that reached it may not have been saved:
        # the same steps lead to it again, and to no other time.
        stops, evaluation_steps = [stop for stop in stops if stop <= reached_at], set()
    has_limit = experiment.max_seconds and not ends_at_target
    limit = experiment.max_seconds if has_limit else math.inf
    feed.start(_calls(step, stops, programs.steps_per_call))
    attempt.preemption.begin(step)
    for stop in stops:
        stage = compiled.of_last(stop)  # the ends of stages are stops: a stretch lies in one
        journal.enter_stage(stage.recipe.span.index)
        phases.enter("train")
        with attempt.profile.window(step, stop, stage.recipe, stage.train):
            state, step, stopped = train_until(
                stop, state, step, stage.train, feed, queue, attempt, counts, root_key, limit
            )
            # The host waits for the devices here: what follows is not charged with train steps.
            queue.drain()
        if not journal.record_steps(queue, feed.wait_seconds):
            status = "diverged"
            break
        is_over = stopped and attempt.preemption.is_budget_spent
        if step in evaluation_steps or is_over:
            phases.enter("eval")
            metrics = evaluate(
                stage.recipe, stage.evaluation, state, evaluation_feed, in_flight, attempt.get_on
            )
            if journal.record_evaluation(step, metrics):
                status = "reached"
                if experiment.evaluation.stop_at_target:
                    break
        # Asked again, since a request may have come during the wait or the evaluation.
        if is_over:
            break
        is_asked = stopped or attempt.preemption.stops_at(step)
        if is_asked and not attempt.preemption.is_budget_spent:
            status = "interrupted"
            break
        if attempt.agree(attempt.save_due()) or _is_multiple(step, options.checkpoint.every_steps):
            phases.enter("checkpoint")
            attempt.save(step, state)

    # The clock of the target has stopped; what follows is in the total alone.
    attempt.preemption.end()
    feed.close()
    if status != "diverged":
        phases.enter("checkpoint")
        attempt.save(step, state)
    host = attempt.host_used(queue, feed.wait_seconds)
    if status in ("reached", "not_reached"):
        attempt.keep_result(status, step)
        # The same real steps again, traced, and against their twin: the state is of no more use.
        stage = compiled.of_last(step)
        feed.stay_in(stage.recipe.span)
        call = (stage.train, feed, state, step, counts, root_key, in_flight)
        attempt.take_profile(Trainer(stage.recipe, *call), queue)
        feed.close()
    attempt.finish(status, step, host)
    return status


def train_until(
    stop: int,
    state: TrainState,
    step: int,
    programs: TrainPrograms,
    feed: TrainFeed,
    queue: CallQueue,
    attempt: Attempt,
    counts: dict[int, jax.Array],
    root_key: jax.Array,
    limit_seconds: float = math.inf,
) -> tuple[TrainState, int, bool]:
    """Makes train steps up to a stop: the innermost loop of a run.

    Args:
      stop: The step to stop after.
      state: The state, whose memory is taken over.
      step: Steps done.
      programs: The compiled programs.
      feed: The training split.
      queue: The calls in flight; some are still in flight at the end.
      attempt: What is told of each call.
      counts: Each number of steps that a call can make, on the devices.
      root_key: The trial's key.
      limit_seconds: When on the run's clock all are asked to stop, for the budget is spent.

    Returns:
      The state, the steps done, and whether all processes were asked to stop. It ends before the
      stop if they were, or if a loss was NaN or infinite.
    """
    get_inputs, call = attempt.profile.named(feed.inputs, programs.train)
    resident, journal = feed.resident, attempt.journal
    watchdog, preemption = attempt.watchdog, attempt.preemption
    first_nonfinite_step = None  # of the call that was looked at last
    queue.start()
    for count, (first, num_steps) in enumerate(_calls(step, [stop], programs.steps_per_call), 1):
        step = first + num_steps
        inputs = get_inputs(first, num_steps)
        watchdog.step = step  # a host that is stuck is behind the others, here or above
        state, metrics = call(state, resident, inputs, counts[num_steps], root_key)
        queue.add(metrics, num_steps)
        if limit_seconds < math.inf:
            # Near the limit the host waits for each call, so that the next begins before it.
            if journal.run_seconds() + queue.pending_seconds() > limit_seconds:
                queue.drain()
            if journal.run_seconds() > limit_seconds:
                preemption.spend_budget()
        if preemption.holding and preemption.stops_at(step):
            return state, step, True
        if count % CHECKED_CALLS == 0:
            if first_nonfinite_step is not None and int(first_nonfinite_step):
                break
            first_nonfinite_step = metrics.first_nonfinite_step
        if queue.last_end > journal.record_at:
            journal.record_steps(queue, feed.wait_seconds)
    return state, step, False


def calls_in_flight(platform: str, steps_per_call: int) -> int:
    """Number of calls that the host may run ahead; at least 2, so that no device runs dry."""
    return max(2, IN_FLIGHT[platform] // steps_per_call)


def _stops(experiment: Experiment, spec: Any, options: RunOptions) -> list[int]:
    """The steps after which the loop stops, ascending.

    They are the ends of stages and of epochs, evaluations and saves. At the end of an epoch the
    time decides whether to save.
    """
    stops = {span.last_step for span in experiment.spans(spec)}
    stops.update(experiment.evaluation_steps(spec))
    epochs = range(1, math.floor(experiment.length_in_epochs(spec)) + 1)
    stops.update(experiment.step_of_epoch(epoch, spec) for epoch in epochs)
    every = options.checkpoint.every_steps
    if every:
        stops.update(range(every, experiment.num_steps(spec), every))
    return sorted(stops)


def _calls(step: int, stops: list[int], steps_per_call: int) -> Iterator[tuple[int, int]]:
    """The calls up to the last stop: steps done before each, and steps in it."""
    for stop in stops:
        while step < stop:
            num_steps = min(steps_per_call, stop - step)
            yield step, num_steps
            step += num_steps


def _is_multiple(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def _root_key(seed: int, mesh: Mesh) -> jax.Array:
    """The trial's key, on every device."""
    make = jax.jit(
        lambda: jax.random.key(seed, impl=PRNG_IMPLEMENTATION), out_shardings=replicated(mesh)
    )
    return make()


def _warm_up(stage: Stage, root_key: jax.Array, counts: dict[int, jax.Array]) -> None:
    """Runs every program of a stage once, on zeros and a state that is thrown away.

    The first run of a program loads it and sizes its memory; no example is looked at.
    """

    def zeros(tree: dict[str, jax.ShapeDtypeStruct], sharding: NamedSharding) -> Arrays:
        return {name: place(np.zeros(a.shape, a.dtype), sharding) for name, a in tree.items()}

    shapes, programs = stage.shapes, stage.train
    mesh, whole = stage.recipe.mesh, replicated(stage.recipe.mesh)
    state = programs.initialize(root_key)
    if programs.initialize_from_data is not None:
        state = programs.initialize_from_data(state, zeros(shapes.initialization_examples, whole))
    inputs = zeros(shapes.train_inputs(programs.steps_per_call), batch_sharding(mesh, 1))
    state, _ = programs.train(
        state, zeros(shapes.train_resident, whole), inputs, counts[1], root_key
    )
    totals = stage.evaluation.add_batch(
        evaluated_params(stage.recipe.experiment, state),
        state.batch_stats,
        zeros(shapes.eval_resident, whole),
        zeros(shapes.eval_inputs, batch_sharding(mesh, 0)),
        stage.evaluation.zero_totals(),
    )
    jax.block_until_ready((state, totals))


def _check_divides(spans: Sequence[Span], mesh: Mesh) -> None:
    """Refuses a batch that the devices cannot share evenly, before anything is compiled."""
    shards = batch_shards(mesh)
    for span in spans:
        batch = span.global_batch_size
        if batch % shards:
            name = "global_batch_size" if span.index == 0 else "stages.global_batch_size"
            raise ConfigError(
                f"{name}={batch} does not divide among {shards} devices (mesh.data x mesh.fsdp); "
                f"take a multiple, such as {-(-batch // shards) * shards}, or other devices"
            )
