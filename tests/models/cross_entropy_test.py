"""Tests of the cross entropy of tokens."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dawnjax.models.configs.transformer import Transformer
from dawnjax.models.cross_entropy import token_losses
from dawnjax.models.execution import Execution
from dawnjax.tasks.classification import smoothed_cross_entropy

pytestmark = pytest.mark.compiles

BATCH, LENGTH, WIDTH, VOCABULARY = 8, 6, 16, 40
SMOOTHING = 0.1


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


@pytest.mark.parametrize("smoothing", [0.0, SMOOTHING])
@pytest.mark.parametrize("platform", ["cpu", "gpu", "images"])
def test_an_offset_that_all_logits_share_changes_no_loss_and_no_gradient(platform, smoothing):
    eighths = np.random.default_rng(2).integers(-40, 40, (3, 50)) / 8
    targets = jnp.array([3, 0, 49])

    def losses(logits) -> jax.Array:
        if platform == "images":
            return smoothed_cross_entropy(logits, targets, smoothing)
        return jnp.asarray(token_losses(logits, targets, smoothing, platform))

    def measured(offset):
        logits = jnp.asarray(eighths + offset, jnp.float32)
        return losses(logits), jax.grad(lambda logits: losses(logits).sum())(logits)

    shifted = eighths - eighths.max(1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    wanted = np.full((3, 50), smoothing / 50)
    wanted[np.arange(3), targets] += 1 - smoothing
    for offset in (0.0, 2.0**18, -(2.0**18)):  # sums are exact: float32 has 24 bits
        given = measured(offset)
        np.testing.assert_allclose(given[0], -(wanted * log_softmax).sum(1), rtol=1e-5)
        np.testing.assert_allclose(given[1], np.exp(log_softmax) - wanted, atol=1e-6)
    # All logits are equal in float32, so that nothing is known of the target.
    np.testing.assert_allclose(measured(1e12)[0], np.log(50), rtol=1e-5)


def test_the_loss_is_the_sum_over_real_tokens_and_the_count_is_theirs():
    random = np.random.default_rng(0)
    hidden = random.normal(size=(BATCH, LENGTH, WIDTH))
    embedding = random.normal(size=(VOCABULARY, WIDTH)) / 4
    targets = random.integers(0, VOCABULARY, (BATCH, LENGTH))
    real = random.random((BATCH, LENGTH)) < 0.8
    execution = Execution(platform="cpu", compute_dtype="float32", batch_norm_group_size=0)
    module = Transformer(num_layers=1, width=WIDTH, num_heads=2).build(
        vocabulary_size=VOCABULARY, execution=execution, rngs=nnx.Rngs(0)
    )
    module.embedding.set_value(jnp.asarray(embedding, jnp.float32))
    made = module.loss_and_count(
        jnp.asarray(hidden, jnp.float32), jnp.asarray(targets), jnp.asarray(real), SMOOTHING
    )
    logits = hidden @ embedding.T
    log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    loss = 0.0
    for row, position in np.argwhere(real):
        wanted = np.full((VOCABULARY,), SMOOTHING / VOCABULARY)
        wanted[targets[row, position]] += 1 - SMOOTHING
        loss -= (wanted * log_probabilities[row, position]).sum()
    np.testing.assert_allclose(made, [loss, real.sum()], rtol=1e-5)
