"""Plans: systems, what is kept of a program, the model of a step, and the command."""

import dataclasses
import json
import math
from pathlib import Path

import jax
import pytest
from plan_parts import programs, work

from dawnjax import records
from dawnjax.config.experiment import Evaluation
from dawnjax.errors import RunError
from dawnjax.machine.hardware import find_product
from dawnjax.machine.prices import SystemPrice
from dawnjax.plan.compiling import compilers, extract, worker
from dawnjax.plan.compiling.extract import Extract, Work
from dawnjax.plan.compiling.worker import reason_of
from dawnjax.plan.epochs import epochs
from dawnjax.plan.hardware.interconnect import Exchange, exchange_seconds
from dawnjax.plan.hardware.systems import accelerators, parse_system
from dawnjax.plan.steps import efficiency
from dawnjax.plan.steps.efficiency import Efficiency, Measured
from dawnjax.plan.steps.predict import BETWEEN_SECONDS, evaluations_until, predict, train_seconds
from dawnjax.profile.hlo import analyze

PERFECT = Efficiency(
    products=1.0, memory=1.0, kernel_seconds=0.0, host_seconds=0.0, spread=0.1, fitted_on=("a",)
)


@pytest.mark.parametrize(
    ("text", "num_devices", "num_hosts", "topology"),
    [
        ("v3:8", 8, 1, "2x2"),
        ("v3:32", 32, 4, "4x4"),
        ("v5e:16x16", 256, 64, "16x16"),  # VMs of 4 chips
        ("v4:8", 8, 2, "2x2x2"),
        ("v7x:8", 8, 1, "2x2x1"),
        ("h100:64", 64, 8, "1x8x8"),
        ("dgx2:16", 16, 1, "1x1x16"),
        # Google's names count cores on v2 to v4, v5p and v7x, and chips on v5e and v6e.
        ("v3-32", 32, 4, "4x4"),
        ("v4-32", 16, 4, "2x2x4"),
        ("v5p-128", 64, 16, "4x4x4"),
        ("v6e-8", 8, 1, "2x4"),
    ],
)
def test_a_size_counts_devices_and_gives_the_torus(text, num_devices, num_hosts, topology):
    system = parse_system(text)
    assert (system.num_devices, system.num_hosts, system.topology) == (
        num_devices,
        num_hosts,
        topology,
    )


def test_a_tpu_says_its_chips_and_cores():
    assert parse_system("v5p:128").described == "v5p:128 (128 chips, 256 cores)"
    assert parse_system("v5litepod-16").described == "v5e:16 (16 chips, 16 cores)"
    assert parse_system("h100:8").described == "h100:8"


def test_described_gpus_have_the_units_of_xla_s_own_descriptions():
    """Source: OpenXLA, `target_config/specs`."""
    rows = records.csv_rows(Path(compilers.__file__).with_name("gpus.csv"), ("compiler", "source"))
    units = {row["compiler"]: (row["cores"], row["fpus_per_core"]) for _, row in rows}
    assert units == {
        "v100": ("80", "64"),
        "a100": ("108", "64"),
        "b200": ("148", "128"),
        **dict.fromkeys(("h100", "h200"), ("132", "128")),
    }


def test_every_system_has_its_numbers_and_a_source():
    for system in accelerators().values():
        assert system.source and system.device.link_bytes_per_second > 0
        assert system.device.platform == "tpu" or system.network_bytes_per_second > 0


def all_reduce(group_size, num_bytes, runs=1):
    return Exchange("all-reduce", group_size, num_bytes, runs, group_stride=1)


def test_an_all_reduce_sends_each_byte_twice():
    # v3: 656 GB/s of a chip, one direction, 0.8 of it: 262.4 GB/s; 2x2 does not wrap.
    wire = 2 * 7 / 8 * 1e9 / (262.4e9 / 2)
    assert exchange_seconds(all_reduce(8, 1e9), parse_system("v3:8")) == pytest.approx(
        wire + 2 * 2e-6
    )
    # 4x4 chips wrap, and a ring has 3 + 3 hops.
    wire = 2 * 31 / 32 * 1e9 / 262.4e9
    assert exchange_seconds(all_reduce(32, 1e9), parse_system("v3:32")) == pytest.approx(
        wire + 2 * 6e-6
    )
    assert exchange_seconds(all_reduce(1, 1e9), parse_system("v3:8")) == 0


def gather_seconds(system, group_size, group_stride=1):
    gather = Exchange("all-gather", group_size, 1e9, 1, group_stride)
    return exchange_seconds(gather, parse_system(system))


def test_a_chip_s_two_devices_share_what_its_links_bring():
    """1 GB gathered to both devices crosses the links once; to one device of each chip at half."""
    # v3: 328 GB/s one way; v7x: 600.
    assert gather_seconds("v3:32", 32) == pytest.approx(31 / 32 / 262.4 + 6e-6)
    assert gather_seconds("v7x:4x4x4", 128) == pytest.approx(127 / 128 / 480 + 9e-6)
    assert gather_seconds("v7x:4x4x4", 64, 2) == pytest.approx(63 / 64 / 240 + 9e-6)


@pytest.mark.parametrize(
    ("system", "group_size", "links", "hops"),
    [
        # v5p: 600 GB/s one way over three axes, 160 GB/s used of each.
        ("v5p:4x4x4", 4, 160, 3),
        ("v5p:4x4x4", 16, 320, 6),
        ("v5p:4x4x4", 64, 480, 9),
        # Less than a cube is a mesh: each axis has half of its links.
        ("v5p:2x2x4", 4, 80, 3),
        ("v5p:2x4x4", 16, 160, 6),
        # Two of four chips in a row are no ring.
        ("v5p:4x4x4", 2, 80, 1),
        # v5e: 200 GB/s one way over two axes, 80 of each; an axis of 16 alone is a ring.
        ("v5e:16x16", 256, 160, 30),
        ("v5e:8x16", 128, 120, 22),
    ],
)
def test_a_group_has_the_links_of_its_axes_and_rings_where_the_slice_wraps(
    system, group_size, links, hops
):
    wire = (group_size - 1) / group_size / links
    assert gather_seconds(system, group_size) == pytest.approx(wire + hops * 1e-6)


def test_a_group_with_one_device_a_host_has_that_host_s_part_of_the_network():
    # Eight groups of eight, each with a device on each host: 50 of a host's 400 GB/s for each.
    apart = Exchange(kind="all-reduce", group_size=8, num_bytes=1e9, runs=1, group_stride=8)
    seconds = exchange_seconds(apart, parse_system("h100:64"))
    assert seconds == pytest.approx(2 * 7 / 8 * 1e9 / (50e9 * 0.8) + 2 * 3 * 10e-6)
    # Two devices of each of two hosts: a half of the network, and the links within a host.
    halves = apart._replace(group_size=4, group_stride=4)
    seconds = exchange_seconds(halves, parse_system("h100:16"))
    within = 2 * 3 / 4 * 1e9 / (450e9 * 0.8) + 2 * 1 * 5e-6
    assert seconds == pytest.approx(within + 2 * 1 / 2 * 1e9 / (100e9 * 0.8) + 2 * 1 * 10e-6)
    # Neighbours in one host need no network.
    near = apart._replace(group_stride=1)
    within = 2 * 7 / 8 * 1e9 / (450e9 * 0.8) + 2 * 3 * 5e-6
    assert exchange_seconds(near, parse_system("h100:64")) == pytest.approx(within)


def test_a_permute_sends_all_of_its_bytes_over_one_link():
    """Keys in a ring: a device has its own bytes, and no part of them stays behind."""
    passed = Exchange("collective-permute", 4, 1e9, runs=3, group_stride=1)
    # v5p: 80 GB/s of one of the two links along an axis.
    seconds = exchange_seconds(passed, parse_system("v5p:64"))
    assert seconds == pytest.approx(1e9 / 80e9 + 3 * 1e-6)
    seconds = exchange_seconds(passed, parse_system("h100:8"))
    assert seconds == pytest.approx(1e9 / 360e9 + 3 * 2 * 5e-6)
    # To the next host through the device's own eighth of the network.
    apart = passed._replace(group_size=2, group_stride=8, runs=1)
    seconds = exchange_seconds(apart, parse_system("h100:16"))
    assert seconds == pytest.approx(1e9 / (50e9 * 0.8) + 10e-6)


def test_an_all_to_all_has_no_copies_to_spare():
    apart = Exchange("all-to-all", 16, 1e9, runs=1, group_stride=1)
    # Half of each device's bytes leave its host, at an eighth of its network.
    within = 15 / 16 * 1e9 / 360e9 + 3 * 5e-6
    seconds = exchange_seconds(apart, parse_system("h100:16"))
    assert seconds == pytest.approx(within + 1 / 2 * 1e9 / (50e9 * 0.8) + 10e-6)
    # A ring of 16: bytes travel four hops on average, 160 GB/s of two links.
    along = exchange_seconds(apart, parse_system("v5p:16x4x4"))
    assert along == pytest.approx(4 * 15 / 16 * 1e9 / 160e9 + 15e-6)


HLO = """
HloModule m, num_partitions=4

ENTRY %main (a: bf16[128,256], b: bf16[256,512], c: f32[1000]) -> (bf16[128,512], f32[1000]) {
  %a = bf16[128,256]{1,0} parameter(0)
  %b = bf16[256,512]{1,0} parameter(1)
  %c = f32[1000]{0} parameter(2)
  %dot = bf16[128,512]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %double = f32[1000]{0} add(%c, %c)
  %sum = f32[1000]{0} all-reduce(%double), replica_groups={{0,1,2,3}}, to_apply=%add
  ROOT %out = (bf16[128,512]{1,0}, f32[1000]{0}) tuple(%dot, %sum)
}
"""


def test_an_extract_sums_what_the_program_does():
    kept = extract.extract_of(analyze(HLO), 123)
    assert kept.flops == 2 * 128 * 256 * 512
    dot_bytes = 2 * (128 * 256 + 256 * 512 + 128 * 512)
    assert kept.num_bytes == dot_bytes + 3 * 4000  # the sum reads its operand twice
    assert kept.exchanges == (all_reduce(4, 4000),)
    assert [work.dtype for work in kept.work] == ["", "bf16"]
    assert records.decode(json.dumps(records.plain(kept)), extract.Extract) == kept


def test_an_extract_counts_what_xla_computes_again():
    assert extract.extract_of(analyze(HLO), 123).recomputed == 0
    again = HLO.replace("%double", "%double.remat").replace("%sum", "%sum.remat2")
    assert extract.extract_of(analyze(again), 123).recomputed == 2
    waited = again.replace("all-reduce(", "all-reduce-start(")
    assert extract.extract_of(analyze(waited), 123).recomputed == 2
    constant = HLO.replace("%double", "%double.rematerialized.1")
    assert extract.extract_of(analyze(constant), 123).recomputed == 0


def test_products_of_uneven_rows_take_longer_on_tensor_cores_alone():
    apart = analyze(HLO.replace("256", "255"))
    kept = [row for row in extract.extract_of(apart, 123).work if row.dtype]
    assert [row.has_even_rows for row in kept] == [False]
    for name, dtype, ratio in (
        ("h100", "bf16", 0.3),
        ("h100", "f32", 0.3),
        ("v100", "f32", 1.0),
        ("v5e", "bf16", 1.0),
    ):
        even, uneven = (
            Extract(work=(Work(dtype, 1e15, 0, 1, is_even),), exchanges=(), memory_bytes=0)
            for is_even in (True, False)
        )
        device = accelerators()[name].device
        seconds = [
            efficiency.compute_seconds(program, device, PERFECT)[efficiency.PRODUCTS]
            for program in (even, uneven)
        ]
        assert seconds[0] / seconds[1] == pytest.approx(ratio), (name, dtype)


def test_an_op_takes_the_longer_of_arithmetic_and_memory():
    h100 = find_product("H100 SXM5")
    program = Extract(
        work=(work(989.4e12, 3.35e12 / 2), work(989.4e9, 3.35e12), work(0, 3.35e12, runs=1000)),
        exchanges=(),
        memory_bytes=0,
    )
    half = Efficiency(
        products=0.5, memory=1.0, kernel_seconds=1e-3, host_seconds=0, spread=0, fitted_on=()
    )
    parts = efficiency.compute_seconds(program, h100, half)
    assert list(parts.values()) == pytest.approx([2.0, 1.0, 1.0, 1.002])


def test_a_dtype_without_a_peak_is_named():
    with pytest.raises(RunError, match="V100 SXM2 16 GB has no known peak for bfloat16"):
        efficiency.peak_flops(find_product("V100 SXM2 16 GB"), "bf16")
    assert efficiency.peak_flops(find_product("V100 SXM2 16 GB"), "f32") == 15.7e12
    assert efficiency.peak_flops(find_product("Cloud TPU v5e"), "f32") == 197e12


def test_a_step_of_another_device_widens_as_little_as_it_weighs():
    """Ten steps as predicted, and one of another chip off by 3 in the logarithm: weight 0.16."""
    own = Measured(name="a", chip="h100", num_devices=8, seconds=1.0, predicted=lambda _: 1.0)
    other = dataclasses.replace(own, chip="a100", seconds=math.exp(3))
    found = efficiency.fit("gpu", "h100", [own] * 10 + [other])
    assert found.spread == pytest.approx(math.sqrt(0.16 * 9 / (10.16 - 2)))
    assert efficiency.fit("gpu", "a100", []).spread == math.log(2)  # nothing was measured


@pytest.mark.parametrize(
    ("count", "every", "first", "evaluations"),
    [(10, 1, 0, 10), (10.2, 4, 0, 3), (62, 4, 40, 7), (30, 4, 40, 1), (40, 4, 40, 1)],
)
def test_evaluations_until_the_target(count, every, first, evaluations):
    when = Evaluation(every_epochs=every, first_epoch=first)
    assert evaluations_until(when, count, 100) == evaluations
    steps = Evaluation(every_epochs=1, every_steps=every * 100, first_epoch=first)
    assert evaluations_until(steps, count, 100) == evaluations


@pytest.mark.compiles
def test_a_run_goes_through_its_stages_as_far_as_its_epochs():
    h100 = parse_system("h100:8")
    for count, seconds in [(0.5, 5), (1, 10), (2, 20), (3, 30), (4, 40)]:
        assert train_seconds(programs(), h100, PERFECT, count) == pytest.approx(seconds)


def prediction(**fields):
    known = epochs.Epochs(mean=3.0, spread=0.0, basis="given")
    arguments = {
        "programs": programs(),
        "system": parse_system("h100:8"),
        "efficiency": PERFECT,
        "evaluation": Evaluation(every_epochs=1),
        "epochs": known,
        "price": SystemPrice(usd_per_hour=36.0, basis="as given"),
    }
    return predict(**(arguments | fields))


@pytest.mark.compiles
def test_time_and_cost_of_a_run():
    found = prediction()
    time = found.time_to_accuracy_seconds
    assert time.value == pytest.approx(30 + 3 * 3 + BETWEEN_SECONDS)
    ends = (39 / math.exp(0.2), time.value * math.exp(0.2))  # the lower has steps alone
    assert (time.low, time.high) == pytest.approx(ends)
    assert found.cost_usd.value == pytest.approx(time.value / 100)
    assert found.examples_per_second.value == pytest.approx(100)


@pytest.mark.compiles
@pytest.mark.parametrize("knows_overlap", [False, True])
def test_the_lower_end_of_a_time_hides_the_communication_that_its_step_hides(knows_overlap):
    """Half of a step of 4 s is an all-reduce, which the lower ends of both leave out."""
    plan, compute = programs(), 2.0
    stage = plan.stages[-1]
    # 7/8 of the bytes leave a device twice, at 0.8 x 450 GB/s.
    exchange = Exchange("all-reduce", 8, compute * 0.8 * 450e9 * 8 / 14, 0, 1)
    train = dataclasses.replace(stage.train, exchanges=(exchange,))
    plan = dataclasses.replace(plan, stages=(dataclasses.replace(stage, train=train),))
    efficiency = dataclasses.replace(PERFECT, knows_overlap=knows_overlap)
    found = prediction(programs=plan, efficiency=efficiency)
    time, budget, step = found.time_to_accuracy_seconds, found.budget_seconds, found.step_seconds
    exposed = 1 if not knows_overlap else 2
    assert step.value == pytest.approx(2 * compute)
    assert step.low == pytest.approx(exposed * compute / math.exp(0.2))
    # 15 steps and three evaluations of 3 s; the budget has 10 and two.
    assert time.low == pytest.approx((15 * exposed * compute + 9) / math.exp(0.2))
    assert budget.low == pytest.approx((10 * exposed * compute + 6) / math.exp(0.2))


@pytest.mark.compiles
def test_a_step_faster_than_the_peak_is_refused():
    """Its program must hold the model's FLOPs: a loop that was counted once would not."""
    plan = programs(flops=1e15)
    step = dataclasses.replace(plan.stages[-1].train, work=(work(1e12, 3.35e12),))
    stages = tuple(dataclasses.replace(stage, train=step) for stage in plan.stages)
    with pytest.raises(RunError, match="fewer FLOPs than the model .MFU would be 2527%"):
        prediction(programs=dataclasses.replace(plan, stages=stages))


@pytest.mark.compiles
def test_a_run_goes_on_to_its_first_evaluation():
    when = Evaluation(every_epochs=1, first_epoch=4)
    time = prediction(evaluation=when).time_to_accuracy_seconds
    assert time is not None and time.value == pytest.approx(40 + 1 * 3 + BETWEEN_SECONDS)
    # Without `first_epoch` too: no target is seen before an evaluation.
    early = epochs.Epochs(mean=0.1, spread=0.0, basis="as given")
    time = prediction(epochs=early).time_to_accuracy_seconds
    assert time is not None and time.value == pytest.approx(10 + 1 * 3 + BETWEEN_SECONDS)


@pytest.mark.compiles
def test_what_is_not_known_is_none_with_a_reason():
    unknown = epochs.Epochs(mean=None, spread=0.0, basis="no runs")
    found = prediction(epochs=unknown, price=SystemPrice(usd_per_hour=None, basis="no price"))
    assert found.time_to_accuracy_seconds is None and found.cost_usd is None
    assert found.reasons["time_to_accuracy_seconds"].startswith("no runs: give --epochs")
    assert found.reasons["cost_usd"] == "no price"
    assert "mfu" in prediction(programs=programs(flops=None)).reasons


@pytest.mark.compiles
def test_a_program_that_xla_made_fit_says_so():
    line, plan = "XLA recomputes 1,036 kernels of a step", programs()
    assert not any(line in note for note in prediction().notes)
    stage = plan.stages[-1]
    again = dataclasses.replace(stage, train=dataclasses.replace(stage.train, recomputed=1036))
    found = prediction(programs=dataclasses.replace(plan, stages=(plan.stages[0], again)))
    assert any(line in note for note in found.notes)


@pytest.mark.compiles
def test_a_model_that_does_not_fit_says_by_how_much():
    with pytest.raises(RunError, match="needs 100 GB and has 84.94 GB"):
        prediction(programs=programs(memory_bytes=100 * 10**9))
    message = "Ran out of memory; Used 20.00G of 15.75G hbm. Exceeded by 4.25G"
    assert reason_of(message).startswith("does not fit: a device needs 21.47 GB and has 16.91 GB")
    message = "memory required for HLO temporaries (44.50G) exceeds available HBM (15.48G)."
    assert reason_of(message).startswith("does not fit: a device needs 47.78 GB and has 16.62 GB")
    assert reason_of("\n first\nsecond") == "the compiler refuses: first"
    message = "UNIMPLEMENTED: /bin/ptxas ptxas too old. Falling back to the driver to compile."
    assert "CUDA 13 has no kernels for this GPU" in reason_of(message)


def test_a_product_without_a_default_tile_is_compiled_without_triton(monkeypatch, tmp_path):
    tried = []

    def assigned(lowered, options, folder):
        folder.mkdir()  # XLA's files of two programs must not meet
        tried.append(options)
        if options.get("xla_gpu_enable_triton_gemm", True):
            why = "INTERNAL: Couldn't find output tile sizes that satisfy hlo: %dot.241"
            raise jax.errors.JaxRuntimeError(why)
        return "program"

    monkeypatch.setattr(worker, "assigned", assigned)
    assert worker.program_of(None, {"a": 1}, tmp_path) == "program"
    assert tried == [{"a": 1}, {"a": 1, "xla_gpu_enable_triton_gemm": False}]


@pytest.mark.parametrize(
    ("system", "says"),
    [
        ("v100:8", ["a run needs JAX with CUDA 12"]),
        ("gb300:8", ["compiled for the chip of NVIDIA B200"]),
        ("a100:8", []),
    ],
)
def test_a_gpu_that_a_run_compiles_otherwise_is_named(system, says):
    lines = compilers.cautions(parse_system(system).accelerator)
    assert len(lines) == len(says) and all(map(str.endswith, lines, says))
