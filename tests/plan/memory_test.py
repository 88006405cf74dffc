"""Memory of compiled programs: what `plan --memory` says, the largest batch, a user's function."""

import functools
from pathlib import Path

import jax
import jax.export
import jax.numpy as jnp
import pytest
from told import told

from dawnjax import plan
from dawnjax.__main__ import main
from dawnjax.errors import ConfigError, RunError
from dawnjax.plan.compiling import compiled, compilers
from dawnjax.plan.compiling.limits import lacks_code, needs_larger_share
from dawnjax.plan.compiling.memory import Memory, ProgramMemory, largest_batch
from dawnjax.plan.hardware.systems import parse_system

H100 = parse_system("h100:8").accelerator.device.memory_bytes
STATE, EXAMPLE = 10**10, 10**8


def needs(num_bytes: float, system: str = "h100:8") -> Memory:
    program = ProgramMemory(
        num_bytes=int(num_bytes), argument_bytes=STATE, recomputed=0, buffers=()
    )
    limit = parse_system(system).accelerator.device.memory_bytes
    return Memory(system=system, programs={"train step": program}, data_bytes=0, limit_bytes=limit)


@pytest.mark.parametrize(
    ("system", "share", "fits"),
    [
        ("h100:8", 0.94, "yes"),
        ("h100:8", 0.96, "close"),  # the driver takes some
        ("v5p:8", 0.90, "close"),  # code and kernels took up to 1.13 times as much
        ("v5p:8", 1.01, "no"),
    ],
)
def test_what_xla_does_not_count_is_left_free(system, share, fits):
    device = parse_system(system).accelerator.device
    size = int(share * device.memory_bytes)
    assert needs(size, system).fits == fits
    assert bool(lacks_code(size, device)) == (fits == "close" and device.platform == "tpu")
    assert bool(needs_larger_share(size, device)) == (fits != "no" and device.platform == "gpu")


def affine(batch: int) -> Memory:
    return needs(STATE + EXAMPLE * batch)


LARGEST = int((0.95 * H100 - STATE) / EXAMPLE) // 8 * 8


@pytest.mark.parametrize("start", [8, 512, 10**6])
def test_two_batches_give_a_line_and_a_third_checks_it(start):
    tried = []

    @functools.cache
    def compile(batch):
        tried.append(batch)
        return affine(batch)

    found = largest_batch(compile, start, 8, 2 * 10**6)
    assert found is not None and found.batch == LARGEST and found.fits
    assert found.num_bytes == found.line_bytes == STATE + EXAMPLE * LARGEST
    low, high = found.points
    assert len(tried) <= 3 or start > LARGEST and low < high <= LARGEST
    assert str(found) == (
        f"largest batch: about {LARGEST:,}, which needs 80.4 GB, where the line through batches "
        f"{low:,} and {high:,} says 80.4 GB"
    )


@pytest.mark.parametrize(
    ("compile", "says"),
    [
        (
            lambda batch: needs(STATE + EXAMPLE * (batch + 3 * max(0, batch - 128))),
            f"largest compiled batch that fits: 128; {LARGEST} needs 253 GB",
        ),
        (
            lambda batch: affine(batch) if batch <= 300 else None,
            f"largest compiled batch that fits: 128; {LARGEST} does not fit",
        ),
        (
            lambda batch: needs(STATE + EXAMPLE * (min(batch, 128) + max(0, batch - 128) / 2)),
            f"largest batch: about {LARGEST}, which needs 51.6 GB",
        ),
    ],
    ids=["more", "refused", "less"],
)
def test_memory_that_does_not_grow_evenly_is_said_to(compile, says):
    found = largest_batch(compile, 128, 8, 10**6)
    assert str(found).startswith(f"{says}, where the line through batches 64 and 128 says 80.4 GB")


def test_no_batch_fits_and_all_examples_fit():
    assert largest_batch(lambda batch: needs(2 * H100), 64, 8, 1000) is None
    found = largest_batch(affine, 64, 8, 100)
    assert str(found) == "even a batch of all training examples fits: 96"
    # One batch has no line: twice as many are tried.
    found = largest_batch(affine, 8, 8, 10**6)
    assert found is not None and found.points == (8, 16) and found.batch == LARGEST


@pytest.fixture
def answers(monkeypatch):
    """A compiler whose programs need as much for each example, and refuse more than 512."""
    asked = []

    def answer(request, system, watch):
        asked.append(request)
        batch = int(request["argv"][-1].partition("=")[2])
        if batch > 512:
            raise RunError("does not fit: a device needs 99 GB and has 80 GB")
        program = {
            "num_bytes": STATE + EXAMPLE * batch,
            "argument_bytes": STATE,
            "recomputed": 3 if batch == 512 else 0,
            "buffers": [["dense/dot_general", "f32[64,10]", 2560]],
        }
        return {"programs": {"train step": program}, "data_bytes": 10**9}

    monkeypatch.setattr(compiled, "answer_of_compiler", answer)
    return asked


@pytest.mark.compiles
def test_the_command_says_what_fits_and_what_fills_it(answers, capsys):
    command = ["plan", "digits", "--memory", "--on=h100:8,k80:1", "--batches=64,512,768"]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:5] == ["h100:8", "64", "yes", "17.4", "GB"]
    assert "dense/dot_general" in "\n".join(lines)
    assert "h100:8 batch 512: to fit, XLA recomputes 3 kernels of train step" in "\n".join(lines)
    assert any(line.startswith("h100:8 batch 768: does not fit: ") for line in lines)
    assert any(line.startswith("k80:1: ") for line in lines)
    [row] = told(capsys, *command[:3], "--on=h100:8")["rows"]
    assert row["fits"] == "yes" and row["memory"]["num_bytes"] == STATE + 64 * EXAMPLE + 10**9
    # BatchNorm groups of 16 on 8 devices; the line says 640, which the compiler refuses.
    assert row["largest"]["points"] == [128, 256] and not row["largest"]["fits"]


def test_a_users_function_is_exported_with_its_donation(monkeypatch):
    """Nodes of the user's own are flattened; the function computes the same."""
    seen = {}

    def answer(request, system, watch):
        seen.update(request, function=jax.export.deserialize(
            bytearray(Path(request["exported"]).read_bytes())
        ))  # fmt: skip
        return {"programs": {"function": {"num_bytes": 10**9, "argument_bytes": 10**8,
                "recomputed": 0, "buffers": []}}, "data_bytes": 0}  # fmt: skip

    pytest.importorskip("flatbuffers", reason="needs the extra plan")
    monkeypatch.setattr(compiled, "answer_of_compiler", answer)

    @jax.tree_util.register_pytree_node_class
    class State:
        def __init__(self, weights):
            self.weights = weights

        def tree_flatten(self):
            return (self.weights,), None

        @classmethod
        def tree_unflatten(cls, _, leaves):
            return cls(*leaves)

    def step(state, x):
        return State(state.weights - 0.1 * x.T @ (x @ state.weights))

    shapes = State(jnp.ones((8, 4))), jax.ShapeDtypeStruct((16, 8), jnp.float32)
    found = plan.memory(jax.jit(step, donate_argnums=0), *shapes, on="h100:8")
    assert found.fits == "yes" and found.num_bytes == 10**9 and "function" in str(found)
    assert seen["donated"] == [True, False] and seen["function"].platforms == ("cuda",)
    assert plan.memory(step, *shapes, on="v5e:8").limit_bytes < H100
    assert seen["donated"] == [False, False] and seen["function"].platforms == ("tpu",)


def test_a_function_for_other_devices_is_refused(monkeypatch):
    mesh = jax.sharding.AbstractMesh((4,), ("data",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    x = jax.ShapeDtypeStruct((16, 8), jnp.float32, sharding=rows)
    with pytest.raises(ConfigError, match="is for 4 devices, and h100:8 has 8"):
        plan.memory(jnp.sum, x, on="h100:8")


@pytest.mark.processes
@pytest.mark.parametrize("system", ["v5e:8", "h100:8"])
def test_a_function_is_compiled_for_devices_that_are_not_here(system):
    """A step of one product of 32 rows a device, whose weights are donated."""
    try:
        compilers.environment(parse_system(system).accelerator.device.platform)
    except RunError as error:
        pytest.skip(str(error))
    mesh = jax.sharding.AbstractMesh((8,), ("data",))
    rows, whole = (
        jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))
        for axes in (("data",), ())
    )
    weights = {"dense": jax.ShapeDtypeStruct((512, 1024), jnp.float32, sharding=whole)}
    inputs = jax.ShapeDtypeStruct((256, 512), jnp.float32, sharding=rows)

    def step(weights, inputs):
        gradient = jax.grad(lambda w: jnp.square(inputs @ w["dense"]).sum())(weights)
        return jax.tree.map(lambda w, g: w - g, weights, gradient)

    found = plan.memory(jax.jit(step, donate_argnums=0), weights, inputs, on=system)
    program, size = found.programs["function"], 4 * 512 * 1024
    assert program.argument_bytes == size + 4 * 32 * 512
    # The gradient lies beside the weights, for XLA of jax 0.12 once more before it is summed.
    assert 2 * size < program.num_bytes < 3.1 * size
    named = {buffer.name: buffer for buffer in program.buffers}
    assert named["[0]['dense']"].num_bytes == size and "f32[512,1024]" in str(found)
