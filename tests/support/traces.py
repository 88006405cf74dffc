"""Traces made by hand: a few events on a few lines, as the profiler would write them."""

from pathlib import Path
from typing import Any

from dawnjax.profile.xplane import message

US = 10**6
"""Picoseconds in a microsecond, the unit of the fixtures' times."""

CAPTURE: dict[str, Any] = {
    "process_index": 0,
    "platform": "cpu",
    "device_kind": "cpu",
    "executed_dtype": "float32",
    "num_devices": 2,
    "machine_devices": 2,
    "module": "jit_train",
    "steps": [10, 14],
    "step_seconds": 1e-4,
    "model_flops_per_step": 5e5,
    "model_flops_reason": "",
    "shortest_runs": {"all-reduce.1": [100, 200]},
    "measured_peaks": {"flops_per_second": 1e12, "bytes_per_second": 1e11, "spread": 0.1},
    "host_waits": [1e-6],
    "twin": {"real": [1e-4], "twin": [9e-5]},
}


class PlaneMaker:
    """Builds one plane of a trace."""

    def __init__(self, space: Any, name: str):
        self._plane = space.planes.add(name=name)
        self._events: dict[tuple, int] = {}
        self._stats: dict[str, int] = {}

    def line(self, name: str, timestamp_ns: int = 0) -> Any:
        return self._plane.lines.add(name=name, timestamp_ns=timestamp_ns)

    def event(
        self,
        line: Any,
        name: str,
        start_us: float,
        end_us: float,
        *,
        display_name: str = "",
        metadata: dict[str, Any] | None = None,
        **stats: int | str,
    ) -> None:
        key = (name, display_name)
        if key not in self._events:
            number = self._events[key] = len(self._events) + 1
            described = self._plane.event_metadata[number]
            described.id, described.name, described.display_name = number, name, display_name
            for stat_name, value in (metadata or {}).items():
                self._set(described.stats.add(), stat_name, value)
        event = line.events.add(metadata_id=self._events[key])
        event.offset_ps = round(start_us * US)
        event.duration_ps = round((end_us - start_us) * US)
        for stat_name, value in stats.items():
            self._set(event.stats.add(), stat_name, value)

    def _set(self, stat: Any, name: str, value: Any) -> None:
        stat.metadata_id = self._stat(name)
        if isinstance(value, str):
            # The profiler keeps a text once, as a stat's name, and refers to it.
            stat.ref_value = self._stat(value)
        else:
            stat.int64_value = value

    def _stat(self, name: str) -> int:
        if name not in self._stats:
            self._stats[name] = len(self._stats) + 1
            described = self._plane.stat_metadata[self._stats[name]]
            described.id, described.name = self._stats[name], name
        return self._stats[name]


def new_space() -> Any:
    return message("XSpace")()


def write(space: Any, folder: Path) -> Path:
    path = folder / "host.xplane.pb"
    path.write_bytes(space.SerializeToString())
    return path


def gpu_trace(folder: Path) -> Path:
    """Two H200s. GPU 0: a GEMM, an all-reduce half hidden by a second kernel, a copy; GPU 1 comes
    30 us late to the same all-reduce.
    """
    space = new_space()
    for device, late in ((0, 0), (1, 30)):
        plane = PlaneMaker(space, f"/device:GPU:{device}")
        compute = plane.line("Stream #13(Compute)", timestamp_ns=1000)
        comm = plane.line("Stream #14(Compute)", timestamp_ns=1000)
        plane.line("XLA Ops")  # a line that is derived from the streams is not counted again
        common: dict[str, Any] = {"hlo_module": "jit_train"}
        nvjet = "nvjet_tst_128x256_64x4_2x1_v_bz_TNN"
        plane.event(compute, nvjet, 0, 100 + late, hlo_op="gemm.1", **common)
        reduce = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        plane.event(comm, reduce, 100 + late, 180, hlo_op="all-reduce-start.1", **common)
        plane.event(compute, "loop_add_fusion", 100 + late, 140, hlo_op="add.1", **common)
        plane.event(compute, "MemcpyD2D", 190, 200)
    host = PlaneMaker(space, "/host:CPU")
    thread = host.line("python", timestamp_ns=1000)
    host.event(thread, "dawnjax.window", 0, 200)
    host.event(thread, "dawnjax.input", 180, 188)
    return write(space, folder)


def tpu_trace(folder: Path) -> Path:
    """One TPU: a convolution, an all-reduce in flight behind a fusion, its end, in a loop."""
    space = new_space()
    plane = PlaneMaker(space, "/device:TPU:0")
    plane.line("Steps")
    modules = plane.line("XLA Modules")
    plane.event(modules, "jit_train(123)", 0, 100, run_id=7)
    plane.event(modules, "jit_evaluate(77)", 100, 120, run_id=8)
    ops, in_flight = plane.line("XLA Ops"), plane.line("Async XLA Ops")
    plane.event(ops, "%while.1 = () while()", 0, 100, metadata={"hlo_category": "while"})
    plane.event(
        ops,
        "%fusion.1 = bf16[8]{0} fusion(%p)",
        0,
        40,
        display_name="fusion.1",
        metadata={"flops": 4_000, "bytes_accessed": 100, "hlo_category": "convolution fusion"},
    )
    start: dict[str, Any] = {"hlo_category": "all-reduce"}
    plane.event(ops, "%all-reduce-start.2 = f32[4]{0} all-reduce-start(%g)", 40, 41, metadata=start)
    plane.event(
        in_flight, "%all-reduce-start.2 = f32[4]{0} all-reduce-start(%g)", 40, 90, metadata=start
    )
    plane.event(in_flight, "%copy-start.1 = f32[4]{0} copy-start(%g)", 0, 95)
    plane.event(
        ops,
        "%fusion.2 = f32[4]{0} fusion(%p)",
        41,
        60,
        display_name="fusion.2",
        metadata={"flops": 10, "bytes_accessed": 900, "hlo_category": "loop fusion"},
    )
    plane.event(ops, "%all-reduce-done.2 = f32[4]{0} all-reduce-done(%s)", 60, 90, metadata=start)
    plane.event(ops, "%fusion.9 = f32[4]{0} fusion(%p)", 100, 120, display_name="fusion.9")
    PlaneMaker(space, "/device:TPU:0 SparseCore 0").line("XLA Ops")
    return write(space, folder)
