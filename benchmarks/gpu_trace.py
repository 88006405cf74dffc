"""Profile a real GPU, check the trace, and cut it to a small fixture.

    python -m benchmarks gpu_trace --out=DIRECTORY [-- FLAGS OF `dawnjax profile`]

It profiles a few fresh steps of a small residual network in bfloat16, about two minutes with
compilation: once by default, and once without command buffers, so that kernels name their ops.
Each check is a row; the exit status is 1 if one fails. DIRECTORY then holds the first steps: the
trace without the host's own events, the compiled program without folders, and `capture.json`. It
also lists half-precision kernels that `dawnjax.profile.utilization` does not know as tensor cores.
"""

import argparse
import dataclasses
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks import harness
from dawnjax import records
from dawnjax.errors import ConfigError
from dawnjax.machine.hardware import find_device
from dawnjax.profile import captured, host_profile, utilization
from dawnjax.profile.host_profile import HostProfile
from dawnjax.profile.program import Program
from dawnjax.profile.trace import ANNOTATION_PREFIX, find_trace
from dawnjax.profile.xplane import message, read_planes

MODEL_FLAGS: tuple[str, ...] = (
    "--experiment=synthetic_image",
    "--compute_dtype=bfloat16",
    "--global_batch_size=512",
    "--data.num_train_examples=4096",
    "--data.image_height=64",
    "--data.image_width=64",
    "--data.image_channels=3",
    "--model.stage_sizes=2,2",
    "--model.stage_widths=64,128",
)
NO_COMMAND_BUFFERS = "--xla_gpu_enable_command_buffer="

KEPT_STATS = ("hlo_op", "hlo_module")

Row = tuple[str, str, bool]


def main() -> int:
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--out", required=True, help="where the cut trace is written to")
    parser.add_argument("--steps", type=int, default=2, help="steps that the cut trace keeps")
    parser.add_argument("flags", nargs="*", help="after --: flags in place of the small model's")
    arguments = parser.parse_args()
    flags = arguments.flags or list(MODEL_FLAGS)
    with tempfile.TemporaryDirectory() as folder:
        rows: list[Row] = []
        for name, xla_flag in (("as it is", ""), ("no command buffers", NO_COMMAND_BUFFERS)):
            profile = profile_of(flags, Path(folder) / name.replace(" ", "_"), xla_flag)
            told = profile.failure or "read"
            rows.append((f"trace, {name}", told, bool(xla_flag == "" or not profile.failure)))
        rows += checks(profile)
        print(harness.table([["check", "found", "holds"], *([*r[:2], str(r[2])] for r in rows)]))
        for kernel, share in unknown_product_kernels(profile):
            print(f"no tensor-core kernel by its name, {share:.1%} of the kernels' time: {kernel}")
        if profile.trace is not None:
            size = cut_capture(profile, Path(arguments.out), arguments.steps)
            print(f"{arguments.steps} steps cut to {size / 1e3:.0f} kB in {arguments.out}")
    return 0 if all(holds for _, _, holds in rows) else 1


def profile_of(flags: list[str], run_dir: Path, xla_flag: str) -> HostProfile:
    """Profile a few fresh steps in a separate process."""
    environment = {**os.environ, "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {xla_flag}"}
    command = [sys.executable, "-m", "dawnjax", "profile", *flags, f"--run_dir={run_dir}"]
    done = subprocess.run([*command], env=environment)
    if done.returncode:
        raise ConfigError(f"dawnjax profile ended with status {done.returncode}")
    return host_profile.read_profile(captured.captures_of(run_dir)[0])


def checks(profile: HostProfile) -> list[Row]:
    """Properties of a real profile, each as name, observed value, whether it holds."""
    capture, used = profile.capture, profile.utilization_json()
    device, reason = find_device(capture.device_kind)
    rows: list[Row] = [("device", device.name if device else reason, device is not None)]
    if profile.trace is None or profile.attribution is None or profile.measured is None:
        return [*rows, ("trace", profile.failure, False)]
    events = [event for device_events in profile.trace.devices.values() for event in device_events]
    named = sum(e.end - e.start for e in events if e.op) / sum(e.end - e.start for e in events)
    rows.append(("kernels' time that names an op", f"{named:.1%}", named > 0.95))
    known = sum(e.end - e.start for e in events if e.op in profile.program.ops)
    known /= sum(e.end - e.start for e in events)
    rows.append(("... an op of the compiled program", f"{known:.1%}", known > 0.95))
    parts, step = sum(used["parts_seconds"].values()), used["traced_step_seconds"]
    rows.append(("parts / step", f"{parts / step:.4f}", abs(parts / step - 1) < 0.01))
    for name, low, high in (
        ("busy_fraction", 0.0, 1.0),
        ("tensor_core_fraction", 0.0, used["busy_fraction"]),
        ("attributed_fraction", 0.95, 1.0),
        ("mfu", 0.0, 1.0),
        ("hfu", 0.0, 1.0),
        ("memory_bandwidth_fraction", 0.0, 1.0),
    ):
        value = used[name]
        holds = value is not None and low < value <= high
        rows.append((name, used["reasons"].get(name) or f"{value}", holds))
    ratio = step / capture.step_seconds
    rows.append(("traced step / untraced", f"{ratio:.3f}", 0.8 < ratio < 1.5))
    sent = profile.communication_json()
    alone = capture.num_devices == 1
    holds = (sent["seconds_per_step"] == 0) if alone else sent["seconds_per_step"] > 0
    rows.append(("communication, s a step", f"{sent['seconds_per_step']}", holds))
    return rows


def unknown_product_kernels(profile: HostProfile) -> list[tuple[str, float]]:
    """Kernels of half-precision products whose names do not say tensor cores."""
    if profile.trace is None:
        return []
    seconds: dict[str, int] = defaultdict(int)
    total = 0
    for events in profile.trace.devices.values():
        for event in events:
            total += event.end - event.start
            op = profile.program.ops.get(event.op)
            half = op is not None and op.product_flops and op.product_dtype in ("bf16", "f16")
            if half and not utilization.is_tensor_core_kernel(event.kernel):
                seconds[event.kernel] += event.end - event.start
    longest = sorted(seconds.items(), key=lambda item: -item[1])[:10]
    return [(kernel, duration / total) for kernel, duration in longest]


def cut_capture(profile: HostProfile, out: Path, steps: int) -> int:
    """Write the first steps of a capture; return their size in bytes."""
    out.mkdir(parents=True, exist_ok=True)
    first, whole = profile.capture.steps[0], profile.capture.num_steps
    trace = cut_trace(find_trace(profile.folder), profile.program, steps, whole)
    (out / "trace.xplane.pb").write_bytes(trace)
    with gzip.open(profile.folder / captured.PROGRAM_FILE, "rt") as file:
        text = without_folders(file.read())
    with gzip.open(out / captured.PROGRAM_FILE, "wt") as file:
        file.write(text)
    capture = dataclasses.replace(
        profile.capture, steps=(first, first + steps), shortest_runs={}, host_waits=[]
    )
    (out / captured.CAPTURE_FILE).write_text(json.dumps(records.plain(capture)))
    return sum(path.stat().st_size for path in out.iterdir())


def cut_trace(path: Path, program: Program, steps: int, of_steps: int) -> bytes:
    """Cut a GPU's trace to its first `steps` steps and the run's spans.

    An op that ran as often as the program says ran equally often in each step, so its first runs
    are those of the first steps. Other events are kept up to the end of these.

    Raises:
      ConfigError: No op ran as often as the program says.
    """
    space = message("XSpace")()
    planes = [
        plane
        for plane in read_planes(path)
        if plane.name == "/host:CPU" or plane.name.startswith("/device:GPU:")
    ]
    ends = []
    for plane in planes:
        runs: dict[str, list[int]] = defaultdict(list)
        for line in plane.proto.lines:
            for event in line.events if line.name.startswith("Stream") else ():
                op = str(plane.stats(event).get("hlo_op") or "")
                runs[op].append(line.timestamp_ns * 1000 + event.offset_ps + event.duration_ps)
        for op, op_ends in runs.items():
            times = program.ops[op].runs if op in program.ops else 0
            if times and len(op_ends) == times * of_steps:
                ends.append(sorted(op_ends)[times * steps - 1])
    if not ends:
        raise ConfigError(f"{path} does not hold {of_steps} steps of the compiled program")
    for plane in planes:
        _copy_plane(plane, space.planes.add(name=plane.name), max(ends))
    return space.SerializeToString()


def _copy_plane(plane: Any, copy: Any, end: int) -> None:
    """Copy a plane's events that began before `end`, with the names that they need."""
    device = plane.name.startswith("/device:")
    wanted = {number for number, name in plane.stat_names.items() if name in KEPT_STATS}
    for line in plane.proto.lines:
        if device and not line.name.startswith("Stream"):
            continue
        kept = list(_events_before(plane, line, end, device))
        if not kept:
            continue
        new = copy.lines.add(id=line.id, name=line.name, timestamp_ns=line.timestamp_ns)
        for event in kept:
            cut_event = new.events.add(metadata_id=event.metadata_id, offset_ps=event.offset_ps)
            last = end - line.timestamp_ns * 1000 - event.offset_ps
            cut_event.duration_ps = event.duration_ps if device else min(event.duration_ps, last)
            named = plane.proto.event_metadata[event.metadata_id]
            copy.event_metadata[event.metadata_id].id = event.metadata_id
            copy.event_metadata[event.metadata_id].name = named.name
            for stat in event.stats:
                if stat.metadata_id in wanted:
                    cut_event.stats.add().CopyFrom(stat)
                    for number in (stat.metadata_id, stat.ref_value):
                        if number in plane.stat_names:
                            copy.stat_metadata[number].id = number
                            copy.stat_metadata[number].name = plane.stat_names[number]


def _events_before(plane: Any, line: Any, end: int, device: bool) -> Iterable[Any]:
    for event in line.events:
        name = plane.proto.event_metadata[event.metadata_id].name
        early = line.timestamp_ns * 1000 + event.offset_ps < end
        if early and (device or name.startswith(ANNOTATION_PREFIX)):
            yield event


def without_folders(text: str) -> str:
    """Cut folders, which name a machine, from the source files in a program's text."""
    return re.sub(r'"(?:/[^"/]+)+/([^"/]+\.py)"', r'"\1"', text)


if __name__ == "__main__":
    sys.exit(main())
