"""Trace of a stretch of steps, and what reading it needs, written beside it.

Each process writes a folder: the trace, the compiled program as text, and `capture.json`.
"""

import contextlib
import dataclasses
import glob
import gzip
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jax

from dawnjax import records
from dawnjax.cluster import processes
from dawnjax.config.own_files import line_or_text
from dawnjax.errors import RunError
from dawnjax.machine import hardware
from dawnjax.machine.measured_peaks import measured_peaks
from dawnjax.profile import captured, host_profile
from dawnjax.profile.captured import Capture
from dawnjax.profile.communication import merge_shortest, shortest_runs
from dawnjax.profile.hlo import analyze
from dawnjax.profile.host_profile import HostProfile
from dawnjax.profile.program import Program
from dawnjax.profile.trace import find_trace, timeline_of
from dawnjax.profile.utilization import WINDOW_SPAN
from dawnjax.profile.xplane import TraceError
from dawnjax.programs import TrainPrograms
from dawnjax.runs.clock import boot_id
from dawnjax.train_step import Recipe, platform_of

Kept = TypeVar("Kept")


class StoppedError(RunError):
    """The profile is left out, on all processes at the same place; one line says why."""


def together(
    work: Callable[[], Kept], share: Callable[[Kept], Any] = lambda kept: None
) -> tuple[Kept, list[Any]]:
    """Result of work on this process, and of it what each shares; `StoppedError` if one failed.

    Work may fail in any way, such as by too little memory: then no process waits for another.
    """
    kept: Any = None
    shared, why = None, ""
    try:
        kept = work()
        shared = share(kept)
    except Exception as error:
        why = str(error) if isinstance(error, StoppedError) else line_or_text(error)
    gathered = processes.gather([shared, why])
    for _, reason in gathered:
        if reason:
            raise StoppedError(reason)
    return kept, [shared for shared, _ in gathered]


@contextlib.contextmanager
def trace_window(folder: Path) -> Iterator[None]:
    """Trace a block into a folder; TraceError before it runs. It must leave nothing in flight."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # the loop's own spans say enough, and cost less
    options.host_tracer_level = 2  # the level at which the CPU's ops are seen
    try:
        folder.mkdir(parents=True, exist_ok=True)
        jax.profiler.start_trace(str(folder), profiler_options=options)
    except Exception as error:  # such as another profiler in this process, or a full disk
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise TraceError(f"cannot take a trace: {reason}") from None
    try:
        with jax.profiler.TraceAnnotation(WINDOW_SPAN):
            yield
    finally:
        # A trace that cannot be written is missed when it is read, with the reason.
        with contextlib.suppress(OSError, RuntimeError):
            jax.profiler.stop_trace()
            _join_timelines(folder)


def _join_timelines(folder: Path) -> None:
    """Move what the profiler wrote to the other processes' traces."""
    place = timeline_of(folder)
    place.parent.mkdir(parents=True, exist_ok=True)
    written = find_trace(folder / "plugins")
    host = written.name.removesuffix(".xplane.pb")
    for file in written.parent.glob(f"{glob.escape(host)}.*"):
        name = place.name.replace(".xplane.pb", file.name.removeprefix(host))
        shutil.move(file, place.with_name(name))
    shutil.rmtree(folder / "plugins")


def finish_capture(
    recipe: Recipe,
    programs: TrainPrograms,
    folder: Path,
    *,
    steps: tuple[int, int],
    step_seconds: float,
    measured: bool,
    twin: captured.TwinTimes | None = None,
) -> HostProfile:
    """Read the trace, and write what reading it needs beside it; all processes call it alike.

    `steps` are those done before the trace, and after it.
    """
    experiment, mesh = recipe.experiment, recipe.mesh
    device, platform = mesh.local_devices[0], platform_of(mesh)

    def read() -> tuple[Program, Any, str]:
        text = programs.train.as_text()  # type: ignore[attr-defined]
        with contextlib.suppress(RunError):  # a full disk costs the profile's files alone
            records.write(folder / captured.PROGRAM_FILE, gzip.compress(text.encode()))
        program = analyze(text)
        try:
            return program, host_profile.load_trace(folder, program.name), ""
        except (RunError, OSError) as error:
            return program, None, str(error)

    # A collective ends for all when the last device arrives: its shortest run over all processes is
    # the transfer alone, the rest is waiting.
    (program, traced, failure), parts = together(
        read, lambda found: shortest_runs(found[1][0]) if found[1] else {}
    )
    flops, flops_reason = recipe.known_flops
    capture = Capture(
        process_index=jax.process_index(),
        platform=platform,
        device_kind=device.device_kind,
        num_devices=mesh.devices.size,
        machine_devices=len(mesh.local_devices),
        mesh=dict(mesh.shape),
        module=program.name,
        steps=steps,
        stage={
            "number": recipe.span.index + 1,
            "global_batch_size": experiment.global_batch_size,
            **experiment.task.stage_values(),
        },
        step_seconds=step_seconds,
        model_flops_per_step=(
            None if flops is None else flops * experiment.global_batch_size / mesh.devices.size
        ),
        model_flops_reason=flops_reason,
        executed_dtype=hardware.executed_dtype(platform, program.product_dtype, device.device_kind),
        shortest_runs=merge_shortest(parts),
        twin=twin,
    )
    if platform == "cpu":
        capture = _with_peaks(capture, program, device, measured)
    if traced is None:
        profile = HostProfile(folder, capture, program, failure=failure)
    else:
        profile = host_profile.build_profile(folder, capture, program, *traced)
    waits = processes.gather(profile.wait_seconds_per_step)
    profile = dataclasses.replace(profile, capture=dataclasses.replace(capture, host_waits=waits))
    with contextlib.suppress(RunError):
        plain = records.plain(profile.capture)
        records.write_json(folder / captured.CAPTURE_FILE, plain, indent=None)
    return profile


def _with_peaks(capture: Capture, program: Program, device: Any, measured: bool) -> Capture:
    """Capture of a CPU with the devices of its machine, and the peak that they share.

    One process of a machine measures: the others wait for it, and take no core from it.
    """
    machines: Sequence[list[Any]] = processes.gather(
        [boot_id() or socket.gethostname(), capture.machine_devices]
    )
    here, _ = machines[capture.process_index]
    leader = [machine for machine, _ in machines].index(here)
    devices = sum(count for machine, count in machines if machine == here)
    # A kept peak below what these steps reach was too low.
    flops = max(program.product_flops, capture.model_flops_per_step or 0.0)

    def measure() -> Any:
        if leader != capture.process_index or not measured:
            return None
        at_least = flops * devices / capture.step_seconds
        return records.plain(measured_peaks(device, capture.executed_dtype, at_least=at_least))

    _, peaks = together(measure, lambda peaks: peaks)
    found = peaks[leader] and hardware.MeasuredPeaks(**peaks[leader])
    return dataclasses.replace(capture, machine_devices=devices, measured_peaks=found)
