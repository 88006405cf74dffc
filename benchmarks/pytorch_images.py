"""PyTorch's residual network; submodules have the names of DawnJAX's parameters."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from dawnjax.models.configs.resnet import EXPANSION


class Block(nn.Module):
    """A residual block: two 3x3 convolutions, or a bottleneck that strides in its 3x3."""

    def __init__(self, config: Any, in_width: int, width: int, stride: int):
        super().__init__()
        layers = [(in_width, width, 3, stride), (width, width, 3, 1)]
        if config.block == "bottleneck":
            inside = width // EXPANSION["bottleneck"]
            layers = [(in_width, inside, 1, 1), (inside, inside, 3, stride), (inside, width, 1, 1)]
        self.count = len(layers)
        for number, (before, after, size, step) in enumerate(layers, start=1):
            convolution = nn.Conv2d(before, after, size, step, size // 2, bias=False)
            setattr(self, f"conv_{number}", convolution)
            setattr(self, f"norm_{number}", nn.BatchNorm2d(after))
        self.projection = None
        if stride > 1 or in_width != width:
            self.projection = nn.Conv2d(in_width, width, 1, stride, bias=False)
            self.projection_norm = nn.BatchNorm2d(width)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = images
        for number in range(1, self.count + 1):
            convolved = getattr(self, f"conv_{number}")(hidden)
            hidden = getattr(self, f"norm_{number}")(convolved)
            hidden = F.relu(hidden) if number < self.count else hidden
        if self.projection is not None:
            images = self.projection_norm(self.projection(images))
        return F.relu(hidden + images)


class ResNet(nn.Module):
    """Stem, stages of blocks, mean over positions, linear classifier."""

    def __init__(self, config: Any, spec: Any):
        super().__init__()
        width = config.stage_widths[0] // EXPANSION[config.block]
        is_small = config.stem == "small_images"
        size, stride, edge = (3, 1, 1) if is_small else (7, 2, 3)
        self.stem = nn.Conv2d(spec.image_shape[-1], width, size, stride, edge, bias=False)
        self.stem_norm = nn.BatchNorm2d(width)
        self.pool = nn.Identity() if is_small else nn.MaxPool2d(3, 2, 1)
        blocks = {}
        stages = zip(config.stage_sizes, config.stage_widths, strict=True)
        for stage, (count, out) in enumerate(stages, start=1):
            for block in range(1, count + 1):
                stride = 2 if stage > 1 and block == 1 else 1
                blocks[f"stage_{stage}_block_{block}"] = Block(config, width, out, stride)
                width = out
        self.blocks = nn.ModuleDict(blocks)
        self.classifier = nn.Linear(width, spec.num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.BatchNorm2d):
                module.momentum = 1 - config.batch_norm_momentum
                module.eps = config.batch_norm_epsilon
            elif isinstance(module, Block):
                last: Any = getattr(module, f"norm_{module.count}")
                nn.init.constant_(last.weight, config.last_scale)
        nn.init.zeros_(self.classifier.bias)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = self.pool(F.relu(self.stem_norm(self.stem(images))))
        for block in self.blocks.values():
            hidden = block(hidden)
        return self.classifier(hidden.mean((2, 3)))
