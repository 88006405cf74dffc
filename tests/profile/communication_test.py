"""Communication and the parts of a step: hand-computed answers on traces made by hand."""

import dataclasses
from pathlib import Path

import pytest
from traces import CAPTURE, US, gpu_trace, tpu_trace

from dawnjax.profile.captured import Capture, TwinTimes
from dawnjax.profile.communication import (
    find_straggler,
    measure_communication,
    merge_shortest,
    shortest_runs,
)
from dawnjax.profile.device_groups import first_group, mesh_axes
from dawnjax.profile.hlo import analyze
from dawnjax.profile.host_profile import SIMULATED, HostProfile, build_profile
from dawnjax.profile.program import Program
from dawnjax.profile.trace import Event, Trace, read_trace
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
NO_PROGRAM = Program("jit_train", 2, {}, {})


def test_total_exposed_skew_and_wire_of_two_gpus(tmp_path):
    read = of_gpus(tmp_path)
    shortest = shortest_runs(read)
    assert shortest == {"all-reduce-start.1": [50 * US]}  # the late GPU's
    measured = measure_communication(read, WINDOW, 1, shortest, analyze(PROGRAM), {})
    # GPU 0: 80 us of which an addition hides 40; GPU 1: 50 us of which 10 are hidden.
    assert measured.seconds_per_step == pytest.approx((80e-6 + 50e-6) / 2)
    assert measured.max_seconds_per_step == pytest.approx(80e-6)
    assert measured.exposed_seconds_per_step == pytest.approx((40e-6 + 40e-6) / 2)
    # GPU 0 waits 30 us for GPU 1, all of it behind its addition.
    assert measured.skew_fraction == pytest.approx(15 / 200)
    assert measured.exposed_skew_fraction == pytest.approx(0.0)
    assert measured.bytes_per_step == 8000
    row = measured.by_kind["all-reduce"]
    assert row["wire_seconds_per_step"] == pytest.approx(50e-6)
    assert row["algorithm_bytes_per_second"] == pytest.approx(8000 / 50e-6)


@pytest.mark.parametrize(
    ("groups", "pairs", "axes"),
    [
        ("{{0,1},{2,3},{4,5},{6,7}}", "", "model"),
        ("[4,2]<=[2,2,2]T(0,2,1)", "", "fsdp"),
        ("mesh['axis_0'=2,'axis_1'=4] {'axis_0'}", "", "data"),
        ("", "", "data, fsdp, model"),
        ("", "{{0,2},{2,0},{1,3},{3,1}}", "fsdp"),
        ("", "{{0,1},{1,2},{2,3},{3,0},{4,5},{5,6},{6,7},{7,4}}", "fsdp, model"),
        ("{{0,9}}", "", "unknown"),
    ],
)
def test_the_axis_of_a_collective_is_where_its_devices_differ(groups, pairs, axes):
    mesh = {"data": 2, "fsdp": 2, "expert": 1, "context": 1, "model": 2}
    assert mesh_axes(first_group(groups, pairs, 8), mesh) == axes


def test_communication_by_axis_has_its_exposed_part(tmp_path):
    read = of_gpus(tmp_path)
    program, mesh = analyze(PROGRAM), {"data": 1, "model": 2}
    measured = measure_communication(read, WINDOW, 1, shortest_runs(read), program, mesh)
    assert list(measured.by_axis) == ["model"]
    row = measured.by_axis["model"]
    assert row["seconds_per_step"] == pytest.approx((80e-6 + 50e-6) / 2)
    assert row["exposed_seconds_per_step"] == pytest.approx((40e-6 + 40e-6) / 2)
    assert row["bytes_per_step"] == 8000


def test_another_host_that_was_faster_makes_more_of_it_waiting(tmp_path):
    read = of_gpus(tmp_path)
    shortest = merge_shortest([shortest_runs(read), {"all-reduce-start.1": [20 * US]}])
    measured = measure_communication(read, WINDOW, 1, shortest, NO_PROGRAM, {})
    assert measured.skew_fraction == pytest.approx((60 + 30) / 2 / 200)
    # GPU 0 waits to 161, 20 us longer than its addition; GPU 1 from 131 to 161, 20 us longer.
    assert measured.exposed_skew_fraction == pytest.approx(20 / 200)


def test_an_asynchronous_collective_is_one(tmp_path):
    read = read_trace(tpu_trace(tmp_path)).of_program("jit_train")
    measured = measure_communication(read, (0, 100 * US), 2, shortest_runs(read), NO_PROGRAM, {})
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


def profiled(**changed) -> HostProfile:
    """Two steps of 100 us on two devices, each with two all-reduces."""

    def op(kind, start, end):
        name = f"{kind or 'fusion'}.1"
        return Event(start * US, end * US, name, name, kind, "jit_train")

    devices = {
        0: [op("", 0, 70), op("all-reduce", 70, 100), op("", 100, 182), op("all-reduce", 182, 200)],
        1: [op("", 0, 80), op("all-reduce", 80, 100), op("", 100, 180), op("all-reduce", 180, 200)],
    }
    traced = Trace("gpu", devices, [])
    plain = {**CAPTURE, "platform": "gpu", "steps": (10, 12), "measured_peaks": None}
    plain |= {"shortest_runs": shortest_runs(traced)}
    capture = Capture(**{**plain, **changed})
    return build_profile(Path(), capture, NO_PROGRAM, traced, (0, 200 * US))


@pytest.mark.parametrize(
    ("twin", "says"),
    [
        # Exposed: 30 + 18 us and 20 + 20 us; waiting, 10 us of device 0 in the first step and 2 us
        # of device 1 in the second: 19 us a step on the wire.
        ([80e-6, 66e-6, 79e-6], "host 0: a step takes 20.0 % less by the twin, and 19.0 % is"),
        ([80e-6, 55e-6, 40e-6], "by the trace: they differ by -26.0 points; quote both"),
    ],
)
def test_the_twin_stands_beside_the_trace(twin, says):
    profile = profiled(twin=TwinTimes([100e-6, 100e-6, 98.75e-6], twin))
    told = profile.communication_json()
    assert told["exposed_fraction"] == pytest.approx(0.22)
    assert told["exposed_skew_fraction"] == pytest.approx(0.03)
    assert profile.wait_seconds_per_step == pytest.approx(3e-6)
    assert says in profile.twin_line()
    assert ("points" in profile.twin_line()) == ("points" in says)


def test_simulated_devices_report_no_communication():
    simulated = profiled(platform="cpu", twin=TwinTimes([100e-6], [80e-6]))
    told = simulated.communication_json()
    assert told["seconds_per_step"] is None and told["reasons"]["exposed_fraction"] == SIMULATED
    assert told["bytes_per_step"] == 0 and "bytes_per_step" not in told["reasons"]
    # All of a collective is waiting: there is no wire.
    assert simulated.attribution.parts["exposed_wire"] == 0
    assert simulated.attribution.parts["exposed_skew"] == pytest.approx(22e-6)
    assert simulated.twin_line().endswith(f"20.0 % less by the twin; {SIMULATED}")


def test_the_straggler_is_the_host_that_does_not_wait():
    straggler, reason = find_straggler([0.040, 0.001, 0.038], 0.1)
    assert reason == "" and straggler is not None and straggler.process_index == 1
    assert straggler.cost_seconds_per_step == pytest.approx(0.038)
    assert straggler.fraction == pytest.approx(0.38)
    assert "host 1" in straggler.line()
    nobody, reason = find_straggler([0.001, 0.002], 0.1)
    assert nobody is None and reason == (
        "no host delays the others: each waits 1 ms a step for host 0, 1.0% of the traced step, "
        "and less than 5% names none"
    )
    assert find_straggler([0.05], 0.1) == (None, "")
    nobody, reason = find_straggler([0.05, None], 0.1)
    assert nobody is None and "a host's trace is missing" in reason
