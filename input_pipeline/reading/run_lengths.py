"""Masks as run lengths, in the text that COCO packs them into; hotcoco does the work."""

from typing import Any

import numpy as np

from dawnjax.errors import install
from dawnjax.input_pipeline.reading.dataset import DataError


def pack(mask: np.ndarray) -> bytes:
    """Text of a mask, bool [height, width]."""
    return masks().encode(np.asfortranarray(mask, np.uint8))["counts"]


def unpack(packed: bytes, height: int, width: int) -> np.ndarray:
    """Mask bool [height, width]; ValueError for a text that packs none."""
    return masks().decode({"size": [height, width], "counts": packed}).astype(bool)


def masks() -> Any:
    """The module `hotcoco.mask`; DataError where it is not installed."""
    try:
        import hotcoco
    except ImportError:
        raise DataError(f"masks are read by hotcoco: {install('detection')}") from None
    return hotcoco.mask
