"""ResNet-9, the network of the CIFAR-10 entries after DAWNBench's first round.

Source: D. Page 2018, "How to Train Your ResNet" (https://myrtle.ai/learn/how-to-train-your-resnet)
and `dawn.py` in https://github.com/davidcpage/cifar10-fast: a convolution, three more each followed
by a 2x2 maximum, a residual pair after the first and the third of them, the largest value of each
channel, a linear layer without bias, and a factor of 1/8. 6,573,120 parameters with 10 classes.
"""

import dataclasses
from typing import Annotated, ClassVar

import jax
from flax import nnx

from dawnjax.limits import Counts, FractionBelowOne, Limit, Positive, check_fields
from dawnjax.models.convolution import uniform_fan_in
from dawnjax.models.execution import Execution
from dawnjax.models.layers import ImageShape, Layers
from dawnjax.models.pooling import max_pool_side_by_side

FOUR_VALUES = Limit(lambda values: len(values) == 4, "be four values")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResNet9:
    """ResNet-9 for small images, of 8 pixels a side or more.

    Attributes:
      widths: Channels of the first convolution and of the three layers.
      logit_scale: Factor of the logits.
      batch_norm_momentum: The fraction of the running statistics that a step keeps.
      batch_norm_epsilon: Added to the variance.
    """

    TAG: ClassVar[str] = "resnet9"
    has_batch_norm_groups: ClassVar[bool] = True

    widths: Annotated[Counts, FOUR_VALUES] = (64, 128, 256, 512)
    logit_scale: Positive[float] = 0.125
    batch_norm_momentum: FractionBelowOne = 0.9
    batch_norm_epsilon: Positive[float] = 1e-5

    def build(
        self, *, image_shape: ImageShape, num_classes: int, execution: Execution, rngs: nnx.Rngs
    ) -> nnx.Module:
        check_fields(self, "model.")
        if min(image_shape[:2]) < 8:
            raise ValueError(
                f"images of {image_shape[0]}x{image_shape[1]} are too small for model=resnet9, "
                "which needs 8x8 or more"
            )
        return ResNet9Module(self, image_shape[-1], num_classes, Layers(self, execution, rngs))


class ResNet9Module(nnx.Module):
    """Three layers after a first convolution, as the module's docstring describes them."""

    def __init__(self, config: ResNet9, in_channels: int, num_classes: int, layers: Layers):
        def layer(in_width: int, out_width: int) -> ConvNormRelu:
            return ConvNormRelu(in_width, out_width, layers)

        first, second, third, last = config.widths
        self.prep = layer(in_channels, first)
        self.layer_1 = layer(first, second)
        self.residual_1 = nnx.Dict(first=layer(second, second), second=layer(second, second))
        self.layer_2 = layer(second, third)
        self.layer_3 = layer(third, last)
        self.residual_3 = nnx.Dict(first=layer(last, last), second=layer(last, last))
        self.classifier = layers.classifier(last, num_classes, use_bias=False)
        self.logit_scale = config.logit_scale

    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        def residual(pair: nnx.Dict, inputs: jax.Array) -> jax.Array:
            return inputs + pair["second"](pair["first"](inputs, train=train), train=train)

        hidden = self.layer_1(self.prep(images, train=train), train=train)
        hidden = residual(self.residual_1, max_pool_side_by_side(hidden, (2, 2)))
        hidden = max_pool_side_by_side(self.layer_2(hidden, train=train), (2, 2))
        hidden = max_pool_side_by_side(self.layer_3(hidden, train=train), (2, 2))
        hidden = residual(self.residual_3, hidden)
        hidden = max_pool_side_by_side(hidden, hidden.shape[1:3])[:, 0, 0]
        return self.classifier(hidden) * self.logit_scale


class ConvNormRelu(nnx.Module):
    """3x3 convolution, BatchNorm, ReLU."""

    def __init__(self, in_width: int, out_width: int, layers: Layers):
        # PyTorch's initializer, with which the rates of the recipe were found.
        self.conv = layers.conv(in_width, out_width, 3, kernel_initializer=uniform_fan_in)
        self.norm = layers.norm(out_width)

    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        return jax.nn.relu(self.norm(self.conv(images), train=train))
