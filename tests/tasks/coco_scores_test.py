"""COCO's twelve figures: each is pycocotools' own, on one list of detections of every kind."""

import contextlib
import io

import numpy as np
import pytest

from dawnjax.input_pipeline.reading import run_lengths
from dawnjax.input_pipeline.reading.objects import Objects, PackedMasks
from dawnjax.tasks import coco_scores
from dawnjax.tasks.coco_scores import metrics_of_kind, scores

pytest.importorskip("hotcoco", reason="needs hotcoco (pip install -e '.[detection]')")

SIZE, PLACES = (160, 200), 120


def rectangle(corners):
    mask = np.zeros(SIZE, bool)
    left, top, right, bottom = np.clip(np.round(corners), 0, 1e6).astype(int)
    mask[top:bottom, left:right] = True
    return run_lengths.pack(mask)


def made_truth(random, images=12, classes=3):
    counts = random.integers(1, 9, images)
    counts[3] = 0
    sides = random.choice([6, 20, 60, 120], (counts.sum(), 1)) * random.uniform(0.8, 1.2, (1, 2))
    places = random.uniform(0, 1, sides.shape) * np.maximum(np.array(SIZE[::-1]) - sides, 1)
    corners = np.concatenate([places, places + sides], axis=1)
    return Objects(
        sizes=np.tile(np.array(SIZE, np.int32), (images, 1)),
        ends=np.cumsum(counts),
        boxes=np.concatenate([places, sides], axis=1),
        areas=sides.prod(axis=1) * 0.9,
        classes=random.integers(1, classes + 1, len(sides)).astype(np.int32),
        crowd=random.uniform(size=len(sides)) < 0.1,
        masks=PackedMasks.of([rectangle(box) for box in corners]),
        names=("a", "b", "c"),
    )


def made_detections(random, truth):
    """True boxes moved a little, wrong ones, several of a crowd, equal scores, 110 of a class."""
    images = len(truth.ends)
    found = np.zeros((images, PLACES, 6))
    for image in range(images - 1):  # the last has none
        rows = []
        start = truth.ends[image] - truth.counts[image]
        for place in range(start, truth.ends[image]):
            left, top, width, height = truth.boxes[place]
            for _ in range(4 if truth.crowd[place] else 2):
                shift = random.normal(0, 0.08, 4) * np.array([width, height, width, height])
                box = np.array([left, top, left + width, top + height]) + shift
                score = round(random.uniform(0.1, 1), 1)  # ties
                kind = truth.classes[place] if random.uniform() < 0.8 else 1
                rows.append((*box, score, kind))
        for _ in range(110 if image == 5 else 3):
            corner = random.uniform(0, 100, 2)
            box = [*corner, *(corner + random.uniform(5, 60, 2))]
            rows.append((*box, round(random.uniform(0.05, 0.6), 1), 2))
        rows.sort(key=lambda row: -row[4])
        found[image, : len(rows)] = rows[:PLACES]
    found[..., :4] /= np.array([SIZE[1], SIZE[0]] * 2)
    return found


def by_pycocotools(truth, found, kind, masks):
    """The figures by the published code, which reads annotations as JSON has them."""
    coco = pytest.importorskip("pycocotools.coco", reason="needs pycocotools")
    from pycocotools.cocoeval import COCOeval

    reference = coco.COCO()
    reference.dataset = {
        "images": [
            {"id": n, "height": int(h), "width": int(w)} for n, (h, w) in enumerate(truth.sizes, 1)
        ],
        "categories": [{"id": n, "name": name} for n, name in enumerate(truth.names, 1)],
        "annotations": [
            {
                "id": n + 1,
                "image_id": int(truth.rows[n]) + 1,
                "category_id": int(truth.classes[n]),
                "bbox": truth.boxes[n].tolist(),
                "area": float(truth.areas[n]),
                "iscrowd": int(truth.crowd[n]),
                "segmentation": {"size": list(SIZE), "counts": truth.masks[n].decode()},
            }
            for n in range(len(truth.boxes))
        ],
    }
    results = []
    for image, places in enumerate(found):
        for place, (left, top, right, bottom, score, label) in enumerate(places):
            if score > 0:
                row = {"image_id": image + 1, "category_id": int(label), "score": float(score)}
                scale = np.array([SIZE[1], SIZE[0], SIZE[1], SIZE[0]])
                left, top, right, bottom = np.array([left, top, right, bottom]) * scale
                row["bbox"] = [left, top, right - left, bottom - top]
                if kind == "mask":
                    row["segmentation"] = {"size": list(SIZE), "counts": masks[image][place]}
                    del row["bbox"]
                results.append(row)
    with contextlib.redirect_stdout(io.StringIO()):
        reference.createIndex()
        judge = COCOeval(reference, reference.loadRes(results), "bbox" if kind == "box" else "segm")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    names = [metric.name for metric in metrics_of_kind(kind)]
    return {n: v for n, v in zip(names, judge.stats.tolist(), strict=True) if v >= 0}


@pytest.mark.parametrize("kind", ["box", "mask"])
def test_the_figures_are_those_of_pycocotools(kind):
    random = np.random.default_rng(0)
    truth = made_truth(random)
    found = made_detections(random, truth)
    assert truth.crowd.any() and (truth.counts == 0).any() and not found[-1].any()
    masks = [
        [rectangle(box * np.array([SIZE[1], SIZE[0]] * 2)) for box in places]
        for places in found[..., :4]
    ]
    ours = scores(truth, found, kind, masks)
    theirs = by_pycocotools(truth, found, kind, masks)
    assert len(ours) == 12 and 0.05 < ours[f"{kind}_ap"] < 0.9
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        assert ours[name] == pytest.approx(value, abs=1e-12), name


def one_object(corners, area):
    """An image of 100 pixels a side with one object of class 1."""
    left, top, right, bottom = corners
    return Objects(
        sizes=np.array([[100, 100]], np.int32),
        ends=np.array([1]),
        boxes=np.array([[left, top, right - left, bottom - top]], np.float64),
        areas=np.array([area]),
        classes=np.array([1], np.int32),
        crowd=np.zeros(1, bool),
        names=("a",),
    )


def test_all_found_is_one_and_none_found_is_zero():
    truth = one_object((10, 10, 30, 30), area=400.0)
    perfect = scores(truth, np.array([[[0.1, 0.1, 0.3, 0.3, 0.9, 1]]]))
    # The only object is small: no other size has figures.
    wanted = ("ap", "ap_50", "ap_75", "ap_small", "ar_1", "ar_10", "ar_100", "ar_small")
    assert perfect == pytest.approx({f"box_{name}": 1.0 for name in wanted})
    nothing = scores(truth, np.zeros((1, 5, 6)))
    assert nothing == {f"box_{name}": 0.0 for name in wanted}


def test_a_size_is_that_of_the_stated_area():
    # A mask of 900 pixels in a box of 10,000: a small object.
    truth = one_object((0, 0, 100, 100), area=900.0)
    found = scores(truth, np.array([[[0.0, 0, 1, 1, 0.9, 1]]]))
    assert found["box_ap_small"] == pytest.approx(1) and "box_ap_large" not in found


def test_hotcoco_that_is_not_installed_is_one_line(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "hotcoco", None)
    with pytest.raises(coco_scores.ConfigError, match=r'pip install "dawnjax\[detection\]"'):
        coco_scores.require_hotcoco()
