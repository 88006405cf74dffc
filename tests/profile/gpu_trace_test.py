"""Cutting a real trace small: the first steps stay as they were, and nothing else."""

import dataclasses
import gzip
import json
from pathlib import Path

import pytest
from traces import US, PlaneMaker, new_space, write

from benchmarks.gpu_trace import checks, cut_capture, unknown_product_kernels
from dawnjax.profile.captured import CAPTURE_FILE, PROGRAM_FILE
from dawnjax.profile.host_profile import HostProfile, read_profile
from dawnjax.profile.utilization import is_tensor_core_kernel

PROGRAM = """HloModule jit_train, num_partitions=1

ENTRY %main (x: bf16[64,64]) -> bf16[64,64] {
  %x = bf16[64,64]{1,0} parameter(0)
  %dot.1 = bf16[64,64]{1,0} dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, \
metadata={op_name="jit(train)/stem/dot" source_file="/home/someone/models/net.py" source_line=3}
  ROOT %add.1 = bf16[64,64]{1,0} add(%dot.1, %x)
}
"""


def capture_of(folder: Path, steps: int = 4) -> HostProfile:
    """Four steps of 100 us on a GPU: a product of 60 us, an addition of 30 us."""
    space = new_space()
    plane = PlaneMaker(space, "/device:GPU:0")
    stream = plane.line("Stream #13(Compute)", timestamp_ns=1000)
    for step in range(4):
        at = 100 * step
        stats = {"hlo_module": "jit_train", "correlation_id": step}
        plane.event(stream, "nvjet_tst_64x8", at, at + 60, hlo_op="dot.1", **stats)
        plane.event(stream, "loop_add", at + 60, at + 90, hlo_op="add.1", **stats)
    plane.event(stream, "MemcpyD2H", 395, 396)
    host = PlaneMaker(space, "/host:CPU")
    thread = host.line("python", timestamp_ns=1000)
    host.event(thread, "dawnjax.window", 0, 400)
    host.event(thread, "someone's own function", 0, 400)
    write(space, folder)
    capture = {
        "process_index": 0,
        "platform": "gpu",
        "device_kind": "NVIDIA H200",
        "executed_dtype": "bfloat16",
        "num_devices": 1,
        "machine_devices": 1,
        "module": "jit_train",
        "steps": [10, 10 + steps],
        "step_seconds": 100e-6,
        "model_flops_per_step": 2.0 * 64**3,
        "model_flops_reason": "",
        "shortest_runs": {},
        "measured_peaks": None,
    }
    (folder / CAPTURE_FILE).write_text(json.dumps(capture))
    with gzip.open(folder / PROGRAM_FILE, "wt") as file:
        file.write(PROGRAM)
    return read_profile(folder)


def test_the_first_steps_are_kept_as_they_were(tmp_path):
    (tmp_path / "whole").mkdir()
    whole = capture_of(tmp_path / "whole")
    cut_capture(whole, tmp_path / "cut", 2)
    cut = read_profile(tmp_path / "cut")
    assert cut.failure == "" and cut.capture.num_steps == 2 and cut.trace is not None
    assert whole.trace is not None
    assert cut.trace.devices[0] == whole.trace.devices[0][:4]
    # The window ends with the second step's addition, after 190 us.
    assert cut.window == (1 * US, 191 * US)
    assert cut.attribution is not None
    assert cut.attribution.parts["compute"] == pytest.approx(90e-6)
    raw = (tmp_path / "cut" / "trace.xplane.pb").read_bytes()
    for text in (b"someone", b"correlation_id"):
        assert text not in raw
    with gzip.open(tmp_path / "cut" / PROGRAM_FILE, "rt") as file:
        assert 'source_file="net.py"' in file.read()


def test_a_real_profile_must_hold_what_is_checked(tmp_path):
    rows = {name: holds for name, _, holds in checks(capture_of(tmp_path))}
    assert rows["device"] and rows["parts / step"] and rows["busy_fraction"]
    # All time but the copy's 1 us of 361 us names an op.
    assert rows["kernels' time that names an op"] and rows["communication, s a step"]
    assert unknown_product_kernels(capture_of(tmp_path)) == []


def test_a_real_trace_of_a_gpu_is_read():
    """Two steps of `digits` on one NVIDIA H200, cut by `cut_capture` (jax 0.11.2, 2026-11-22).

    Nine other processes used the GPU, so its idle time says nothing of a run that is alone.
    """
    profile = read_profile(Path(__file__).parent / "h200_digits")
    assert profile.failure == "" and profile.trace is not None and profile.attribution is not None
    (events,) = profile.trace.devices.values()
    busy = sum(event.end - event.start for event in events)
    assert sum(event.end - event.start for event in events if event.op) == busy
    of_program = [event for event in events if event.op in profile.program.ops]
    assert sum(event.end - event.start for event in of_program) / busy > 0.99
    # Convolutions are several kernels each: the tensor cores' own, and what is done around them.
    kernels = {event.kernel for event in of_program if event.op.startswith("cudnn-conv")}
    on_tensor_cores = {kernel for kernel in kernels if is_tensor_core_kernel(kernel)}
    assert all("f32f32_tf32f32" in kernel for kernel in on_tensor_cores)
    others = {kernel.removeprefix("void ")[:9] for kernel in kernels - on_tensor_cores}
    assert on_tensor_cores and "wgrad_alg" in others and not any("xmma_" in k for k in others)
    used = profile.utilization_json()
    assert sum(used["parts_seconds"].values()) == pytest.approx(used["traced_step_seconds"])
    assert 0 < used["tensor_core_fraction"] < used["busy_fraction"] < 0.05
    # 64 images of 3 x 2 x 2,116,224 multiply-adds in 2.167 ms, of 494.7 TFLOP/s (tensorfloat32).
    assert used["mfu"] == pytest.approx(64 * 6 * 2_116_224 / 2.16728e-3 / 494.7e12, rel=1e-3)
    assert profile.communication_json()["seconds_per_step"] == 0


def test_each_missing_memory_fraction_has_its_own_reason():
    profile = read_profile(Path(__file__).parent / "h200_digits")

    def reason(**changed):
        other = dataclasses.replace(
            profile, capture=dataclasses.replace(profile.capture, **changed)
        )
        used = other.utilization_json()
        assert used["memory_bandwidth_fraction"] is None
        return used["reasons"]["memory_bandwidth_fraction"]

    assert "caches keep part of it" in reason(step_seconds=1e-9)
    unknown = {"model_flops_per_step": None, "model_flops_reason": "not counted"}
    assert "Unknown GPU" in reason(device_kind="Unknown GPU", **unknown)
