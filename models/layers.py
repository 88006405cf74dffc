"""The layers that the image models are made of, with what all layers of a model share."""

import dataclasses
from typing import Any

import jax
from flax import nnx

from dawnjax.models.batch_norm import BatchNorm
from dawnjax.models.convolution import Conv, Linear, Padding, he_normal_fan_out, uniform_fan_in
from dawnjax.models.execution import Execution


@dataclasses.dataclass(frozen=True)
class Layers:
    """Make the layers of one model, whose config says momentum and epsilon of BatchNorm."""

    config: Any
    execution: Execution
    rngs: nnx.Rngs

    def conv(
        self,
        in_width: int,
        out_width: int,
        size: int | tuple[int, int] = 1,
        strides: int | tuple[int, int] = 1,
        padding: Padding | None = None,
        kernel_initializer: jax.nn.initializers.Initializer = he_normal_fan_out,
        bias_initializer: jax.nn.initializers.Initializer | None = None,
    ) -> Conv:
        """Convolution, without bias unless it is given a start; a number stands for both axes.

        By default as many zeros pad each side, as in implementations of residual networks; `SAME`
        puts more at the end of a strided convolution.
        """
        size = (size, size) if isinstance(size, int) else size
        return Conv(
            in_width,
            out_width,
            size,
            strides=(strides, strides) if isinstance(strides, int) else strides,
            padding=tuple((taps // 2, taps // 2) for taps in size) if padding is None else padding,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            execution=self.execution,
            rngs=self.rngs,
        )

    def norm(self, width: int, scale: float | None = 1.0) -> BatchNorm:
        """BatchNorm whose learned factor starts at `scale`; None for no factor."""
        return BatchNorm(
            width,
            momentum=self.config.batch_norm_momentum,
            epsilon=self.config.batch_norm_epsilon,
            scale=scale,
            execution=self.execution,
        )

    def classifier(
        self,
        in_width: int,
        num_classes: int,
        kernel_initializer: jax.nn.initializers.Initializer = uniform_fan_in,
        use_bias: bool = True,
    ) -> Linear:
        return Linear(
            in_width,
            num_classes,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            execution=self.execution,
            rngs=self.rngs,
        )
