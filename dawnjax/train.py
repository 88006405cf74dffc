"""Train one trial to its target: the whole run, top to bottom.

Before `run_start` nothing reads an example: the mesh is made, every shape compiled, every program
run once on zeros. Everything after `run_start` is on the clock. The host hands the devices several
steps at a time, runs ahead of them, and waits only where a comment says why.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np

from dawnjax.attempt import Attempt
from dawnjax.call_queue import CallQueue
from dawnjax.checkpointed import initial_parameters
from dawnjax.config.experiment import Experiment
from dawnjax.config.experiment_flags import Request
from dawnjax.config.own_files import own_code
from dawnjax.config.run_options import RunOptions
from dawnjax.errors import ExitStatus
from dawnjax.evaluation import EvaluationFeed, evaluate
from dawnjax.feed import TrainFeed
from dawnjax.generations import Generations, compile_generation, flops_of_generation
from dawnjax.machine.mesh import place, replicated
from dawnjax.programs import state_shapes
from dawnjax.run_record import open_run
from dawnjax.run_result import report_finished
from dawnjax.runs.clock import RunClock
from dawnjax.runs.directory import refuse_unusable_path
from dawnjax.session import Session, checked, joined
from dawnjax.staged_programs import CompiledStages, compile_stages
from dawnjax.stepper import Stepper, calls_in_flight

CHECKED_CALLS = 32
"""Calls between two checks for NaN: a count and no time, so that all hosts check the same steps. At
most this many calls are in flight, so the flag from that many calls ago is already on the host."""

EXIT_STATUSES = {
    "reached": ExitStatus.DONE,
    "not_reached": ExitStatus.BUDGET_SPENT,
    "diverged": ExitStatus.DIVERGED,
    "interrupted": ExitStatus.INTERRUPTED,
}


def train_to_target(
    request: Request, clock: RunClock, argv: list[str], *, shows: bool = True
) -> ExitStatus:
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
    # Refuse a wrong flag or path here: from `joined` on, an error of one process costs every host.
    refuse_unusable_path(Path(options.checkpoint.directory or options.run_dir or "runs"))
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
    if run.finished:
        return EXIT_STATUSES[report_finished(run, shows=shows)]
    with Attempt(run, session.mesh, watchdog, argv, shows=shows) as attempt:
        return EXIT_STATUSES[_train(session, request.seed, attempt)]


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
        for stage in compiled.stages:
            stage.warm_up(root_key, counts)
        # Wait for the slowest host: its compilation must not count as the others' restore.
        attempt.agree(False)
    with phases.phase("restore"):
        # State has the same shapes in every stage, so those of the first do.
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
                # Every device holds these few examples whole: all compute the same parameters.
                rows = shapes.initialization_rows
                arrays = {name: np.asarray(array[rows]) for name, array in train_examples.items()}
                state = programs.initialize_from_data(state, place(arrays, replicated(mesh)))

    step = 0 if restored is None else restored.step
    # A state saved at a stage's end is still that stage's: `of_last`, not the next step's.
    stage = compiled.of_last(step)
    in_flight = calls_in_flight(stage.recipe, programs.steps_per_call)
    queue = CallQueue(in_flight, first_step=step)
    stepper = Stepper(
        stage.recipe, stage.train, feed, state, step, root_key, counts, queue, attempt.watchdog
    )
    generations = Generations(recipes[0], generating, state.made, made_flops)
    status = _steps_to_target(session, compiled, stepper, generations, evaluation_feed, attempt)
    step = stepper.step

    # The clock of the target has stopped; what follows is in the total alone. Say so first: a
    # signal from here on ends the profile and must not claim to save a step.
    attempt.preemption.end()
    feed.close()
    # A state with NaN is not worth resuming; the checkpoint before it stays the newest.
    if status != "diverged":
        phases.enter("checkpoint")
        attempt.save(step, stepper.state, generations.calls_since(step))
    host = attempt.host_used(queue, feed.wait_seconds)
    if status in ("reached", "not_reached"):
        attempt.keep_result(status, step)
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
    journal, phases, queue, step = attempt.journal, attempt.phases, stepper.queue, stepper.step
    evaluation_steps = set(experiment.evaluation_steps(spec))
    stops = {*_stops(experiment, spec, options), *attempt.profile.stops()}
    # After a resume, skip the stops that an earlier attempt has passed.
    stops = [stop for stop in sorted(stops) if step < stop <= experiment.num_steps(spec)]
    status = "not_reached"
    reached_at = attempt.reached_before()
    ends_at_target = bool(reached_at) and experiment.evaluation.stop_at_target
    if reached_at:
        status = "reached"
    if ends_at_target:
        # An earlier attempt reached the target but died before its last save. Redo those steps to
        # recover the state; the time to accuracy is already fixed.
        stops, evaluation_steps = [stop for stop in stops if stop <= reached_at], set()
    has_limit = experiment.max_seconds and not ends_at_target
    limit = experiment.max_seconds if has_limit else math.inf
    # A run that is stopped while it makes examples has no new step to evaluate.
    evaluated = step if attempt.agree(journal.has_evaluated(step)) else -1
    # A call never crosses a stop, so the reading thread must know every stop.
    stepper.read_ahead(stops)
    attempt.preemption.begin(step)
    for stop in stops:
        stage = compiled.of_last(stop)  # the ends of stages are stops: a stretch lies in one
        stepper.recipe, stepper.programs = stage.recipe, stage.train
        journal.enter_stage(stage.recipe.span.index)
        # Only a task that plays to make its examples does anything here.
        stopped = generations.make(stepper, attempt, limit)
        phases.enter("train")
        with attempt.profile.window(stepper, stop):
            stopped = stopped or train_until(stop, stepper, attempt, limit)
            # The host waits for the devices here: what follows is not charged with train steps.
            queue.drain()
        step = stepper.step
        # Before the evaluation: a diverged state must not be measured, nor its time counted.
        if not journal.record_steps(queue, stepper.feed.wait_seconds):
            status = "diverged"
            break
        is_over = stopped and attempt.preemption.is_budget_spent
        if (step in evaluation_steps or is_over) and step != evaluated:
            evaluated = step
            phases.enter("eval")
            # The clock of the target stops when this returns: the metrics are then on the host.
            metrics = evaluate(
                stage.recipe,
                stage.evaluation,
                stepper.state,
                evaluation_feed,
                queue.in_flight,
                attempt.get_on,
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
        # Process 0 decides by its clock; hosts that decided alone would save different steps.
        every = options.checkpoint.every_steps
        if attempt.agree(attempt.save_due()) or (every and step % every == 0):
            phases.enter("checkpoint")
            attempt.save(step, stepper.state, generations.calls_since(step))
    return status


def train_until(
    stop: int, stepper: Stepper, attempt: Attempt, limit_seconds: float = math.inf
) -> bool:
    """Make train steps up to a stop; some calls are still in flight on return.

    Returns True if all processes were asked to stop, which the run's clock does at `limit_seconds`.
    The stepper is short of the stop then, or after a NaN or infinite loss.
    """
    journal, preemption = attempt.journal, attempt.preemption
    queue, feed = stepper.queue, stepper.feed
    first_nonfinite_step = None  # of the call that was looked at last
    for count, metrics in enumerate(stepper.calls(stop), 1):
        if limit_seconds < math.inf:
            # Near the limit the host waits for each call, so that the next begins before it.
            if journal.run_seconds() + queue.pending_seconds() > limit_seconds:
                queue.drain()
            if journal.run_seconds() > limit_seconds:
                preemption.spend_budget()
        # `holding` is a plain attribute and cheap; `stops_at` may wait for other hosts.
        if preemption.holding and preemption.stops_at(stepper.step):
            return True
        if count % CHECKED_CALLS == 0:
            # The flag of the check before this one is on the host, so `int` does not wait.
            if first_nonfinite_step is not None and int(first_nonfinite_step):
                break
            first_nonfinite_step = metrics.first_nonfinite_step
        if queue.last_end > journal.record_at:
            journal.record_steps(queue, feed.wait_seconds)
    return False


def _stops(experiment: Experiment, spec: Any, options: RunOptions) -> list[int]:
    """Steps after which the loop stops: ends of stages and epochs, evaluations, saves."""
    stops = {span.last_step for span in experiment.spans(spec)}
    stops.update(experiment.evaluation_steps(spec))
    epochs = range(1, math.floor(experiment.length_in_epochs(spec)) + 1)
    stops.update(experiment.step_of_epoch(epoch, spec) for epoch in epochs)
    every = options.checkpoint.every_steps
    if every:
        stops.update(range(every, experiment.num_steps(spec), every))
    return sorted(stops)
