"""The digits experiment in PyTorch: same network, data, recipe, evaluations and clock.

    python -m benchmarks pytorch_digits --seeds=20
    python -m benchmarks pytorch_digits --seeds=20 --settings="compiled, memory kept"

Every number of the recipe is read from the experiment, save that normalization statistics are
those of the whole batch (`--batch_norm_group_size=64` on our side); the code is what a PyTorch user
would write for speed: a fused optimizer, and where it is compiled, augmentation, network and loss
are one program. One JSON line a seed. The clock is DawnJAX's: it starts when every shape is warmed
up and compiled (on random data and a state that is thrown away) and stops at the end of the first
evaluation that reaches the target; reading the data and all evaluations count. Needs PyTorch, which
DawnJAX itself does not.
"""

import argparse
import copy
import dataclasses
import json
import math
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks import program_start, pytorch_settings
from dawnjax.config.experiment import Experiment, Sgd, WarmupCosine
from dawnjax.experiments import digits as digits_experiment
from dawnjax.input_pipeline import digits

# PyTorch's BatchNorm takes its statistics from the whole batch, so that is what is compared.
EXPERIMENT = dataclasses.replace(
    digits_experiment.EXPERIMENT,
    batch_norm_group_size=digits_experiment.EXPERIMENT.global_batch_size,
)

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError:
    sys.exit("pytorch_digits: PyTorch is not installed: pip install torch")


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


def batches(num_examples: int, batch_size: int) -> Iterator[torch.Tensor]:
    """Yields rows of the endless stream of shuffled epochs; nothing is dropped."""
    rows = torch.empty(0, dtype=torch.int64)
    while True:
        while len(rows) < batch_size:
            rows = torch.cat([rows, torch.randperm(num_examples)])
        yield rows[:batch_size]
        rows = rows[batch_size:]


def learning_rate(experiment: Experiment, step: int, num_steps: int, warmup_steps: int) -> float:
    """The rate of a step, counted from 0: linear warm-up, then a half cosine."""
    peak, config = experiment.optimizer.base_learning_rate, experiment.schedule
    if step < warmup_steps:
        first = config.initial_fraction
        return peak * (first + (1 - first) * step / warmup_steps)
    progress = (step - warmup_steps) / max(1, num_steps - warmup_steps)
    last = config.final_fraction
    return peak * (last + (1 - last) * (1 + math.cos(math.pi * progress)) / 2)


class Trainer:
    """Model, optimizer and the two functions that may be compiled."""

    def __init__(self, experiment: Experiment, settings: pytorch_settings.Settings):
        self.experiment = experiment
        self.spec = experiment.data.spec()
        layout = torch.channels_last if settings.is_channels_last else torch.contiguous_format
        self.layout = layout
        self.model = ResNet(experiment, self.spec.num_classes).to(memory_format=layout)
        self.forward, self.loss_of = self.model, self.augmented_loss
        if settings.mode:
            self.forward = torch.compile(self.model, mode=settings.mode, dynamic=False)
            self.loss_of = torch.compile(self.augmented_loss, mode=settings.mode, dynamic=False)

    def reset(self, seed: int) -> None:
        """Draws a fresh state in the memory of the old one."""
        torch.manual_seed(seed)
        fresh = ResNet(self.experiment, self.spec.num_classes)
        self.model.load_state_dict(copy.deepcopy(fresh.state_dict()))
        config = self.experiment.optimizer
        params = list(self.model.parameters())
        matrices = [p for p in params if p.ndim > 1 or config.decay_norm_and_bias]
        others = [p for p in params if not (p.ndim > 1 or config.decay_norm_and_bias)]
        self.optimizer = torch.optim.SGD(
            [
                {"params": matrices, "weight_decay": config.weight_decay},
                {"params": others, "weight_decay": 0.0},
            ],
            lr=config.base_learning_rate,
            momentum=config.momentum,
            nesterov=config.nesterov,
            fused=True,
        )

    def load(self, split: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Reads a split: normalized images [N, 1, 8, 8] and labels."""
        arrays = self.experiment.data.load(split)
        return self.normalized(arrays["image"]), torch.from_numpy(arrays["label"].astype(np.int64))

    def normalized(self, images: np.ndarray) -> torch.Tensor:
        """Images [N, 1, 8, 8] of levels [N, 8, 8, 1]."""
        levels = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
        levels = (levels - self.spec.mean[0]) / self.spec.std[0]
        return levels.contiguous(memory_format=self.layout)

    def augmented_loss(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        images = augment(images, self.experiment).contiguous(memory_format=self.layout)
        smoothing = self.experiment.task.label_smoothing
        return F.cross_entropy(self.model(images), labels, label_smoothing=smoothing)

    def train_rows(
        self, images: torch.Tensor, labels: torch.Tensor, rows: torch.Tensor, rate: float = 0.0
    ) -> None:
        """Trains one step on rows of a split."""
        loss = self.loss_of(images[rows], labels[rows])
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()

    @torch.inference_mode()
    def evaluate(self, images: torch.Tensor, labels: torch.Tensor) -> float:
        self.model.eval()
        correct = (self.forward(images).argmax(1) == labels).sum()
        self.model.train()
        return correct.item() / len(labels)

    def warm_up(self) -> None:
        """Runs every shape on random data.

        They come to the model as the true ones do: `torch.compile` compiles again where the strides
        differ, and of an image with one channel they depend on how it was made.
        """
        self.reset(0)
        height, width, channels = self.spec.image_shape
        for count, run in (
            (self.experiment.global_batch_size, self.train_rows),
            (self.spec.num_eval_examples, lambda x, y, rows: self.evaluate(x, y)),
        ):
            levels = np.random.default_rng(0).integers(0, 256, (count, height, width, channels))
            images = self.normalized(levels.astype(np.uint8))
            for _ in range(5):
                run(images, torch.zeros(count, dtype=torch.int64), torch.randperm(count))

    def trial(self, seed: int) -> dict[str, Any]:
        """Trains one seed to the target and gives its record."""
        experiment, spec = self.experiment, self.spec
        self.reset(seed)
        digits._read_table.cache_clear()  # the file is read on the clock of every trial
        num_steps = experiment.num_steps(spec)
        warmup_steps = round(experiment.schedule.warmup_epochs * experiment.steps_per_epoch(spec))
        evaluation_steps = set(experiment.evaluation_steps(spec))
        target = np.float32(experiment.targets[0].value)
        evaluations, train_seconds, reached_seconds = [], 0.0, None
        run_start = time.perf_counter()
        train_images, train_labels = self.load("train")
        eval_images, eval_labels = self.load("eval")
        rows = batches(len(train_labels), experiment.global_batch_size)
        stretch_start = time.perf_counter()
        step = 0
        while step < num_steps and reached_seconds is None:
            rate = learning_rate(experiment, step, num_steps, warmup_steps)
            self.train_rows(train_images, train_labels, next(rows), rate)
            step += 1
            if step in evaluation_steps:
                train_seconds += time.perf_counter() - stretch_start
                accuracy = self.evaluate(eval_images, eval_labels)
                stretch_start = time.perf_counter()
                evaluations.append(
                    {
                        "step": step,
                        "epoch": experiment.epoch_of_step(step, spec),
                        "seconds_since_run_start": stretch_start - run_start,
                        "top_1_accuracy": accuracy,
                    }
                )
                if np.float32(accuracy) >= target:
                    reached_seconds = stretch_start - run_start
        return {
            "seed": seed,
            "reached": reached_seconds is not None,
            "time_to_accuracy_seconds": reached_seconds,
            "train_seconds": train_seconds,
            "run_seconds": time.perf_counter() - run_start,
            "accuracy": max(entry["top_1_accuracy"] for entry in evaluations),
            "epochs": experiment.epoch_of_step(step, spec),
            "steps": step,
            "step_seconds": train_seconds / step,
            "evaluations": evaluations,
        }


def main() -> int:
    """Runs the seeds and prints a JSON line for each."""
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="trials")
    parser.add_argument("--first_seed", type=int, default=0)
    parser.add_argument("--settings", choices=pytorch_settings.SETTINGS, default="eager")
    options = parser.parse_args()
    experiment = EXPERIMENT
    if not isinstance(experiment.optimizer, Sgd) or not isinstance(
        experiment.schedule, WarmupCosine
    ):
        sys.exit("pytorch_digits: only SGD with a warm-up and a cosine is written here")
    if experiment.batch_norm_group_size != experiment.global_batch_size:
        sys.exit("pytorch_digits: PyTorch's BatchNorm takes its statistics from the whole batch")
    trainer = Trainer(experiment, pytorch_settings.SETTINGS[options.settings])
    trainer.warm_up()
    setup_seconds = time.perf_counter() - program_start
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        record = trainer.trial(seed)
        record["total_seconds"] = setup_seconds + record["run_seconds"]
        record["setup_seconds"] = setup_seconds
        record["settings"] = options.settings
        record["threads"] = torch.get_num_threads()
        record["torch"] = torch.__version__
        print(json.dumps(record), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
