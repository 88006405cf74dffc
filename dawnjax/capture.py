"""Taking a profile: a few real steps traced, and the same steps against their ablation twin.

All processes of the run do this at the same time. Each writes a folder: the trace, the compiled
program as text, and `capture.json` with all else that reading them needs.
"""

import collections
import contextlib
import dataclasses
import gzip
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dawnjax import records, twin
from dawnjax.cluster import processes
from dawnjax.config.run_options import ProfileOptions
from dawnjax.errors import RunError
from dawnjax.feed import TrainFeed
from dawnjax.machine import hardware
from dawnjax.machine.hosts import visible_cores
from dawnjax.machine.measured_peaks import measured_peaks
from dawnjax.machine.mesh import batch_shards, replicated
from dawnjax.profile import host_profile
from dawnjax.profile.communication import merge_shortest
from dawnjax.profile.hlo import analyze
from dawnjax.profile.utilization import CALL_SPAN, INPUT_SPAN, WINDOW_SPAN
from dawnjax.profile.xplane import TraceError
from dawnjax.programs import Record, TrainPrograms, call_of_steps, compile_program
from dawnjax.train_step import Recipe, TrainState, platform_of

SCHEMA_VERSION = 1

ROUNDS = 6
"""Pairs of a stretch of real steps and one of the twin's: half of them before the trace, half after
it, so that a machine whose speed drifts does not set the two methods apart."""

LONGEST_TRACE_STEPS = 20

BLOCK_SECONDS = 0.15
"""About how long a stretch of a pair is; on a large model it is one step."""


@dataclasses.dataclass
class Trainer:
    """Real calls of a run's train program, for a profile.

    Attributes:
      recipe: What the programs were compiled from.
      programs: The compiled programs.
      feed: The training split; batches from the host are read by it when asked.
      state: The state, whose memory is taken over.
      step: Steps handed to the devices.
      counts: Each number of steps that a call can make, on the devices.
      root_key: The trial's key.
      in_flight: The most calls that may wait for the devices.
      on_call: Called after each call, also of the twin.
      why_to_stop: Says why the profile is to be left out; empty while it is not.
    """

    recipe: Recipe
    programs: TrainPrograms
    feed: TrainFeed
    state: TrainState
    step: int
    counts: dict[int, jax.Array]
    root_key: jax.Array
    in_flight: int
    on_call: Callable[[], object] = lambda: None
    why_to_stop: Callable[[], str] = lambda: ""

    def inputs(self, num_steps: int) -> Any:
        """Inputs of the next call."""
        return self.feed.inputs(self.step, num_steps)

    def calls(self, num_calls: int, num_steps: int) -> None:
        """Makes calls of some steps each, and waits for the last."""
        pending: collections.deque[Any] = collections.deque()
        for _ in range(num_calls):
            with jax.profiler.TraceAnnotation(INPUT_SPAN):
                inputs = self.inputs(num_steps)
            with jax.profiler.TraceAnnotation(CALL_SPAN):
                self.state, metrics = self.programs.train(
                    self.state, self.feed.resident, inputs, self.counts[num_steps], self.root_key
                )
            self.step += num_steps
            pending.append(metrics.losses)
            # Simulated devices deadlock with many collectives queued.
            if len(pending) > self.in_flight:
                pending.popleft().block_until_ready()
            self.on_call()
        jax.block_until_ready((self.state, list(pending)))

    def meet(self) -> None:
        """Waits until all processes are here.

        Raises:
          StoppedError: One of them is to leave the profile out; says why.
        """
        reasons = [reason for reason in processes.gather(self.why_to_stop()) if reason]
        if reasons:
            raise StoppedError(reasons[0])


class StoppedError(Exception):
    """A process leaves the profile out; all of them leave it at the same place."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """How many steps are made; the same on all processes.

    Attributes:
      call_steps: Steps of one call.
      trace_calls: Calls that are traced.
      block_calls: Calls of one stretch against the twin.
    """

    call_steps: int
    trace_calls: int
    block_calls: int

    @property
    def all_calls(self) -> int:
        """Real calls that a whole profile makes."""
        return 2 + self.trace_calls + (ROUNDS + 1) * self.block_calls


def make_plan(step_seconds: float, steps_per_call: int, options: ProfileOptions) -> Plan:
    """Plans how many steps a profile makes, from how long a step takes.

    Args:
      step_seconds: A step's duration on process 0.
      steps_per_call: The most steps in a call.
      options: How long the trace shall be.
    """
    wanted = int(np.clip(options.seconds / max(step_seconds, 1e-6), 2, LONGEST_TRACE_STEPS))
    # Several calls, so that what is between two is seen.
    call_steps = max(1, min(steps_per_call, wanted // 4))
    block_calls = max(1, round(BLOCK_SECONDS / (step_seconds * call_steps)))
    return Plan(call_steps, max(2, wanted // call_steps), min(block_calls, 50))


def profile_run(
    trainer: Trainer,
    options: ProfileOptions,
    folder: Path,
    step_seconds: float | None,
    record: Record,
) -> host_profile.HostProfile:
    """Takes the profile of a run's train step: all processes call it alike.

    Args:
      trainer: Makes the real calls.
      options: What is wanted.
      folder: This process's folder.
      step_seconds: A step's duration so far; None to find out.
      record: Called with each program that is compiled.

    Returns:
      What the profile says of this host.

    Raises:
      StoppedError: A process leaves the profile out.
    """
    trainer.meet()
    if step_seconds is None:
        _start_feed(trainer, [1, 1])
        trainer.calls(1, 1)
        started = time.perf_counter()
        trainer.calls(1, 1)
        step_seconds = time.perf_counter() - started
    first_step_seconds = processes.gather(step_seconds)[0]
    plan = make_plan(first_step_seconds, trainer.programs.steps_per_call, options)
    _start_feed(trainer, [plan.call_steps] * plan.all_calls)
    inputs = trainer.inputs(plan.call_steps)
    pairs = _Pairs(trainer, plan, options, inputs, record)
    observed = _observable(trainer, inputs, record)
    pairs.run(1 + ROUNDS // 2)  # the first pair warms up
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    programs, trainer.programs = trainer.programs, observed
    trainer.calls(1, plan.call_steps)  # a program's first call is slower
    trace_seconds = _timed_in_trace(trainer, folder, lambda: pairs.real_calls(plan.trace_calls))
    trainer.programs, last_step = programs, trainer.step
    pairs.run_traced_twin()
    pairs.run(ROUNDS - ROUNDS // 2)
    return finish_capture(
        trainer.recipe,
        observed,
        folder,
        steps=(last_step - plan.call_steps * plan.trace_calls, last_step),
        step_seconds=float(np.median(pairs.real[1:])),
        window_seconds=trace_seconds,
        extra={**pairs.to_json(), "in_run": False},
        measured=options.measured_peaks,
    )


def finish_capture(
    recipe: Recipe,
    programs: TrainPrograms,
    folder: Path,
    *,
    steps: tuple[int, int],
    step_seconds: float,
    window_seconds: float,
    extra: dict[str, Any],
    measured: bool,
) -> host_profile.HostProfile:
    """Writes what reading the trace needs, tells the other processes, and reads it.

    All processes must call it alike.

    Args:
      recipe: What the programs were compiled from.
      programs: The compiled programs.
      folder: This process's folder, with the trace.
      steps: Steps done before the trace, and after it.
      step_seconds: A step that was not traced.
      window_seconds: The traced stretch.
      extra: Further fields of the capture.
      measured: Whether to measure the device's peaks, where they are not known yet.
    """
    experiment, mesh = recipe.experiment, recipe.mesh
    text = programs.train.as_text()  # type: ignore[attr-defined]
    with contextlib.suppress(RunError):  # a full disk costs the profile's files, not the result
        records.write(folder / host_profile.PROGRAM_FILE, gzip.compress(text.encode()))
    program = analyze(text)
    device = mesh.local_devices[0]
    platform = platform_of(mesh)
    executed = hardware.executed_dtype(platform, program.product_dtype, device.device_kind)
    name = socket.gethostname()
    hosts = processes.gather([name, len(mesh.local_devices)])
    machine_devices = [count for host, count in hosts if host == name]
    flops, flops_reason = _model_flops(recipe)
    capture = {
        "schema_version": SCHEMA_VERSION,
        "process_index": jax.process_index(),
        "platform": platform,
        "device_kind": device.device_kind,
        "num_devices": mesh.devices.size,
        "machine_devices": sum(machine_devices),
        "machine_processes": len(machine_devices),
        "machine_cores": visible_cores(),
        "module": program.name,
        "steps": steps,
        "stage": {
            "number": recipe.span.index + 1,
            "global_batch_size": experiment.global_batch_size,
            **experiment.task.stage_values(),
        },
        "step_seconds": step_seconds,
        "window_seconds": window_seconds,
        "model_flops_per_step": (
            None if flops is None else flops * experiment.global_batch_size / batch_shards(mesh)
        ),
        "model_flops_reason": flops_reason,
        "executed_dtype": executed,
        "measured_peaks": _shared_peaks(device, executed, hosts) if measured else None,
        **extra,
    }
    parts = processes.gather(host_profile.trace_part(folder, capture))
    capture["shortest_runs"] = merge_shortest([part["shortest"] for part in parts])
    if platform == "cpu":
        machine_parts = [p for p, (host, _) in zip(parts, hosts, strict=True) if host == name]
        start_unix_ns = parts[jax.process_index()]["start_unix_ns"]
        capture["neighbours"] = host_profile.busy_neighbours(start_unix_ns, machine_parts)
    profile = host_profile.build_profile(folder, capture, program)
    waits = processes.gather([profile.wait_seconds_per_step, profile.least_wait_seconds_per_step])
    known = [least for _, least in waits if least is not None]
    capture["least_wait_seconds_per_step"] = min(known) if len(known) == len(waits) else None
    with contextlib.suppress(RunError):
        records.write_json(folder / host_profile.CAPTURE_FILE, capture, indent=None)
    return dataclasses.replace(profile, host_waits=[mean for mean, _ in waits])


@contextlib.contextmanager
def trace_window(folder: Path) -> Iterator[None]:
    """Traces a block into a folder; the block must leave nothing in flight.

    Raises:
      TraceError: The profiler does not start; the block has not run then.
    """
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # the loop's own spans say enough, and cost less
    options.host_tracer_level = 2  # the level at which the CPU's ops are seen
    try:
        jax.profiler.start_trace(str(folder), profiler_options=options)
    except Exception as error:  # another profiler runs in this process
        raise TraceError(f"cannot take a trace: {str(error).splitlines()[0]}") from None
    try:
        with jax.profiler.TraceAnnotation(WINDOW_SPAN):
            yield
    finally:
        # A trace that cannot be written is missed when it is read, with the reason.
        with contextlib.suppress(OSError, RuntimeError):
            jax.profiler.stop_trace()


def _observable(trainer: Trainer, inputs: Any, record: Record) -> TrainPrograms:
    """Programs whose trace names the op of each kernel.

    On a GPU they are compiled without command buffers, which hide it. They run only while traced:
    the step that is timed is the run's own.
    """
    programs, recipe = trainer.programs, trainer.recipe
    if platform_of(recipe.mesh) != "gpu":
        return programs
    counts, resident = trainer.counts, trainer.feed.resident
    arguments = (trainer.state, resident, inputs, counts[1], trainer.root_key)
    shardings = jax.tree.map(lambda array: array.sharding, trainer.state)
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


def _timed_in_trace(trainer: Trainer, folder: Path, make_calls: Callable[[], None]) -> float:
    """Traces calls that all processes begin together; returns the seconds that they took."""
    trainer.meet()  # or the first collective waits for the last process
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(TraceError):  # without a trace the others wait for these steps
            stack.enter_context(trace_window(folder))
        started = time.perf_counter()
        make_calls()
        return time.perf_counter() - started


class _Pairs:
    """Stretches of real steps and of the twin's, in turn; all processes make them alike.

    Attributes:
      real: Seconds a step of the real stretches.
      ablated: The same of the twin on this process's devices.
      traced: Seconds a step of the twin while it is traced; None without a twin.
      reason: Why there is no twin; empty if there is one.
    """

    def __init__(
        self, trainer: Trainer, plan: Plan, options: ProfileOptions, inputs: Any, record: Record
    ):
        self.real: list[float] = []
        self.ablated: list[float] = []
        self.traced: float | None = None
        self._trainer, self._plan, self._inputs = trainer, plan, inputs
        self._twin: Any = None
        reason = twin.why_not(trainer.recipe) if options.twin else "profile.twin=false"
        if not reason:
            try:
                self._twin = twin.make_twin(
                    trainer.recipe,
                    trainer.programs.steps_per_call,
                    trainer.state,
                    trainer.feed.resident,
                    inputs,
                    record,
                )
            except (RuntimeError, ValueError, TypeError) as error:
                # Such as too little memory for a second state: the run itself has ended well.
                reason = f"the twin cannot be made: {str(error).splitlines()[0]}"
        self.reason = next((text for text in processes.gather(reason) if text), "")
        if self.reason:
            self._twin = None

    def run(self, count: int) -> None:
        """Makes some pairs, the real stretch first in every other one."""
        steps = self._plan.block_calls * self._plan.call_steps
        for _ in range(count):
            order = ((self.real, self.real_calls), (self.ablated, self._twin_calls))
            for seconds, calls in order if len(self.real) % 2 else order[::-1]:
                if seconds is self.ablated and self._twin is None:
                    continue
                self._trainer.meet()  # all begin together
                started = time.perf_counter()
                calls(self._plan.block_calls)
                seconds.append((time.perf_counter() - started) / steps)

    def run_traced_twin(self) -> None:
        """Makes as many steps of the twin as of the real one were traced, and traces them too.

        The trace itself is not kept: it makes both steps longer alike.
        """
        if self._twin is None:
            return
        plan = self._plan
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            seconds = _timed_in_trace(
                self._trainer, Path(folder), lambda: self._twin_calls(plan.trace_calls)
            )
        self.traced = seconds / (plan.trace_calls * plan.call_steps)

    def to_json(self) -> dict[str, Any]:
        """Fields of a capture, without the pair that warmed up."""
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

    def real_calls(self, num_calls: int) -> None:
        """Makes real calls, of as many steps as the plan says."""
        self._trainer.calls(num_calls, self._plan.call_steps)

    def _twin_calls(self, num_calls: int) -> None:
        trainer, num_steps = self._trainer, self._plan.call_steps
        losses = []
        for _ in range(num_calls):
            # What the host does for a real call; batches that it reads are read ahead.
            if trainer.feed.resident:
                trainer.inputs(num_steps)
            losses.append(self._twin.call(self._inputs, num_steps))
            trainer.on_call()
        jax.block_until_ready((self._twin.state, losses))


def _start_feed(trainer: Trainer, call_steps: list[int]) -> None:
    step, calls = trainer.step, []
    for num_steps in call_steps:
        calls.append((step, num_steps))
        step += num_steps
    trainer.feed.start(calls)


def _shared_peaks(device: Any, dtype: str, hosts: list[Any]) -> dict[str, Any] | None:
    """Measured peaks of this machine's devices; one process of a machine measures."""
    processes.gather(None)  # a process that still works would take cores from the measurement
    leader = [host for host, _ in hosts].index(socket.gethostname())
    peaks = None
    if leader == jax.process_index():
        measurable = {"tensorfloat32": "float32", "float8": "bfloat16"}.get(dtype, dtype)
        with contextlib.suppress(RuntimeError):  # such as too little memory left
            peaks = measured_peaks(device, measurable).to_json()
    return processes.gather(peaks)[leader]


def _model_flops(recipe: Recipe) -> tuple[float | None, str]:
    """Model FLOPs of an example in a train step, or why they are not known."""
    try:
        return recipe.train_flops_per_example(), ""
    except Exception as error:  # a task or a model of a user's own may refuse a single row
        return None, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
