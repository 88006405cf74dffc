"""Mask R-CNN in PyTorch alone: network, RoIAlign, anchors and proposals, for a batch at once.

torchvision is not needed. RoIAlign is one weighted sum of rows, `F.embedding_bag`, over all levels,
images and boxes. Suppression repeats the rule of greedy choice until nothing changes. Names of
layers are those of `dawnjax.models.mask_rcnn`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.pytorch_boxes import decode, overlaps, to_centred
from dawnjax.models.configs.anchors import RATIOS
from dawnjax.models.roi_align import SAMPLES

Start = Callable[[torch.Tensor], Any]


def he_normal(weight: torch.Tensor) -> None:
    nn.init.kaiming_normal_(weight, mode="fan_out", nonlinearity="relu")


def unit_uniform(weight: torch.Tensor) -> None:
    nn.init.kaiming_uniform_(weight, a=1)


def normal(std: float) -> Start:
    return lambda weight: nn.init.normal_(weight, std=std)


def started(layer: Any, start: Start) -> Any:
    start(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def conv(
    in_width: int, out: int, size: int, stride: int = 1, start: Start = he_normal, bias: bool = True
) -> nn.Conv2d:
    return started(nn.Conv2d(in_width, out, size, stride, size // 2, bias=bias), start)


class Block(nn.Module):
    """Two 3x3 convolutions with GroupNorm, and a shortcut."""

    def __init__(self, in_width: int, width: int, stride: int, groups: int):
        super().__init__()
        self.conv_1 = conv(in_width, width, 3, stride, bias=False)
        self.norm_1 = nn.GroupNorm(groups, width)
        self.conv_2 = conv(width, width, 3, bias=False)
        self.norm_2 = nn.GroupNorm(groups, width)
        self.projection = None
        if stride > 1 or in_width != width:
            self.projection = conv(in_width, width, 1, stride, bias=False)
            self.projection_norm = nn.GroupNorm(groups, width)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = F.relu(self.norm_1(self.conv_1(images)))
        hidden = self.norm_2(self.conv_2(hidden))
        if self.projection is not None:
            images = self.projection_norm(self.projection(images))
        return F.relu(hidden + images)


class Pyramid(nn.Module):
    """A level of the pyramid from each stage's result."""

    def __init__(self, stage_widths: tuple[int, ...], width: int):
        super().__init__()
        self.inner = nn.ModuleList(conv(w, width, 1, start=unit_uniform) for w in stage_widths)
        self.outer = nn.ModuleList(conv(width, width, 3, start=unit_uniform) for _ in stage_widths)

    def forward(self, stages: list[torch.Tensor]) -> list[torch.Tensor]:
        maps, above = [], None
        for stage, inner, outer in reversed(list(zip(stages, self.inner, self.outer, strict=True))):
            merged = inner(stage)
            if above is not None:
                merged = merged + F.interpolate(above, scale_factor=2, mode="nearest")
            maps.insert(0, outer(merged))
            above = merged
        return maps


class RegionHead(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.conv = conv(width, width, 3, start=normal(0.01))
        self.scores = conv(width, len(RATIOS), 1, start=normal(0.01))
        self.codes = conv(width, 4 * len(RATIOS), 1, start=normal(0.01))

    def forward(self, level: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits [batch, anchors] and codes [batch, anchors, 4]."""
        hidden = F.relu(self.conv(level))
        scores, codes = (head(hidden).permute(0, 2, 3, 1) for head in (self.scores, self.codes))
        return scores.reshape(len(level), -1), codes.reshape(len(level), -1, 4)


class BoxHead(nn.Module):
    def __init__(self, config: Any, num_classes: int):
        super().__init__()
        inside, width = config.box_cells**2 * config.width, config.box_width
        self.linear_1 = started(nn.Linear(inside, width), unit_uniform)
        self.linear_2 = started(nn.Linear(width, width), unit_uniform)
        self.classes = started(nn.Linear(width, 1 + num_classes), normal(0.01))
        self.codes = started(nn.Linear(width, 4 * (1 + num_classes)), normal(0.001))

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits [..., 1 + classes] and codes [..., 1 + classes, 4] of [..., cells, cells, c]."""
        hidden = F.relu(self.linear_1(features.flatten(-3)))
        hidden = F.relu(self.linear_2(hidden))
        return self.classes(hidden), self.codes(hidden).unflatten(-1, (-1, 4))


class MaskHead(nn.Module):
    def __init__(self, config: Any, num_classes: int):
        super().__init__()
        width = config.width
        self.convolutions = nn.ModuleList(
            conv(width, width, 3) for _ in range(config.mask_convolutions)
        )
        self.enlarge = started(nn.ConvTranspose2d(width, width, 2, 2), he_normal)
        self.masks = conv(width, 1 + num_classes, 1)

    def forward(self, features: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        """Logits [batch, boxes, 2 n, 2 n] of one class of [batch, boxes, n, n, channels]."""
        hidden = features.flatten(0, 1).permute(0, 3, 1, 2)
        for layer in self.convolutions:
            hidden = F.relu(layer(hidden))
        masks = self.masks(F.relu(self.enlarge(hidden)))
        return masks[torch.arange(len(masks)), classes.flatten()].unflatten(0, classes.shape)


class MaskRCNN(nn.Module):
    """Trunk, pyramid and heads; the forward pass is that of the first stage."""

    def __init__(self, config: Any, num_classes: int):
        super().__init__()
        backbone, blocks, width = config.backbone, {}, config.backbone.stage_widths[0]
        self.stem = conv(3, width, 7, 2, bias=False)
        self.stem_norm = nn.GroupNorm(config.groups, width)
        self.ends = []
        stages = zip(backbone.stage_sizes, backbone.stage_widths, strict=True)
        for stage, (size, out) in enumerate(stages, start=1):
            for number in range(1, size + 1):
                stride = 2 if stage > 1 and number == 1 else 1
                name = f"stage_{stage}_block_{number}"
                blocks[name] = Block(width, out, stride, config.groups)
                width = out
            self.ends.append(len(blocks))
        self.blocks = nn.ModuleDict(blocks)
        self.pyramid = Pyramid(backbone.stage_widths, config.width)
        self.regions = RegionHead(config.width)
        self.box_head = BoxHead(config, num_classes)
        self.mask_head = MaskHead(config, num_classes)

    def forward(
        self, images: torch.Tensor
    ) -> tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]:
        """Maps, logits and codes of each level."""
        hidden = F.max_pool2d(F.relu(self.stem_norm(self.stem(images))), 3, 2, 1)
        stages = []
        for place, block in enumerate(self.blocks.values(), start=1):
            hidden = block(hidden)
            if place in self.ends:
                stages.append(hidden)
        maps = self.pyramid(stages)
        scores, codes = zip(*(self.regions(level) for level in maps), strict=True)
        return maps, list(scores), list(codes)


def roi_align(
    config: Any, maps: list[torch.Tensor], corners: torch.Tensor, cells: int
) -> torch.Tensor:
    """Features of boxes [batch, boxes, 4] in pixels: [batch, boxes, cells, cells, channels]."""
    batch, channels = maps[0].shape[:2]
    flat = torch.cat([part.permute(0, 2, 3, 1).flatten(1, 2) for part in maps], dim=1)
    heights, widths = (torch.tensor([part.shape[axis] for part in maps]) for axis in (2, 3))
    starts = (heights * widths).cumsum(0) - heights * widths
    sides = (corners[..., 2:] - corners[..., :2]).clamp(min=0).prod(-1).sqrt()
    levels = config.canonical_level + (sides / config.canonical_side + 1e-6).log2().floor()
    levels = levels.clamp(0, len(maps) - 1).long()
    left, top, right, bottom = (corners / torch.tensor(config.strides)[levels][..., None]).unbind(
        -1
    )
    rows, of_rows = _neighbours(top, bottom, cells, heights[levels])
    columns, of_columns = _neighbours(left, right, cells, widths[levels])
    first = starts[levels] + flat.shape[1] * torch.arange(batch)[:, None]
    rows = first[..., None, None, None] + rows * widths[levels][..., None, None, None]
    # A cell has SAMPLES x SAMPLES points with 2 x 2 positions each: by row, column, then these.
    places = rows[:, :, :, None, :, :, None, None] + columns[:, :, None, :, None, None]
    weights = of_rows[:, :, :, None, :, :, None, None] * of_columns[:, :, None, :, None, None]
    sums = F.embedding_bag(
        places.reshape(-1, (2 * SAMPLES) ** 2),
        flat.flatten(0, 1),
        per_sample_weights=weights.reshape(-1, (2 * SAMPLES) ** 2) / SAMPLES**2,
        mode="sum",
    )
    return sums.reshape(*corners.shape[:2], cells, cells, channels)


def _neighbours(
    starts: torch.Tensor, ends: torch.Tensor, cells: int, sizes: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Two positions around each sample, [batch, boxes, cells, SAMPLES, 2], and their weights."""
    lengths, sizes = (ends - starts).clamp(min=1)[..., None], sizes[..., None]
    shares = (torch.arange(cells * SAMPLES) + 0.5) / (cells * SAMPLES)
    points = starts[..., None] + lengths * shares
    is_inside = (points >= -1) & (points <= sizes)
    points = torch.minimum(points.clamp(min=0), sizes - 1.0)
    lower = points.floor()
    share = points - lower
    places = torch.stack([lower, torch.minimum(lower + 1, sizes - 1.0)], dim=-1).long()
    weights = torch.stack([1 - share, share], dim=-1) * is_inside[..., None]
    return tuple(part.unflatten(2, (cells, SAMPLES)) for part in (places, weights))


class Proposals(NamedTuple):
    """Boxes [batch, most, 4] in falling order of score; those that are not real are padding."""

    corners: torch.Tensor
    is_real: torch.Tensor


def proposals(
    config: Any,
    scores: list[torch.Tensor],
    codes: list[torch.Tensor],
    anchors: list[torch.Tensor],
    size: tuple[int, int],
    before: int,
) -> Proposals:
    """Choose boxes; `before` anchors of each level are looked at."""
    height, width = size
    most, boxes, values = torch.tensor([width, height] * 2, dtype=torch.float32), [], []
    for of_level, level_codes, level in zip(scores, codes, anchors, strict=True):
        best, chosen = of_level.topk(min(before, len(level)))
        level_codes = level_codes.gather(1, chosen[..., None].expand(-1, -1, 4))
        corners = decode(level_codes, to_centred(level)[chosen])
        corners = corners.clamp(min=0).minimum(most)
        is_candidate = (corners[..., 2:] > corners[..., :2]).all(-1)
        kept = greedy_choice(overlaps(corners, corners) > config.overlap, is_candidate)
        boxes.append(corners)
        values.append(best.masked_fill(~kept, -torch.inf))
    corners, ranked = torch.cat(boxes, dim=1), torch.cat(values, dim=1)
    best, chosen = ranked.topk(min(config.proposals, ranked.shape[1]))
    return Proposals(corners.gather(1, chosen[..., None].expand(-1, -1, 4)), best > -torch.inf)


def greedy_choice(is_rival: torch.Tensor, is_candidate: torch.Tensor) -> torch.Tensor:
    """Candidates [batch, n] that greedy suppression keeps, in falling order of score."""
    beats = (is_rival & torch.ones_like(is_rival[0]).tril(-1)).float()
    kept = is_candidate
    while True:
        is_beaten = (beats @ kept[..., None].float())[..., 0] > 0
        after = is_candidate & ~is_beaten
        if torch.equal(after, kept):
            return kept
        kept = after


def anchors_of(config: Any, image_shape: tuple[int, int, int]) -> list[torch.Tensor]:
    """Corners of each level's anchors in pixels."""
    return [torch.from_numpy(np.asarray(level)) for level in config.anchors(image_shape)]
