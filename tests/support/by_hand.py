"""Boxes and convolutions counted by plain loops, apart from the package."""

import math
from collections.abc import Sequence
from typing import Any

Sides = tuple[int, int]


def overlap_of(first: Any, second: Any) -> float:
    """Shared area of two boxes [left, top, right, bottom], over that of their union."""
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    shared = max(width, 0) * max(height, 0)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (first, second)]
    return shared / (sum(areas) - shared)


def convolution(
    before: Sides, after: Sides, taps: int, stride: int, widths: Sequence[int], pad: int = -1
) -> int:
    """Multiply-adds of one image; padding, `taps // 2` unless stated, is multiplied by nothing."""
    pad = taps // 2 if pad < 0 else pad

    def inside(size: int, places: int) -> int:
        return sum(
            0 <= place * stride + tap - pad < size for place in range(places) for tap in range(taps)
        )

    return math.prod(map(inside, before, after)) * math.prod(widths)


def halved(sides: Sides) -> Sides:
    return -(-sides[0] // 2), -(-sides[1] // 2)


def resnet_50_trunk(sides: Sides) -> tuple[int, list[tuple[Sides, int, int]]]:
    """Multiply-adds of one image; then sides, width and the multiply-adds so far of each stage."""
    total = convolution(sides, halved(sides), 7, 2, (3, 64))
    sides, width, stages = halved(halved(sides)), 64, []
    for blocks, inner in ((3, 64), (4, 128), (6, 256), (3, 512)):
        for block in range(blocks):
            moves = 2 if block == 0 and inner > 64 else 1
            after = halved(sides) if moves == 2 else sides
            total += convolution(sides, sides, 1, 1, (width, inner))
            total += convolution(sides, after, 3, moves, (inner, inner))
            total += convolution(after, after, 1, 1, (inner, 4 * inner))
            if block == 0:
                total += convolution(sides, after, 1, moves, (width, 4 * inner))
            sides, width = after, 4 * inner
        stages.append((sides, width, total))
    return total, stages
