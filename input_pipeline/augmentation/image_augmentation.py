"""Normalization, random changes and test-time views of images, inside the compiled step.

All are pure functions on the device. The result depends on the image's key, epoch and pixels alone,
so it is the same on any number of devices. All random changes of geometry are one separable map:
the pixels are fetched or interpolated once.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Literal

import numpy as np
from etils import epy

from dawnjax.limits import (
    Fraction,
    FractionAboveZero,
    FractionBelowOne,
    NonNegative,
    OneOrMore,
    check_fields,
)

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

Padding = Literal["zeros", "edge", "reflect"]
Flip = Literal["none", "random", "alternating"]
Views = Literal["none", "flip", "flip_and_translate"]

# What each uniform number of an example's draw decides. The draw has a fixed layout, so that
# turning one change on leaves the others as they were.
_ROW_SHIFT, _COLUMN_SHIFT, _SCALE, _FLIP, _CUTOUT_ROW, _CUTOUT_COLUMN, _NUM_DRAWS = range(7)
_AREA, _ASPECT, _TOP, _LEFT, _NUM_CROP_DRAWS = range(5)
_BRIGHTNESS, _CONTRAST, _NUM_COLOR_DRAWS = range(3)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageAugmentation:
    """Random changes of training images; the defaults change nothing.

    Attributes:
      max_translation_pixels: Largest shift along each axis; all shifts up to it are equally likely.
      subpixel_translation: Whether shifts are real numbers (interpolated bilinearly). Otherwise
        shifts and their limit are whole pixels, rounded down.
      max_scale_fraction: Largest zoom s about the centre: factors are uniform in [1 - s, 1 + s].
      padding: What lies outside the image: `zeros` (after normalization, so the mean colour),
        `edge` (the nearest border pixel) or `reflect` (mirrored without repeating the border).
      flip: `random` mirrors left to right with probability 1/2 in each epoch; `alternating` draws
        once for each example and mirrors it in every other epoch, so that two epochs show both.
      max_brightness_shift: Largest shift b of an image's normalized values; the shift is uniform in
        [-b, b].
      max_contrast_change: Largest change c of the factor that then multiplies the values; the
        factor is uniform in [1 - c, 1 + c].
      cutout_pixels: Side of a square that is set to zero, centred on a random pixel and clipped at
        the border; 0 cuts nothing.
      crop_pixels: Side of the square images that the model sees: a random rectangle of the image,
        resized, in training, and the middle in evaluation. It replaces translation and zoom; 0
        takes whole images.
      center_fraction: In evaluation, side of the middle square that is resized to `crop_pixels`, as
        a fraction of the image's shorter side: 0.875 is 224 of 256 pixels. 0 takes the middle
        `crop_pixels` without resizing; the image must be at least as large.
      crop_min_area: Least area of the rectangle, as a fraction of the image's area; areas are
        uniform from this fraction to the whole.
      crop_max_aspect: Largest ratio of width to height, and of height to width; its logarithm is
        uniform. A side is at most as long as the image's.

    Source: random rectangles: Szegedy et al. 2015, "Going Deeper with Convolutions", section 6.
    Alternating flip: Jordan 2024, "94% on CIFAR-10 in 3.29 Seconds on a Single GPU" (arXiv
    2404.00498), section 3.6. Cutout: DeVries and Taylor 2017 (arXiv 1708.04552), section 3.2.
    """

    max_translation_pixels: NonNegative[float] = 0.0
    subpixel_translation: bool = False
    max_scale_fraction: FractionBelowOne = 0.0
    padding: Padding = "zeros"
    flip: Flip = "none"
    max_brightness_shift: NonNegative[float] = 0.0
    max_contrast_change: FractionBelowOne = 0.0
    cutout_pixels: NonNegative[int] = 0
    crop_pixels: NonNegative[int] = 0
    center_fraction: Fraction = 0.0
    crop_min_area: FractionAboveZero = 0.08
    crop_max_aspect: OneOrMore[float] = 4 / 3

    def __post_init__(self) -> None:
        check_fields(self)


def model_image_shape(
    config: ImageAugmentation, image_shape: tuple[int, int, int]
) -> tuple[int, int, int]:
    """(height, width, channels) that the model sees of images of `image_shape`."""
    side = config.crop_pixels
    return (side, side, image_shape[-1]) if side else image_shape


def center_crop(config: ImageAugmentation, images: jax.Array) -> jax.Array:
    """Middle of images [batch, height, width, channels], which an evaluation sees.

    It is [batch, crop_pixels, crop_pixels, channels], in float32 where it is resized.
    """
    side = config.crop_pixels
    if not side:
        return images
    seen = round(config.center_fraction * min(images.shape[1:3])) or side
    top, left = ((size - seen) // 2 for size in images.shape[1:3])
    middle = images[:, top : top + seen, left : left + seen]
    if seen == side:
        return middle
    weights = _resizing_weights(jnp.zeros(1), jnp.full(1, float(seen)), side, seen)
    weights = jnp.broadcast_to(weights, (len(images), side, seen))
    return _weighted(middle.astype(jnp.float32), weights, weights)


def normalize(images: jax.Array, mean: tuple[float, ...], std: tuple[float, ...]) -> jax.Array:
    """Compute (images / 255 - mean) / std in float32; mean and std are fractions, per channel."""
    scale = 1 / (255 * np.asarray(std, np.float64))
    # One multiply-add per pixel; constants in float64 so that they round once.
    offset = -np.asarray(mean, np.float64) / np.asarray(std, np.float64)
    return images.astype(jnp.float32) * scale.astype(np.float32) + offset.astype(np.float32)


def augment(
    config: ImageAugmentation,
    images: jax.Array,
    *,
    step_keys: jax.Array,
    example_keys: jax.Array,
    epochs: jax.Array,
) -> jax.Array:
    """Change each image as its keys and epoch say: float32, of the shape that the model sees.

    Args:
      images: float32 [batch, height, width, channels], normalized.
      step_keys: PRNG keys [batch]; a new key each time that an example is seen.
      example_keys: PRNG keys [batch]; the same key each time.
      epochs: int32 [batch], the epoch that each example is seen in.
    """
    # Nothing to do compiles to nothing: no draws, no copy.
    if config == ImageAugmentation():
        return images
    draws = jax.vmap(lambda key: jax.random.uniform(key, (_NUM_DRAWS,)))(step_keys)
    height, width = images.shape[1:3]
    is_flipped = jnp.zeros(len(images), bool)
    if config.flip != "none":
        if config.flip == "alternating":
            coins = jax.vmap(lambda key: jax.random.bits(key, dtype=jnp.uint32))(example_keys)
            is_flipped = (coins + epochs.astype(jnp.uint32)) % 2 == 1
        else:
            is_flipped = draws[:, _FLIP] < 0.5
    if config.crop_pixels:
        side = config.crop_pixels
        tops, heights, lefts, widths = _crops(config, (height, width), step_keys)
        row_weights = _resizing_weights(tops, heights, side, height)
        column_weights = _resizing_weights(lefts, widths, side, width, is_flipped)
        images = _weighted(images, row_weights, column_weights)
        height = width = side
    else:
        rows = _source_coordinates(config, height, draws[:, _ROW_SHIFT], draws[:, _SCALE])
        columns = _source_coordinates(config, width, draws[:, _COLUMN_SHIFT], draws[:, _SCALE])
        columns = jnp.where(is_flipped[:, None], width - 1 - columns, columns)
        if config.max_scale_fraction or config.subpixel_translation:
            images = interpolate(images, rows, columns)
        elif config.max_translation_pixels or config.flip != "none":
            images = jax.lax.platform_dependent(
                images,
                rows,
                columns,
                # A TPU fetches single pixels slowly and has matrix units to spare.
                tpu=interpolate,
                default=functools.partial(fetch_pixels, padding=config.padding),
            )
    if config.max_brightness_shift or config.max_contrast_change:
        color = 2 * _more_draws(step_keys, _NUM_DRAWS + 1, _NUM_COLOR_DRAWS) - 1
        shifts = config.max_brightness_shift * color[:, _BRIGHTNESS]
        factors = 1 + config.max_contrast_change * color[:, _CONTRAST]
        images = (images + shifts[:, None, None, None]) * factors[:, None, None, None]
    if config.cutout_pixels:
        is_row_cut = _is_cut(config.cutout_pixels, height, draws[:, _CUTOUT_ROW])
        is_column_cut = _is_cut(config.cutout_pixels, width, draws[:, _CUTOUT_COLUMN])
        is_cut = is_row_cut[:, :, None, None] & is_column_cut[:, None, :, None]
        images = jnp.where(is_cut, 0.0, images)
    return images


def views(kind: Views, images: jax.Array) -> list[tuple[float, jax.Array]]:
    """Views of images [batch, height, width, channels] with weights that sum to 1; their logits are
    averaged.

    `flip` adds the mirror image. `flip_and_translate` weighs both by a half, and both moved by one
    pixel to the lower right and to the upper left by a quarter each, padded by reflection.

    Source: Jordan 2024 (arXiv 2404.00498), section 3.5.
    """
    if kind == "none":
        return [(1.0, images)]
    weighted = [(1.0, images)]
    if kind == "flip_and_translate":
        padded = jnp.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="reflect")
        weighted = [
            (0.5, images),
            (0.25, padded[:, :-2, :-2]),
            (0.25, padded[:, 2:, 2:]),
        ]
    return [(weight / 2, view) for weight, image in weighted for view in (image, image[:, :, ::-1])]


def _source_coordinates(
    config: ImageAugmentation, size: int, shift_draws: jax.Array, scale_draws: jax.Array
) -> jax.Array:
    """Coordinate in the image of each pixel of the result along one axis: float32 [batch, size]."""
    limit = config.max_translation_pixels
    if config.subpixel_translation:
        shifts = (2 * shift_draws - 1) * limit
    else:
        whole = int(limit)
        shifts = jnp.floor(shift_draws * (2 * whole + 1)) - whole
    coordinates = jnp.arange(size, dtype=jnp.float32)[None]
    if config.max_scale_fraction:
        scales = 1 + (2 * scale_draws - 1) * config.max_scale_fraction
        centre = (size - 1) / 2
        coordinates = (coordinates - centre) / scales[:, None] + centre
    coordinates = coordinates - shifts[:, None]
    if config.padding == "edge":
        return jnp.clip(coordinates, 0, size - 1)
    if config.padding == "reflect":
        period = max(2 * (size - 1), 1)
        folded = size - 1 - jnp.abs(coordinates % period - (size - 1))
        return jnp.clip(folded, 0, size - 1)
    return coordinates


def _crops(
    config: ImageAugmentation, size: tuple[int, int], keys: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Top, height, left and width of a random rectangle of each image, float32 [batch] each."""
    draws = _more_draws(keys, _NUM_DRAWS, _NUM_CROP_DRAWS)
    area = config.crop_min_area + draws[:, _AREA] * (1 - config.crop_min_area)
    log_aspect = (2 * draws[:, _ASPECT] - 1) * math.log(config.crop_max_aspect)
    pixels = area * size[0] * size[1]
    height = jnp.minimum(jnp.sqrt(pixels * jnp.exp(-log_aspect)), size[0])
    width = jnp.minimum(jnp.sqrt(pixels * jnp.exp(log_aspect)), size[1])
    top = draws[:, _TOP] * (size[0] - height)
    left = draws[:, _LEFT] * (size[1] - width)
    return top, height, left, width


def resized_rectangles(
    images: jax.Array, rectangles: jax.Array, size: tuple[int, int]
) -> jax.Array:
    """Rectangles of images, resized bilinearly, with wider weights where they shrink.

    Args:
      images: float32 [batch, height, width, channels].
      rectangles: float32 [batch, 4]: left, top, right and bottom as fractions of the image.
      size: Height and width of the result.
    """
    weights = []
    for first, last, length, out in (
        (1, 3, images.shape[1], size[0]),
        (0, 2, images.shape[2], size[1]),
    ):
        span = rectangles[:, last] - rectangles[:, first]
        weights.append(_resizing_weights(rectangles[:, first] * length, span * length, out, length))
    return _weighted(images, *weights)


def _more_draws(keys: jax.Array, purpose: int, count: int) -> jax.Array:
    """Uniform numbers [batch, count] that leave the other draws as they are."""
    return jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, purpose), (count,)))(
        keys
    )


def _resizing_weights(
    starts: jax.Array,
    spans: jax.Array,
    out: int,
    size: int,
    is_flipped: jax.Array | None = None,
) -> jax.Array:
    """Weights that resize a stretch of each image to `out` pixels: float32 [batch, out, size].

    Bilinear, and wider where the stretch shrinks. A pixel counts by its part that lies in the
    stretch, so that none outside of it is seen, as if the stretch were cut out before.

    Args:
      starts: First edge of the stretch, float32 [batch]; pixel i lies between edges i and i + 1.
      spans: Its length in pixels, float32 [batch].
      is_flipped: Whether the result is mirrored, bool [batch].
    """
    scales = spans / out
    # Pixel centres lie at halves, as in every common resizing.
    centres = starts[:, None] + (jnp.arange(out) + 0.5) * scales[:, None]
    if is_flipped is not None:
        centres = jnp.where(is_flipped[:, None], centres[:, ::-1], centres)
    edges = jnp.arange(size, dtype=jnp.float32)
    distances = jnp.abs(centres[:, :, None] - 0.5 - edges)
    weights = jnp.maximum(1 - distances / jnp.maximum(scales, 1)[:, None, None], 0)
    ends = jnp.minimum(edges + 1, (starts + spans)[:, None])
    inside = jnp.clip(ends - jnp.maximum(edges, starts[:, None]), 0, 1)
    weights = weights * inside[:, None]
    return weights / weights.sum(axis=-1, keepdims=True)


def fetch_pixels(
    images: jax.Array, rows: jax.Array, columns: jax.Array, padding: Padding
) -> jax.Array:
    row_indices, column_indices = rows.astype(jnp.int32), columns.astype(jnp.int32)
    fetched = jax.vmap(
        lambda image, row, column: image.at[row[:, None], column[None, :]].get(mode="clip")
    )(images, row_indices, column_indices)
    if padding != "zeros":
        return fetched
    is_inside = (
        _is_inside(rows, images.shape[1])[:, :, None]
        & _is_inside(columns, images.shape[2])[:, None, :]
    )
    return jnp.where(is_inside[..., None], fetched, 0.0)


def _is_inside(coordinates: jax.Array, size: int) -> jax.Array:
    return (coordinates >= 0) & (coordinates <= size - 1)


def interpolate(images: jax.Array, rows: jax.Array, columns: jax.Array) -> jax.Array:
    """Interpolate bilinearly at any coordinates; beyond the border all weights are 0."""
    row_weights = _linear_weights(rows, images.shape[1])
    return _weighted(images, row_weights, _linear_weights(columns, images.shape[2]))


def _weighted(images: jax.Array, row_weights: jax.Array, column_weights: jax.Array) -> jax.Array:
    """Sum over rows and columns with weights [batch, out size, in size]."""
    # Pixels must come through as they are where the coordinates are whole.
    highest = jax.lax.Precision.HIGHEST
    images = jnp.einsum("bij,bjkc->bikc", row_weights, images, precision=highest)
    return jnp.einsum("bkl,bilc->bikc", column_weights, images, precision=highest)


def _linear_weights(coordinates: jax.Array, size: int) -> jax.Array:
    distances = jnp.abs(coordinates[:, :, None] - jnp.arange(size, dtype=jnp.float32))
    return jnp.maximum(1 - distances, 0)


def _is_cut(pixels: int, size: int, draws: jax.Array) -> jax.Array:
    """Positions along one axis that a cutout covers: bool [batch, size]."""
    first = jnp.floor(draws * size) - pixels // 2
    positions = jnp.arange(size)[None]
    return (positions >= first[:, None]) & (positions < first[:, None] + pixels)
