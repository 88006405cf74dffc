"""Feature pyramid: maps of one width at every scale, each with what the coarser ones know.

Source: Lin et al. 2016, "Feature Pyramid Networks for Object Detection" (arXiv 1612.03144), section
3; maskrcnn-benchmark, `modeling/backbone/fpn.py`, for start and extra level.
"""

import jax
import jax.numpy as jnp
from flax import nnx

from dawnjax.models.layers import Layers

uniform_of_unit_gain = jax.nn.initializers.variance_scaling(1.0, "fan_in", "uniform")
"""Uniform in +-sqrt(3 / fan in): He's uniform start for a linear layer."""


class Pyramid(nnx.Module):
    """1x1 convolutions of a backbone's stages, sums from the top down, 3x3 convolutions."""

    def __init__(self, stage_widths: tuple[int, ...], width: int, num_extra: int, layers: Layers):
        """Make a level of each stage, and further ones of half the size each."""

        def conv(in_width: int, size: int):
            return layers.conv(
                in_width,
                width,
                size,
                kernel_initializer=uniform_of_unit_gain,
                bias_initializer=jax.nn.initializers.zeros,
            )

        self.inner = nnx.List([conv(stage_width, 1) for stage_width in stage_widths])
        self.outer = nnx.List([conv(width, 3) for _ in stage_widths])
        self.num_extra = num_extra

    def __call__(self, stages: list[jax.Array]) -> list[jax.Array]:
        """Map of each level, [batch, height, width, channels], the finest first."""
        maps: list[jax.Array] = []
        above = None
        for stage, inner, outer in reversed(list(zip(stages, self.inner, self.outer, strict=True))):
            merged = inner(stage)
            if above is not None:
                merged += above.repeat(2, axis=1).repeat(2, axis=2)
            maps.insert(0, outer(merged))
            above = merged
        for _ in range(self.num_extra):
            maps.append(maps[-1][:, ::2, ::2])
        return maps


class RegionHead(nnx.Module):
    """A 3x3 convolution, and at each position the score and code of each anchor's box."""

    def __init__(self, width: int, num_shapes: int, layers: Layers):
        def conv(out_width: int, size: int):
            return layers.conv(
                width,
                out_width,
                size,
                kernel_initializer=jax.nn.initializers.normal(0.01),
                bias_initializer=jax.nn.initializers.zeros,
            )

        self.conv = conv(width, 3)
        self.scores = conv(num_shapes, 1)
        self.codes = conv(4 * num_shapes, 1)

    def __call__(self, maps: list[jax.Array]) -> tuple[list[jax.Array], list[jax.Array]]:
        """Logits [batch, anchors] and codes [batch, anchors, 4] of each level, float32."""
        scores, codes = [], []
        for level in maps:
            hidden = jax.nn.relu(self.conv(level))
            batch = len(level)
            scores.append(self.scores(hidden).astype(jnp.float32).reshape(batch, -1))
            # A position's channels are those of its first anchor, then of its second, ...
            codes.append(self.codes(hidden).astype(jnp.float32).reshape(batch, -1, 4))
        return scores, codes
