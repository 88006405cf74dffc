"""PyTorch's side of the digits experiment; `pytorch_trial.py` runs its trials.

Normalization statistics are those of the whole batch (`--batch_norm_group_size=64` on our side).
`torch.compile` makes one program of augmentation, network and loss.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks import pytorch_images, pytorch_trial
from benchmarks.pytorch_settings import Settings
from dawnjax.config.experiment import Experiment
from dawnjax.experiments.digits import EXPERIMENT as EXPERIMENT
from dawnjax.input_pipeline.datasets import digits


def augment(images: torch.Tensor, experiment: Experiment) -> torch.Tensor:
    """Images [N, 1, 8, 8], each moved and scaled by its own random amounts, bilinearly."""
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


class Trainer(pytorch_trial.Trainer):
    """The residual network, on images that are augmented anew at each step."""

    def __init__(self, experiment: Experiment, settings: Settings):
        layout = torch.channels_last if settings.is_channels_last else torch.contiguous_format
        self.layout, spec = layout, experiment.data.spec()

        def network() -> Any:
            made: Any = pytorch_images.ResNet(experiment.model, spec)
            return made.to(memory_format=layout)

        super().__init__(experiment, settings, network)

    def warm_up(self) -> None:
        """Run every shape on random data with the strides of the true data.

        `torch.compile` compiles again where strides differ, and an image of one channel has
        several.
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
        """Both splits: normalized images [N, 1, 8, 8] and labels."""
        digits._read.cache_clear()  # every trial reads the file
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

    def loss(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        images = augment(images, self.experiment).contiguous(memory_format=self.layout)
        smoothing = self.experiment.task.label_smoothing
        return F.cross_entropy(self.model(images), labels, label_smoothing=smoothing)

    @torch.inference_mode()
    def evaluate(self, images: torch.Tensor, labels: torch.Tensor) -> dict[str, float]:
        """Top-1 accuracy, a fraction."""
        self.model.eval()
        correct = (self.forward(images).argmax(1) == labels).sum()
        self.model.train()
        return {"top_1_accuracy": correct.item() / len(labels)}
