"""ImageNet, and images under any name, from the forms that they come in to their prepared form."""

import pathlib
from collections.abc import Mapping

import numpy as np

from dawnjax.input_pipeline.datasets import imagenet, images, published
from dawnjax.input_pipeline.preparation import image_writer, photograph_writer
from dawnjax.input_pipeline.preparation.request import (
    Flag,
    FlagError,
    Preparation,
    Request,
    report_images,
)
from dawnjax.input_pipeline.reading.dataset import DataError, Split
from dawnjax.input_pipeline.reading.image_set import check_classes
from dawnjax.input_pipeline.reading.labelled_images import class_names_of, read_npz
from dawnjax.input_pipeline.reading.photographs import SIDE, open_source

_FOLDERS: dict[Split, str] = {"train": "train", "eval": "test"}
_SIDE_FLAG = Flag("image_side", f"Height and width of the squares, in pixels; {SIDE} without.", int)


def _prepare_imagenet(request: Request) -> str:
    return _squares(request, "imagenet", imagenet.TFDS_NAME, imagenet.SIDES, published.IMAGENET)


def _prepare_images(request: Request) -> str:
    source, name = request.required_source(), request.flags["name"]
    if not name:
        raise FlagError("--name is missing: what the images shall be called")
    wrong = images.reason_against(name)
    if wrong:
        raise FlagError(f"--name={name} {wrong}")
    if source.suffix != ".npz":
        return _squares(request, name, name, images.SIDES, None)
    if request.flags["image_side"] is not None:
        raise FlagError("--image_side is for photographs; the images of an .npz stay as they are")
    out = request.out_for(name)
    written = image_writer.write(
        out, lambda: _read_npz(source), dataset=name, overwrite=request.overwrite
    )
    return report_images(request, out, written)


def _squares(
    request: Request,
    dataset: str,
    tfds_name: str,
    sides: range,
    known_set: published.PublishedImages | None,
) -> str:
    side = request.flags["image_side"]
    if side is not None and side not in sides:
        raise FlagError(f"--image_side={side} must lie in [{sides[0]}, {sides[-1]}]")
    title = known_set.benchmark if known_set else dataset
    source, out = open_source(request.required_source(), title, tfds_name), request.out_for(dataset)
    written = photograph_writer.write(
        out,
        source,
        dataset=dataset,
        side=side or SIDE,
        overwrite=request.overwrite,
        progress=request.progress.add,
    )
    return report_images(request, out, written, known_set)


def _read_npz(path: pathlib.Path) -> image_writer.Examples:
    needed = [f"{folder}_{part}" for folder in _FOLDERS.values() for part in ("x", "y")]
    arrays = read_npz(path, needed)
    pixels: dict[Split, np.ndarray] = {}
    labels: dict[Split, np.ndarray] = {}
    for split, folder in _FOLDERS.items():
        pixels[split], labels[split] = arrays[f"{folder}_x"], arrays[f"{folder}_y"].reshape(-1)
        if pixels[split].ndim == 3:  # grey images without an axis of channels
            pixels[split] = pixels[split][..., None]
        if labels[split].dtype.kind not in "iu":
            raise DataError(f"{path}: {folder}_y is {labels[split].dtype}; wanted integers")
    if pixels["train"].shape[1:] != pixels["eval"].shape[1:]:
        raise DataError(
            f"{path}: train_x has images {pixels['train'].shape[1:]}, test_x "
            f"{pixels['eval'].shape[1:]}"
        )
    return image_writer.Examples(
        classes=_classes(path, arrays, labels),
        images=pixels,
        labels=labels,
        source={"kind": "arrays"},
    )


def _classes(
    path: pathlib.Path, arrays: Mapping[str, np.ndarray], labels: Mapping[Split, np.ndarray]
) -> tuple[str, ...]:
    names = class_names_of(f"{path}:", arrays["classes"]) if "classes" in arrays else None
    # Checked before the names are made: a label of 2**62 would make as many.
    num_classes = check_classes(f"{path}:", labels, names)
    return tuple(str(label) for label in range(num_classes)) if names is None else names


IMAGENET = Preparation(
    name="imagenet",
    usage=("--from=PATH [--out=DIR] [--overwrite]\n[--image_side=PIXELS]",),
    takes="""PATH is a folder with train/<class>/* and val/<class>/* (JPEG or PNG), or a TensorFlow
Datasets directory with ArrayRecord files. Each photograph becomes a square of 256 pixels, 197 KB,
or of --image_side. Interrupted, it resumes where it was.""",
    flags=(_SIDE_FLAG,),
    run=_prepare_imagenet,
)

IMAGES = Preparation(
    name="images",
    usage=("--name=NAME --from=PATH [--out=DIR]\n[--overwrite] [--image_side=PIXELS]",),
    takes="""Any labelled images, which an experiment then has as Images(name=NAME). PATH is what
imagenet takes, the evaluation split being val, validation, eval or test; or an .npz of train_x,
train_y, test_x and test_y (images uint8 [n, height, width] or [n, height, width, channels]) and, if
it has names for the labels, classes.""",
    flags=(_SIDE_FLAG, Flag("name", "What the images are called: letters, digits, _ . and -.")),
    run=_prepare_images,
)
