"""Masks of detections in their image, on the host.

Source: maskrcnn-benchmark, `modeling/roi_heads/mask_head/inference.py`: a mask fades to 0 over one
cell around its box, and is interpolated between the centres of its cells. There a box is first cut
to whole pixels.
"""

from collections.abc import Iterator

import numpy as np

from dawnjax.input_pipeline.reading import run_lengths


def pasted(mask: np.ndarray, corners: np.ndarray, height: int, width: int) -> bytes:
    """Packed run lengths of a mask in an image of `height` by `width` pixels.

    Args:
      mask: Probabilities from 0 to 255, uint8 [side, side]; a pixel belongs to it from half on.
      corners: Of its box, as fractions of the image, float [4].
    """
    left, top = corners[0] * width, corners[1] * height
    across = _weights(left, corners[2] * width, mask.shape[1], width)
    down = _weights(top, corners[3] * height, mask.shape[0], height)
    whole = np.zeros((height, width), np.uint8, order="F")
    if across is not None and down is not None:
        part = down[1] @ mask.astype(np.float32) @ across[1].T >= 127.5
        rows, columns = part.shape
        whole[down[0] : down[0] + rows, across[0] : across[0] + columns] = part
    return run_lengths.pack(whole)


def _weights(start: float, end: float, cells: int, size: int) -> tuple[int, np.ndarray] | None:
    """First pixel of a box along one side, and the share of each cell in it and those that follow.

    None where the box has no pixel in the image.
    """
    length = (end - start) / cells
    if not length > 0:
        return None
    first = max(int(np.floor(start - length)), 0)
    last = min(int(np.ceil(end + length)), size)
    if first >= last:
        return None
    places = (np.arange(first, last) + 0.5 - start) / length - 0.5
    shares = 1 - np.abs(places[:, None] - np.arange(cells))
    return first, np.maximum(shares, 0).astype(np.float32)


def masks_of_images(
    detections: np.ndarray, masks: np.ndarray, sizes: np.ndarray
) -> Iterator[list[bytes]]:
    """Packed masks of each image's detections; a place without a detection has an empty text.

    Args:
      detections: float [images, places, 6]: corners as fractions, score and class.
      masks: uint8 [images, places, side, side].
      sizes: Height and width of each image in pixels, [images, 2].
    """
    for rows, squares, (height, width) in zip(detections, masks, sizes.tolist(), strict=True):
        yield [
            pasted(square, row[:4].astype(np.float64), height, width) if row[4] > 0 else b""
            for row, square in zip(rows, squares, strict=True)
        ]
