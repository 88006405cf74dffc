"""Tests of the cross entropy of tokens."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dawnjax.models.cross_entropy import token_losses
from dawnjax.tasks.classification import smoothed_cross_entropy

pytestmark = pytest.mark.compiles


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("platform", ["cpu", "gpu", "images"])
def test_an_offset_that_all_logits_share_changes_no_loss_and_no_gradient(platform, smoothing):
    eighths = np.random.default_rng(2).integers(-40, 40, (3, 50)) / 8
    targets, weights = jnp.array([3, 0, 49]), np.array([1.0, 3.0, 0.5])

    def losses(logits) -> jax.Array:
        if platform == "images":
            return smoothed_cross_entropy(logits, targets, smoothing)
        return jnp.asarray(token_losses(logits, targets, smoothing, platform))

    def measured(offset):
        logits = jnp.asarray(eighths + offset, jnp.float32)
        return losses(logits), jax.grad(lambda logits: (losses(logits) * weights).sum())(logits)

    shifted = eighths - eighths.max(1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    wanted = np.full((3, 50), smoothing / 50)
    wanted[np.arange(3), targets] += 1 - smoothing
    for offset in (0.0, 2.0**18, -(2.0**18)):  # sums are exact: float32 has 24 bits
        given = measured(offset)
        np.testing.assert_allclose(given[0], -(wanted * log_softmax).sum(1), rtol=1e-5)
        np.testing.assert_allclose(
            given[1], (np.exp(log_softmax) - wanted) * weights[:, None], atol=3e-6
        )
    # All logits are equal in float32, so that nothing is known of the target.
    np.testing.assert_allclose(measured(1e12)[0], np.log(50), rtol=1e-5)
