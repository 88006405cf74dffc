"""Attention as one call is attention by products, on any number of devices."""

import dataclasses
import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from networks import PLAIN, assert_close

from dawnjax.machine.mesh import batch_sharding, batch_shards, make_mesh
from dawnjax.machine.mesh_shape import MeshShape
from dawnjax.models.causal_attention import causal_attention
from dawnjax.models.configs.transformer import Transformer
from dawnjax.models.fused_attention import say_products

pytestmark = pytest.mark.compiles

MESHES = [
    MeshShape(data=1),
    MeshShape(data=2, fsdp=2),
    MeshShape(data=2, model=2),
]


def placed(shape):
    """An execution with attention as one call on a mesh, and the placement of its rows."""
    size = shape.data * shape.fsdp * shape.model
    mesh = make_mesh(shape, jax.devices()[:size])
    rows = batch_sharding(mesh, 0)
    placed = {"batch_shards": batch_shards(mesh), "placement": rows, "attention": "fused"}
    return dataclasses.replace(PLAIN, **placed), rows


def as_products(execution):
    return dataclasses.replace(execution, attention="products")


def assert_same(fused, products, atol):
    assert all(np.isfinite(wanted).all() for wanted in jax.tree.leaves(products))
    # A sum of some hundreds rounds otherwise where devices have parts of the heads.
    assert_close(fused, products, atol=atol, rtol=1e-6)


@pytest.mark.parametrize(
    ("shape", "window", "has_documents"),
    [(MESHES[0], 0, False), *((shape, 5, True) for shape in MESHES)],
)
def test_causal_attention_as_one_call_is_that_of_products(shape, window, has_documents):
    execution, rows = placed(shape)
    random = np.random.default_rng(0)
    arrays = jax.device_put(
        [random.normal(size=(4, 16, 2, 8)).astype(np.float32) for _ in range(3)], rows
    )
    starts = random.random((4, 16)) < 0.2
    documents = jax.device_put(np.cumsum(starts, 1), rows) if has_documents else None

    def of(execution):
        def attended(query, key, value):
            mixed = causal_attention(query, key, value, documents, window, execution)
            return jnp.square(mixed).sum(), mixed

        program = jax.jit(jax.value_and_grad(attended, (0, 1, 2), has_aux=True))
        return program.lower(*arrays).compile()

    # Sums of at most 16 float32 products in another order.
    fused = of(execution)
    assert_same(fused(*arrays), of(as_products(execution))(*arrays), atol=2e-5)
    program = fused.as_text() or ""
    assert "all-gather" not in program and "all-to-all" not in program


@pytest.mark.parametrize("shape", [MESHES[0], MESHES[-1]])
def test_a_transformer_of_packed_rows_has_the_loss_and_gradients_of_products(shape):
    execution, rows = placed(shape)
    config = Transformer(num_layers=1, width=16, hidden_width=16, num_heads=2, dropout_rate=0.0)
    random = np.random.default_rng(1)
    tokens = jax.device_put(random.integers(3, 20, (4, 8)).astype(np.int32), rows)
    packed = [[1, 1, 1, 2, 2, 2, 0, 0], [1] * 8, [1, 1, 2, 2, 3, 3, 4, 4], [1, 2, 3, 4, 5, 6, 7, 0]]
    segments = jax.device_put(np.array(packed, np.int32), rows)

    def of(execution):
        graph, params = nnx.split(
            config.build(vocabulary_size=20, execution=execution, rngs=nnx.Rngs(0))
        )

        def loss(params):
            module = nnx.merge(graph, params)
            hidden = module(tokens, segments, tokens, segments)
            return module.loss_and_count(hidden, tokens, segments > 0, 0.1)[0]

        return jax.jit(jax.value_and_grad(loss))(params)

    # Padding is left out: a row of it sees nothing, and each way gives it other weights. The
    # gradients are sums over 28 tokens, and reach 10.
    assert_same(of(execution), of(as_products(execution)), atol=1e-4)


def test_inside_of_a_program_for_each_device_its_rows_are_a_batch():
    execution, rows = placed(MeshShape(data=4))
    arrays = jax.random.normal(jax.random.key(0), (3, 4, 6, 2, 8))

    def on_each(arrays):
        query, key, value = arrays
        return causal_attention(query, key, value, None, 0, execution)

    spec = jax.sharding.PartitionSpec(None, *rows.spec)
    local = jax.shard_map(
        on_each, mesh=rows.mesh, in_specs=spec, out_specs=rows.spec, check_vma=False
    )
    query, key, value = arrays
    wanted = causal_attention(query, key, value, None, 0, as_products(execution))
    np.testing.assert_allclose(jax.jit(local)(arrays), wanted, atol=2e-6)


@pytest.mark.parametrize(
    ("platform", "dtype", "shape", "why"),
    [
        ("gpu", "float32", (4, 16, 2, 8), "it is float32"),
        ("gpu", "bfloat16", (3, 16, 2, 8), "3 examples do not divide among 2 devices"),
        ("gpu", "bfloat16", (4, 16, 2, 12), "not 12"),
        ("gpu", "bfloat16", (4, 15, 2, 8), "even lengths, not 15 by 15"),
    ],
)
def test_what_cudnn_does_not_take_is_products_and_said_once(platform, dtype, shape, why, caplog):
    execution, _ = placed(MeshShape(data=2))
    execution = dataclasses.replace(execution, platform=platform)
    say_products.cache_clear()
    query = jnp.ones(shape, dtype)
    with caplog.at_level(logging.WARNING):
        mixed, _ = (causal_attention(query, query, query, None, 0, execution) for _ in range(2))
    np.testing.assert_allclose(mixed, 1.0, rtol=1e-2)
    assert len(caplog.records) == 1 and why in caplog.text
