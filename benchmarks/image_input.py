"""Images a second and a core: decoding photographs, and reading prepared squares, against Pillow.

    python -m benchmarks image_input --archive=imagenet_sample_300.tar

Two settings, each in CPU time of one thread, with OpenCV held to one thread too:

- decode: a JPEG file to the middle square of 256 pixels, as `dawnjax prepare` makes it, against
  Pillow doing the same (draft mode off, box filter);
- feed: a batch of 64 random prepared squares copied from the memory map, all that the host does for
  a training step, against Pillow decoding, cropping a random rectangle and resizing it to 224.

Files are read into memory before. Rounds alternate; the ratio is given with its bootstrap interval.
"""

import argparse
import io
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks import harness
from dawnjax.input_pipeline.batches import ExampleOrder, host_batch
from dawnjax.input_pipeline.image_files import decode_square
from dawnjax.input_pipeline.imagenet import SIDE

BATCH_SIZE = 64
CROP = 224


def main() -> int:
    """Measures both settings, prints a table and writes `results/image_input.json`."""
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--archive", required=True, help="a .tar of JPEG files")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--images", type=int, default=60, help="decoded in a round")
    arguments = parser.parse_args()
    import cv2
    from PIL import Image

    cv2.setNumThreads(1)
    with tarfile.open(arguments.archive) as archive:
        members = [member for member in archive if member.name.lower().endswith((".jpeg", ".jpg"))]
        extracted = [archive.extractfile(member) for member in members]
        files = [file.read() for file in extracted if file is not None]
    some = files[:: max(1, len(files) // arguments.images)][: arguments.images]
    random = np.random.default_rng(0)

    def pillow_square(content: bytes) -> np.ndarray:
        image = Image.open(io.BytesIO(content)).convert("RGB")
        least = min(image.size)
        left, top = ((size - least) // 2 for size in image.size)
        box = (left, top, left + least, top + least)
        return np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BOX, box))

    def pillow_crop(content: bytes) -> np.ndarray:
        image = Image.open(io.BytesIO(content)).convert("RGB")
        area = random.uniform(0.08, 1) * image.width * image.height
        aspect = np.exp(random.uniform(-1, 1) * np.log(4 / 3))
        width = min(np.sqrt(area * aspect), image.width)
        height = min(np.sqrt(area / aspect), image.height)
        left = random.uniform(0, image.width - width)
        top = random.uniform(0, image.height - height)
        box = (left, top, left + width, top + height)
        return np.asarray(image.resize((CROP, CROP), Image.Resampling.BILINEAR, box))

    with tempfile.TemporaryDirectory() as folder:
        squares = np.stack([decode_square(content, SIDE) for content in files])
        path = Path(folder) / "images.npy"
        np.save(path, squares)
        examples = {"image": np.load(path, mmap_mode="r")}
        order = ExampleOrder(seed=0, num_train_examples=len(files), global_batch_size=BATCH_SIZE)
        step = iter(range(10**9))

        def feed() -> int:
            rows = slice(0, BATCH_SIZE)
            return len(host_batch(examples, order.steps(next(step), 1), rows)["image"][0])

        settings: dict[str, tuple[Callable[[], int], Callable[[], int]]] = {
            "decode to 256 (OpenCV)": (
                lambda: len([decode_square(content, SIDE) for content in some]),
                lambda: len([pillow_square(content) for content in some]),
            ),
            "feed from the memory map": (
                lambda: sum(feed() for _ in range(10)),
                lambda: len([pillow_crop(content) for content in some]),
            ),
        }
        rows = [["setting", "ours, images/s/core", "Pillow", "ratio", "95 % interval"]]
        record = {}
        for name, (ours, pillow) in settings.items():
            found = harness.alternate(
                lambda run=ours: rate(run), lambda run=pillow: rate(run), arguments.rounds
            )
            low, high = found.interval()
            medians = [f"{np.median(side):,.0f}" for side in (found.first, found.second)]
            rows.append([name, *medians, f"{found.ratio:.2f}", f"{low:.2f} to {high:.2f}"])
            record[name] = found.to_json()
    print(harness.table(rows))
    print(f"written: {harness.write('image_input', record)}")
    return 0


def rate(run: Callable[[], int]) -> float:
    """Gives the images a second of CPU time, of a run that says how many it had."""
    started = time.process_time()
    return run() / (time.process_time() - started)


if __name__ == "__main__":
    sys.exit(main())
