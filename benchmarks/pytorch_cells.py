"""PyTorch's side of the small detection experiment; `pytorch_trial.py` runs its trials.

Boxes are matched for a whole batch at once, and the hardest background boxes found by a sort.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks import pytorch_trial
from benchmarks.pytorch_settings import Settings
from dawnjax.config.experiment import Experiment
from dawnjax.experiments.cells_ssd_small import EXPERIMENT as EXPERIMENT
from dawnjax.input_pipeline.reading.batches import ExampleOrder
from dawnjax.tasks import coco_scores

CODE_WEIGHTS = torch.tensor([10.0, 10.0, 5.0, 5.0])
LARGEST_SCALE = float(np.log(1000 / 16))


def overlaps(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Intersection over union [..., n, m]; 0 of boxes without area. It has no gradient."""

    def shared_side(axis: int) -> torch.Tensor:
        last = torch.minimum(first[..., :, None, axis + 2], second[..., None, :, axis + 2])
        return last.sub_(torch.maximum(first[..., :, None, axis], second[..., None, :, axis]))

    shared = shared_side(0).clamp_(min=0).mul_(shared_side(1).clamp_(min=0))
    areas = [(boxes[..., 2:] - boxes[..., :2]).clamp(min=0).prod(-1) for boxes in (first, second)]
    union = (areas[0][..., :, None] + areas[1][..., None, :]).sub_(shared)
    return shared.div_(union.clamp_(min=1e-12))


def to_corners(centred: torch.Tensor) -> torch.Tensor:
    half = centred[..., 2:] / 2
    return torch.cat([centred[..., :2] - half, centred[..., :2] + half], dim=-1)


def to_centred(corners: torch.Tensor) -> torch.Tensor:
    sides = corners[..., 2:] - corners[..., :2]
    return torch.cat([corners[..., :2] + sides / 2, sides], dim=-1)


def encode(corners: torch.Tensor, centred: torch.Tensor) -> torch.Tensor:
    """Codes without weights; a box without area has that of the reference's own size."""
    boxes = to_centred(corners)
    shift = (boxes[..., :2] - centred[..., :2]) / centred[..., 2:]
    ratio = boxes[..., 2:] / centred[..., 2:]
    return torch.cat([shift, torch.where(ratio > 0, ratio, 1.0).log()], dim=-1)


def decode(codes: torch.Tensor, centred: torch.Tensor) -> torch.Tensor:
    """Corners of codes without weights."""
    centre = codes[..., :2] * centred[..., 2:] + centred[..., :2]
    sides = codes[..., 2:].clamp(max=LARGEST_SCALE).exp() * centred[..., 2:]
    return to_corners(torch.cat([centre, sides], dim=-1))


def mirrored(
    images: torch.Tensor, boxes: torch.Tensor, classes: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Images and boxes, turned along each axis by a coin an image.

    Args:
      images: [batch, height, width, 3].
      boxes: Corners as fractions [batch, objects, 4]; padding, of class 0, stays as it is.
    """
    is_object = (classes > 0)[..., None]
    for axis, first, last in ((2, 0, 2), (1, 1, 3)):
        coins = torch.rand(len(images)) < 0.5
        images = torch.where(coins[:, None, None, None], images.flip(axis), images)
        turned = boxes.clone()
        turned[..., first] = 1 - boxes[..., last]
        turned[..., last] = 1 - boxes[..., first]
        boxes = torch.where(coins[:, None, None] & is_object, turned, boxes)
    return images, boxes


def detections(config: Any, corners: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """Detections of one image, in falling order of score: float [most, 6].

    Boxes are kept greedily, class by class, on the host. `corners` are [boxes, 4].
    """
    rows = []
    for label in range(scores.shape[1]):
        values, order = scores[:, label].sort(descending=True, stable=True)
        count = min(int((values > config.least_score).sum()), config.most_a_class)
        of_class = corners[order[:count]]
        rivals = (overlaps(of_class, of_class) >= config.overlap).numpy()
        kept: list[int] = []
        for place in range(count):
            if not rivals[place, kept].any():
                kept.append(place)
        columns = (of_class[kept], values[kept, None], torch.full((len(kept), 1), label + 1.0))
        rows.append(torch.cat(columns, dim=1))
    found = torch.cat(rows)
    best = found[:, 4].sort(descending=True, stable=True).indices[: config.most]
    return F.pad(found[best], (0, 0, 0, config.most - len(best)))


class SmallSSD(nn.Module):
    """Stages of convolutions with GroupNorm, and two heads on each of the last ones."""

    def __init__(self, experiment: Experiment, spec: Any):
        super().__init__()
        config, stages, width = experiment.model, [], 3
        for out in config.widths:
            layers: list[nn.Module] = []
            for number in range(config.convolutions):
                first = number == 0
                stride, in_width = (2, width) if first else (1, out)
                layers.append(nn.Conv2d(in_width, out, 3, stride, 1, bias=False))
                nn.init.kaiming_normal_(layers[-1].weight, mode="fan_out", nonlinearity="relu")
                layers += [nn.GroupNorm(config.groups, out), nn.ReLU()]
            stages.append(nn.Sequential(*layers))
            width = out
        self.stages = nn.ModuleList(stages)
        counts = config.boxes.boxes_a_cell()
        pairs = list(zip(config.widths[-len(counts) :], counts, strict=True))
        self.num_logits = spec.num_classes + 1
        self.boxes = nn.ModuleList(nn.Conv2d(w, 4 * n, 3, padding=1) for w, n in pairs)
        self.classes = nn.ModuleList(
            nn.Conv2d(w, self.num_logits * n, 3, padding=1) for w, n in pairs
        )
        for head in (*self.boxes, *self.classes):
            nn.init.xavier_uniform_(head.weight)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Codes [batch, boxes, 4] and logits [batch, boxes, 1 + classes]."""
        maps = []
        for stage in self.stages:
            images = stage(images)
            maps.append(images)
        maps = maps[-len(self.boxes) :]

        def values(heads: nn.ModuleList, count: int) -> torch.Tensor:
            parts = [
                head(image).permute(0, 2, 3, 1).reshape(len(image), -1, count)
                for head, image in zip(heads, maps, strict=True)
            ]
            return torch.cat(parts, dim=1)

        return values(self.boxes, 4), values(self.classes, self.num_logits)


def targets_of(
    centred: torch.Tensor, boxes: torch.Tensor, classes: torch.Tensor, least: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and classes of the default boxes, for a batch of padded objects."""
    overlap = overlaps(boxes, to_corners(centred))
    overlap = overlap.masked_fill((classes == 0)[..., None], -1.0)
    greatest, chosen = overlap.max(1)
    claimed, numbers = overlap.argmax(2), torch.arange(boxes.shape[1]).expand_as(classes)
    claimant = torch.full_like(chosen, -1)
    claimant.scatter_reduce_(1, claimed, numbers.where(classes > 0, -1), "amax")
    chosen = torch.where(claimant >= 0, claimant, chosen)
    labels = classes.gather(1, chosen)
    labels = labels.where((claimant >= 0) | (greatest > least), 0)
    corners = boxes.gather(1, chosen[..., None].expand(*chosen.shape, 4))
    return encode(corners, centred) * CODE_WEIGHTS, labels


class Trainer(pytorch_trial.Trainer):
    def __init__(self, experiment: Experiment, settings: Settings):
        spec = experiment.data.spec()
        self.centred = torch.from_numpy(experiment.model.default_boxes(spec.image_shape))
        self.layout = torch.channels_last if settings.is_channels_last else torch.contiguous_format
        self.mean, self.std = (torch.tensor(part)[:, None, None] for part in (spec.mean, spec.std))

        def network() -> nn.Module:
            return SmallSSD(experiment, spec).to(memory_format=self.layout)

        super().__init__(experiment, settings, network)

    def normalized(self, images: torch.Tensor) -> torch.Tensor:
        pixels = images.permute(0, 3, 1, 2).float() / 255
        return ((pixels - self.mean) / self.std).contiguous(memory_format=self.layout)

    def loss(self, images: torch.Tensor, boxes: torch.Tensor, classes: torch.Tensor):
        task = self.experiment.task
        codes, logits = self.model(images)
        targets, labels = targets_of(self.centred, boxes, classes, task.least_overlap)
        is_positive = labels > 0
        positives = is_positive.sum(1)
        of_codes = F.smooth_l1_loss(codes, targets, reduction="none").sum(-1)
        entropies = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
        hardness = entropies.detach().masked_fill(is_positive, 0.0)
        ranks = hardness.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        is_chosen = is_positive | (ranks < task.negatives * positives[:, None])
        sums = (of_codes * is_positive + entropies * is_chosen).sum(1)
        return (sums / positives.clamp(min=1)).mean()

    def warm_up(self) -> None:
        self.reset(0)
        shape, batch = self.spec.image_shape, self.experiment.global_batch_size
        images = torch.ones(batch, *shape, dtype=torch.uint8)
        boxes = torch.tensor([0.1, 0.1, 0.4, 0.5]).expand(batch, self.spec.most_objects, 4)
        classes = torch.ones(batch, self.spec.most_objects, dtype=torch.int64)
        for _ in range(3):
            self.train((self.normalized(images), boxes, classes), 0.0)
        rows = self.experiment.evaluation.global_batch_size
        self.found(torch.ones(rows, *shape, dtype=torch.uint8))

    def load(self, seed: int) -> tuple[Iterator[tuple[torch.Tensor, ...]], tuple[Any, ...]]:
        """Training images, in DawnJAX's order and mirrored at random, and evaluation images."""
        data = self.experiment.data
        train = {name: torch.from_numpy(np.asarray(a)) for name, a in data.load("train").items()}
        order = ExampleOrder(seed=seed, num_train_examples=self.spec.num_train_examples)

        def stream() -> Iterator[tuple[torch.Tensor, ...]]:
            for step in itertools.count():
                rows = order.steps(step, 1, self.experiment.global_batch_size).index[0]
                index = torch.from_numpy(rows).long()
                images, boxes = train["image"][index], train["boxes"][index]
                classes = train["classes"][index].long()
                images, boxes = mirrored(images, boxes, classes)
                yield self.normalized(images), boxes, classes

        images = torch.from_numpy(np.asarray(data.load("eval")["image"]))
        return stream(), (images, data.evaluated_objects())

    @torch.inference_mode()
    def found(self, images: torch.Tensor) -> torch.Tensor:
        """Detections [batch, most, 6]."""
        self.model.eval()
        codes, logits = self.forward(self.normalized(images))
        corners = decode(codes / CODE_WEIGHTS, self.centred)
        scores, config = logits.softmax(-1)[..., 1:], self.experiment.task.search
        parts = zip(corners, scores, strict=True)
        return torch.stack([detections(config, *image) for image in parts])

    def evaluate(self, images: torch.Tensor, truth: Any) -> dict[str, float]:
        rows, found = self.experiment.evaluation.global_batch_size, []
        for start in range(0, len(images), rows):
            batch = images[start : start + rows]
            missing = rows - len(batch)  # the compiled shape
            batch = torch.cat([batch, batch[:1].expand(missing, *batch.shape[1:])])
            found.append(self.found(batch)[: rows - missing])
        return coco_scores.scores(truth, torch.cat(found).numpy())
