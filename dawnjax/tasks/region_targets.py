"""Anchors and proposals that a two-stage detector learns from, and what they are compared with.

Each function is of one image. A random choice depends on numbers drawn for each candidate alone, so
it is the same on any number of devices.

Source: Ren et al. 2015, "Faster R-CNN" (arXiv 1506.01497), section 3.1.2; Girshick 2015, "Fast
R-CNN" (arXiv 1504.08083), section 2.3; maskrcnn-benchmark, `modeling/matcher.py` and
`modeling/balanced_positive_negative_sampler.py`.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, NamedTuple

import numpy as np
from etils import epy

from dawnjax.input_pipeline.reading.objects import BACKGROUND
from dawnjax.limits import Fraction, require, within
from dawnjax.tasks.detection import Overlap

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

    from dawnjax.models import boxes as box_geometry
    from dawnjax.models import maxima

_Places = Annotated[int, within(1, 10_000)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Regions:
    """Choice of proposals, and of the anchors and proposals that are learnt from.

    Attributes:
      scored: Anchors of each level that may become proposals, in training.
      scored_evaluated: Anchors of each level that may become proposals, in an evaluation.
      proposals: Proposals per image, over all levels. MLPerf's reference keeps 2,000 for all images
        of a device in training, and 1,000 per image in an evaluation.
      overlap: If two boxes of a level overlap more than this, only the one with the higher score
        stays.
      anchors: Anchors per image that the region head learns from.
      anchors_of_objects: Largest fraction of these with an object.
      object_overlap: An anchor with at least this overlap is assigned the object that it overlaps
        most. Each object is also assigned the anchors that overlap it most.
      background_overlap: An anchor is background if all its overlaps are below this; anchors in
        between are left out.
      sampled: Proposals and true boxes of an image that the heads learn from.
      sampled_of_objects: Largest fraction of these with an object; masks are learnt from them.
      box_overlap: A proposal with at least this overlap is assigned the object that it overlaps
        most.
    """

    scored: _Places = 2000
    scored_evaluated: _Places = 1000
    proposals: _Places = 1000
    overlap: Overlap = 0.7
    anchors: _Places = 256
    anchors_of_objects: Fraction = 0.5
    object_overlap: Overlap = 0.7
    background_overlap: Overlap = 0.3
    sampled: _Places = 512
    sampled_of_objects: Fraction = 0.25
    box_overlap: Overlap = 0.5

    def check_together(self, prefix: str) -> None:
        least, most = self.background_overlap, self.object_overlap
        name = f"{prefix}background_overlap"
        require(least <= most, name, least, f"be at most {prefix}object_overlap={most}")
        name = f"{prefix}sampled_of_objects"
        value = self.sampled_of_objects
        require(self.num_masks >= 1, name, value, f"leave 1 or more of {self.sampled} boxes")

    @property
    def num_masks(self) -> int:
        """Sampled boxes that may have an object; they come first."""
        return int(self.sampled * self.sampled_of_objects)


class Labels(NamedTuple):
    """Candidates of one image.

    Attributes:
      is_positive: Whether each has an object, bool [candidates].
      is_negative: Whether it is background; of the others it is not said.
      objects: The object that it overlaps most, int32 [candidates].
    """

    is_positive: jax.Array
    is_negative: jax.Array
    objects: jax.Array


def anchor_labels(
    anchors: np.ndarray | jax.Array,
    corners: jax.Array,
    classes: jax.Array,
    extent: jax.Array,
    config: Regions,
) -> Labels:
    """Objects of the anchors; those across the image's border are left out.

    Args:
      anchors: Corners in pixels, float32 [anchors, 4].
      corners: Of objects, in pixels, float32 [objects, 4].
      classes: int32 [objects], 0 for padding.
      extent: Height and width of the image, float32 [2].
    """
    overlap = _overlaps(corners, classes, jnp.asarray(anchors))
    best, objects = maxima.maxima(overlap, 0)
    greatest = overlap.max(1, keepdims=True)
    # Ties count too; the tolerance is that of an overlap that is computed twice.
    is_best = ((overlap >= greatest * (1 - 1e-6)) & (greatest > 0)).any(0)
    boxes = jnp.asarray(anchors)
    is_inside = (boxes[:, :2] >= 0).all(1) & (boxes[:, 2:] <= extent[::-1]).all(1)
    is_positive = is_inside & ((best >= config.object_overlap) | is_best)
    is_negative = is_inside & ~is_positive & (best < config.background_overlap)
    return Labels(is_positive, is_negative, objects)


def proposal_labels(
    proposals: jax.Array,
    is_real: jax.Array,
    corners: jax.Array,
    classes: jax.Array,
    least_overlap: float,
) -> Labels:
    """Objects of proposals; one with too little overlap is background, and padding is neither."""
    overlap = _overlaps(corners, classes, proposals)
    best, objects = maxima.maxima(overlap, 0)
    has_object = best >= least_overlap
    return Labels(is_real & has_object, is_real & ~has_object, objects)


def _overlaps(corners: jax.Array, classes: jax.Array, others: jax.Array) -> jax.Array:
    """Overlap [objects, others]; 0 of padding, whose box is emptied for it."""
    is_object = (classes != BACKGROUND)[:, None]
    return box_geometry.overlaps(jnp.where(is_object, corners, 0.0), others)


class Sample(NamedTuple):
    """Chosen candidates of one image, those with an object first, and padding behind them.

    Attributes:
      places: Number of each candidate, int32 [most].
      is_positive: Whether it has an object, bool [most].
      is_real: False for padding, bool [most].
    """

    places: jax.Array
    is_positive: jax.Array
    is_real: jax.Array


def sampled(draws: jax.Array, labels: Labels, most: int, most_positive: int) -> Sample:
    """Choose `most_positive` candidates with an object at random, or all, and fill up to `most`.

    `draws`, float32 [candidates], are uniform in [0, 1).
    """
    chances = jnp.where(labels.is_positive, draws, -1.0)
    least = jax.lax.top_k(chances, min(most_positive, len(draws)))[0][-1:].sum()
    is_kept = labels.is_positive & (draws >= least) & (most_positive > 0)
    # The candidates with an object lie above 1, so that they come first.
    ranked = jnp.where(is_kept, 1 + draws, jnp.where(labels.is_negative, draws, -1.0))
    values, places = jax.lax.top_k(ranked, min(most, len(draws)))
    missing = (0, most - len(values))
    values = jnp.pad(values, missing, constant_values=-1.0)
    return Sample(jnp.pad(places, missing), values >= 1, values >= 0)


def mask_targets(regions: jax.Array, corners: jax.Array, masks: jax.Array, side: int) -> jax.Array:
    """Masks of objects as seen through regions: float32 [regions, side, side], each 0 or 1.

    Args:
      regions: Corners in pixels, float32 [regions, 4].
      corners: Box of each region's object, in pixels, float32 [regions, 4].
      masks: Mask of that object in its box, uint8 [regions, cells, cells].
    """
    cells = masks.shape[-1]

    def weights(first: int) -> jax.Array:
        """Share of each cell of a mask in each of the region's points: [regions, side, cells]."""
        start, end = regions[:, first, None], regions[:, first + 2, None]
        points = start + (end - start) * (np.arange(side, dtype=np.float32) + 0.5) / side
        origin, length = corners[:, first, None], (corners[:, first + 2] - corners[:, first])
        places = (points - origin) / jnp.maximum(length, 1e-6)[:, None] * cells - 0.5
        # Points up to half a cell beyond the last centre still lie in the box.
        is_inside = (places >= -0.5) & (places < cells - 0.5)
        places = jnp.clip(places, 0, cells - 1)
        shares = 1 - jnp.abs(places[..., None] - jnp.arange(cells))
        return jnp.where(is_inside[..., None], jnp.maximum(shares, 0), 0.0)

    # At default precision a TPU would round both to bfloat16, and points near the bound flip.
    seen = jnp.einsum(
        "rit,rtu,rju->rij",
        weights(1),
        masks.astype(jnp.float32) / 255,
        weights(0),
        precision=jax.lax.Precision.HIGHEST,
    )
    return (seen >= 0.5).astype(jnp.float32)
