"""Tests of the loss in parts: that it is the loss as a whole, and holds no more than it says."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from dawnjax.models import cross_entropy
from dawnjax.models.arithmetic import Arithmetic
from dawnjax.models.cross_entropy import logits_of, sums_in_parts, token_losses

BATCH, LENGTH, WIDTH, VOCABULARY = 8, 6, 16, 40
FLOAT32, BFLOAT16 = jnp.dtype("float32"), jnp.dtype("bfloat16")
SMOOTHING = 0.1


def tokens() -> tuple[jax.Array, ...]:
    """Gives hidden, embedding, targets and which of them are real."""
    random = np.random.default_rng(0)
    hidden = random.normal(size=(BATCH, LENGTH, WIDTH))
    embedding = random.normal(size=(VOCABULARY, WIDTH)) / 4
    targets = random.integers(0, VOCABULARY, (BATCH, LENGTH))
    real = random.random((BATCH, LENGTH)) < 0.8
    arrays = (hidden, embedding, targets.astype(np.int32), real)
    return tuple(jnp.asarray(a, jnp.float32 if a.dtype == float else a.dtype) for a in arrays)


def mean_loss(hidden, embedding, targets, real, *, arithmetic, shards=None):
    """The loss of a real token, by parts where the number of shards is given."""
    if shards is None:
        losses = token_losses(logits_of(hidden, embedding, arithmetic), targets, SMOOTHING)
        loss = jnp.where(real, losses, 0.0).sum()
    else:
        loss = sums_in_parts(hidden, embedding, targets, real, SMOOTHING, arithmetic, shards)
    return loss / real.sum()


@pytest.fixture
def parts_of_two(monkeypatch):
    """Two examples of a shard make a part."""
    monkeypatch.setattr(cross_entropy, "PART_BYTES", 2 * LENGTH * VOCABULARY * 4)


@pytest.mark.parametrize(
    ("arithmetic", "tolerance"),
    [
        (Arithmetic(FLOAT32, FLOAT32), 1e-6),
        (Arithmetic(BFLOAT16, BFLOAT16), 2e-2),
        (Arithmetic(FLOAT32, BFLOAT16, transposed_copies=True), 1e-2),
    ],
)
def test_in_parts_it_is_the_same_loss(parts_of_two, arithmetic, tolerance):
    hidden, embedding, targets, real = tokens()
    hidden = hidden.astype(arithmetic.activations)
    results = []
    for shards in (None, 1):
        loss = functools.partial(mean_loss, arithmetic=arithmetic, shards=shards)
        value = jax.jit(loss)(hidden, embedding, targets, real)
        again, gradients = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))(
            hidden, embedding, targets, real
        )
        assert float(value) == pytest.approx(float(again), rel=1e-6)
        results.append((value, *gradients))
    whole, parts = results
    for one, other in zip(whole, parts, strict=True):
        assert one.dtype == other.dtype
        one, other = (np.asarray(a, np.float32) for a in (one, other))
        np.testing.assert_allclose(other, one, rtol=0, atol=tolerance * abs(one).max())
    assert not np.asarray(parts[1])[~np.asarray(real)].any()  # padding has no gradient


def test_devices_add_up_their_own_parts_and_reduce_once(parts_of_two):
    hidden, embedding, targets, real = tokens()
    arithmetic = Arithmetic(FLOAT32, FLOAT32)
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    rows, whole = (NamedSharding(mesh, spec) for spec in (PartitionSpec("data"), PartitionSpec()))
    loss = functools.partial(mean_loss, arithmetic=arithmetic, shards=2)
    compiled = (
        jax.jit(
            jax.grad(loss, argnums=(0, 1)),
            in_shardings=(rows, whole, rows, rows),
            out_shardings=(rows, whole),
        )
        .lower(hidden, embedding, targets, real)
        .compile()
    )
    expected = jax.grad(functools.partial(mean_loss, arithmetic=arithmetic), argnums=(0, 1))(
        hidden, embedding, targets, real
    )
    arrays = jax.device_put((hidden, embedding, targets, real), (rows, whole, rows, rows))
    for made, wanted in zip(compiled(*arrays), expected, strict=True):
        np.testing.assert_allclose(made, wanted, atol=1e-6)
    text = compiled.as_text() or ""
    # None of what is done for a part speaks to the other device.
    for name, body in re.findall(r"^%?(\S+) [^\n]*\{\n(.*?)^\}", text, re.M | re.S):
        if not name.startswith("main") and "ENTRY" not in name:
            assert "all-reduce" not in body and "all-gather" not in body, name
    assert re.search(rf"f32\[\S*{VOCABULARY},{WIDTH}\]\S* all-reduce", text)


def test_no_array_holds_all_logits(parts_of_two):
    arguments = tokens()
    for shards, held in ((None, True), (1, False)):
        loss = functools.partial(mean_loss, arithmetic=Arithmetic(FLOAT32, FLOAT32), shards=shards)
        text = jax.jit(jax.grad(loss)).lower(*arguments).compile().as_text() or ""
        sizes = re.findall(r"f32\[([\d,]+)\]", text)
        largest = max(np.prod([int(size) for size in shape.split(",")]) for shape in sizes)
        assert (largest >= BATCH * LENGTH * VOCABULARY) == held
