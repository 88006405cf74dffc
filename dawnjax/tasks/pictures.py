"""Images with the objects that a network found, and with the true ones, for people to look at."""

from collections.abc import Sequence

import numpy as np
from etils import epy

from dawnjax.input_pipeline.reading import run_lengths

with epy.lazy_imports():
    import cv2

_COLOURS = ((255, 160, 0), (0, 190, 255), (255, 80, 160), (120, 220, 60), (190, 130, 255))
"""Red, green and blue of the classes, in turn."""

_WHITE = (255, 255, 255)
_LEAST_SIDE = 480
"""Pixels of a picture's shorter side: a small image is enlarged, so that its text can be read."""


def drawn(
    image: np.ndarray,
    found: np.ndarray,
    true: np.ndarray,
    names: Sequence[str],
    least_score: float = 0.3,
    masks: Sequence[bytes] = (),
) -> np.ndarray:
    """Picture uint8 [height, width, 3]: true boxes thin and white, found ones coloured.

    Args:
      image: uint8 [height, width, 3].
      found: float [n, 6]: corners as fractions of the image, score and class from 1.
      true: float [m, 4], corners as fractions of the image.
      names: Of the classes.
      least_score: Boxes below it are not drawn.
      masks: Packed run lengths of the mask of each found object, of the size of the image.
    """
    factor = max(1, -(-_LEAST_SIDE // min(image.shape[:2])))
    picture = np.ascontiguousarray(image.repeat(factor, axis=0).repeat(factor, axis=1))
    height, width = picture.shape[:2]
    scale = np.array([width, height, width, height])

    def rectangle(corners: np.ndarray, colour: tuple[int, int, int], thickness: int) -> list[int]:
        left, top, right, bottom = np.round(corners * scale).astype(int).tolist()
        cv2.rectangle(picture, (left, top), (right - 1, bottom - 1), colour, thickness)
        return [left, top]

    for corners in true:
        rectangle(corners, _WHITE, 1)
    for place, (*corners, score, label) in reversed(list(enumerate(found.tolist()))):
        # The likeliest last, on top.
        if score < least_score or score == 0:
            continue
        colour = _COLOURS[(int(label) - 1) % len(_COLOURS)]
        if masks:
            mask = run_lengths.unpack(masks[place], *image.shape[:2])
            mask = mask.repeat(factor, axis=0).repeat(factor, axis=1)
            picture[mask] = (picture[mask] + np.array(colour)) // 2
        left, top = rectangle(np.array(corners), colour, 2)
        text = f"{names[int(label) - 1]} {score:.2f}"
        place = (max(left, 0), max(top - 4, 12))
        cv2.putText(picture, text, place, cv2.FONT_HERSHEY_SIMPLEX, 0.45, colour, 1, cv2.LINE_AA)
    return picture
