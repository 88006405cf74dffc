"""Targets and loss of a single-shot detector.

Source: Liu et al. 2016, "SSD" (arXiv 1512.02325), section 2.2, "Matching strategy", "Training
objective" and "Hard negative mining"; mlcommons/training v0.5, `single_stage_detector/ssd`, for
the order of ties and the divisor of an image.
"""

from __future__ import annotations

from typing import NamedTuple

from etils import epy

from dawnjax.input_pipeline.reading.objects import BACKGROUND

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

    from dawnjax.models import boxes as box_geometry
    from dawnjax.models import maxima

CODE_WEIGHTS = (10.0, 10.0, 5.0, 5.0)
"""Weights of a box's code: one over the "variances" 0.1 and 0.2."""


class Matched(NamedTuple):
    """Targets of default boxes: corners of a box [boxes, 4], and its class [boxes], 0 for none."""

    corners: jax.Array
    classes: jax.Array


def match(
    defaults: jax.Array, corners: jax.Array, classes: jax.Array, least_overlap: float
) -> Matched:
    """Objects of one image for its default boxes.

    A default box takes the object of greatest overlap, if that exceeds `least_overlap`; each object
    also claims the default box that it overlaps most. Of two objects that claim one box, the later
    has it.

    Args:
      defaults: Corners, float32 [boxes, 4].
      corners: Of objects, float32 [objects, 4].
      classes: int32 [objects], 0 for padding.
    """
    is_object = classes != BACKGROUND
    overlap = jnp.where(is_object[:, None], box_geometry.overlaps(corners, defaults), -1.0)
    greatest, best_object = maxima.maxima(overlap, 0)
    claimed = maxima.maxima(overlap, 1)[1]
    numbers = jnp.arange(len(classes))
    # The greatest number and not the last write: an order of writes is none on a GPU.
    claimant = jnp.full(len(defaults), -1).at[claimed].max(jnp.where(is_object, numbers, -1))
    chosen = jnp.where(claimant >= 0, claimant, best_object)
    is_matched = (claimant >= 0) | (greatest > least_overlap)
    return Matched(corners[chosen], jnp.where(is_matched, classes[chosen], BACKGROUND))


def image_losses(
    codes: jax.Array, logits: jax.Array, targets: jax.Array, classes: jax.Array, negatives: int
) -> tuple[jax.Array, jax.Array]:
    """Summed loss of each image and its number of positives: float32 and int32 [batch].

    Smooth L1 over the positives' codes, and the cross entropy of the positives and of as many times
    `negatives` other boxes: those with the greatest cross entropy.

    Args:
      codes: float32 [batch, boxes, 4], and their `targets`.
      logits: float32 [batch, boxes, 1 + classes].
      classes: int32 [batch, boxes], 0 for the background.
    """
    is_positive = classes != BACKGROUND
    positives = is_positive.sum(1)
    of_codes = smooth_l1(codes - targets, 1.0).sum(-1)
    log_probabilities = jax.nn.log_softmax(logits)
    entropies = -jnp.take_along_axis(log_probabilities, classes[..., None], axis=-1)[..., 0]
    hardness = jax.lax.stop_gradient(jnp.where(is_positive, 0.0, entropies))
    is_chosen = is_positive | _greatest(hardness, negatives * positives)
    losses = jnp.where(is_positive, of_codes, 0.0) + jnp.where(is_chosen, entropies, 0.0)
    return losses.sum(1), positives


def _greatest(values: jax.Array, counts: jax.Array) -> jax.Array:
    """Whether each of `values` [batch, n] is among the `counts` [batch] greatest of its row.

    Of equal values the first count.
    """
    # A sort of values alone: ranks would take two sorts of pairs, twice the time on a CPU.
    ordered = jnp.sort(values, axis=1, descending=True)
    last = jnp.clip(counts - 1, 0, values.shape[1] - 1)
    least = jnp.take_along_axis(ordered, last[:, None], axis=1)
    is_greater, is_equal = values > least, values == least
    places = (counts - is_greater.sum(1))[:, None]
    return is_greater | (is_equal & (jnp.cumsum(is_equal, axis=1) <= places))


def smooth_l1(errors: jax.Array, beta: float) -> jax.Array:
    """Half the square over beta for errors below beta, and the distance less half of beta above.

    Source: Girshick 2015, "Fast R-CNN" (arXiv 1504.08083), equation 3, with beta 1.
    """
    sizes = jnp.abs(errors)
    return jnp.where(sizes < beta, 0.5 * jnp.square(errors) / beta, sizes - 0.5 * beta)
