"""Communication and the parts of a step: hand-computed answers on traces made by hand."""

import dataclasses
from pathlib import Path

import pytest
from traces import US, gpu_trace, tpu_trace

from dawnjax.profile.captured_trace import busy_neighbours
from dawnjax.profile.communication import (
    measure_communication,
    merge_shortest,
    shortest_runs,
)
from dawnjax.profile.device_groups import mesh_axes
from dawnjax.profile.hlo import analyze
from dawnjax.profile.host_profile import HostProfile
from dawnjax.profile.program import Program
from dawnjax.profile.straggler import find_straggler
from dawnjax.profile.trace import Event, Trace, TraceError, read_trace
from dawnjax.profile.utilization import PARTS, attribute_step

PROGRAM = """HloModule jit_train, num_partitions=2

%sum (a: bf16[], b: bf16[]) -> bf16[] {
  %a = bf16[] parameter(0)
  %b = bf16[] parameter(1)
  ROOT %add = bf16[] add(%a, %b)
}

ENTRY %main (x: bf16[1000], y: bf16[3000]) -> bf16[1000] {
  %x = bf16[1000]{0} parameter(0)
  %y = bf16[3000]{0} parameter(1)
  %g = bf16[1000]{0} negate(%x), metadata={op_name="jit(train)/transpose(jvp(stem))/neg"}
  %h = bf16[3000]{0} negate(%y), metadata={op_name="jit(train)/transpose(jvp(head))/neg"}
  %all-reduce-start.1 = (bf16[1000]{0}, bf16[3000]{0}) all-reduce-start(%g, %h), \
replica_groups={{0,1}}, to_apply=%sum
  %all-reduce-done.1 = (bf16[1000]{0}, bf16[3000]{0}) all-reduce-done(%all-reduce-start.1)
  ROOT %out = bf16[1000]{0} get-tuple-element(%all-reduce-done.1), index=0
}
"""


def of_gpus(tmp_path: Path) -> Trace:
    return read_trace(gpu_trace(tmp_path)).of_program("jit_train")


WINDOW = (1 * US, 201 * US)


def test_total_exposed_skew_and_wire_of_two_gpus(tmp_path):
    read = of_gpus(tmp_path)
    shortest = shortest_runs(read)
    assert shortest == {"all-reduce-start.1": [50 * US]}  # the late GPU's
    measured = measure_communication(read, WINDOW, 1, shortest, analyze(PROGRAM))
    # GPU 0: 80 us of which an addition hides 40; GPU 1: 50 us of which 10 are hidden.
    assert measured.step_seconds == pytest.approx(200e-6)
    assert measured.seconds_per_step == pytest.approx((80e-6 + 50e-6) / 2)
    assert measured.max_seconds_per_step == pytest.approx(80e-6)
    assert measured.exposed_seconds_per_step == pytest.approx((40e-6 + 40e-6) / 2)
    # GPU 0 waits 30 us for GPU 1, all of it behind its addition.
    assert measured.skew_seconds_per_step == pytest.approx(15e-6)
    assert measured.exposed_skew_seconds_per_step == pytest.approx(0.0)
    assert measured.bytes_per_step == 8000
    row = measured.by_kind["all-reduce"]
    assert row["wire_seconds_per_step"] == pytest.approx(50e-6)
    assert row["algorithm_bytes_per_second"] == pytest.approx(8000 / 50e-6)
    # Shared out by bytes: a quarter and three quarters.
    assert measured.by_layer["stem"]["seconds_per_step"] == pytest.approx(65e-6 / 4)
    assert measured.by_layer["head"]["bytes_per_step"] == 6000


@pytest.mark.parametrize(
    ("groups", "pairs", "axes"),
    [
        ("{{0,1},{2,3},{4,5},{6,7}}", "", "model"),
        ("{{0,4},{1,5},{2,6},{3,7}}", "", "data"),
        ("[4,2]<=[2,2,2]T(0,2,1)", "", "fsdp"),
        ("[4,2]<=[2,4]T(1,0)", "", "data"),
        ("mesh['axis_0'=2,'axis_1'=4] {'axis_0'}", "", "data"),
        ("[2,4]<=[8]", "", "fsdp, model"),
        ("", "", "data, fsdp, model"),
        ("", "{{0,2},{2,0},{1,3},{3,1}}", "fsdp"),
        ("", "{{0,1},{1,2},{2,3},{3,0},{4,5},{5,6},{6,7},{7,4}}", "fsdp, model"),
        ("{{0,9}}", "", "unknown"),
    ],
)
def test_the_axis_of_a_collective_is_where_its_devices_differ(groups, pairs, axes):
    mesh = {"data": 2, "fsdp": 2, "expert": 1, "context": 1, "model": 2}
    assert mesh_axes(groups, pairs, mesh) == axes


def test_communication_by_axis_has_its_exposed_part(tmp_path):
    read = of_gpus(tmp_path)
    program, mesh = analyze(PROGRAM), {"data": 1, "model": 2}
    measured = measure_communication(read, WINDOW, 1, shortest_runs(read), program, mesh)
    assert list(measured.by_axis) == ["model"]
    row = measured.by_axis["model"]
    assert row["seconds_per_step"] == pytest.approx((80e-6 + 50e-6) / 2)
    assert row["exposed_seconds_per_step"] == pytest.approx((40e-6 + 40e-6) / 2)
    assert row["bytes_per_step"] == 8000
    # Without the mesh nothing is told.
    assert not measure_communication(read, WINDOW, 1, shortest_runs(read), program).by_axis


def test_another_host_that_was_faster_makes_more_of_it_waiting(tmp_path):
    read = of_gpus(tmp_path)
    shortest = merge_shortest([shortest_runs(read), {"all-reduce-start.1": [20 * US]}])
    measured = measure_communication(read, WINDOW, 1, shortest, None)
    assert measured.skew_seconds_per_step == pytest.approx((60e-6 + 30e-6) / 2)
    assert measured.bytes_per_step is None
    # GPU 0 waits to 161, 20 us longer than its addition; GPU 1 from 131 to 161, 20 us longer.
    assert measured.exposed_skew_seconds_per_step == pytest.approx(20e-6)


def test_an_asynchronous_collective_is_one(tmp_path):
    read = read_trace(tpu_trace(tmp_path)).of_program("jit_train")
    measured = measure_communication(read, (0, 100 * US), 2, shortest_runs(read), None)
    # In flight from 40 to 90; a fusion hides 19 us of it. Two steps share it.
    assert measured.seconds_per_step == pytest.approx(25e-6)
    assert measured.exposed_seconds_per_step == pytest.approx(31e-6 / 2)
    assert measured.by_kind["all-reduce"]["runs_per_step"] == 0.5
    assert measured.by_kind["all-reduce"]["seconds_per_step"] == pytest.approx(25e-6)


def test_the_parts_of_a_step_sum_to_it(tmp_path):
    read = of_gpus(tmp_path)
    attributed = attribute_step(read, WINDOW, 1, shortest_runs(read))
    for parts in attributed.devices.values():
        assert sum(parts.values()) == pytest.approx(attributed.step_seconds, rel=1e-9)
    # GPU 0: 140 us of kernels, 40 us of wire, 8 us of input, 12 us until the window's end.
    assert {name: round(1e6 * attributed.devices[0][name], 6) for name in PARTS} == {
        "compute": 140,
        "exposed_wire": 40,
        "exposed_skew": 0,
        "input_wait": 8,
        "host": 12,
        "shared_core": 0,
        "idle": 0,
    }
    assert attributed.busy_fraction == pytest.approx(0.9)
    assert attributed.attributed_fraction == pytest.approx(1.0)


def test_idle_time_inside_a_program_has_no_known_cause(tmp_path):
    read = read_trace(tpu_trace(tmp_path)).of_program("jit_train")
    gap = [event for event in read.devices[0] if event.op != "fusion.2"]
    later = dataclasses.replace(read, devices={0: [e for e in gap if "done" not in e.op]})
    later = dataclasses.replace(later, devices={0: [e for e in later.devices[0] if not e.is_async]})
    attributed = attribute_step(later, (0, 50 * US), 1, {})
    # An op to 40, the start of a collective to 41, then nothing; the program is over.
    assert attributed.parts["host"] == pytest.approx(9e-6) and attributed.parts["idle"] == 0
    first, second = later.devices[0]
    second = second._replace(start=45 * US, end=50 * US)
    attributed = attribute_step(
        dataclasses.replace(later, devices={0: [first, second]}), (0, 50 * US), 1, {}
    )
    assert attributed.parts["idle"] == pytest.approx(5e-6) and attributed.parts["host"] == 0
    assert attributed.attributed_fraction == pytest.approx(0.9)


def test_idle_devices_that_share_cores_are_told_apart(tmp_path):
    read = read_trace(tpu_trace(tmp_path)).of_program("jit_train")
    op = read.devices[0][0]
    waits = [op._replace(start=0, end=10 * US), op._replace(start=50 * US, end=60 * US)]
    busy = [op._replace(start=10 * US, end=40 * US), op._replace(start=40 * US, end=60 * US)]
    shared = dataclasses.replace(read, devices={0: waits, 1: busy})
    one_core = attribute_step(shared, (0, 60 * US), 1, {}, cores=1)
    assert one_core.devices[0]["shared_core"] == pytest.approx(40e-6)
    assert one_core.devices[0]["idle"] == 0
    two_cores = attribute_step(shared, (0, 60 * US), 1, {}, cores=2)
    assert two_cores.devices[0]["idle"] == pytest.approx(40e-6)


def test_the_machine_s_other_processes_keep_cores_busy_too(tmp_path):
    read = read_trace(tpu_trace(tmp_path)).of_program("jit_train")
    op = read.devices[0][0]
    waits = [op._replace(start=0, end=10 * US), op._replace(start=50 * US, end=60 * US)]
    alone = dataclasses.replace(read, devices={0: waits})
    # The other process's trace began 2 us later: its 8 to 28 us are 10 to 30 us here.
    first = {"busy": [[(0, 9 * US)]], "start_unix_ns": 5_000, "shortest": {}}
    second = {"busy": [[(8 * US, 28 * US)]], "start_unix_ns": 7_000, "shortest": {}}
    neighbours = busy_neighbours(5_000, [first, second])
    assert neighbours == [[(10 * US, 30 * US)]]
    attributed = attribute_step(alone, (0, 60 * US), 1, {}, cores=1, neighbours=neighbours)
    assert attributed.devices[0]["shared_core"] == pytest.approx(20e-6)
    assert attributed.devices[0]["idle"] == pytest.approx(20e-6)


def profiled(twin_seconds, **more):
    def op(kind, start, end):
        name = f"{kind or 'fusion'}.1"
        return Event(start * US, end * US, name, name, kind, "jit_train", "stream")

    devices = {
        0: [op("", 0, 70), op("all-reduce", 70, 100), op("", 100, 182), op("all-reduce", 182, 200)],
        1: [op("", 0, 80), op("all-reduce", 80, 100), op("", 100, 180), op("all-reduce", 180, 200)],
    }
    traced, window = Trace("gpu", devices, []), (0, 200 * US)
    shortest = shortest_runs(traced)
    measured = measure_communication(traced, window, 2, shortest, None)
    capture = {
        "process_index": 0,
        "platform": "gpu",
        "steps": [10, 12],
        "step_seconds": 90e-6,
        "shortest_runs": shortest,
        "real_step_seconds": [90e-6, 88e-6, 92e-6],
        "slowest_twin_step_seconds": [72e-6, 66e-6, 80e-6],
        "traced_slowest_twin_step_seconds": twin_seconds,
        **more,
    }
    program = Program("jit_train", 2, {}, {})
    return HostProfile(Path(), capture, traced, window, program, measured, None)


def test_two_methods_are_compared_on_the_traced_step():
    # Two steps of 100 us. Exposed: 30 + 18 us and 20 + 20 us; waiting, 10 us of device 0 in the
    # first and 2 us of device 1 in the second. So 22 us a step and device are exposed, 3 us of
    # that is skew, and even device 1, which waits least, waits 1 us a step.
    compared = profiled(80e-6, least_wait_seconds_per_step=1e-6)
    told = compared.communication_json()
    assert told["exposed_fraction"] == pytest.approx(0.22)
    assert told["exposed_skew_fraction"] == pytest.approx(0.03)
    assert compared.least_wait_seconds_per_step == pytest.approx(1e-6)
    assert compared.wait_seconds_per_step == pytest.approx(3e-6)
    # A traced step of the twin takes 80 us: 20 % less.
    assert told["traced_ablation_exposed_fraction"] == pytest.approx(0.2)
    assert told["trace_minus_ablation_points"] == pytest.approx(19 - 20)
    assert told["trace_and_least_wait_minus_ablation_points"] == pytest.approx(19 + 1 - 20)
    # Not traced: 18 of 90, 22 of 88 and 12 of 92 us.
    assert told["ablation_exposed_fraction"] == pytest.approx(18 / 90)
    assert compared.disagreement == ""


def test_methods_that_disagree_say_so_in_numbers():
    apart = profiled(55e-6, least_wait_seconds_per_step=1e-6)
    assert apart.communication_json()["trace_minus_ablation_points"] == pytest.approx(19 - 45)
    for part in ("host 0", "19.0 % of the traced step", "45.0 % by", "-26.0 points", "-25.0 with"):
        assert part in apart.disagreement
    unknown = profiled(None)
    assert unknown.communication_json()["trace_minus_ablation_points"] is None
    assert unknown.disagreement == ""


def test_the_straggler_is_the_host_that_does_not_wait():
    straggler, reason = find_straggler([0.040, 0.001, 0.038], 0.1)
    assert reason == "" and straggler is not None and straggler.process_index == 1
    assert straggler.cost_seconds_per_step == pytest.approx(0.038)
    assert straggler.fraction == pytest.approx(0.38)
    assert "host 1" in straggler.line()
    nobody, reason = find_straggler([0.001, 0.002], 0.1)
    assert nobody is None and reason == (
        "no host holds the others up: each waits 1 ms a step for host 0, 1.0% of the traced step, "
        "and less than 5% names none"
    )
    assert find_straggler([0.05], 0.1) == (None, "")
    nobody, reason = find_straggler([0.05, None], 0.1)
    assert nobody is None and "a host's trace is missing" in reason


@pytest.mark.parametrize(
    ("here", "text"),
    [
        # Processes of one machine share its cores, also where there are as many cores.
        (
            {"machine_processes": 2, "machine_devices": 2},
            "2 simulated devices share the machine's 8 cores: communication is meeting the other "
            "devices and waiting for a core; there is no wire",
        ),
        (
            {"machine_devices": 2},
            "the 2 simulated devices are threads of one machine: communication is meeting the "
            "other devices; there is no wire",
        ),
        (
            {"machine_devices": 16, "num_devices": 32},
            "16 simulated devices share the machine's 8 cores: communication holds meeting the "
            "other devices and waiting for a core beside the network",
        ),
        ({"machine_devices": 1}, ""),
        ({"platform": "gpu", "machine_devices": 2}, ""),
    ],
)
def test_communication_without_a_wire_says_what_it_is(here, text):
    machine = {"platform": "cpu", "machine_processes": 1, "machine_cores": 8, "num_devices": 2}
    profile = profiled(None, **machine | here)
    told = profile.communication_json()
    assert told["simulation"] == (text or None)
    assert ("algorithm_bytes_per_second" in told["reasons"]) == ("no wire" in text)


def test_no_step_is_one_line(tmp_path):
    with pytest.raises(TraceError, match="no step"):
        measure_communication(of_gpus(tmp_path), WINDOW, 0, {}, None)
