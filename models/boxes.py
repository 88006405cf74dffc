"""Boxes as arrays: their overlap, and the code in which a network states them.

Corners are (left, top, right, bottom), [..., 4]; a centred box is (centre x, centre y, width,
height). All are in one unit, pixels or fractions of the image.
"""

import math

import jax
import jax.numpy as jnp


def areas(corners: jax.Array) -> jax.Array:
    """Area of each box, [...]; 0 where right is left of left."""
    sides = jnp.maximum(corners[..., 2:] - corners[..., :2], 0)
    return sides[..., 0] * sides[..., 1]


def overlaps(first: jax.Array, second: jax.Array) -> jax.Array:
    """Intersection over union of boxes [..., n, 4] and [..., m, 4]: [..., n, m]; 0 of no area."""

    def meeting(axis: int) -> jax.Array:
        """Length along an axis that both boxes cover."""
        start = jnp.maximum(first[..., :, None, axis], second[..., None, :, axis])
        end = jnp.minimum(first[..., :, None, axis + 2], second[..., None, :, axis + 2])
        return jnp.maximum(end - start, 0)

    # No array has the two axes of an image as its last dimension: a TPU pads that to 128 numbers,
    # and a CPU makes no vector instructions of it.
    shared = meeting(0) * meeting(1)
    union = areas(first)[..., :, None] + areas(second)[..., None, :] - shared
    return jnp.where(union > 0, shared / jnp.where(union > 0, union, 1), 0)


def to_corners(centred: jax.Array) -> jax.Array:
    half = centred[..., 2:] / 2
    return jnp.concatenate([centred[..., :2] - half, centred[..., :2] + half], axis=-1)


def to_centred(corners: jax.Array) -> jax.Array:
    sides = corners[..., 2:] - corners[..., :2]
    return jnp.concatenate([corners[..., :2] + sides / 2, sides], axis=-1)


def encode(
    corners: jax.Array, references: jax.Array, weights: tuple[float, float, float, float]
) -> jax.Array:
    """Code of boxes relative to centred references, both [..., 4].

    The shift of the centre over the reference's sides, and the logarithm of the ratio of sides,
    times the weights. A box without area has the code of the reference's own size.

    Source: Girshick et al. 2014, "Rich feature hierarchies" (arXiv 1311.2524), appendix C.
    """
    centred = to_centred(corners)
    shift = (centred[..., :2] - references[..., :2]) / references[..., 2:]
    ratio = centred[..., 2:] / references[..., 2:]
    scale = jnp.log(jnp.where(ratio > 0, ratio, 1))
    return jnp.concatenate([shift, scale], axis=-1) * jnp.asarray(weights)


LARGEST_SCALE = math.log(1000 / 16)
"""Of a decoded logarithm, so that an untrained network states no endless box.

Source: Detectron, `BBOX_XFORM_CLIP`.
"""


def decode(
    codes: jax.Array,
    references: jax.Array,
    weights: tuple[float, float, float, float],
    largest_scale: float = LARGEST_SCALE,
) -> jax.Array:
    """Corners of the boxes that `encode` made the codes of."""
    codes = codes / jnp.asarray(weights)
    centre = codes[..., :2] * references[..., 2:] + references[..., :2]
    sides = jnp.exp(jnp.minimum(codes[..., 2:], largest_scale)) * references[..., 2:]
    return to_corners(jnp.concatenate([centre, sides], axis=-1))


def clip(corners: jax.Array, width: jax.Array | float, height: jax.Array | float) -> jax.Array:
    """Boxes cut to an image of this size, which broadcasts to [..., 4]'s first axes."""
    least = jnp.zeros((), corners.dtype)
    x = jnp.clip(corners[..., 0::2], least, jnp.asarray(width)[..., None])
    y = jnp.clip(corners[..., 1::2], least, jnp.asarray(height)[..., None])
    return jnp.stack([x[..., 0], y[..., 0], x[..., 1], y[..., 1]], axis=-1)
