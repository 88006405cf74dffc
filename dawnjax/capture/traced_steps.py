"""Profile of real train steps: a few of them traced, and timed against their ablation twin.

All processes of the run take it at the same time.
"""

import contextlib
import dataclasses
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dawnjax.capture import twin
from dawnjax.capture.trace import finish_capture, trace_window
from dawnjax.cluster import processes
from dawnjax.config.run_options import ProfileOptions
from dawnjax.machine.mesh import replicated
from dawnjax.profile import host_profile
from dawnjax.profile.xplane import TraceError
from dawnjax.programs import Record, TrainPrograms, call_of_steps, compile_program
from dawnjax.stepper import Stepper
from dawnjax.train_step import platform_of

ROUNDS = 6
"""Pairs of a stretch of real steps and one of the twin's. Half come before the trace and half after
it, so that a machine whose speed drifts does not bias the comparison."""

LONGEST_TRACE_STEPS = 20

BLOCK_SECONDS = 0.15
"""Approximate length of a stretch of a pair; on a large model it is one step."""


@dataclasses.dataclass(frozen=True)
class Hooks:
    """Callbacks of whoever takes a profile.

    `record` is called with each compiled program, `on_call` after each call, also of the twin.
    `why_to_stop` returns a reason to leave the profile out, or an empty text.
    """

    record: Record = lambda *_: None
    on_call: Callable[[], object] = lambda: None
    why_to_stop: Callable[[], str] = lambda: ""

    def meet(self) -> None:
        """Wait for all processes; StoppedError on all if one has a reason to stop."""
        reasons = [reason for reason in processes.gather(self.why_to_stop()) if reason]
        if reasons:
            raise StoppedError(reasons[0])


class StoppedError(Exception):
    """A process leaves the profile out; all of them leave it at the same place."""


@dataclasses.dataclass(frozen=True)
class CallCounts:
    """Calls of a profile, the same on all processes; `block_calls` make one stretch of a pair."""

    call_steps: int
    trace_calls: int
    block_calls: int


def choose_calls(step_seconds: float, steps_per_call: int, options: ProfileOptions) -> CallCounts:
    """Number of calls of a profile, from the seconds of a step on process 0."""
    wanted = int(np.clip(options.seconds / max(step_seconds, 1e-6), 2, LONGEST_TRACE_STEPS))
    # Several calls, so that what is between two is seen.
    call_steps = max(1, min(steps_per_call, wanted // 4))
    block_calls = max(1, round(BLOCK_SECONDS / (step_seconds * call_steps)))
    return CallCounts(call_steps, max(2, wanted // call_steps), min(block_calls, 50))


def profile_run(
    stepper: Stepper,
    options: ProfileOptions,
    folder: Path,
    step_seconds: float | None,
    hooks: Hooks,
) -> host_profile.HostProfile:
    """Take the profile of a run's train step: all processes call it alike.

    The stepper has no call in flight. `step_seconds` None measures a step first.
    """
    hooks.meet()
    if step_seconds is None:
        stepper.read_ahead([stepper.step + 1, stepper.step + 2])
        _make_calls(stepper, 1, 1, hooks)
        started = time.perf_counter()
        _make_calls(stepper, 1, 1, hooks)
        step_seconds = time.perf_counter() - started
    first_step_seconds = processes.gather(step_seconds)[0]
    counts = choose_calls(first_step_seconds, stepper.programs.steps_per_call, options)
    call_steps = counts.call_steps
    # Real calls alone.
    ends = range(1, 3 + counts.trace_calls + (ROUNDS + 1) * counts.block_calls)
    stepper.read_ahead([stepper.step + call_steps * end for end in ends])
    inputs = stepper.feed.inputs(stepper.step, call_steps)
    pairs = _Pairs(stepper, counts, options, inputs, hooks)
    observed = _observable(stepper, inputs, hooks.record)
    pairs.run(1 + ROUNDS // 2)  # the first pair warms up
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    programs, stepper.programs = stepper.programs, observed
    _make_calls(stepper, 1, call_steps, hooks)  # a program's first call is slower
    trace_seconds = _timed_in_trace(hooks, folder, pairs.traced_calls)
    stepper.programs, last_step = programs, stepper.step
    pairs.run_traced_twin()
    pairs.run(ROUNDS - ROUNDS // 2)
    return finish_capture(
        stepper.recipe,
        observed,
        folder,
        steps=(last_step - call_steps * counts.trace_calls, last_step),
        step_seconds=float(np.median(pairs.real[1:])),
        window_seconds=trace_seconds,
        extra={**pairs.to_json(), "in_run": False},
        measured=options.measured_peaks,
    )


def _make_calls(stepper: Stepper, num_calls: int, call_steps: int, hooks: Hooks) -> None:
    for _ in stepper.calls(stepper.step + num_calls * call_steps, call_steps):
        hooks.on_call()
    stepper.queue.drain()
    jax.block_until_ready(stepper.state)


def _observable(stepper: Stepper, inputs: Any, record: Record) -> TrainPrograms:
    """Programs whose trace names the op of each kernel.

    On a GPU they are compiled without command buffers, which hide it. They run only while traced:
    the timed step is the run's own.
    """
    programs, recipe = stepper.programs, stepper.recipe
    if platform_of(recipe.mesh) != "gpu":
        return programs
    counts, resident = stepper.counts, stepper.feed.resident
    arguments = (
        stepper.state,
        resident,
        inputs,
        counts[1],
        stepper.root_key,
        *stepper.stops.row(),
    )
    shardings = jax.tree.map(lambda array: array.sharding, stepper.state)
    try:
        train = compile_program(
            "observed train",
            call_of_steps(recipe, programs.steps_per_call),
            arguments,
            (shardings, replicated(recipe.mesh)),
            (0,),
            record,
            {"xla_gpu_enable_command_buffer": ""},
        )
    except RuntimeError:  # a compiler that does not know the option: its trace gives the reason
        return programs
    return dataclasses.replace(programs, train=train)


def _timed_in_trace(hooks: Hooks, folder: Path, make_calls: Callable[[], None]) -> float:
    """Trace calls that all processes begin together; returns their seconds."""
    hooks.meet()  # or the first collective waits for the last process
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(TraceError):  # without a trace the others wait for these steps
            stack.enter_context(trace_window(folder))
        started = time.perf_counter()
        make_calls()
        return time.perf_counter() - started


class _Pairs:
    """Stretches of real steps and of the twin's, in turn; all processes make them alike.

    `real`, `ablated` and `traced` are seconds a step: real, of the twin, of the twin in a trace.
    """

    def __init__(
        self,
        stepper: Stepper,
        counts: CallCounts,
        options: ProfileOptions,
        inputs: Any,
        hooks: Hooks,
    ):
        self.real: list[float] = []
        self.ablated: list[float] = []
        self.traced: float | None = None
        self._stepper, self._counts, self._inputs, self._hooks = stepper, counts, inputs, hooks
        self._twin: Any = None
        reason = twin.why_not(stepper.recipe) if options.twin else "profile.twin=false"
        if not reason:
            try:
                self._twin = twin.make_twin(
                    stepper.recipe,
                    stepper.programs.steps_per_call,
                    stepper.state,
                    stepper.feed.resident,
                    inputs,
                    hooks.record,
                )
            except (RuntimeError, ValueError, TypeError) as error:
                # Such as too little memory for a second state: the run itself has ended well.
                reason = f"the twin cannot be made: {str(error).splitlines()[0]}"
        # One process without a twin leaves it out on all: a lone real step would wait in a
        # collective.
        self.reason = next((text for text in processes.gather(reason) if text), "")
        if self.reason:
            self._twin = None

    def run(self, count: int) -> None:
        steps = self._counts.block_calls * self._counts.call_steps
        for _ in range(count):
            order = ((self.real, self._real_calls), (self.ablated, self._twin_calls))
            for seconds, calls in order if len(self.real) % 2 else order[::-1]:
                if seconds is self.ablated and self._twin is None:
                    continue
                self._hooks.meet()  # all begin together
                started = time.perf_counter()
                calls(self._counts.block_calls)
                seconds.append((time.perf_counter() - started) / steps)

    def run_traced_twin(self) -> None:
        """Trace as many steps of the twin as of the real one: tracing makes both longer alike."""
        if self._twin is None:
            return
        counts = self._counts
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            seconds = _timed_in_trace(
                self._hooks, Path(folder), lambda: self._twin_calls(counts.trace_calls)
            )
        self.traced = seconds / (counts.trace_calls * counts.call_steps)

    def to_json(self) -> dict[str, Any]:
        hosts = processes.gather([self.ablated[1:], self.traced])
        slowest = zip(*(ablated for ablated, _ in hosts), strict=True)
        return {
            "real_step_seconds": self.real[1:],
            "twin_step_seconds": self.ablated[1:],
            "slowest_twin_step_seconds": [max(pair) for pair in slowest],
            "traced_slowest_twin_step_seconds": (
                None if self.traced is None else max(traced for _, traced in hosts)
            ),
            "twin_reason": self.reason,
        }

    def traced_calls(self) -> None:
        self._stepper.is_traced = True
        self._real_calls(self._counts.trace_calls)
        self._stepper.is_traced = False

    def _real_calls(self, num_calls: int) -> None:
        _make_calls(self._stepper, num_calls, self._counts.call_steps, self._hooks)

    def _twin_calls(self, num_calls: int) -> None:
        stepper, num_steps = self._stepper, self._counts.call_steps
        losses = []
        for _ in range(num_calls):
            # The host works as for a real call; batches from the host are read ahead anyway.
            if stepper.feed.resident:
                stepper.feed.inputs(stepper.step, num_steps)
            losses.append(self._twin.call(self._inputs, num_steps))
            self._hooks.on_call()
        jax.block_until_ready((self._twin.state, losses))
