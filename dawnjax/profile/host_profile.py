"""A captured profile of one host: communication, utilization, roofline. Needs no JAX.

A capture is a folder with the trace, the compiled program and `capture.json`. A later reading, on
any machine, gives the same figures.
"""

import dataclasses
import functools
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dawnjax import records
from dawnjax.errors import ConfigError, RunError
from dawnjax.machine.hardware import MOST_OTHER_WORK, STEADY_SPREAD, find_device
from dawnjax.profile import roofline, utilization
from dawnjax.profile.captured_trace import load_trace
from dawnjax.profile.communication import (
    COMMUNICATION_FIELDS,
    Communication,
    device_waits,
    measure_communication,
)
from dawnjax.profile.hlo import analyze
from dawnjax.profile.program import Program
from dawnjax.profile.straggler import NO_TRACE, Straggler, find_straggler
from dawnjax.profile.trace import Interval, Trace
from dawnjax.profile.windows import PROGRAM_FILE, read_files

AGREEMENT_POINTS = 5.0
"""Points of step time by which the two methods may differ before the result says so."""

LAYERS_IN_RESULT = 20
"""Layers with most communication that a result shows."""


_MEASURED_HERE = "measured on this machine"


@dataclasses.dataclass(frozen=True)
class HostProfile:
    """The profile of one host; its trace is None if it cannot be read, for the reason `failure`.

    `host_waits` has the seconds per step that each host waits in collectives. It is None outside
    the run, where the traces of all hosts are not at hand.
    """

    folder: Path
    capture: dict[str, Any]
    trace: Trace | None
    window: Interval
    program: Program
    measured: Communication | None
    attribution: utilization.Attribution | None
    failure: str = ""
    host_waits: list[float | None] | None = None

    @property
    def num_steps(self) -> int:
        first, last = self.capture["steps"]
        return last - first

    @property
    def wait_seconds_per_step(self) -> float | None:
        """Mean wait of the devices for slower ones; None without a trace."""
        waits = self._device_waits
        return sum(waits) / len(waits) / self.num_steps if waits else None

    @property
    def least_wait_seconds_per_step(self) -> float | None:
        """Smallest wait of any device of this host; None without a trace."""
        waits = self._device_waits
        return min(waits) / self.num_steps if waits else None

    @functools.cached_property
    def _device_waits(self) -> list[float]:
        if self.trace is None:
            return []
        return device_waits(self.trace, self.capture["shortest_runs"])

    @property
    def _pairs(self) -> list[tuple[float, float]]:
        real = self.capture.get("real_step_seconds") or ()
        twin = self.capture.get("slowest_twin_step_seconds") or ()
        return list(zip(real, twin, strict=False))

    @property
    def ablation_exposed_fraction(self) -> float | None:
        """Excess of the real step over the slowest twin, as a fraction of the real step."""
        pairs = [(real - twin) / real for real, twin in self._pairs]
        return round(statistics.median(pairs), 6) if pairs else None

    @property
    def traced_ablation_exposed_fraction(self) -> float | None:
        """The same for the traced step and the traced twin."""
        twin = self.capture.get("traced_slowest_twin_step_seconds")
        if twin is None or self.measured is None:
            return None
        return round(1 - twin / self.measured.step_seconds, 6)

    @property
    def least_wait_fraction(self) -> float | None:
        """Smallest waiting time of any device of the run, as a fraction of the step.

        Where the slowest device changes from step to step, every device waits at times. The trace
        counts that as skew, and the ablation as communication, because a twin's devices never wait.
        """
        least = self.capture.get("least_wait_seconds_per_step")
        if least is None or self.measured is None:
            return None
        return round(least / self.measured.step_seconds, 6)

    @property
    def disagreement(self) -> str:
        """Warning that trace and ablation differ too much; else empty."""
        points, rest = self._difference_points(), self._difference_points(least_wait=True)
        ablation = self.traced_ablation_exposed_fraction
        if points is None or ablation is None or abs(points) <= AGREEMENT_POINTS:
            return ""
        text = (
            f"host {self.capture['process_index']}: exposed communication without waiting for the "
            f"slowest device is {100 * ablation + points:.1f} % of the traced step by the trace, "
            f"{100 * ablation:.1f} % by the ablation twin: {points:+.1f} points"
        )
        if rest is not None:
            text += f"; {rest:+.1f} with the waiting that no device is spared, which the twin lacks"
        if self.shares_cores:
            text += "; the simulated devices share cores, and all times hold waiting for one"
        return text

    @property
    def shares_cores(self) -> bool:
        """True if simulated devices outnumber their cores or other processes use the cores."""
        capture = self.capture
        if capture["platform"] != "cpu":
            return False
        too_few = capture["machine_devices"] > capture["machine_cores"]
        return too_few or capture.get("machine_processes", 1) > 1

    @property
    def has_wire(self) -> bool:
        """True if more than one machine's memory connects the devices."""
        capture = self.capture
        return capture["platform"] != "cpu" or capture["num_devices"] > capture["machine_devices"]

    @property
    def simulation(self) -> str:
        """Sentence on communication that crosses no network; empty if it does."""
        capture = self.capture
        if capture["platform"] != "cpu" or (self.has_wire and not self.shares_cores):
            return ""
        devices, cores = capture["machine_devices"], capture["machine_cores"]
        if devices == 1:
            return ""
        if self.shares_cores:
            text = f"{devices} simulated devices share the machine's {cores} cores"
            waits = "meeting the other devices and waiting for a core"
        else:
            text = f"the {devices} simulated devices are threads of one machine"
            waits = "meeting the other devices"
        if self.has_wire:
            return f"{text}: communication holds {waits} beside the network"
        return f"{text}: communication is {waits}; there is no wire"

    @functools.cached_property
    def peaks(self) -> tuple[float | None, float | None, str, str]:
        """FLOP/s and bytes/s of one device, their source, and the reason if they are None.

        Each simulated device of a CPU has an equal share of the machine.
        """
        capture = self.capture
        measured = capture.get("measured_peaks")
        if capture["platform"] == "cpu":
            if measured is None:
                return None, None, "", f"the machine's peak was not measured{_AGAIN}"
            if reason := _disturbed(measured):
                return None, None, "", reason
            share = capture["machine_devices"]
            source = _MEASURED_HERE
            if share > 1:
                source += ", shared by its simulated devices"
            peaks = (measured[name] / share for name in ("flops_per_second", "bytes_per_second"))
            return *peaks, source, ""
        device, reason = find_device(capture["device_kind"])
        if device is None:
            return None, None, "", reason
        dtype = capture["executed_dtype"]
        peak = device.peak(dtype)
        reason = "" if peak else f"{device.name} has no published peak for {dtype}"
        return peak, device.memory_bytes_per_second, device.cited(dtype), reason

    @functools.cached_property
    def op_peaks(self) -> tuple[float | None, float | None, str]:
        """FLOP/s and bytes/s that bound a single op, and their source.

        An op of a simulated device may use the whole machine while the other devices wait.
        """
        peak, bandwidth, source, _ = self.peaks
        if self.capture["platform"] == "cpu" and peak is not None:
            measured = self.capture["measured_peaks"]
            return measured["flops_per_second"], measured["bytes_per_second"], _MEASURED_HERE
        return peak, bandwidth, source

    @functools.cached_property
    def ops(self) -> list[roofline.OpTime]:
        """Ops of a step against the roofline, the longest first."""
        if self.trace is None:
            return []
        peak, bandwidth, _ = self.op_peaks
        return roofline.op_times(self.trace, self.num_steps, self.program, peak, bandwidth)

    def roofline_json(self) -> dict[str, Any]:
        """Longest ops against their bounds, and distributions over time, for the result."""
        return roofline.to_json(self.ops, *self.op_peaks)

    def communication_json(self) -> dict[str, Any]:
        reasons: dict[str, str] = {}
        if self.measured is None:
            fields: dict[str, Any] = dict.fromkeys(COMMUNICATION_FIELDS)
            reasons |= dict.fromkeys(COMMUNICATION_FIELDS, self.failure)
        else:
            fields = self.measured.to_json()
            # The rest stands in layers.csv.
            fields["by_layer"] = dict(list(fields["by_layer"].items())[:LAYERS_IN_RESULT])
        if not self.has_wire and self.measured is not None:
            for group in ("by_kind", "by_axis"):
                fields[group] = {
                    name: {**row, "algorithm_bytes_per_second": None}
                    for name, row in fields[group].items()
                }
            reasons["algorithm_bytes_per_second"] = "no wire lies between the devices"
        ablation = self.ablation_exposed_fraction
        if ablation is None:
            reason = self.capture.get("twin_reason") or "no twin was run in this window"
            reasons["ablation_exposed_fraction"] = reason
        return {
            **fields,
            "method": None if self.measured is None else "trace",
            "ablation_exposed_fraction": ablation,
            "traced_ablation_exposed_fraction": self.traced_ablation_exposed_fraction,
            "least_wait_fraction": self.least_wait_fraction,
            "trace_minus_ablation_points": self._difference_points(),
            "trace_and_least_wait_minus_ablation_points": self._difference_points(least_wait=True),
            "wait_seconds_per_step": self.wait_seconds_per_step,
            "simulation": self.simulation or None,
            "reasons": reasons,
        }

    def utilization_json(self) -> dict[str, Any]:
        """Field `utilization` of a host in a result, without the input wait."""
        capture, program = self.capture, self.program
        peak, bandwidth, source, peak_reason = self.peaks
        is_cpu = capture["platform"] == "cpu"
        passes = capture["platform"] == "tpu"  # only a TPU makes a float32 product in several
        executed = sum(
            op.product_flops * op.runs * (op.passes if passes else 1) for op in program.ops.values()
        )
        fields: dict[str, Any] = utilization.host_utilization(
            step_seconds=capture["step_seconds"],
            model_flops=capture["model_flops_per_step"],
            executed_flops=executed,
            num_bytes=None if is_cpu else program.num_bytes,
            peak_flops_per_second=peak,
            memory_bytes_per_second=bandwidth,
        )
        reasons: dict[str, str] = {}
        fraction = fields["memory_bandwidth_fraction"]
        if fraction is None or fraction > 1:
            fields["memory_bandwidth_fraction"] = None
            reasons["memory_bandwidth_fraction"] = (
                "most of what a CPU's ops read stays in caches, and no counter tells"
                if is_cpu
                else peak_reason
                if fraction is None
                else "the ops read and write more than the memory can: caches keep part of it"
            )
        if exceeded := self._exceeded(fields["mfu"] or 0.0, fields["hfu"] or 0.0):
            peak_reason = exceeded
            peak = fields["mfu"] = fields["hfu"] = None
        if peak is None:
            reasons |= dict.fromkeys(("mfu", "hfu"), peak_reason)
        if capture["model_flops_per_step"] is None:
            reasons["mfu"] = capture["model_flops_reason"]
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
            "stage": capture.get("stage"),
            "step_seconds": capture["step_seconds"],
            "model_flops_per_step": capture["model_flops_per_step"],
            "executed_flops_per_step": executed,
            "peak_flops_per_second": peak,
            "peak_source": source or None,
            "devices_share_cores": self.shares_cores,
            "reasons": reasons,
        }

    def _exceeded(self, mfu: float, hfu: float) -> str:
        """Reason for no utilization where a step exceeds the peak; empty if it does not."""
        if max(mfu, hfu) <= 1:
            return ""
        makes = (
            f"the compiled step makes {100 * hfu:.0f} %"
            if hfu > 1
            else f"the model's FLOPs are {100 * mfu:.0f} %, those of the compiled step "
            f"{100 * hfu:.0f} %,"
        )
        if self.capture["platform"] != "cpu":
            return f"{makes} of the published peak's FLOP/s: one of the figures is wrong"
        saves = "" if hfu > 1 else ", or an algorithm saves most of the model's"
        return (
            f"{makes} of the measured peak's FLOP/s: other work ran while that was measured"
            f"{saves}{_AGAIN}"
        )

    def _difference_points(self, least_wait: bool = False) -> float | None:
        """Exposed communication without skew less the twin's estimate, in points of a step.

        Both come from traced steps, so that the cost of tracing cancels.
        """
        ablation, measured = self.traced_ablation_exposed_fraction, self.measured
        waiting = self.least_wait_fraction if least_wait else 0.0
        if ablation is None or measured is None or waiting is None:
            return None
        wire = measured.exposed_seconds_per_step - measured.exposed_skew_seconds_per_step
        return round(100 * (wire / measured.step_seconds + waiting - ablation), 3)

    def straggler(self) -> tuple[Straggler | None, str]:
        """The host that the others wait for, or None and the reason."""
        if self.host_waits is None or self.measured is None:
            return None, NO_TRACE
        return find_straggler(self.host_waits, self.measured.step_seconds)


_AGAIN = "; `dawnjax profile --experiment=NAME` measures it again, on a machine without other work"


def _disturbed(measured: dict[str, Any]) -> str:
    """Reason why a measured peak is not taken; empty if it is."""
    spread, other_work = measured["spread"], measured.get("other_work", 0.0)
    if other_work > MOST_OTHER_WORK:
        return (
            f"other work took {other_work:.0%} of the cores while the machine's peak was measured, "
            f"and at most {MOST_OTHER_WORK:.0%} is taken{_AGAIN}"
        )
    if spread > STEADY_SPREAD:
        return (
            f"the machine's measured peak is not steady: half of its repetitions took {spread:.0%} "
            f"longer than the best or more, and at most {STEADY_SPREAD:.0%} is taken: other work "
            f"ran beside them{_AGAIN}"
        )
    return ""


def straggler_of(profiles: Sequence[HostProfile]) -> tuple[Straggler | None, str]:
    """The host that the others wait for, from the profiles of all hosts."""
    steps = [p.measured.step_seconds for p in profiles if p.measured is not None]
    if not steps:
        return None, NO_TRACE
    waits = {p.capture["process_index"]: p.wait_seconds_per_step for p in profiles}
    return find_straggler([waits.get(index) for index in range(max(waits) + 1)], steps[0])


def read_profile(folder: Path) -> HostProfile:
    """Read a capture; `ConfigError` if the folder holds none."""
    capture, text = read_files(folder)
    try:
        program = analyze(text)
    except (RunError, *records.FORGED) as error:
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise ConfigError(f"{folder} holds no whole profile: {PROGRAM_FILE}: {why}") from None
    return build_profile(folder, capture, program)


def build_profile(folder: Path, capture: dict[str, Any], program: Program) -> HostProfile:
    """Build the profile of a capture; an unreadable trace becomes its `failure`."""
    try:
        trace, window = load_trace(folder, capture)
    except (RunError, OSError) as error:
        return HostProfile(folder, capture, None, (0, 0), program, None, None, failure=str(error))
    program = program.without_branches_not_seen(
        {event.op for events in trace.devices.values() for event in events}
    )
    first, last = capture["steps"]
    shortest = capture["shortest_runs"]
    cores = capture["machine_cores"] if capture["platform"] == "cpu" else None
    neighbours = capture.get("neighbours", ())
    return HostProfile(
        folder=folder,
        capture=capture,
        trace=trace,
        window=window,
        program=program,
        measured=measure_communication(
            trace, window, last - first, shortest, program, capture.get("mesh")
        ),
        attribution=utilization.attribute_step(
            trace, window, last - first, shortest, cores, neighbours
        ),
    )
