"""Proposals: the boxes of a region proposal network that are looked at further.

Source: Ren et al. 2015, "Faster R-CNN" (arXiv 1506.01497), section 3.3; Lin et al. 2016 (arXiv
1612.03144), section 4.1, for levels; maskrcnn-benchmark, `modeling/rpn/inference.py`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dawnjax.models import boxes as box_geometry
from dawnjax.models.suppression import greedy_choice

CODE_WEIGHTS = (1.0, 1.0, 1.0, 1.0)
"""Of the code of an anchor's box."""


class Proposals(NamedTuple):
    """Boxes of one image in falling order of score, and padding behind them.

    Attributes:
      corners: In pixels, float32 [most, 4].
      anchors: Number of the anchor of each, int32 [most].
      is_real: False for padding, bool [most].
    """

    corners: jax.Array
    anchors: jax.Array
    is_real: jax.Array


def proposals(
    scores: list[jax.Array],
    codes: list[jax.Array],
    anchors: list[np.ndarray],
    extent: jax.Array,
    *,
    before: int,
    most: int,
    overlap: float,
) -> Proposals:
    """Choose the boxes of one image.

    Args:
      scores: Logits of each level's anchors, [anchors].
      codes: Of their boxes, [anchors, 4].
      anchors: Corners of each level's anchors in pixels, [anchors, 4].
      extent: Height and width of the image in pixels, without padding; boxes are cut to it.
      before: Anchors of each level that are looked at, those with the greatest scores.
      most: Boxes of all levels that are kept.
      overlap: If two boxes of a level overlap more than this, only the one with the higher score
        stays.
    """
    places = min(before, max(len(level) for level in anchors))
    first, parts = 0, []
    for of_level, level_codes, level in zip(scores, codes, anchors, strict=True):
        count = min(places, len(level))
        # No number would be sorted before all others.
        of_level = jnp.where(jnp.isnan(of_level), -jnp.inf, of_level)
        best, chosen = jax.lax.top_k(of_level, count)
        centred = box_geometry.to_centred(jnp.asarray(level)[chosen])
        corners = box_geometry.decode(level_codes[chosen], centred, CODE_WEIGHTS)
        corners = box_geometry.clip(corners, extent[1], extent[0])
        missing = places - count
        parts.append(
            (
                jnp.pad(best, (0, missing), constant_values=-jnp.inf),
                jnp.pad(corners, ((0, missing), (0, 0))),
                jnp.pad(first + chosen, (0, missing)),
            )
        )
        first += len(level)
    best, corners, numbers = (jnp.stack(part) for part in zip(*parts, strict=True))
    has_area = (corners[..., 2:] > corners[..., :2]).all(-1)
    is_rival = box_geometry.overlaps(corners, corners) > overlap
    kept = greedy_choice(is_rival, has_area & (best > -jnp.inf))
    ranked = jnp.where(kept, best, -jnp.inf).reshape(-1)
    best, chosen = jax.lax.top_k(ranked, min(most, len(ranked)))
    missing = most - len(best)
    return Proposals(
        jnp.pad(corners.reshape(-1, 4)[chosen], ((0, missing), (0, 0))),
        jnp.pad(numbers.reshape(-1)[chosen], (0, missing)),
        jnp.pad(best > -jnp.inf, (0, missing)),
    )
