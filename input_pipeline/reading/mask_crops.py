"""Masks of objects, each cut to its box and resized to one square, for a batch.

A mask of an object is read from its square wherever it is asked for, so a batch needs no masks of
whole images.

Source: MLPerf training v0.6, Google's Mask R-CNN submission, `coco_utils` and `dataloader.py`.
"""

import numpy as np

from dawnjax.input_pipeline.reading import run_lengths
from dawnjax.input_pipeline.reading.objects import Objects
from dawnjax.input_pipeline.reading.rows_on_demand import RowsOnDemand


def crop(mask: np.ndarray, corners: np.ndarray, side: int) -> np.ndarray:
    """Mask bool [height, width] in a box, as coverage from 0 to 255: uint8 [side, side].

    `corners` are fractions of the image. Position i of the square is the mask at i + 1/2 of `side`
    parts of the box, interpolated between pixels.
    """
    import cv2

    height, width = mask.shape
    left, top, right, bottom = corners * np.array([width, height, width, height], np.float64)
    scale_x, scale_y = (right - left) / side, (bottom - top) / side
    # Pixel centres lie at whole numbers for OpenCV, and at halves here.
    move = np.array([[scale_x, 0, left + scale_x / 2 - 0.5], [0, scale_y, top + scale_y / 2 - 0.5]])
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    pixels = mask.astype(np.uint8) * 255
    # Beyond the image a mask goes on as at its border, so that an object there has no soft edge.
    return cv2.warpAffine(pixels, move, (side, side), flags=flags, borderMode=cv2.BORDER_REPLICATE)


def crops(objects: Objects, most: int, side: int) -> RowsOnDemand:
    """Squares of the masks of each image's objects: uint8 [images, most, side, side].

    `objects` have masks; the squares of padding are 0.
    """
    masks, corners, starts = objects.masks, objects.corners, objects.ends - objects.counts

    def of_image(image: int) -> np.ndarray:
        squares = np.zeros((most, side, side), np.uint8)
        first, size = int(starts[image]), objects.sizes[image].tolist()
        for place in range(min(int(objects.counts[image]), most)):
            assert masks is not None
            mask = run_lengths.unpack(masks[first + place], *size)
            squares[place] = crop(mask, corners[first + place], side)
        return squares

    return RowsOnDemand(len(objects.ends), (most, side, side), "uint8", of_image)
