"""The table of rules: where arrays lie, and that no mesh changes the mathematics."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from device_counts import first_losses
from flax import nnx
from jax.sharding import PartitionSpec as P
from networks import PLAIN, assert_close
from task_table import TABLE

from dawnjax.machine.mesh import batch_sharding, batch_shards, make_mesh, shardings_of
from dawnjax.machine.mesh_shape import AXES, MeshShape
from dawnjax.models.causal_attention import causal_attention
from dawnjax.models.configs.experts import Experts
from dawnjax.models.configs.llama import Llama
from dawnjax.models.sharding import RULES, axes_of, gathered, spec_of
from dawnjax.profile.hlo import analyze

SMALL = Llama(
    num_layers=2,
    width=32,
    num_heads=4,
    num_kv_heads=2,
    head_width=8,
    mlp_width=48,
    masks_documents=True,
    loss_chunk=8,
    initial_std=0.2,
)
EXPERTS = dataclasses.replace(
    SMALL,
    experts=Experts(count=4, chosen=2, activation="clipped_swiglu", balance=0.1),
    windows=(6, 0),
    has_biases=True,
    has_sinks=True,
)

RUN = (*TABLE["llama"].flags, "--data.num_train_tokens=8192")
"""16 steps of 16 rows of 32 tokens."""


def mesh_of(**axes):
    shape = MeshShape(**axes)
    size = int(np.prod([max(1, getattr(shape, axis)) for axis in AXES]))
    return make_mesh(shape, jax.devices()[:size])


def test_rules_name_axes_of_the_mesh():
    assert {axis for axes in RULES.values() for axis in axes} == set(AXES)


def test_an_array_lies_as_the_table_says():
    mesh = mesh_of(data=1, fsdp=2, model=2)
    assert spec_of(("layers", "embed", "heads"), (2, 128, 256), mesh) == P(None, "fsdp", "model")
    # Too small to be gathered at each use; `model` splits it all the same.
    assert spec_of(("layers", "embed", "heads"), (2, 8, 4), mesh) == P(None, None, "model")
    # A vocabulary that does not divide stays whole, and so does an axis of one device.
    assert spec_of(("vocab", "embed"), (257, 128), mesh) == P(None, "fsdp")
    assert spec_of(("batch", "tokens", None), (8, 6, 3), mesh) == P("fsdp", None, None)
    assert spec_of(("batch", "text", None), (8, 6, 3), mesh) == P("fsdp", "model", None)


def test_two_axes_of_an_array_along_one_axis_of_the_mesh_are_refused_by_name():
    # On one device too: a model is written for every mesh.
    with pytest.raises(ValueError, match="'heads' and 'mlp' both lie along mesh.model; name one"):
        spec_of(("layers", "heads", "mlp"), (2, 64, 64), mesh_of(data=1))


def test_an_optimizers_moments_lie_with_their_parameter():
    named = SMALL.logical_axes()
    assert axes_of("opt_state/1/0/mu/blocks/query", 3, named) == ("layers", "embed", "heads")
    assert axes_of("opt_state/1/0/count", 0, named) is None
    tree = {"opt_state": [{"mu": {"blocks": {"down": jnp.zeros((2, 256, 128))}}}]}
    [sharding] = jax.tree.leaves(shardings_of(mesh_of(data=2, model=2), tree, named))
    assert sharding.spec == P(None, "model", None)


def test_weights_cross_devices_rounded_and_their_gradient_is_not():
    mesh = mesh_of(data=1, fsdp=2)
    placed = {"compute_dtype": "bfloat16", "placement": batch_sharding(mesh, 0)}
    execution = dataclasses.replace(PLAIN, **placed)

    def loss(weights):
        return (gathered(weights, ("embed", "mlp"), execution, jnp.bfloat16) ** 2).sum()

    weights = jax.ShapeDtypeStruct((128, 256), jnp.float32)
    lines = jax.jit(jax.grad(loss)).lower(weights).as_text().splitlines()
    placed = [line for line in lines if "sharding_constraint" in line or "@Sharding" in line]
    # The rounded weights twice, split and whole, and the gradient.
    assert ["bf16>" in line for line in placed] == [True, True, False]


def step(config, mesh):
    """Compiled loss and gradients of 8 rows of 16 tokens on a mesh, and their arguments."""
    execution = dataclasses.replace(
        PLAIN,
        batch_shards=batch_shards(mesh),
        placement=batch_sharding(mesh, 0) if mesh.size > 1 else None,
    )

    def build(execution):
        sizes = {"vocabulary_size": 64, "sequence_length": 16, "separator": 0}
        return config.build(**sizes, execution=execution, rngs=nnx.Rngs(0))

    graph = nnx.split(nnx.eval_shape(lambda: build(execution)), nnx.Param)[0]
    params = nnx.to_pure_dict(nnx.state(build(execution), nnx.Param))
    tokens = np.random.default_rng(0).integers(0, 64, (8, 17)).astype(np.int32)
    tokens[:, 5] = 0

    def loss(params, tokens):
        module = nnx.merge(graph, nnx.State(params))
        losses, added, _ = module.losses(tokens[:, :-1], tokens[:, 1:])
        return losses.mean() + added

    shardings = shardings_of(mesh, params, config.logical_axes())
    jitted = jax.jit(
        jax.value_and_grad(loss),
        in_shardings=(shardings, batch_sharding(mesh, 0)),
        out_shardings=(None, shardings),
    )
    return jitted.lower(params, tokens).compile(), (
        jax.device_put(params, shardings),
        jax.device_put(tokens, batch_sharding(mesh, 0)),
    )


@pytest.fixture(scope="module")
def alone():
    """Loss and gradients of each network on one device."""
    results = {}
    for config in (SMALL, EXPERTS):
        program, arguments = step(config, mesh_of(data=1))
        results[config] = jax.device_get(program(*arguments))
    return results


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("config", "axes"),
    [
        (SMALL, {"data": 1, "fsdp": 2, "model": 2}),
        (SMALL, {"data": 1, "context": 2, "model": 2}),
        (EXPERTS, {"data": 1, "expert": 2, "model": 2}),
        pytest.param(EXPERTS, {"data": 1, "expert": 2, "context": 2}, marks=pytest.mark.long),
    ],
    ids=["fsdp_model", "context_model", "expert_model", "expert_context"],
)
def test_a_mesh_changes_no_loss_and_no_gradient(config, axes, alone):
    program, arguments = step(config, mesh_of(**axes))
    loss, gradients = jax.device_get(program(*arguments))
    wanted, wanted_gradients = alone[config]
    assert float(loss) == pytest.approx(float(wanted), abs=2e-6)
    largest = max(np.abs(leaf).max() for leaf in jax.tree.leaves(wanted_gradients))
    # Sums in another order: float32 rounds at 1e-7 of the largest, over some hundred terms.
    assert_close(gradients, wanted_gradients, atol=1e-5 * largest)


@pytest.mark.compiles
@pytest.mark.parametrize("window", [0, 5])
def test_a_ring_is_the_attention_of_one_device(window):
    """With documents, sinks and shared keys, on four devices: results and all gradients."""
    draw = np.random.default_rng(0)
    query = draw.normal(size=(2, 16, 4, 8)).astype(np.float32)
    key, value = draw.normal(size=(2, 2, 16, 2, 8)).astype(np.float32)
    sinks, weights = draw.normal(size=4).astype(np.float32), draw.normal(size=query.shape)
    documents = jnp.asarray(np.cumsum(draw.random((2, 16)) < 0.2, axis=1), np.int32)
    mesh = mesh_of(data=1, context=4)
    ring = dataclasses.replace(PLAIN, placement=batch_sharding(mesh, 0), context_keys="ring")

    def loss(arrays, execution):
        *seen, sinks = arrays
        query, key, value = seen
        mixed = causal_attention(query, key, value, documents, window, execution, sinks)
        return (mixed * weights).sum()

    arrays = (query, key, value, sinks)
    results = {}
    for execution in (PLAIN, ring):
        step = (
            jax.jit(jax.value_and_grad(lambda a, e=execution: loss(a, e))).lower(arrays).compile()
        )
        results[execution] = step(arrays)
    assert_close(results[ring], results[PLAIN], rtol=1e-5, atol=2e-5)
    counted = analyze(step.as_text() or "").collectives.values()
    # Keys and values are passed on three times, which XLA shares between the passes of one program;
    # their gradients three times, and then home. No device gathers them.
    kinds = [c.kind for c in counted if c.num_bytes >= 2 * 4 * 2 * 8 * 4]
    assert set(kinds) <= {"collective-permute", "all-reduce"}
    assert kinds.count("collective-permute") == 3 * 2 + 4 * 2


EXPERTS_FLAGS = (
    *("--model.experts.count=4", "--model.experts.chosen=2", "--model.experts.balance=0.1"),
)


@pytest.mark.long
@pytest.mark.processes
@pytest.mark.parametrize(
    ("more", "meshes"),
    [
        ((), ("--mesh.fsdp=2 --mesh.model=2", "--mesh.context=4 --context_keys=ring")),
        ((), ("--mesh.context=2",)),
        (EXPERTS_FLAGS, ("--mesh.expert=2",)),
    ],
    ids=["dense", "context", "experts"],
)
def test_ten_losses_of_a_run_are_the_same_on_any_mesh_of_eight_devices(more, meshes):
    cases = {mesh: (8, *RUN, *more, *mesh.split()) for mesh in meshes}
    found = first_losses({"alone": (1, *RUN, *more)} | cases, 10)
    for name, losses in found.items():
        assert losses[-1] < losses[0] - 0.1
        np.testing.assert_allclose(losses, found["alone"], atol=1e-5, err_msg=name)


@pytest.mark.compiles
def test_a_block_has_the_collectives_that_the_rules_imply():
    """Each half of a block gathers the text and sums its products, in both passes."""
    program, _ = step(SMALL, mesh_of(data=1, model=2))
    counted = analyze(program.as_text() or "").collectives.values()
    text = 8 * 16 * 32 * 4  # rows, tokens, width, bytes
    in_blocks = [c for c in counted if c.runs == 2 and c.num_bytes >= text // 2]
    kinds = sorted((c.kind, c.num_bytes) for c in in_blocks)
    gathers = [num_bytes for kind, num_bytes in kinds if kind == "all-gather"]
    assert gathers == [text] * 4
    # A CPU has no scatter of sums, and joins those that are ready together: of outputs and MLPs
    # forward, of queries, keys, values and of both halves of the MLP backward. There are two chunks
    # of the loss too, and the logits of each are split by the vocabulary.
    sums = [num_bytes for kind, num_bytes in kinds if kind == "all-reduce"]
    assert sum(sums) == 7 * text + text // 2
    assert {kind for kind, _ in kinds} == {"all-gather", "all-reduce"}
    # The lookup's sum, with its gather backward, and the gather before the output layer: neither
    # the table nor the logits cross devices.
    once = sorted((c.kind, c.num_bytes) for c in counted if c.runs == 1 and c.num_bytes > 1024)
    assert once == [("all-gather", text), ("all-gather", text), ("all-reduce", text)]
    assert {c.kind for c in counted} == {"all-gather", "all-reduce"}
