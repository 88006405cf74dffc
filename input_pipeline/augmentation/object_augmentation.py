"""Random crops, mirror images and colours of images with objects, inside the compiled step.

All depends on the image's key and content alone, so it is the same on any number of devices.

Source: Liu et al. 2016, "SSD" (arXiv 1512.02325), section 2.2, "Data augmentation";
mlcommons/training v0.5, `single_stage_detector/ssd/utils.py`, for the constants.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Literal

import numpy as np
from etils import epy

from dawnjax.input_pipeline.augmentation.image_augmentation import normalize, resized_rectangles
from dawnjax.input_pipeline.reading.objects import BACKGROUND
from dawnjax.limits import FractionBelowOne, OneOrMore

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

Crop = Literal["none", "all_objects", "any_object"]
Flip = Literal["none", "horizontal", "both"]

_LEAST_OVERLAPS = (0.1, 0.3, 0.5, 0.7, 0.9, -1.0)
"""Options of a crop, besides none at all; the last asks for no overlap."""

_LEAST_SIDE, _MOST_ASPECT = 0.3, 2.0

_GREY = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in a pixel's brightness. Source: ITU-R BT.601."""

_CROP, _FLIP, _COLOUR = range(3)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObjectAugmentation:
    """Random changes of training images; the defaults are those of MLPerf's reference.

    Attributes:
      crop: Condition of a random crop: its overlap with `all_objects` must exceed the drawn least
        one, as in the reference, or that with `any_object`, as in the paper's own code; `none`
        takes images whole.
      crop_passes: Draws of a least overlap. The reference draws until a crop is found; with 50
        draws, of which one in seven asks for no crop, 1 image in 2,200 could find none.
      crop_attempts: Draws of a rectangle for each least overlap.
      flip: Mirror images left to right (`horizontal`), or so and top to bottom (`both`), each with
        probability 1/2.
      brightness: Largest change of the factor of an image's pixels.
      contrast: Largest change of the factor of the distance to the mean brightness.
      saturation: Largest change of the factor of the distance to each pixel's brightness.
      hue: Largest shift of the hue, as a fraction of the circle.
    """

    crop: Crop = "all_objects"
    crop_passes: OneOrMore[int] = 50
    crop_attempts: OneOrMore[int] = 1
    flip: Flip = "horizontal"
    brightness: FractionBelowOne = 0.125
    contrast: FractionBelowOne = 0.5
    saturation: FractionBelowOne = 0.5
    hue: FractionBelowOne = 0.05


def prepared(
    images: jax.Array, size: tuple[int, int], mean: tuple[float, ...], std: tuple[float, ...]
) -> jax.Array:
    """Images resized to a size and normalized, as an evaluation sees them."""
    if images.shape[1:3] == size:
        return normalize(images, mean, std)
    whole = jnp.broadcast_to(jnp.array([0.0, 0.0, 1.0, 1.0]), (len(images), 4))
    return normalize(resized_rectangles(images.astype(jnp.float32), whole, size), mean, std)


def augmented(
    config: ObjectAugmentation,
    images: jax.Array,
    boxes: jax.Array,
    classes: jax.Array,
    *,
    keys: jax.Array,
    size: tuple[int, int],
    mean: tuple[float, ...],
    std: tuple[float, ...],
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Change each image and its objects as its key says.

    Args:
      images: uint8 [batch, height, width, 3].
      boxes: float32 [batch, objects, 4], corners as fractions of the image.
      classes: int32 [batch, objects], 0 where there is no object.
      keys: PRNG keys [batch].
      size: Height and width of the result.

    Returns:
      Normalized images float32 [batch, *size, 3], and the objects that are left.
    """
    if config.crop == "none" and images.shape[1:3] == size:
        pixels = images.astype(jnp.float32)
    else:
        windows = jnp.broadcast_to(jnp.array([0.0, 0.0, 1.0, 1.0]), (len(images), 4))
        if config.crop != "none":
            windows = jax.vmap(functools.partial(crop_window, config))(
                _keys(keys, _CROP), boxes, classes
            )
            boxes, classes = jax.vmap(seen_through)(windows, boxes, classes)
        pixels = resized_rectangles(images.astype(jnp.float32), windows, size)
    if config.flip != "none":
        coins = jax.vmap(lambda key: jax.random.bernoulli(key, shape=(2,)))(_keys(keys, _FLIP))
        across, down = coins[:, 0], coins[:, 1] & (config.flip == "both")
        pixels, boxes = _mirrored(pixels, boxes, across, 2)
        pixels, boxes = _mirrored(pixels, boxes, down, 1)
    if config.brightness or config.contrast or config.saturation or config.hue:
        change = functools.partial(_coloured, config)
        pixels = 255 * jax.vmap(change)(_keys(keys, _COLOUR), pixels / 255)
    return normalize(pixels, mean, std), boxes, classes


def _keys(keys: jax.Array, purpose: int) -> jax.Array:
    return jax.vmap(lambda key: jax.random.fold_in(key, purpose))(keys)


def crop_window(
    config: ObjectAugmentation, key: jax.Array, boxes: jax.Array, classes: jax.Array
) -> jax.Array:
    """Rectangle to cut out of an image, corners as fractions: float32 [4]."""
    passes, attempts = config.crop_passes, config.crop_attempts
    # One draw for all: XLA compiles each anew, in a second.
    draws = jax.random.uniform(key, (passes, 1 + 4 * attempts))
    options = jnp.floor(draws[:, :1] * (len(_LEAST_OVERLAPS) + 1)).astype(jnp.int32)
    draws = draws[:, 1:].reshape(passes, attempts, 4)
    sides = _LEAST_SIDE + (1 - _LEAST_SIDE) * draws[..., :2]
    places = draws[..., 2:] * (1 - sides)
    windows = jnp.concatenate([places, places + sides], axis=-1)
    takes_whole = options == len(_LEAST_OVERLAPS)
    least = jnp.asarray((*_LEAST_OVERLAPS, 0.0))[options]
    is_good = jax.vmap(jax.vmap(functools.partial(is_wanted, config.crop, boxes, classes)))(
        windows, jnp.broadcast_to(least, (passes, attempts))
    )
    whole = jnp.array([0.0, 0.0, 1.0, 1.0])
    windows = jnp.where(takes_whole[..., None], whole, windows).reshape(-1, 4)
    found = (is_good | takes_whole).reshape(-1)
    # The first that is found, as one draw after another would have it.
    return jnp.where(found.any(), windows[jnp.argmax(found)], whole)


def is_wanted(
    condition: Crop, boxes: jax.Array, classes: jax.Array, window: jax.Array, least: jax.Array
) -> jax.Array:
    """True for a crop with an allowed shape, enough overlap, and the centre of an object."""
    is_object = classes != BACKGROUND
    width, height = window[2] - window[0], window[3] - window[1]
    has_shape = (width <= _MOST_ASPECT * height) & (height <= _MOST_ASPECT * width)
    shared = jnp.maximum(
        jnp.minimum(boxes[:, 2:], window[2:]) - jnp.maximum(boxes[:, :2], window[:2]), 0
    ).prod(axis=-1)
    union = (boxes[:, 2:] - boxes[:, :2]).prod(axis=-1) + width * height - shared
    enough = shared / union > least
    enough = (
        (enough | ~is_object).all() if condition == "all_objects" else (enough & is_object).any()
    )
    return has_shape & enough & (is_object & _has_centre(window, boxes)).any()


def _has_centre(window: jax.Array, boxes: jax.Array) -> jax.Array:
    centre = (boxes[:, :2] + boxes[:, 2:]) / 2
    return ((centre > window[:2]) & (centre < window[2:])).all(axis=-1)


def seen_through(
    window: jax.Array, boxes: jax.Array, classes: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Objects whose centre lies in a crop, clipped, as fractions of the crop."""
    kept = _has_centre(window, boxes) & (classes != BACKGROUND)
    origin, sides = jnp.tile(window[:2], 2), jnp.tile(window[2:] - window[:2], 2)
    inside = jnp.clip((boxes - origin) / sides, 0, 1)
    return jnp.where(kept[:, None], inside, 0), jnp.where(kept, classes, BACKGROUND)


def _mirrored(
    pixels: jax.Array, boxes: jax.Array, coins: jax.Array, axis: int
) -> tuple[jax.Array, jax.Array]:
    """Images mirrored along an axis where the coin says so, and their boxes."""
    pixels = jnp.where(coins[:, None, None, None], jnp.flip(pixels, axis), pixels)
    return pixels, mirrored_boxes(boxes, coins, axis)


def mirrored_boxes(boxes: jax.Array, coins: jax.Array, axis: int) -> jax.Array:
    """Boxes [batch, objects, 4] of images that are mirrored where the coin says so."""
    first, last = (0, 2) if axis == 2 else (1, 3)
    turned = boxes.at[..., first].set(1 - boxes[..., last]).at[..., last].set(1 - boxes[..., first])
    # Padding has no corners: mirrored, it would get some.
    has_area = (boxes[..., 2:] > boxes[..., :2]).any(axis=-1, keepdims=True)
    return jnp.where(coins[:, None, None] & has_area, turned, boxes)


def _coloured(config: ObjectAugmentation, key: jax.Array, image: jax.Array) -> jax.Array:
    """Image float32 [height, width, 3] of 0 to 1 after four changes, in an order that is drawn."""
    draws = jax.random.uniform(key, (5,))
    spans = jnp.array([config.brightness, config.contrast, config.saturation, config.hue])
    draws, place = (2 * draws[:4] - 1) * spans, draws[4]
    changes = (
        lambda pixels: pixels * (1 + draws[0]),
        lambda pixels: _blended(pixels, _grey(pixels).mean(), 1 + draws[1]),
        lambda pixels: _blended(pixels, _grey(pixels), 1 + draws[2]),
        lambda pixels: hue_turned(pixels, draws[3]),
    )
    orders = np.array(list(itertools.permutations(range(4))))
    order = jnp.asarray(orders)[jnp.floor(place * len(orders)).astype(jnp.int32)]
    for place in range(4):
        image = jnp.clip(jax.lax.switch(order[place], changes, image), 0, 1)
    return image


def _grey(pixels: jax.Array) -> jax.Array:
    return (pixels * jnp.asarray(_GREY)).sum(axis=-1, keepdims=True)


def _blended(pixels: jax.Array, other: jax.Array, factor: jax.Array) -> jax.Array:
    return other + (pixels - other) * factor


def hue_turned(pixels: jax.Array, shift: jax.Array) -> jax.Array:
    """Pixels with another hue, and the same largest and smallest value.

    Source: Smith 1978, "Color Gamut Transform Pairs", the hexcone model.
    """
    largest, smallest = pixels.max(axis=-1), pixels.min(axis=-1)
    spread = largest - smallest
    safe = jnp.where(spread > 0, spread, 1)
    red, green, blue = pixels[..., 0], pixels[..., 1], pixels[..., 2]
    # No `largest == red`: XLA may compute a pixel twice in a fusion, with another rounding. Where
    # two channels are nearly equal, both of their cases give nearly the same hue.
    hue = jnp.where(
        (red >= green) & (red >= blue),
        (green - blue) / safe % 6,
        jnp.where(green >= blue, (blue - red) / safe + 2, (red - green) / safe + 4),
    )
    # Each channel is a trapezoid over the circle of six corners.
    corner = (hue + 6 * shift)[..., None] + jnp.array([5.0, 3.0, 1.0])
    height = jnp.clip(jnp.minimum(corner % 6, 4 - corner % 6), 0, 1)
    return largest[..., None] - spread[..., None] * height
