"""The twelve figures of COCO: mean average precision and recall, by hotcoco.

Source: cocodataset.org, "Detection Evaluation"; `pycocotools` 2.0.11 is the definition, and a test
compares all figures with its.
"""

import contextlib
import io
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from dawnjax.errors import ConfigError, install
from dawnjax.input_pipeline.reading.objects import Objects
from dawnjax.tasks.metric import Metric, fraction

Kind = Literal["box", "mask"]

_FIGURES = (
    ("ap", "AP"),
    ("ap_50", "AP50"),
    ("ap_75", "AP75"),
    ("ap_small", "AP of small objects"),
    ("ap_medium", "AP of medium objects"),
    ("ap_large", "AP of large objects"),
    ("ar_1", "AR of 1 an image"),
    ("ar_10", "AR of 10 an image"),
    ("ar_100", "AR of 100 an image"),
    ("ar_small", "AR of small objects"),
    ("ar_medium", "AR of medium objects"),
    ("ar_large", "AR of large objects"),
)
"""In the order of `COCOeval.stats`."""


def metrics_of_kind(kind: Kind) -> tuple[Metric, ...]:
    """Declarations of the twelve figures of boxes or masks."""
    return tuple(fraction(f"{kind}_{name}", f"{kind} {title}") for name, title in _FIGURES)


def scores(
    truth: Objects,
    detections: np.ndarray,
    kind: Kind = "box",
    masks: Sequence[Sequence[bytes]] = (),
) -> dict[str, float]:
    """The figures by name, without those of sizes that no object has.

    Args:
      truth: Objects of the images.
      detections: float [images, places, 6]: corners as fractions of the image, score and class, in
        falling order of score; a place of score 0 has none. The order decides between equal scores.
      masks: Packed run lengths of each place of each image, where masks are scored.
    """
    hotcoco = require_hotcoco()
    # Numbers from 1: by the published code an annotation 0 would be none.
    images = [
        {"id": number, "height": int(height), "width": int(width)}
        for number, (height, width) in enumerate(truth.sizes, start=1)
    ]
    categories = [{"id": n, "name": name} for n, name in enumerate(truth.names, start=1)]
    rows = _detected(truth.sizes, detections)
    given: dict[str, Any] = {}
    of_result: dict[str, Any] = {}
    if kind == "mask":
        sizes = [[int(height), int(width)] for height, width in truth.sizes]
        given["segmentation"] = [
            {"size": sizes[image], "counts": counts.decode()}
            for image, counts in zip(truth.rows, truth.masks or (), strict=True)
        ]
        of_result["segmentation"] = [
            {"size": sizes[int(row[0]) - 1], "counts": masks[int(row[0]) - 1][int(row[7])].decode()}
            for row in rows
        ]
    reference = hotcoco.COCO.from_arrays(
        images,
        categories,
        image_ids=truth.rows + 1,
        category_ids=truth.classes.astype(np.int64),
        boxes=truth.boxes,
        area=truth.areas,
        iscrowd=truth.crowd,
        **given,
    )
    result = reference.loadRes(np.ascontiguousarray(rows[:, :7]), **of_result)
    if kind == "mask" and len(rows):
        areas = hotcoco.mask.area(of_result["segmentation"])
        result.update_anns(ids=np.arange(1, len(rows) + 1), area=np.asarray(areas, float))
    judge = hotcoco.COCOeval(reference, result, "bbox" if kind == "box" else "segm")
    with contextlib.redirect_stdout(io.StringIO()):  # it prints a table
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    return {
        f"{kind}_{name}": float(value)
        for (name, _), value in zip(_FIGURES, judge.stats, strict=True)
        if value >= 0  # -1 stands for a size without objects
    }


def _detected(sizes: np.ndarray, detections: np.ndarray) -> np.ndarray:
    """Rows image, left, top, width, height, score, class and place of all detections, in order."""
    detections = np.asarray(detections, np.float64)
    image, place = np.nonzero(detections[..., 4] > 0)
    found = detections[image, place]
    height, width = sizes[image].T
    corners = found[:, :4] * np.stack([width, height, width, height], axis=1)
    sides = corners[:, 2:] - corners[:, :2]
    columns = (image + 1, corners[:, :2], sides, found[:, 4], found[:, 5], place)
    return np.column_stack(columns)


def stated(
    sizes: np.ndarray,
    names: Sequence[str],
    detections: np.ndarray,
    masks: Sequence[Sequence[bytes]] = (),
) -> list[dict[str, Any]]:
    """Detections of one image as JSON values, boxes as left, top, width and height in pixels.

    `sizes`, [1, 2], are height and width of the image as it came. `masks` are as of `scores`; each
    is stated as COCO does.
    """
    rows, size = _detected(sizes, detections), sizes[0].tolist()

    def mask(place: float) -> dict[str, Any]:
        if not masks:
            return {}
        return {"segmentation": {"size": size, "counts": masks[0][int(place)].decode()}}

    return [
        {
            "class": names[int(label) - 1],
            "score": round(score, 4),
            "bbox": [round(value, 2) for value in box],
            **mask(place),
        }
        for _, *box, score, label, place in rows.tolist()
    ]


def require_hotcoco() -> Any:
    """Load hotcoco; a run calls it early, so that one without it ends before it has trained."""
    try:
        import hotcoco
    except ImportError:
        raise ConfigError(f"COCO's AP needs hotcoco: {install('detection')}") from None
    return hotcoco
