"""Default boxes of a single-shot detector: fixed boxes around each cell of its feature maps.

Source: Liu et al. 2016, "SSD: Single Shot MultiBox Detector" (arXiv 1512.02325), section 2.2.
"""

import dataclasses
import math
from typing import Literal

import numpy as np

from dawnjax.limits import Counts, require, require_as_many

Centres = Literal["step", "map"]

_RATIOS = (2.0, 3.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DefaultBoxes:
    """Sizes of default boxes, in pixels of the image that the network sees.

    The defaults are those of MLPerf's reference for images of 300 x 300.

    Attributes:
      steps: Pixels from cell to cell, of each feature map.
      scales: Side of each map's smaller square, and one scale more: the larger square's side is the
        geometric mean of the map's scale and the next.
      num_ratios: Aspect ratios of each map besides 1: one is 2, two are 2 and 3. Each has a wide
        and a tall box.
      centres: `step` places the centre of cell j at (j + 0.5) steps, as the reference does: on a
        map of 38 cells with a step of 8 the last one lies on the image's border. `map` divides the
        image by the number of cells, as the paper does.
    """

    steps: Counts = (8, 16, 32, 64, 100, 300)
    scales: Counts = (21, 45, 99, 153, 207, 261, 315)
    num_ratios: Counts = (1, 2, 2, 2, 1, 1)
    centres: Centres = "step"

    def check_together(self, prefix: str) -> None:
        require_as_many(self, "num_ratios", "steps", prefix, ": one for each map")
        wanted = len(self.steps) + 1
        require(len(self.scales) == wanted, f"{prefix}scales", self.scales, f"have {wanted} values")
        most = len(_RATIOS)
        name = f"{prefix}num_ratios"
        require(max(self.num_ratios) <= most, name, self.num_ratios, f"be at most {most}")

    def boxes_a_cell(self) -> tuple[int, ...]:
        """Boxes at each cell, of each map."""
        return tuple(2 + 2 * count for count in self.num_ratios)

    def centred(
        self, map_sizes: tuple[tuple[int, int], ...], image_size: tuple[int, int]
    ) -> np.ndarray:
        """All boxes as fractions of the image, centred: float32 [boxes, 4].

        They are listed by map, row, column and kind: both squares, then each ratio's wide and tall
        box. Centre and sides are cut to 0 to 1, the corners are not.
        """
        height, width = image_size
        maps = []
        for place, (rows, columns) in enumerate(map_sizes):
            step, kinds = self.steps[place], np.array(self._sides(place))
            cells = (step / height, step / width)
            if self.centres == "map":
                cells = (1 / rows, 1 / columns)
            y, x = np.meshgrid(
                (np.arange(rows) + 0.5) * cells[0],
                (np.arange(columns) + 0.5) * cells[1],
                indexing="ij",
            )
            boxes = np.empty((rows, columns, len(kinds), 4))
            boxes[..., 0], boxes[..., 1] = x[..., None], y[..., None]
            boxes[..., 2:] = kinds / (width, height)
            maps.append(boxes.reshape(-1, 4))
        return np.clip(np.concatenate(maps), 0, 1).astype(np.float32)

    def _sides(self, place: int) -> list[tuple[float, float]]:
        """Width and height of each kind, in pixels."""
        scale, following = self.scales[place], self.scales[place + 1]
        larger = math.sqrt(scale * following)
        sides: list[tuple[float, float]] = [(scale, scale), (larger, larger)]
        for ratio in _RATIOS[: self.num_ratios[place]]:
            long, short = scale * math.sqrt(ratio), scale / math.sqrt(ratio)
            sides += [(long, short), (short, long)]
        return sides
