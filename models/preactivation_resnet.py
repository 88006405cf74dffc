"""Pre-activation residual networks for small images, such as ResNet-164, DAWNBench's seed.

BatchNorm and ReLU come before each convolution.

Source: He et al. 2016, "Identity Mappings in Deep Residual Networks" (arXiv 1603.05027), section
4.1 and appendix; DAWNBench's seeds, `pytorch/CIFAR10/benchmark/models/resnet.py` in
https://github.com/stanford-futuredata/dawn-bench-models.
"""

import jax
from flax import nnx

from dawnjax.models.configs.preactivation_resnet import PreactivationResNet
from dawnjax.models.configs.resnet import EXPANSION, Block
from dawnjax.models.configs.types import ImageShape
from dawnjax.models.execution import Execution
from dawnjax.models.layers import Layers
from dawnjax.models.resnet import stage_blocks


class PreactivationResNetModule(nnx.Module):
    """Stem, stages of blocks, BatchNorm and ReLU, mean over positions, linear classifier."""

    def __init__(
        self,
        config: PreactivationResNet,
        *,
        image_shape: ImageShape,
        num_classes: int,
        execution: Execution,
        rngs: nnx.Rngs,
    ):
        width, layers = config.stem_width, Layers(config, execution, rngs)
        self.stem = layers.conv(image_shape[-1], width, 3)
        blocks = {}
        for name, out_width, stride in stage_blocks(config.stage_sizes, config.stage_widths):
            blocks[name] = PreactivationBlock(width, out_width, stride, config.block, layers)
            width = out_width
        self.order = tuple(blocks)
        self.blocks = nnx.Dict(blocks)
        self.final_norm = layers.norm(width)
        self.classifier = layers.classifier(width, num_classes)

    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        hidden = self.stem(images)
        for name in self.order:
            hidden = self.blocks[name](hidden, train=train)
        hidden = self.final_norm(hidden, train=train, activation="relu")
        return self.classifier(hidden.mean((1, 2)))


class PreactivationBlock(nnx.Module):
    """BatchNorm, ReLU and convolution, two or three times, and a shortcut."""

    def __init__(self, in_width: int, out_width: int, stride: int, block: Block, layers: Layers):
        if block == "basic":
            shapes = [(in_width, out_width, 3, stride), (out_width, out_width, 3, 1)]
        else:
            width = out_width // EXPANSION["bottleneck"]
            shapes = [(in_width, width, 1, 1), (width, width, 3, stride), (width, out_width, 1, 1)]
        made = {}
        for index, (before, after, size, step) in enumerate(shapes, start=1):
            made[f"norm_{index}"] = layers.norm(before)
            made[f"conv_{index}"] = layers.conv(before, after, size, step)
        self.layers = nnx.Dict(made)
        self.num_layers = len(shapes)
        is_same = stride == 1 and in_width == out_width
        self.projection = None if is_same else layers.conv(in_width, out_width, 1, stride)

    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Map [batch, height, width, in_width] to [batch, height / stride, ..., out_width]."""
        hidden = shortcut = images
        for index in range(1, self.num_layers + 1):
            norm, conv = self.layers[f"norm_{index}"], self.layers[f"conv_{index}"]
            activated = norm(hidden, train=train, activation="relu")
            if index == 1 and self.projection is not None:
                # As in DAWNBench's seeds, which project what the first ReLU gives.
                shortcut = self.projection(activated)
            hidden = conv(activated)
        return hidden + shortcut
