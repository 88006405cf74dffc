"""Tests of the loss in parts: that it is the loss as a whole, and holds no more than it says."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from dawnjax.models import cross_entropy
from dawnjax.models.arithmetic import Arithmetic
from dawnjax.models.cross_entropy import (
    Tokens,
    loss_and_count,
    loss_and_count_in_parts,
    token_losses,
)

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


def mean_loss(arithmetic, shards=None):
    """The loss of a real token as a function, by parts where the number of shards is given."""

    def loss(hidden, embedding, targets, real):
        arguments = (Tokens(hidden, targets, real), embedding, SMOOTHING)
        if shards is None:
            sums = loss_and_count(*arguments, arithmetic)
        else:
            among = dataclasses.replace(arithmetic, batch_shards=shards)
            sums = loss_and_count_in_parts(*arguments, among)
        total, count = jnp.asarray(sums)
        return total / count

    return loss


def test_a_gpus_one_reduction_gives_the_same_losses_and_gradients():
    random = np.random.default_rng(1)
    # Rows far from zero, and one whose other tokens do not count at all.
    logits = random.normal(size=(4, 50)) * 4 + np.array([[0.0], [300.0], [-300.0], [0.0]])
    logits[3, 1:] -= 500
    logits, targets = jnp.asarray(logits, jnp.float32), jnp.array([3, 0, 49, 0])

    def summed(platform):
        def total(logits):
            losses: jax.Array = token_losses(logits, targets, SMOOTHING, platform)
            return (losses * jnp.arange(1.0, 5.0)).sum(), losses

        (_, losses), gradient = jax.value_and_grad(total, has_aux=True)(logits)
        return losses, gradient

    for ours, plain in zip(summed("gpu"), summed("cpu"), strict=True):
        assert np.isfinite(plain).all()
        np.testing.assert_allclose(ours, plain, rtol=2e-6, atol=2e-6)


@pytest.fixture
def parts_of_two(monkeypatch):
    """Two examples of a shard make a part."""
    monkeypatch.setattr(cross_entropy, "PART_BYTES", 2 * LENGTH * VOCABULARY * 4)


def test_the_loss_is_the_sum_over_real_tokens_and_the_count_is_theirs():
    hidden, embedding, targets, real = tokens()
    made = loss_and_count(
        Tokens(hidden, targets, real), embedding, SMOOTHING, Arithmetic(FLOAT32, FLOAT32, "cpu")
    )
    logits = np.asarray(hidden, np.float64) @ np.asarray(embedding, np.float64).T
    log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    wanted = np.full((VOCABULARY,), SMOOTHING / VOCABULARY)
    loss = 0.0
    for row, position in np.argwhere(np.asarray(real)):
        wanted_here = wanted.copy()
        wanted_here[targets[row, position]] += 1 - SMOOTHING
        loss -= (wanted_here * log_probabilities[row, position]).sum()
    np.testing.assert_allclose(made, [loss, np.asarray(real).sum()], rtol=1e-5)


@pytest.mark.parametrize(
    ("arithmetic", "tolerance"),
    [
        (Arithmetic(FLOAT32, FLOAT32, "cpu"), 1e-6),
        (Arithmetic(FLOAT32, FLOAT32, "gpu"), 1e-6),
        (Arithmetic(BFLOAT16, BFLOAT16, "cpu"), 2e-2),
        (Arithmetic(FLOAT32, BFLOAT16, "cpu", transposed_copies=True), 1e-2),
    ],
)
def test_in_parts_it_is_the_same_loss(parts_of_two, arithmetic, tolerance):
    hidden, *others = tokens()
    arrays = (hidden.astype(arithmetic.activations), *others)
    results = []
    for shards in (None, 1):
        loss = mean_loss(arithmetic, shards)
        value = jax.jit(loss)(*arrays)
        again, gradients = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))(*arrays)
        assert float(value) == pytest.approx(float(again), rel=1e-6)
        results.append((value, *gradients))
    whole, parts = results
    for one, other in zip(whole, parts, strict=True):
        assert one.dtype == other.dtype
        one, other = (np.asarray(a, np.float32) for a in (one, other))
        np.testing.assert_allclose(other, one, rtol=0, atol=tolerance * abs(one).max())
    real = np.asarray(arrays[3])
    assert not np.asarray(parts[1])[~real].any()  # padding has no gradient


@pytest.mark.parametrize("differentiated", [True, False])
def test_devices_add_up_their_own_parts_and_reduce_once(parts_of_two, differentiated):
    arrays = tokens()
    arithmetic = Arithmetic(FLOAT32, FLOAT32, "cpu")
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    rows, whole = (NamedSharding(mesh, spec) for spec in (PartitionSpec("data"), PartitionSpec()))

    def made_of(shards):
        loss = mean_loss(arithmetic, shards)
        return jax.grad(loss, argnums=(0, 1)) if differentiated else loss

    shardings = (rows, whole, rows, rows)
    made = jax.jit(
        made_of(2),
        in_shardings=shardings,
        out_shardings=(rows, whole) if differentiated else whole,
    )
    compiled = made.lower(*arrays).compile()
    results = compiled(*jax.device_put(arrays, shardings))
    for result, wanted in zip(
        jax.tree.leaves(results), jax.tree.leaves(made_of(None)(*arrays)), strict=True
    ):
        np.testing.assert_allclose(result, wanted, atol=1e-6)
    text = compiled.as_text() or ""
    # None of what is done for a part speaks to the other device.
    bodies = dict(re.findall(r"^%?(\S+) [^\n]*\{\n(.*?)^\}", text, re.M | re.S))
    assert "all-reduce" in bodies.pop("ENTRY") and bodies
    for name, body in bodies.items():
        assert "all-reduce" not in body and "all-gather" not in body, name
    reduced = f"{VOCABULARY},{WIDTH}" if differentiated else "2"
    assert re.search(rf"f32\[(\d+,)?{reduced}\]\S* all-reduce", text)


@pytest.mark.parametrize("differentiated", [True, False])
def test_no_array_holds_all_logits(parts_of_two, differentiated):
    arrays = tokens()
    for shards, held in ((None, True), (1, False)):
        loss = mean_loss(Arithmetic(FLOAT32, FLOAT32, "cpu"), shards)
        function = jax.grad(loss) if differentiated else loss
        text = jax.jit(function).lower(*arrays).compile().as_text() or ""
        sizes = re.findall(r"f32\[([\d,]+)\]", text)
        largest = max(np.prod([int(size) for size in shape.split(",")]) for shape in sizes)
        assert (largest >= BATCH * LENGTH * VOCABULARY) == held
