"""Train one trial to its target: the whole run, top to bottom.

Before `run_start` nothing reads an example: the mesh is made, every shape compiled, every program
run once on zeros. Everything after `run_start` is on the clock. The host hands the devices several
steps at a time, runs ahead of them, and waits only where a comment says why.
"""

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dawnjax.attempt import Attempt
from dawnjax.call_queue import CallQueue
from dawnjax.checkpointed import initial_parameters
from dawnjax.config.experiment import Experiment
from dawnjax.config.experiment_flags import Request
from dawnjax.config.own_files import own_code
from dawnjax.config.run_options import RunOptions
from dawnjax.errors import ExitStatus
from dawnjax.evaluation import EvaluationFeed, InterruptedEvaluation, evaluate
from dawnjax.feed import TrainFeed
from dawnjax.generations import Generations, compile_generation, flops_of_generation
from dawnjax.machine.mesh import place, replicated
from dawnjax.programs import CompiledStages, compile_stages, state_shapes
from dawnjax.run_record import open_run, report_finished
from dawnjax.runs.clock import RunClock
from dawnjax.session import Session, checked, joined
from dawnjax.stepper import Stepper, calls_in_flight
from dawnjax.stops import Stops, Wish

CHECKED_CALLS = 32
"""Calls between two checks for NaN: a count and no time, so that all hosts check the same steps. At
most this many calls are in flight, so the flag from that many calls ago is already on the host."""

EXIT_STATUSES = {
    "reached": ExitStatus.DONE,
    "not_reached": ExitStatus.BUDGET_SPENT,
    "diverged": ExitStatus.DIVERGED,
    "interrupted": ExitStatus.INTERRUPTED,
}


class Ended(NamedTuple):
    """How an attempt ended, and the directory of its run."""

    status: ExitStatus
    run_dir: Path


def train_to_target(
    request: Request, clock: RunClock, argv: list[str], *, shows: bool = True
) -> Ended:
    """Train one trial until an evaluation reaches the target or the budget is spent.

    Args:
      shows: False shows warnings alone.

    Raises:
      ConfigError: The experiment does not fit the data, the devices or the run directory.
      RunError, DataError, CheckpointError: The run cannot continue; written files stay valid.
    """
    request = initial_parameters.resolved(request)
    experiment, options = request.experiment, request.options
    spec = checked(experiment, options)
    session, watchdog = joined(experiment, spec, options)
    recipes = session.recipes
    initial_parameters.refuse_other_model(request, recipes[0])
    # A user's own classes fail here, in a trace, before the run has a directory.
    if request.experiment_file is not None:
        for recipe in recipes:
            with own_code("a step"):
                recipe.trace()
    # The same command resumes a stopped run and shows the result of a finished one.
    run = open_run(request, spec, clock)
    if run.earlier.status:
        return Ended(EXIT_STATUSES[report_finished(run, shows=shows)], run.directory.path)
    with Attempt(run, session.mesh, watchdog, argv, shows=shows) as attempt:
        return Ended(EXIT_STATUSES[_train(session, request.seed, attempt)], run.directory.path)
    return Ended(
        EXIT_STATUSES[attempt.ended], run.directory.path
    )  # what followed the training failed, and was a warning


def _train(session: Session, seed: int, attempt: Attempt) -> str:
    experiment, recipes, mesh = session.experiment, session.recipes, session.mesh
    phases = attempt.phases
    # Every program is compiled and has run once before the clock starts; none sees an example.
    with phases.phase("compile"):
        # One stage, unless the recipe changes its images or its batch in the course of the run.
        compiled = compile_stages(recipes, session.options, attempt.record_program)
        generating = compile_generation(recipes[0], attempt.record_program)
        made_flops = flops_of_generation(recipes[0])
        shapes, programs = compiled.first.shapes, compiled.first.train
        root_key = session.root_key(seed)
        counts = session.counts(programs.steps_per_call)
        # State that is saved or stopped is the same on all processes: they read wishes alike.
        in_flight = calls_in_flight(compiled.first.recipe, shapes, programs.steps_per_call)
        stops = Stops(mesh, in_flight)
        for stage in compiled.stages:
            stage.warm_up(root_key, counts, stops)
        # Wait for the slowest host: its compilation must not count as the others' restore.
        attempt.meet_peers()
    with phases.phase("restore"):
        # State has the same shapes in every stage, so those of the first do.
        restored = attempt.restore(recipes[0], state_shapes(recipes[0]))
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
                # Every device holds these few examples whole: all compute the same parameters.
                rows = shapes.initialization_rows
                arrays = {name: np.asarray(array[rows]) for name, array in train_examples.items()}
                state = programs.initialize_from_data(state, place(arrays, replicated(mesh)))

    step = 0 if restored is None else restored.step
    # A state saved at a stage's end is still that stage's: `of_last`, not the next step's.
    stage = compiled.of_last(step)
    queue = CallQueue(in_flight, first_step=step)
    stepper = Stepper(
        stage.recipe,
        stage.train,
        feed,
        state,
        step,
        root_key,
        counts,
        queue,
        attempt.watchdog,
        stops,
    )
    generations = Generations(recipes[0], generating, state.made, made_flops)
    attempt.listen(stops, queue)
    status = _steps_to_target(session, compiled, stepper, generations, evaluation_feed, attempt)
    step = stepper.step

    # The clock of the target has stopped; what follows is in the total alone.
    feed.close()
    # A state with NaN is not worth resuming; the checkpoint before it stays the newest.
    if status != "diverged":
        _save(stepper, generations, attempt)
    host = attempt.host_used(queue, feed.wait_seconds)
    is_whole = status in ("reached", "not_reached")
    if is_whole:
        attempt.keep_result(status, step)
    if status != "interrupted":
        attempt.record_work(recipes, stepper.state.params)
    if is_whole:
        # Further real steps, traced: the state is of no more use.
        feed.stay_in(stepper.recipe.span)
        attempt.take_profile(stepper)
        feed.close()
    attempt.finish(status, step, host)
    return status


def _steps_to_target(
    session: Session,
    compiled: CompiledStages,
    stepper: Stepper,
    generations: Generations,
    evaluation_feed: EvaluationFeed,
    attempt: Attempt,
) -> str:
    """Train and evaluate in turn; returns the status that the attempt ends with."""
    experiment, spec, options = session.experiment, session.spec, session.options
    journal, phases, earlier, begun = attempt.journal, attempt.phases, attempt.earlier, stepper.step
    evaluation_steps = set(experiment.evaluation_steps(spec))
    if any(evaluation["step"] == begun for evaluation in earlier.evaluations):
        evaluation_steps.discard(begun)
    # After a resume, skip the stops that an earlier attempt has passed, but for an evaluation that
    # a signal cut off.
    stops = [
        stop
        for stop in _stops(experiment, spec, options)
        if begun < stop <= experiment.num_steps(spec) or stop == begun and stop in evaluation_steps
    ]
    status = "not_reached"
    ends_at_target = bool(earlier.reached_step) and experiment.evaluation.stop_at_target
    if earlier.reached_step:
        status = "reached"
    if ends_at_target:
        # An earlier attempt reached the target but died before its last save. Redo those steps to
        # recover the state; the time to accuracy is already fixed.
        stops, evaluation_steps = [stop for stop in stops if stop <= earlier.reached_step], set()
    has_limit = experiment.max_seconds and not ends_at_target
    limit = experiment.max_seconds if has_limit else math.inf
    # A call never crosses a stop, so the reading thread must know every stop.
    stepper.read_ahead(stops)
    for stop in stops:
        stage = compiled.of_last(stop)  # the ends of stages are stops: a stretch lies in one
        stepper.recipe, stepper.programs = stage.recipe, stage.train
        journal.enter_stage(stage.recipe.span.index)
        # Only a task that plays to make its examples does anything here.
        wish = generations.make(stepper, attempt, limit)
        phases.enter("train")
        while wish < Wish.BUDGET:
            wish = train_until(stop, stepper, attempt, limit)
            # Before an evaluation or a save: a diverged state is neither measured nor kept.
            if not journal.record_steps(stepper.queue, stepper.feed.wait_seconds):
                return "diverged"
            attempt.name_slow_host()
            if wish != Wish.SAVE:
                break
            _save(stepper, generations, attempt)
            phases.enter("train")
        step, is_over = stepper.step, wish == Wish.BUDGET
        # An evaluation that a signal leaves out is made by the next attempt.
        if wish == Wish.INTERRUPT:
            return "interrupted"
        if step in evaluation_steps or (is_over and step != begun):
            phases.enter("eval")
            # The clock of the target stops when this returns: the metrics are then on the host.
            try:
                metrics = evaluate(
                    stage.recipe,
                    stage.evaluation,
                    stepper.state,
                    evaluation_feed,
                    stepper.queue.in_flight,
                    attempt.get_on,
                    stepper.stops.is_interrupted,
                )
            except InterruptedEvaluation:
                return "interrupted"
            if journal.record_evaluation(step, metrics):
                status = "reached"
                if experiment.evaluation.stop_at_target:
                    break
        if is_over:
            break
        every = options.checkpoint.every_steps
        if every and step % every == 0:
            _save(stepper, generations, attempt)
    return status


def _save(stepper: Stepper, generations: Generations, attempt: Attempt) -> None:
    calls = generations.calls_since(stepper.step)
    attempt.save(stepper.recipe, stepper.step, stepper.state, calls)


def train_until(
    stop: int, stepper: Stepper, attempt: Attempt, limit_seconds: float = math.inf
) -> Wish:
    """Make train steps up to a stop, and wait for them.

    Returns the wish that all processes follow. For one, or after a NaN or infinite loss, the
    stepper may be short of the stop.
    """
    journal, queue, feed, stops = attempt.journal, stepper.queue, stepper.feed, stepper.stops
    first_nonfinite_step = None  # of the call that was looked at last
    wish = Wish.NONE
    for count, metrics in enumerate(stepper.calls(stop), 1):
        if limit_seconds < math.inf:
            attempt.spend(queue, limit_seconds)
        if queue.last_end > attempt.save_at:
            attempt.save_if_due()
        wish = stops.after_call(metrics)
        if wish:
            break
        if count % CHECKED_CALLS == 0:
            # The flag of the check before this one is on the host, so `int` does not wait.
            if first_nonfinite_step is not None and int(first_nonfinite_step):
                break
            first_nonfinite_step = metrics.first_nonfinite_step
        if queue.last_end > journal.record_at:
            journal.record_steps(queue, feed.wait_seconds)
            attempt.name_slow_host()
    # The host waits for the devices here: what follows is not charged with train steps.
    queue.drain()
    return max(wish, stops.when_drained())


def _stops(experiment: Experiment, spec: Any, options: RunOptions) -> list[int]:
    """Steps after which the loop stops: ends of stages, evaluations, saves, new examples."""
    stops = {span.last_step for span in experiment.spans(spec)}
    stops.update(experiment.evaluation_steps(spec))
    if experiment.task.makes_examples:
        epochs = range(1, math.floor(experiment.length_in_epochs(spec)) + 1)
        stops.update(experiment.step_of_epoch(epoch, spec) for epoch in epochs)
    every = options.checkpoint.every_steps
    if every:
        stops.update(range(every, experiment.num_steps(spec), every))
    return sorted(stops)
