"""Profile of real train steps: a few of them are traced. All processes take it at the same time."""

import contextlib
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dawnjax.capture import twin
from dawnjax.capture.trace import StoppedError, finish_capture, together, trace_window
from dawnjax.cluster import processes
from dawnjax.config.run_options import ProfileOptions
from dawnjax.machine.mesh import replicated
from dawnjax.profile.host_profile import HostProfile
from dawnjax.profile.xplane import TraceError
from dawnjax.programs import Record, TrainPrograms, call_of_steps, compile_program
from dawnjax.stepper import Stepper
from dawnjax.train_step import platform_of

MOST_STEPS = {"cpu": 8, "gpu": 20, "tpu": 20}
"""Traced steps at most. A CPU's trace takes longer to write and read than its steps to make."""


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
        """Wait for all processes; `StoppedError` on all if one has a reason to stop."""

        def stop_if_asked() -> None:
            if reason := self.why_to_stop():
                raise StoppedError(reason)

        together(stop_if_asked)


def choose_calls(
    step_seconds: float, steps_per_call: int, seconds: float, platform: str
) -> tuple[int, int]:
    """Steps in a call of the profile, and its traced calls, from the seconds of a step."""
    wanted = int(np.clip(seconds / max(step_seconds, 1e-6), 2, MOST_STEPS[platform]))
    # Several calls, so that what is between two is seen.
    call_steps = max(1, min(steps_per_call, wanted // 4))
    return call_steps, max(2, wanted // call_steps)


def profile_run(
    stepper: Stepper,
    options: ProfileOptions,
    folder: Path,
    step_seconds: float | None,
    hooks: Hooks,
    *,
    with_twin: bool = False,
) -> HostProfile:
    """Take the profile of a run's train step: all processes call it alike.

    The stepper has no call in flight. `step_seconds` None measures a step first.
    """
    hooks.meet()
    if step_seconds is None:
        stepper.read_ahead([stepper.step + 1, stepper.step + 2])
        for _ in range(2):  # a program's first call is slower
            step_seconds, _ = together(lambda: make_calls(stepper, 1, 1, hooks))
    call_steps, num_calls = choose_calls(
        processes.gather(step_seconds)[0],
        stepper.programs.steps_per_call,
        options.seconds,
        platform_of(stepper.recipe.mesh),
    )

    def make(count: int) -> float:
        return make_calls(stepper, count, call_steps, hooks)

    def prepare() -> TrainPrograms:
        calls = range(1, 4 + 3 * num_calls)
        stepper.read_ahead([stepper.step + call_steps * call for call in calls])
        return _observable(stepper, call_steps, hooks.record)

    def trace() -> None:
        with contextlib.ExitStack() as stack:
            # Without a trace too: the other processes wait for these steps.
            with contextlib.suppress(TraceError):
                stack.enter_context(trace_window(folder))
            make(num_calls)

    # Apart from the first call: no process may make a step that another cannot prepare.
    observed, _ = together(prepare)
    together(lambda: make(1))
    # Timed before the trace and after it, by the run's own program.
    before, _ = together(lambda: make(num_calls))
    own, stepper.programs = stepper.programs, observed
    together(lambda: make(1))  # a program's first call is slower
    hooks.meet()
    stepper.is_traced = True
    together(trace)
    stepper.is_traced, stepper.programs = False, own
    last = stepper.step
    after, _ = together(lambda: make(num_calls))
    times = twin.compare(stepper, call_steps, num_calls, make, hooks.on_call) if with_twin else None
    return finish_capture(
        stepper.recipe,
        observed,
        folder,
        steps=(last - call_steps * num_calls, last),
        step_seconds=(before + after) / 2,
        measured=options.measured_peaks,
        twin=times,
    )


def make_calls(stepper: Stepper, num_calls: int, call_steps: int, hooks: Hooks) -> float:
    """Make real calls and wait for them; returns the seconds of a step."""
    num_steps = num_calls * call_steps
    started = time.perf_counter()
    for _ in stepper.calls(stepper.step + num_steps, call_steps):
        hooks.on_call()
    stepper.queue.drain()
    jax.block_until_ready(stepper.state)
    return (time.perf_counter() - started) / num_steps


def _observable(stepper: Stepper, call_steps: int, record: Record) -> TrainPrograms:
    """Programs whose trace names the op of each kernel.

    On a GPU they are compiled without command buffers, which hide it. They run only while traced:
    the timed step is the run's own.
    """
    programs, recipe = stepper.programs, stepper.recipe
    inputs = stepper.feed.inputs(stepper.step, call_steps)
    if platform_of(recipe.mesh) != "gpu":
        return programs
    arguments: tuple[Any, ...] = (
        *(stepper.state, stepper.feed.resident, inputs),
        *(stepper.counts[1], stepper.root_key, *stepper.stops.row()),
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
