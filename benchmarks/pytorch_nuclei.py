"""PyTorch's side of the small segmentation experiment; `pytorch_trial.py` runs its trials.

    python -m benchmarks pytorch_nuclei --seeds=2

Proposals and samples are chosen for a whole batch at once, and only among as many places as the
image with the most objects needs. The trunk with pyramid and region head may be compiled; the
choices after it depend on the data. Images fill their arrays, as those of nuclei do.
"""

import itertools
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks import pytorch_trial
from benchmarks.pytorch_boxes import (
    CODE_WEIGHTS,
    decode,
    detections,
    encode,
    mirrored,
    overlaps,
    to_centred,
)
from benchmarks.pytorch_mask_rcnn import MaskRCNN, anchors_of, proposals, roi_align
from benchmarks.pytorch_settings import Settings
from dawnjax.config.experiment import Experiment
from dawnjax.experiments.nuclei_mask_rcnn_small import EXPERIMENT
from dawnjax.input_pipeline.reading.batches import ExampleOrder
from dawnjax.tasks.region_losses import ANCHOR_BETA


class Sample(NamedTuple):
    """Chosen candidates [batch, most], those with an object first, and padding behind them."""

    places: torch.Tensor
    is_positive: torch.Tensor
    is_real: torch.Tensor


def sampled(
    draws: torch.Tensor,
    is_positive: torch.Tensor,
    is_negative: torch.Tensor,
    most: int,
    most_positive: int,
) -> Sample:
    """Choose by draws in [0, 1), [batch, candidates]."""
    chances = draws.masked_fill(~is_positive, -1.0)
    least = chances.topk(most_positive).values[:, -1:]
    is_kept = is_positive & (draws >= least)
    ranked = torch.where(is_kept, 1 + draws, draws.masked_fill(~is_negative, -1.0))
    values, places = ranked.topk(most)
    return Sample(places, values >= 1, values >= 0)


def rows_of(values: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Rows of [batch, n, ...] at places [batch, m]."""
    return values[torch.arange(len(places))[:, None], places]


def mask_targets(
    regions: torch.Tensor, corners: torch.Tensor, masks: torch.Tensor, side: int
) -> torch.Tensor:
    """Masks in their objects' boxes, as seen through regions: [..., side, side], 0 or 1."""
    cells = masks.shape[-1]
    shares = (torch.arange(side) + 0.5) / side

    def weights(first: int) -> torch.Tensor:
        start, end = regions[..., first, None], regions[..., first + 2, None]
        length = (corners[..., first + 2] - corners[..., first]).clamp(min=1e-6)[..., None]
        points = start + (end - start) * shares
        places = (points - corners[..., first, None]) / length * cells - 0.5
        is_inside = (places >= -0.5) & (places < cells - 0.5)
        distances = (places.clamp(0, cells - 1)[..., None] - torch.arange(cells)).abs()
        return (1 - distances).clamp(min=0) * is_inside[..., None]

    seen = weights(1) @ (masks.float() / 255) @ weights(0).transpose(-1, -2)
    return (seen >= 0.5).float()


class Chosen(NamedTuple):
    """What a batch is learnt from, as in DawnJAX's task."""

    anchors: Sample
    anchor_codes: torch.Tensor
    regions: Sample
    corners: torch.Tensor
    classes: torch.Tensor
    codes: torch.Tensor
    masks: torch.Tensor


class Trainer(pytorch_trial.Trainer):
    def __init__(self, experiment: Experiment, settings: Settings):
        self.spec = spec = experiment.data.spec()
        self.layout = torch.channels_last if settings.is_channels_last else torch.contiguous_format
        self.mean, self.std = (torch.tensor(part)[:, None, None] for part in (spec.mean, spec.std))
        self.levels = anchors_of(experiment.model, spec.image_shape)
        self.anchors = torch.cat(self.levels)
        self.size = spec.image_shape[:2]
        self.scale = torch.tensor([self.size[1], self.size[0]] * 2, dtype=torch.float32)
        self.is_inside = (self.anchors >= 0).all(1) & (self.anchors <= self.scale).all(1)

        def network() -> MaskRCNN:
            model = MaskRCNN(experiment.model, spec.num_classes)
            return model.to(memory_format=self.layout)

        super().__init__(experiment, settings, network)
        self.loss_of = self.loss  # choices depend on the data: `forward` alone is compiled

    def normalized(self, images: torch.Tensor) -> torch.Tensor:
        pixels = images.permute(0, 3, 1, 2).float() / 255
        return ((pixels - self.mean) / self.std).contiguous(memory_format=self.layout)

    def draws(self, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
        """A number in [0, 1) for each anchor, and for each proposal and true box."""
        regions = self.experiment.task.regions.proposals + self.spec.most_objects
        return torch.rand(batch, len(self.anchors)), torch.rand(batch, regions)

    @torch.no_grad()
    def chosen(
        self,
        scores: list[torch.Tensor],
        codes: list[torch.Tensor],
        boxes: torch.Tensor,
        classes: torch.Tensor,
        masks: torch.Tensor,
    ) -> Chosen:
        config, is_object = self.experiment.task.regions, classes > 0
        corners, draws = boxes * self.scale, self.draws(len(boxes))

        def labelled(others: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            overlap = overlaps(corners, others).masked_fill_(~is_object[..., None], -1.0)
            return overlap, *overlap.max(1)

        overlap, best, objects = labelled(self.anchors)
        greatest = overlap.max(2, keepdim=True).values
        is_best = ((overlap >= greatest * (1 - 1e-6)) & (greatest > 0)).any(1)
        is_positive = self.is_inside & ((best >= config.object_overlap) | is_best)
        is_negative = self.is_inside & ~is_positive & (best < config.background_overlap)
        most = int(config.anchors * config.anchors_of_objects)
        anchors = sampled(draws[0], is_positive, is_negative, config.anchors, most)
        matched = rows_of(corners, objects.gather(1, anchors.places))
        anchor_codes = encode(matched, to_centred(self.anchors[anchors.places]))

        found = proposals(config, scores, codes, self.levels, self.size, config.scored)
        candidates = torch.cat([found.corners, corners], dim=1)
        is_real = torch.cat([found.is_real, is_object], dim=1)
        _, best, objects = labelled(candidates)
        has_object = best >= config.box_overlap
        regions = sampled(
            draws[1][:, : len(is_real[0])],
            is_real & has_object,
            is_real & ~has_object,
            config.sampled,
            config.num_masks,
        )
        objects = objects.gather(1, regions.places)
        candidates, matched = rows_of(candidates, regions.places), rows_of(corners, objects)
        has_area = (candidates[..., 2:] > candidates[..., :2]).all(-1, keepdim=True)
        references = torch.where(has_area, candidates, torch.tensor([0.0, 0.0, 1.0, 1.0]))
        region_codes = encode(matched, to_centred(references)) * CODE_WEIGHTS
        part = slice(config.num_masks)
        squares = rows_of(masks, objects[:, part])
        side = self.experiment.model.mask_side
        targets = mask_targets(candidates[:, part], matched[:, part], squares, side)
        region_classes = classes.gather(1, objects) * regions.is_positive
        return Chosen(
            anchors, anchor_codes, regions, candidates, region_classes, region_codes, targets
        )

    def loss(
        self, images: torch.Tensor, boxes: torch.Tensor, classes: torch.Tensor, masks: torch.Tensor
    ) -> torch.Tensor:
        most = int((classes > 0).sum(1).max())
        boxes, classes, masks = boxes[:, :most], classes[:, :most], masks[:, :most]
        config, model = self.experiment.model, self.model
        maps, scores, codes = self.forward(images)
        chosen = self.chosen(scores, codes, boxes, classes, masks)
        anchors, regions = chosen.anchors, chosen.regions
        of_anchors = torch.cat(scores, dim=1).gather(1, anchors.places)
        entropies = F.binary_cross_entropy_with_logits(
            of_anchors, anchors.is_positive.float(), reduction="none"
        )
        anchor_codes = rows_of(torch.cat(codes, dim=1), anchors.places)
        count = anchors.is_real.sum().clamp(min=1)
        total = (entropies * anchors.is_real).sum() / count
        total = total + _of_codes(
            anchor_codes, chosen.anchor_codes, anchors.is_positive, ANCHOR_BETA, count
        )
        logits, codes_of = model.box_head(roi_align(config, maps, chosen.corners, config.box_cells))
        entropies = F.cross_entropy(logits.transpose(1, 2), chosen.classes, reduction="none")
        count = regions.is_real.sum().clamp(min=1)
        total = total + (entropies * regions.is_real).sum() / count
        index = chosen.classes[..., None, None].expand(-1, -1, 1, 4)
        of_class = codes_of.gather(2, index)[:, :, 0]
        total = total + _of_codes(of_class, chosen.codes, chosen.classes > 0, 1.0, count)
        part = slice(self.experiment.task.regions.num_masks)
        features = roi_align(config, maps, chosen.corners[:, part], config.mask_cells)
        logits = model.mask_head(features, chosen.classes[:, part])
        entropies = F.binary_cross_entropy_with_logits(logits, chosen.masks, reduction="none")
        is_positive = regions.is_positive[:, part]
        sums = (entropies.mean((-1, -2)) * is_positive).sum()
        return total + sums / is_positive.sum().clamp(min=1)

    def warm_up(self) -> None:
        self.reset(0)
        shape, batch = self.spec.image_shape, self.experiment.global_batch_size
        images = torch.ones(batch, *shape, dtype=torch.uint8)
        boxes = torch.tensor([0.1, 0.1, 0.4, 0.5]).expand(batch, 4, 4)
        classes, side = torch.ones(batch, 4, dtype=torch.int64), self.spec.mask_side
        masks = torch.full((batch, 4, side, side), 255, dtype=torch.uint8)
        for _ in range(3):
            self.train((self.normalized(images), boxes, classes, masks), 0.0)
        rows = self.experiment.evaluation.global_batch_size
        self.found(torch.ones(rows, *shape, dtype=torch.uint8))

    def load(self, seed: int) -> tuple[Iterator[tuple[torch.Tensor, ...]], tuple[Any, ...]]:
        """Training images, in DawnJAX's order and mirrored at random, and evaluation images."""
        data = self.experiment.data
        read = {name: np.asarray(array) for name, array in data.load("train").items()}
        assert (read["covered"] == 1).all(), "images must fill their arrays"
        train = {n: torch.from_numpy(read[n]) for n in ("image", "boxes", "classes", "masks")}
        order = ExampleOrder(seed=seed, num_train_examples=self.spec.num_train_examples)

        def stream() -> Iterator[tuple[torch.Tensor, ...]]:
            for step in itertools.count():
                rows = order.steps(step, 1, self.experiment.global_batch_size).index[0]
                index = torch.from_numpy(rows).long()
                images, boxes, classes, masks = (train[name][index] for name in train)
                images, boxes, masks = mirrored(images, boxes, classes, masks)
                yield self.normalized(images), boxes, classes.long(), masks

        images = torch.from_numpy(np.asarray(data.load("eval")["image"]))
        return stream(), (images, data.evaluated_objects())

    @torch.inference_mode()
    def found(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Detections [batch, most, 6], and their masks, uint8 [batch, most, side, side]."""
        self.model.eval()
        task, config, model = self.experiment.task, self.experiment.model, self.model
        maps, scores, codes = self.forward(self.normalized(images))
        before = task.regions.scored_evaluated
        boxes = proposals(task.regions, scores, codes, self.levels, self.size, before)
        logits, codes_of = model.box_head(roi_align(config, maps, boxes.corners, config.box_cells))
        references = to_centred(boxes.corners)[:, :, None]
        corners = decode(codes_of[:, :, 1:] / CODE_WEIGHTS, references)
        corners = corners.clamp(min=0).minimum(self.scale)
        probabilities = logits.softmax(-1)[..., 1:] * boxes.is_real[..., None]
        parts = zip(corners, probabilities, strict=True)
        best = torch.stack([detections(task.search, *image) for image in parts])
        features = roi_align(config, maps, best[..., :4], config.mask_cells)
        masks = model.mask_head(features, best[..., 5].long()).sigmoid()
        best[..., :4] /= self.scale
        return best, (255 * masks).round().to(torch.uint8)

    def evaluate(self, images: torch.Tensor, truth: Any) -> dict[str, float]:
        rows = self.experiment.evaluation.global_batch_size
        found, masks = [], []
        for start in range(0, len(images), rows):
            batch = images[start : start + rows]
            missing = rows - len(batch)  # the compiled shape
            batch = torch.cat([batch, batch[:1].expand(missing, *batch.shape[1:])])
            for parts, part in zip((found, masks), self.found(batch), strict=True):
                parts.append(part[: rows - missing])
        answers = {"detections": torch.cat(found).numpy(), "masks": torch.cat(masks).numpy()}
        return self.experiment.task.scores(truth, answers)


def _of_codes(
    codes: torch.Tensor,
    targets: torch.Tensor,
    is_counted: torch.Tensor,
    beta: float,
    count: torch.Tensor,
) -> torch.Tensor:
    errors = F.smooth_l1_loss(codes, targets, reduction="none", beta=beta).sum(-1)
    return (errors * is_counted).sum() / count


def main() -> int:
    return pytorch_trial.run(__doc__, EXPERIMENT, Trainer)


if __name__ == "__main__":
    sys.exit(main())
