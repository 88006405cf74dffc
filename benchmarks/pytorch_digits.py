"""PyTorch's side of the digits experiment; `pytorch_trial.py` runs its trials.

    python -m benchmarks pytorch_digits --seeds=20
    python -m benchmarks pytorch_digits --seeds=20 --settings="compiled, memory kept"

Normalization statistics are those of the whole batch (`--batch_norm_group_size=64` on our side).
Where it is compiled, augmentation, network and loss are one program.
"""

import copy
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks import pytorch_optimizers, pytorch_trial
from benchmarks.pytorch_settings import Settings
from dawnjax.config.experiment import Experiment
from dawnjax.experiments.digits import EXPERIMENT
from dawnjax.input_pipeline.datasets import digits


class Block(nn.Module):
    """A basic residual block."""

    def __init__(self, in_width: int, width: int, stride: int):
        super().__init__()
        self.conv_1 = nn.Conv2d(in_width, width, 3, stride, 1, bias=False)
        self.norm_1 = nn.BatchNorm2d(width)
        self.conv_2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm_2 = nn.BatchNorm2d(width)
        self.shortcut = nn.Identity()
        if stride > 1 or in_width != width:
            projection = nn.Conv2d(in_width, width, 1, stride, bias=False)
            self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(width))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = F.relu(self.norm_1(self.conv_1(images)))
        return F.relu(self.norm_2(self.conv_2(hidden)) + self.shortcut(images))


class ResNet(nn.Module):
    """Stem, stages of blocks, mean over positions, linear classifier."""

    def __init__(self, experiment: Experiment, num_classes: int):
        super().__init__()
        config = experiment.model
        widths = config.stage_widths
        self.stem = nn.Conv2d(1, widths[0], 3, 1, 1, bias=False)
        self.stem_norm = nn.BatchNorm2d(widths[0])
        blocks, in_width = [], widths[0]
        for stage, (size, width) in enumerate(zip(config.stage_sizes, widths, strict=True)):
            for block in range(size):
                blocks.append(Block(in_width, width, 2 if stage > 0 and block == 0 else 1))
                in_width = width
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Linear(in_width, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.BatchNorm2d):
                module.momentum = 1 - config.batch_norm_momentum
                module.eps = config.batch_norm_epsilon
            elif isinstance(module, Block):
                nn.init.constant_(module.norm_2.weight, config.last_scale)
        nn.init.zeros_(self.classifier.bias)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = self.blocks(F.relu(self.stem_norm(self.stem(images))))
        return self.classifier(hidden.mean((2, 3)))


def augment(images: torch.Tensor, experiment: Experiment) -> torch.Tensor:
    """Moves and scales each image by its own random amounts, bilinearly."""
    config = experiment.task.augmentation
    count, _, height, width = images.shape
    shift = (2 * torch.rand(count, 2) - 1) * config.max_translation_pixels
    scale = 1 / (1 + (2 * torch.rand(count) - 1) * config.max_scale_fraction)
    maps = torch.zeros(count, 2, 3)
    maps[:, 0, 0] = maps[:, 1, 1] = scale
    maps[:, :, 2] = -2 * shift / torch.tensor([width, height])
    grid = F.affine_grid(maps, list(images.shape), align_corners=False)
    padding = {"zeros": "zeros", "edge": "border", "reflect": "reflection"}[config.padding]
    return F.grid_sample(images, grid, padding_mode=padding, align_corners=False)


class Trainer:
    """Model, optimizer and the two functions that may be compiled."""

    def __init__(self, experiment: Experiment, settings: Settings):
        self.experiment, self.spec = experiment, experiment.data.spec()
        layout = torch.channels_last if settings.is_channels_last else torch.contiguous_format
        self.layout = layout
        self.model = ResNet(experiment, self.spec.num_classes).to(memory_format=layout)
        self.forward = pytorch_trial.compiled(self.model, settings)
        self.loss_of = pytorch_trial.compiled(self.augmented_loss, settings)

    def reset(self, seed: int) -> None:
        """Draws a fresh state in the memory of the old one."""
        torch.manual_seed(seed)
        fresh = ResNet(self.experiment, self.spec.num_classes)
        self.model.load_state_dict(copy.deepcopy(fresh.state_dict()))
        self.optimizer = pytorch_optimizers.optimizer_of(self.experiment.optimizer, self.model)

    def warm_up(self) -> None:
        """Runs every shape on random data.

        They come to the model as the true ones do: `torch.compile` compiles again where the strides
        differ, and of an image with one channel they depend on how it was made.
        """
        self.reset(0)

        def made_up(count: int) -> tuple[torch.Tensor, torch.Tensor]:
            shape = (count, *self.spec.image_shape)
            levels = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
            return self.normalized(levels), torch.zeros(count, dtype=torch.int64)

        images, labels = made_up(self.experiment.global_batch_size)
        evaluated = made_up(self.spec.num_eval_examples)
        for _ in range(5):
            rows = torch.randperm(len(images))
            self.train((images[rows], labels[rows]), 0.0)
            self.evaluate(*evaluated)

    def load(self, seed: int) -> tuple[Iterator[tuple[torch.Tensor, ...]], tuple[Any, ...]]:
        """Reads both splits: normalized images [N, 1, 8, 8] and labels."""
        digits._read_table.cache_clear()  # every trial reads the file
        arrays = [self.experiment.data.load(split) for split in ("train", "eval")]
        (images, labels), evaluated = (
            (self.normalized(a["image"]), torch.from_numpy(a["label"].astype(np.int64)))
            for a in arrays
        )
        order = pytorch_trial.endless_rows(len(labels), self.experiment.global_batch_size)
        return ((images[rows], labels[rows]) for rows in order), evaluated

    def normalized(self, images: np.ndarray) -> torch.Tensor:
        """Images [N, 1, 8, 8] of levels [N, 8, 8, 1]."""
        levels = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
        levels = (levels - self.spec.mean[0]) / self.spec.std[0]
        return levels.contiguous(memory_format=self.layout)

    def augmented_loss(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        images = augment(images, self.experiment).contiguous(memory_format=self.layout)
        smoothing = self.experiment.task.label_smoothing
        return F.cross_entropy(self.model(images), labels, label_smoothing=smoothing)

    def train(self, batch: tuple[torch.Tensor, ...], rate: float) -> torch.Tensor:
        """Trains one step."""
        loss = self.loss_of(*batch)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        for group in self.optimizer.param_groups:
            group["lr"] = rate * self.experiment.optimizer.base_learning_rate
        self.optimizer.step()
        return loss

    @torch.inference_mode()
    def evaluate(self, images: torch.Tensor, labels: torch.Tensor) -> dict[str, float]:
        """The share of images whose highest score is at their label."""
        self.model.eval()
        correct = (self.forward(images).argmax(1) == labels).sum()
        self.model.train()
        return {"top_1_accuracy": correct.item() / len(labels)}


def main() -> int:
    """Runs the seeds and prints a JSON line for each."""
    return pytorch_trial.run(__doc__, EXPERIMENT, Trainer)


if __name__ == "__main__":
    sys.exit(main())
