"""Image classification: the loss that is trained and the counts that an evaluation sums."""

import jax
import jax.numpy as jnp

EvaluationTotals = dict[str, jax.Array]


def smoothed_cross_entropy(
    logits: jax.Array, labels: jax.Array, label_smoothing: float
) -> jax.Array:
    """Gives each example's cross entropy against smoothed one-hot labels.

    Args:
      logits: float32 [batch, classes].
      labels: int32 [batch].
      label_smoothing: The probability that is spread evenly over all classes, the true one too.

    Returns:
      float32 [batch], in nats.

    Source: Szegedy et al. 2016 (arXiv 1512.00567), section 7.
    """
    log_probabilities = jax.nn.log_softmax(logits)
    picked = jnp.take_along_axis(log_probabilities, labels[:, None], axis=1)[:, 0]
    if label_smoothing == 0:
        return -picked
    return -(1 - label_smoothing) * picked - label_smoothing * log_probabilities.mean(axis=1)


def zero_totals() -> EvaluationTotals:
    """Gives the totals of no examples."""
    counts = {name: jnp.zeros((), jnp.int32) for name in ("examples", "top_1", "top_5")}
    return {**counts, "loss": jnp.zeros((), jnp.float32)}


def add_totals(
    totals: EvaluationTotals, logits: jax.Array, labels: jax.Array, mask: jax.Array
) -> EvaluationTotals:
    """Adds one evaluation batch.

    Args:
      totals: Counts (int32) and the sum of losses (float32) so far.
      logits: float32 [batch, classes].
      labels: int32 [batch].
      mask: bool [batch]; False marks padding, which counts nowhere.

    Returns:
      The new totals. An example counts for top-k when fewer than k classes score at least as high
      as its own, so that equal scores (or NaN) never count in its favour.
    """
    own = jnp.take_along_axis(logits, labels[:, None], axis=1)
    rank = (~(logits < own)).sum(axis=1) - 1
    loss = smoothed_cross_entropy(logits, labels, 0.0)
    return {
        "examples": totals["examples"] + mask.sum(dtype=jnp.int32),
        "top_1": totals["top_1"] + (mask & (rank < 1)).sum(dtype=jnp.int32),
        "top_5": totals["top_5"] + (mask & (rank < 5)).sum(dtype=jnp.int32),
        "loss": totals["loss"] + jnp.where(mask, loss, 0.0).sum(),
    }


def metrics_of(totals: dict[str, float], num_classes: int) -> dict[str, float]:
    """Gives the metrics of an evaluation: fractions from 0 to 1, and the mean loss in nats.

    Args:
      totals: The totals as numbers of the host.
      num_classes: With five or fewer, top-5 accuracy says nothing and is left out.
    """
    examples = totals["examples"]
    metrics = {"top_1_accuracy": totals["top_1"] / examples, "loss": totals["loss"] / examples}
    if num_classes > 5:
        metrics["top_5_accuracy"] = totals["top_5"] / examples
    return metrics
