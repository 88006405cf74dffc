"""Trace of a stretch of steps, and what reading it needs, written beside it.

Each process writes a folder: the trace, the compiled program as text, and `capture.json`.
"""

import contextlib
import dataclasses
import gzip
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from dawnjax import records
from dawnjax.cluster import processes
from dawnjax.config import own_files
from dawnjax.errors import RunError
from dawnjax.machine import hardware
from dawnjax.machine.hosts import visible_cores
from dawnjax.machine.measured_peaks import measured_peaks
from dawnjax.machine.mesh import batch_shards
from dawnjax.profile import captured_trace, host_profile, windows
from dawnjax.profile.communication import merge_shortest
from dawnjax.profile.hlo import analyze
from dawnjax.profile.program import Program
from dawnjax.profile.utilization import WINDOW_SPAN
from dawnjax.profile.xplane import TraceError
from dawnjax.programs import TrainPrograms
from dawnjax.train_step import Recipe, platform_of

SCHEMA_VERSION = 1


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
    """Write what reading the trace needs, share it between processes, and read the trace.

    All processes call it alike. `steps` are those done before the trace, and after it.
    """
    experiment, mesh = recipe.experiment, recipe.mesh
    text = programs.train.as_text()  # type: ignore[attr-defined]
    with contextlib.suppress(RunError):  # a full disk costs the profile's files, not the result
        records.write(folder / windows.PROGRAM_FILE, gzip.compress(text.encode()))
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
        "mesh": dict(mesh.shape),
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
        "measured_peaks": None,
        **extra,
    }
    if measured:
        capture["measured_peaks"] = _shared_peaks(
            device, executed, hosts, _most_flops(capture, program)
        )
    # A collective ends for all when the last device arrives: its shortest run over all processes is
    # the transfer alone, the rest is waiting.
    parts = processes.gather(captured_trace.trace_part(folder, capture))
    capture["shortest_runs"] = merge_shortest([part["shortest"] for part in parts])
    if platform == "cpu":
        machine_parts = [p for p, (host, _) in zip(parts, hosts, strict=True) if host == name]
        start_unix_ns = parts[jax.process_index()]["start_unix_ns"]
        capture["neighbours"] = captured_trace.busy_neighbours(start_unix_ns, machine_parts)
    profile = host_profile.build_profile(folder, capture, program)
    waits = processes.gather([profile.wait_seconds_per_step, profile.least_wait_seconds_per_step])
    known = [least for _, least in waits if least is not None]
    capture["least_wait_seconds_per_step"] = min(known) if len(known) == len(waits) else None
    with contextlib.suppress(RunError):
        records.write_json(folder / windows.CAPTURE_FILE, capture, indent=None)
    return dataclasses.replace(profile, host_waits=[mean for mean, _ in waits])


@contextlib.contextmanager
def trace_window(folder: Path) -> Iterator[None]:
    """Trace a block into a folder; TraceError before it runs. It must leave nothing in flight."""
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


def _most_flops(capture: dict[str, Any], program: Program) -> float:
    """FLOP/s of the machine in these steps, by the model or as executed; 0 if not known.

    The devices of a CPU share its peak.
    """
    flops = max(program.product_flops, capture["model_flops_per_step"] or 0.0)
    devices = capture["machine_devices"] if capture["platform"] == "cpu" else 1
    return flops * devices / capture["step_seconds"] if capture["step_seconds"] else 0.0


def _shared_peaks(
    device: Any, dtype: str, hosts: list[Any], at_least: float
) -> dict[str, Any] | None:
    """Measured peaks of this machine's devices; one process of a machine measures."""
    processes.gather(None)  # a process that still works would take cores from the measurement
    leader = [host for host, _ in hosts].index(socket.gethostname())
    peaks = None
    if leader == jax.process_index():
        measurable = {"tensorfloat32": "float32", "float8": "bfloat16"}.get(dtype, dtype)
        with contextlib.suppress(RuntimeError):  # such as too little memory left
            peaks = measured_peaks(device, measurable, at_least=at_least).to_json()
    return processes.gather(peaks)[leader]


def _model_flops(recipe: Recipe) -> tuple[float | None, str]:
    try:
        return recipe.train_flops_per_example(), ""
    except Exception as error:  # a task or a model of a user's own may refuse a single row
        line = own_files.line_of(error)
        return None, line or f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
