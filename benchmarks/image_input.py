"""Images a second and a core that the host decodes and feeds: photographs and prepared squares.

    python -m benchmarks image_input --archive=imagenet_sample_300.tar

Rates are per CPU second of one thread, OpenCV's included; files are in memory. Rounds alternate,
and the ratio to Pillow has its interval.

- decode: a JPEG file to the middle square of 256 pixels, which `prepare` keeps. Pillow does what
  torchvision's Resize(256) and CenterCrop(256) do with it: open, convert to RGB, resize
  antialiased, cut.
- cut: a JPEG file to a random part of 224 pixels, as `--data.form=photographs` has it, against
  Pillow's RandomResizedCrop(224).
- feed: a batch of 64 random prepared squares copied from the memory map, all that the host does for
  a training step, against Pillow as in the line before.

The squares of both sides must be alike: the mean difference over all photographs is checked.
Finally a consumer at the pace of an accelerator measures its share of time spent waiting, for
squares and for random parts of photographs.
"""

import argparse
import io
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import harness
from dawnjax.input_pipeline.reading.batches import ExampleOrder, host_batch
from dawnjax.input_pipeline.reading.image_files import decode_part, decode_square
from dawnjax.input_pipeline.reading.photographs import SIDE, Photographs, random_part

BATCH_SIZE = 64
CROP = 224
LARGEST_DIFFERENCE = 1.5
"""Of 255 levels, in the mean over all photographs: above it the squares are not the same."""

PACED_BATCH = 256
PACED = {"squares": (100, 10), "photographs": (10, 3)}
"""Steps of a consumer, and how often it is measured."""


def main() -> int:
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--archive", required=True, help="a .tar of JPEG files")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--images", type=int, default=60, help="decoded in a round")
    parser.add_argument("--name", default="image_input", help="of the result file")
    parser.add_argument("--pace", type=int, default=12_000, help="images a second of the consumer")
    arguments = parser.parse_args()
    import cv2

    cv2.setNumThreads(1)
    files = read_files(arguments.archive)
    some = files[:: max(1, len(files) // arguments.images)][: arguments.images]
    random = np.random.default_rng(0)
    results = harness.Results(arguments.name, unit="a second of CPU time of one thread")
    with tempfile.TemporaryDirectory() as folder:
        squares = [decode_square(content, SIDE) for content in files]
        results.add(same_squares=compare_squares(files, squares))
        path = Path(folder) / "images.npy"
        np.save(path, np.stack(squares))
        examples = {"image": np.load(path, mmap_mode="r")}
        feed = feeder(examples, BATCH_SIZE)

        def crop() -> int:
            return len([pillow_crop(content, random) for content in some])

        sides: dict[str, tuple[Callable[[], int], Callable[[], int]]] = {
            "decode": (
                lambda: len([decode_square(content, SIDE) for content in some]),
                lambda: len([pillow_square(content) for content in some]),
            ),
            "cut": (lambda: len([our_crop(content, random) for content in some]), crop),
            "feed": (lambda: sum(feed() for _ in range(10)), crop),
        }
        for name, (ours, theirs) in sides.items():
            comparison = harness.alternate(
                lambda run=ours: rate(run),
                lambda run=theirs: rate(run),
                arguments.rounds,
                unit="images/s/core",
            )
            results.add(**{name: comparison.to_json()})
        parts = Photographs(np.zeros(len(files), np.int32), lambda at: (files[at], f"{at}:"))
        held = {"squares": examples, "photographs": {"image": parts.drawn_parts(CROP)}}
        waited = {}
        for of, (steps, rounds) in PACED.items():
            waits = [paced_wait(held[of], arguments.pace, steps) for _ in range(rounds)]
            waited[of] = {"images_per_second": arguments.pace, "input_wait_fractions": waits}
            shown = ", ".join(f"{wait:.2%}" for wait in waits)
            print(f"waited for {of} at {arguments.pace:,} images a second: {shown}")
        results.add(paced=waited)
    results.show("image_input")
    return 0


def read_files(archive_name: str) -> list[bytes]:
    """JPEG files in a .tar."""
    with tarfile.open(archive_name) as archive:
        members = [member for member in archive if member.name.lower().endswith((".jpeg", ".jpg"))]
        extracted = [archive.extractfile(member) for member in members]
        return [file.read() for file in extracted if file is not None]


def pillow_square(content: bytes) -> np.ndarray:
    """Square [256, 256, 3] by Pillow, as torchvision's Resize(256) and CenterCrop(256)."""
    from PIL import Image

    image = Image.open(io.BytesIO(content)).convert("RGB")
    factor = SIDE / min(image.size)
    size = (round(image.width * factor), round(image.height * factor))
    image = image.resize(size, Image.Resampling.BILINEAR)
    left, top = (image.width - SIDE) // 2, (image.height - SIDE) // 2
    return np.asarray(image.crop((left, top, left + SIDE, top + SIDE)))


def pillow_crop(content: bytes, random: np.random.Generator) -> np.ndarray:
    """Crop [224, 224, 3] by Pillow, as torchvision's RandomResizedCrop(224)."""
    from PIL import Image

    image = Image.open(io.BytesIO(content)).convert("RGB")
    area = random.uniform(0.08, 1) * image.width * image.height
    aspect = np.exp(random.uniform(-1, 1) * np.log(4 / 3))
    width = min(np.sqrt(area * aspect), image.width)
    height = min(np.sqrt(area / aspect), image.height)
    left = random.uniform(0, image.width - width)
    top = random.uniform(0, image.height - height)
    box = (left, top, left + width, top + height)
    return np.asarray(image.resize((CROP, CROP), Image.Resampling.BILINEAR, box))


def our_crop(content: bytes, random: np.random.Generator) -> np.ndarray:
    """Random part [224, 224, 3] of a photograph, as a run with whole photographs cuts it."""
    draws = random.random((10, 4))
    return decode_part(content, CROP, lambda height, width: random_part(height, width, draws))


def compare_squares(files: list[bytes], squares: list[np.ndarray]) -> dict[str, Any]:
    """Check our squares against Pillow's of the same rectangle.

    Raises:
      NotTheSame: They differ by more than `LARGEST_DIFFERENCE` in the mean.
    """
    from PIL import Image

    differences = []
    for content, square in zip(files, squares, strict=True):
        image = Image.open(io.BytesIO(content)).convert("RGB")
        least = min(image.size)
        left, top = ((length - least) // 2 for length in image.size)
        box = (left, top, left + least, top + least)
        wanted = np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box))
        differences.append(float(abs(square.astype(int) - wanted).mean()))
    mean = float(np.mean(differences))
    if mean > LARGEST_DIFFERENCE:
        raise harness.NotTheSame(f"squares differ from Pillow's by {mean:.2f} levels in the mean")
    return {
        "check": "mean absolute difference of squares from Pillow's, of 255 levels",
        "photographs": len(files),
        "mean": mean,
        "largest_of_one_photograph": max(differences),
        "limit": LARGEST_DIFFERENCE,
    }


def feeder(examples: dict[str, np.ndarray], batch_size: int) -> Callable[[], int]:
    """Function that copies the next batch and returns its number of examples."""
    count = len(next(iter(examples.values())))
    order = ExampleOrder(seed=0, num_train_examples=count)
    step = iter(range(10**9))

    def feed() -> int:
        batch = host_batch(examples, order.steps(next(step), 1, batch_size), slice(0, batch_size))
        return batch["index"].size

    return feed


def paced_wait(examples: dict[str, Any], images_per_second: int, steps: int) -> float:
    """Fraction of a consumer's time that it waits for batches that a thread reads ahead.

    The consumer takes a batch, is busy for as long as an accelerator of that pace, and takes the
    next. Only the making of rows is measured: a device copies batches with its own engine.
    """
    from dawnjax.input_pipeline.reading.prefetch import Prefetch

    order = ExampleOrder(seed=0, num_train_examples=len(examples["image"]))
    rows = slice(0, PACED_BATCH)
    batches = (
        host_batch(examples, order.steps(step, 1, PACED_BATCH), rows) for step in range(steps + 1)
    )
    with Prefetch(batches, 2) as prefetch:
        next(prefetch)  # the run's first batch, before which nothing can be read ahead
        prefetch.wait_seconds = 0.0
        started = time.perf_counter()
        for count in range(1, steps + 1):
            busy_until = started + prefetch.wait_seconds + count * PACED_BATCH / images_per_second
            time.sleep(max(0.0, busy_until - time.perf_counter()))
            next(prefetch)
        return prefetch.wait_seconds / (time.perf_counter() - started)


def rate(run: Callable[[], int]) -> float:
    """Examples a second of CPU time, of a run that returns their number."""
    started = time.process_time()
    return run() / (time.process_time() - started)


if __name__ == "__main__":
    sys.exit(main())
