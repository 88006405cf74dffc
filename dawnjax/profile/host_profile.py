"""A captured profile of one host: communication, utilization, roofline. Needs no JAX.

A capture is a folder with the trace, the compiled program and `capture.json`. A later reading, on
any machine, gives the same figures.
"""

import dataclasses
import functools
import statistics
from pathlib import Path
from typing import Any

from dawnjax import records
from dawnjax.errors import ConfigError, RunError
from dawnjax.machine.hardware import find_device
from dawnjax.profile import roofline, utilization
from dawnjax.profile.captured import PROGRAM_FILE, Capture, read_files
from dawnjax.profile.communication import (
    COMMUNICATION_FIELDS,
    NO_TRACE,
    Communication,
    Straggler,
    device_waits,
    find_straggler,
    measure_communication,
)
from dawnjax.profile.hlo import analyze
from dawnjax.profile.program import Program
from dawnjax.profile.trace import Interval, Trace, find_trace, read_trace

AGREEMENT_POINTS = 5.0
"""Points of step time by which trace and twin may differ before the profile says so."""

SIMULATED = "simulated devices share the machine's cores: no communication is reported"

_AGAIN = "; `dawnjax profile --experiment=NAME` measures it again, on a machine without other work"


@dataclasses.dataclass(frozen=True)
class HostProfile:
    """The profile of one host; its trace is None if it cannot be read, for the reason `failure`."""

    folder: Path
    capture: Capture
    program: Program
    trace: Trace | None = None
    window: Interval = (0, 0)
    measured: Communication | None = None
    attribution: utilization.Attribution | None = None
    failure: str = ""

    @property
    def wait_seconds_per_step(self) -> float | None:
        """Mean wait of the devices for slower ones; None without a trace."""
        if self.trace is None:
            return None
        waits = device_waits(self.trace, self.capture.shortest_runs)
        return sum(waits) / len(waits) / self.capture.num_steps

    @functools.cached_property
    def peaks(self) -> tuple[float | None, float | None, str, str]:
        """FLOP/s and bytes/s of one device, their source, and the reason if they are None.

        Those of a CPU are the machine's, which an op of a simulated device may use whole.
        """
        capture = self.capture
        if capture.platform == "cpu":
            measured = capture.measured_peaks
            fault = "the machine's peak was not measured" if measured is None else measured.fault
            if measured is None or fault:
                return None, None, "", f"{fault}{_AGAIN}"
            peaks = measured.flops_per_second, measured.bytes_per_second
            return *peaks, "measured on this machine", ""
        device, reason = find_device(capture.device_kind)
        if device is None:
            return None, None, "", reason
        peak = device.peak(capture.executed_dtype)
        reason = "" if peak else f"{device.name} has no published peak for {capture.executed_dtype}"
        source = device.cited(capture.executed_dtype)
        return peak, device.memory_bytes_per_second, source, reason

    @functools.cached_property
    def ops(self) -> list[roofline.OpTime]:
        """Ops of a step against the roofline, the longest first."""
        if self.trace is None:
            return []
        return roofline.op_times(self.trace, self.capture.num_steps, self.program, *self.peaks[:2])

    def roofline_json(self) -> dict[str, Any]:
        """Longest ops against their bounds, and distributions over time, for the result."""
        return roofline.to_json(self.ops, *self.peaks[:3])

    def communication_json(self) -> dict[str, Any]:
        if self.measured is None:
            reason = self.failure or SIMULATED
            fields: dict[str, Any] = {
                **dict.fromkeys(COMMUNICATION_FIELDS),
                "reasons": dict.fromkeys(COMMUNICATION_FIELDS, reason),
            }
            if not self.failure:
                fields["bytes_per_step"] = sum(self.program.collective_bytes.values())
                del fields["reasons"]["bytes_per_step"]
            return fields
        fields = dataclasses.asdict(self.measured)
        return {**fields, "wait_seconds_per_step": self.wait_seconds_per_step, "reasons": {}}

    def utilization_json(self) -> dict[str, Any]:
        """Field `utilization` of a host in a result, without the input wait."""
        capture, program = self.capture, self.program
        peak, bandwidth, source, peak_reason = self.peaks
        is_cpu = capture.platform == "cpu"
        if is_cpu and peak is not None and capture.machine_devices > 1:
            peak, source = peak / capture.machine_devices, f"{source}, shared by its devices"
        passes = capture.platform == "tpu"  # only a TPU makes a float32 product in several
        executed = sum(
            op.product_flops * op.runs * (op.passes if passes else 1) for op in program.ops.values()
        )
        fields: dict[str, Any] = {
            name: round(amount / (capture.step_seconds * rate), 6) if amount and rate else None
            for name, amount, rate in (
                ("mfu", capture.model_flops_per_step, peak),
                ("hfu", executed, peak),
                ("memory_bandwidth_fraction", None if is_cpu else program.num_bytes, bandwidth),
            )
        }
        reasons, name = {}, "memory_bandwidth_fraction"
        if is_cpu:
            reasons[name] = "most of what a CPU's ops read stays in caches, and no counter shows it"
        elif fields[name] is None:
            reasons[name] = peak_reason
        elif fields[name] > 1:
            fields[name] = None
            reasons[name] = "the ops move more than the memory can: caches keep part of it"
        highest = max(fields["mfu"] or 0.0, fields["hfu"] or 0.0)
        if highest > 1:
            peak = fields["mfu"] = fields["hfu"] = None
            whose, why = "published", "one of the figures is wrong"
            if is_cpu:
                whose, why = "measured", f"other work ran while that was measured{_AGAIN}"
            peak_reason = f"the step makes {highest:.0%} of the {whose} peak's FLOP/s: {why}"
        if peak is None:
            reasons |= dict.fromkeys(("mfu", "hfu"), peak_reason)
        if capture.model_flops_per_step is None:
            reasons["mfu"] = capture.model_flops_reason
        if self.trace is None or self.attribution is None:
            names = ("busy_fraction", "attributed_fraction", "tensor_core_fraction")
            fields |= dict.fromkeys(names)
            reasons |= dict.fromkeys(names, self.failure)
        else:
            fields["busy_fraction"] = round(self.attribution.busy_fraction, 6)
            fields["attributed_fraction"] = round(self.attribution.attributed_fraction, 6)
            tensor, reason = utilization.tensor_core_fraction(self.trace, self.window, program)
            fields["tensor_core_fraction"] = None if tensor is None else round(tensor, 6)
            if tensor is None:
                reasons["tensor_core_fraction"] = reason
            fields |= utilization.attribution_json(self.attribution)
        return {
            **fields,
            "window": self.folder.name,
            "stage": capture.stage,
            "step_seconds": capture.step_seconds,
            "model_flops_per_step": capture.model_flops_per_step,
            "executed_flops_per_step": executed,
            "peak_flops_per_second": peak,
            "peak_source": source or None,
            "reasons": reasons,
        }

    def straggler(self) -> tuple[Straggler | None, str]:
        if self.attribution is None:
            return None, NO_TRACE
        return find_straggler(self.capture.host_waits, self.attribution.step_seconds)

    def twin_line(self) -> str:
        """Exposed communication by the ablation twin beside the trace's; empty without a twin."""
        times = self.capture.twin
        if times is None:
            return ""
        shares = [(real - twin) / real for real, twin in zip(times.real, times.twin, strict=True)]
        ablation = 100 * statistics.median(shares)
        line = f"host {self.capture.process_index}: a step takes {ablation:.1f} % less by the twin"
        if self.measured is None:
            return f"{line}; {self.failure or SIMULATED}"
        # The twin's devices never wait for each other, so the trace's waiting is left out.
        traced = 100 * (self.measured.exposed_fraction - self.measured.exposed_skew_fraction)
        line += f", and {traced:.1f} % is exposed communication on the wire by the trace"
        if abs(traced - ablation) > AGREEMENT_POINTS:
            line += f": they differ by {traced - ablation:+.1f} points; quote both"
        return line


def read_profile(folder: Path) -> HostProfile:
    """Read a capture; `ConfigError` if the folder holds none."""
    capture, text = read_files(folder)
    try:
        program = analyze(text)
    except (RunError, MemoryError, *records.FORGED) as error:
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise ConfigError(f"{folder} holds no whole profile: {PROGRAM_FILE}: {why}") from None
    try:
        trace, window = load_trace(folder, capture.module)
    except (RunError, OSError) as error:
        return HostProfile(folder, capture, program, failure=str(error))
    return build_profile(folder, capture, program, trace, window)


def load_trace(folder: Path, module: str) -> tuple[Trace, Interval]:
    """Read the train program's events in the traced window, and the window in picoseconds."""
    trace = read_trace(find_trace(folder))
    spans = [span for span in trace.spans if span.name == utilization.WINDOW_SPAN]
    if spans:
        trace = trace.between(spans[-1].start, spans[-1].end)
    trace = trace.of_program(module)
    events = [event for events in trace.devices.values() for event in events]
    start = spans[-1].start if spans else min(event.start for event in events)
    # A device may end a little after the host says that it has; the window then ends later.
    end = max(event.end for event in events)
    return trace, (start, max(spans[-1].end, end) if spans else end)


def build_profile(
    folder: Path, capture: Capture, program: Program, trace: Trace, window: Interval
) -> HostProfile:
    program = program.without_branches_not_seen(
        {event.op for events in trace.devices.values() for event in events}
    )
    num_steps, shortest, measured = capture.num_steps, capture.shortest_runs, None
    if capture.simulates:  # a collective without a wire is waiting alone
        shortest = {name: [0] * len(runs) for name, runs in shortest.items()}
    else:
        measured = measure_communication(trace, window, num_steps, shortest, program, capture.mesh)
    attribution = utilization.attribute_step(trace, window, num_steps, shortest)
    return HostProfile(folder, capture, program, trace, window, measured, attribution)
