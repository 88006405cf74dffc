"""Boxes in PyTorch for detection experiments: overlaps, codes, mirror images, the search."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

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
    images: torch.Tensor, boxes: torch.Tensor, classes: torch.Tensor, *squares: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Images, boxes and squares of masks, turned along each axis by a coin an image.

    Args:
      images: [batch, height, width, 3].
      boxes: Corners as fractions [batch, objects, 4]; padding, of class 0, stays as it is.
      squares: [batch, objects, side, side].
    """
    is_object = (classes > 0)[..., None]
    for axis, first, last in ((2, 0, 2), (1, 1, 3)):
        coins = torch.rand(len(images)) < 0.5
        images = torch.where(coins[:, None, None, None], images.flip(axis), images)
        turned = boxes.clone()
        turned[..., first] = 1 - boxes[..., last]
        turned[..., last] = 1 - boxes[..., first]
        boxes = torch.where(coins[:, None, None] & is_object, turned, boxes)
        squares = tuple(
            torch.where(coins[:, None, None, None], part.flip(axis + 1), part) for part in squares
        )
    return images, boxes, *squares


def detections(config: Any, corners: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """Detections of one image, in falling order of score: float [most, 6].

    Boxes are kept greedily, class by class, on the host. `corners` are [boxes, 4], or
    [boxes, classes, 4] where each class has its own.
    """
    rows = []
    for label in range(scores.shape[1]):
        values, order = scores[:, label].sort(descending=True, stable=True)
        count = min(int((values > config.least_score).sum()), config.most_a_class)
        of_class = (corners if corners.ndim == 2 else corners[:, label])[order[:count]]
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
