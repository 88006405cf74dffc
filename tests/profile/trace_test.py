"""From traces to events: a real one of the CPU, and those of a GPU and a TPU made by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from traces import US, PlaneMaker, gpu_trace, new_space, tpu_trace, write

from dawnjax.capture.trace import trace_window
from dawnjax.profile.trace import (
    TraceError,
    collective_kind,
    find_trace,
    intersect,
    length,
    read_trace,
    subtract,
    union,
)


@pytest.mark.compiles
def test_a_real_trace_of_simulated_devices(tmp_path):
    mesh = Mesh(np.array(jax.devices()[:4]), ("data",))
    split = NamedSharding(mesh, PartitionSpec("data"))

    @jax.jit
    def step(matrices):
        return jnp.tanh(matrices @ matrices).sum()  # an all-reduce over the devices

    matrices = jax.device_put(jnp.ones((4, 256, 256)), split)
    step(matrices).block_until_ready()
    folder = tmp_path / "profile" / "process_00000" / "fresh"
    with trace_window(folder):
        for _ in range(3):
            step(matrices).block_until_ready()
    # Where TensorBoard and XProf look for the hosts of one run.
    (file,) = (tmp_path / "profile" / "plugins" / "profile" / "fresh").glob("*.xplane.pb")
    assert file == find_trace(folder) and file.name == "process_00000.xplane.pb"
    assert not list(folder.iterdir())
    read = read_trace(file).of_program("jit_step")
    assert read.platform == "cpu" and sorted(read.devices) == [0, 1, 2, 3]
    for events in read.devices.values():
        reduces = [event for event in events if event.kind]
        assert [event.kind for event in reduces] == ["all-reduce"] * 3
        assert len({event.run for event in events}) == 3
        assert any(event.op.startswith("dot") or "fusion" in event.op for event in events)
        assert all(event.end >= event.start for event in events)
        assert events == sorted(events)
    (window,) = [span for span in read.spans if span.name == "dawnjax.window"]
    assert all(window.start <= e.start for events in read.devices.values() for e in events)
    with pytest.raises(
        TraceError, match="of another program: it holds jit_step, and not jit_train"
    ):
        read.of_program("jit_train")


def test_a_gpu_s_kernels_and_streams(tmp_path):
    read = read_trace(gpu_trace(tmp_path))
    assert read.platform == "gpu" and sorted(read.devices) == [0, 1]
    events = read.of_program("jit_train").devices[0]
    assert [(e.op, e.kind, e.start // US, e.end // US) for e in events] == [
        ("gemm.1", "", 1, 101),  # the line begins 1 us after the trace
        ("add.1", "", 101, 141),
        ("all-reduce-start.1", "all-reduce", 101, 181),
    ]
    assert events[0].kernel.startswith("nvjet")
    assert [(s.name, s.start // US) for s in read.spans] == [
        ("dawnjax.window", 1),
        ("dawnjax.input", 181),
    ]


def test_a_tpu_s_ops_with_what_their_metadata_says(tmp_path):
    read = read_trace(tpu_trace(tmp_path)).of_program("jit_train")
    assert read.platform == "tpu"
    rows = [(e.op, e.kind, e.start // US, e.end // US, e.is_async) for e in read.devices[0]]
    assert rows == [
        ("fusion.1", "", 0, 40, False),
        ("all-reduce-start.2", "all-reduce", 40, 41, False),
        ("all-reduce-start.2", "all-reduce", 40, 90, True),
        ("fusion.2", "", 41, 60, False),
        ("all-reduce-done.2", "all-reduce", 60, 90, False),
    ]


def test_kernels_under_command_buffers_are_refused(tmp_path):
    space = new_space()
    plane = PlaneMaker(space, "/device:GPU:0")
    stream = plane.line("Stream #13(Compute)")
    plane.event(stream, "gemm", 0, 90)
    plane.event(stream, "loop_add_fusion", 90, 100, hlo_op="add.1", hlo_module="jit_train")
    with pytest.raises(TraceError, match="90% .* command buffers; profile with XLA_FLAGS"):
        read_trace(write(space, tmp_path))


def test_a_trace_in_which_nothing_ran_is_one_line(tmp_path):
    space = new_space()
    PlaneMaker(space, "/host:CPU").line("python")
    with pytest.raises(TraceError, match="nothing ran while it was taken"):
        read_trace(write(space, tmp_path))


def test_no_trace_in_a_folder_is_one_line(tmp_path):
    with pytest.raises(TraceError, match="no trace"):
        find_trace(tmp_path)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("all-reduce.12", "all-reduce"),
        ("all-gather-start.1", "all-gather"),
        ("reduce-scatter-done", "reduce-scatter"),
        ("ragged-all-to-all.3", "ragged-all-to-all"),
        ("reduce.3", ""),
        ("all-reducer_fusion", ""),
        ("copy-start", ""),
    ],
)
def test_collectives_are_known_by_name(name, kind):
    assert collective_kind(name) == kind


intervals = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda pair: (min(pair), max(pair)))
)


@given(intervals, intervals)
def test_intervals_are_sets_of_moments(first, second):
    def moments(spans):
        return {moment for start, end in spans for moment in range(start, end)}

    first_union, second_union = union(first), union(second)
    assert moments(first_union) == moments(first) and length(first_union) == len(moments(first))
    assert moments(subtract(first_union, second_union)) == moments(first) - moments(second)
    assert moments(intersect(first_union, second_union)) == moments(first) & moments(second)
    assert all(a[1] < b[0] for a, b in zip(first_union, first_union[1:], strict=False))
