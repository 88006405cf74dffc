"""Five losses of Mask R-CNN: objectness and boxes of anchors; classes, boxes and masks of regions.

Each is a sum over the examples of an image and the number that it is divided by. Padding counts in
neither. The mean is over the whole batch, as in the reference on one device.

Source: He et al. 2017, "Mask R-CNN" (arXiv 1703.06870), section 3; maskrcnn-benchmark,
`modeling/rpn/loss.py` and `modeling/roi_heads/*/loss.py`, for divisors and the betas of smooth L1.
"""

from __future__ import annotations

from typing import NamedTuple

from etils import epy

from dawnjax.tasks.multibox import smooth_l1

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

ANCHOR_BETA, BOX_BETA = 1 / 9, 1.0
"""Errors of codes up to which the loss is a square."""


class Part(NamedTuple):
    """One loss: its sum over each image, and what that is divided by; float32 [batch] both."""

    sums: jax.Array
    counts: jax.Array


def anchor_losses(
    scores: jax.Array,
    codes: jax.Array,
    targets: jax.Array,
    is_positive: jax.Array,
    is_real: jax.Array,
) -> tuple[Part, Part]:
    """Objectness and boxes of the chosen anchors, both over their number.

    Args:
      scores: Logits, float32 [batch, anchors].
      codes: float32 [batch, anchors, 4], and their `targets`.
      is_positive: Whether an anchor has an object, bool [batch, anchors].
      is_real: False for padding.
    """
    counts = is_real.sum(1, dtype=jnp.float32)
    entropies = _binary_entropy(scores, is_positive.astype(jnp.float32))
    of_codes = smooth_l1(codes - targets, ANCHOR_BETA).sum(-1)
    return (
        Part(_sum_where(is_real, entropies), counts),
        Part(_sum_where(is_positive, of_codes), counts),
    )


def box_losses(
    logits: jax.Array, codes: jax.Array, classes: jax.Array, targets: jax.Array, is_real: jax.Array
) -> tuple[Part, Part]:
    """Classes and boxes of the chosen regions, both over their number.

    Args:
      logits: float32 [batch, regions, 1 + classes].
      codes: float32 [batch, regions, 1 + classes, 4]; the true class's is compared.
      classes: int32 [batch, regions], 0 for the background.
      targets: Codes of the objects, float32 [batch, regions, 4].
      is_real: False for padding, bool [batch, regions].
    """
    counts = is_real.sum(1, dtype=jnp.float32)
    log_probabilities = jax.nn.log_softmax(logits)
    entropies = -jnp.take_along_axis(log_probabilities, classes[..., None], axis=-1)[..., 0]
    of_class = jnp.take_along_axis(codes, classes[..., None, None], axis=2)[:, :, 0]
    of_codes = smooth_l1(of_class - targets, BOX_BETA).sum(-1)
    return (
        Part(_sum_where(is_real, entropies), counts),
        Part(_sum_where(is_real & (classes > 0), of_codes), counts),
    )


def mask_loss(logits: jax.Array, targets: jax.Array, is_positive: jax.Array) -> Part:
    """Mean over the pixels of the masks of regions with an object, over the number of these.

    Args:
      logits: Of the true class's mask, float32 [batch, regions, side, side].
      targets: float32 of the same shape, each 0 or 1.
      is_positive: bool [batch, regions].
    """
    entropies = _binary_entropy(logits, targets).mean((-2, -1))
    return Part(_sum_where(is_positive, entropies), is_positive.sum(1, dtype=jnp.float32))


def image_losses(parts: list[Part]) -> jax.Array:
    """Losses of images whose mean is the sum of the parts' means over the batch: float32 [batch].

    A part that counts nothing in the whole batch is 0.
    """
    total = jnp.zeros(())
    for part in parts:
        total += part.sums * len(part.sums) / jnp.maximum(part.counts.sum(), 1.0)
    return total


def _binary_entropy(logits: jax.Array, targets: jax.Array) -> jax.Array:
    return jax.nn.softplus(logits) - logits * targets


def _sum_where(is_counted: jax.Array, values: jax.Array) -> jax.Array:
    return jnp.where(is_counted, values, 0.0).sum(1)
