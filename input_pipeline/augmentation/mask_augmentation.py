"""Mirror images of images with masks, inside the compiled step, where padding stays in its place.

All depends on the image's key alone, so it is the same on any number of devices.
"""

from __future__ import annotations

from etils import epy

from dawnjax.input_pipeline.augmentation.image_augmentation import normalize
from dawnjax.input_pipeline.augmentation.object_augmentation import Flip, mirrored_boxes

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp


def normalized(
    images: jax.Array, covered: jax.Array, mean: tuple[float, ...], std: tuple[float, ...]
) -> jax.Array:
    """Normalized images float32 [batch, height, width, 3] with zeros as padding.

    `covered`, float32 [batch, 2], are the parts of rows and columns that the image fills.
    """
    pixels = normalize(images, mean, std)
    for axis, extent in enumerate(extents(covered, images.shape[1:3]).T, start=1):
        shape = [1, 1, 1, 1]
        shape[axis] = -1
        is_inside = jnp.arange(images.shape[axis]).reshape(shape) < extent[:, None, None, None]
        pixels = jnp.where(is_inside, pixels, 0.0)
    return pixels


def extents(covered: jax.Array, size: tuple[int, ...]) -> jax.Array:
    """Rows and columns of each array that its image fills, without padding: float32 [batch, 2]."""
    return jnp.round(covered * jnp.asarray(size, jnp.float32))


def mirrored(
    flip: Flip,
    images: jax.Array,
    boxes: jax.Array,
    masks: jax.Array,
    covered: jax.Array,
    keys: jax.Array,
    is_turned: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Mirror each image, its boxes and the squares of its masks as its key says.

    Args:
      images: uint8 [batch, height, width, 3].
      boxes: float32 [batch, objects, 4], corners as fractions of the image.
      masks: uint8 [batch, objects, side, side].
      covered: float32 [batch, 2], parts of the rows and columns of the array that the image fills.
      keys: PRNG keys [batch].
      is_turned: Images that lie on their side, bool [batch]; their boxes and masks stand.
    """
    if flip == "none":
        return images, boxes, masks
    coins = jax.vmap(lambda key: jax.random.bernoulli(key, shape=(2,)))(keys)
    coins &= jnp.array([True, flip == "both"])
    # The left and right of an image on its side are the ends of its columns.
    of_arrays = coins if is_turned is None else jnp.where(is_turned[:, None], coins[:, ::-1], coins)
    of_images = extents(covered, images.shape[1:3]).astype(jnp.int32)
    for place, axis in enumerate((2, 1)):
        coin, extent = coins[:, place], of_images[:, axis - 1, None]
        places = jnp.arange(images.shape[axis])
        is_mirrored = (places < extent) & of_arrays[:, place, None]
        taken = jnp.where(is_mirrored, extent - 1 - places, places)
        take = jax.vmap(lambda image, rows, axis=axis: jnp.take(image, rows, axis - 1))
        images = take(images, taken)
        boxes = mirrored_boxes(boxes, coin, axis)
        masks = jnp.where(coin[:, None, None, None], jnp.flip(masks, axis + 1), masks)
    return images, boxes, masks
