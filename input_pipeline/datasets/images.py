"""Labelled images of a person's own: prepared under a name, or as TFDS has them.

Photographs are decoded by each host's threads, ahead of the step. Squares are the middle of each
photograph, its shorter side resized: training sees nothing beyond them.
"""

import dataclasses
import functools
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from dawnjax.input_pipeline.reading import (
    archives,
    columns,
    image_set,
    shards,
    tfds_directory,
)
from dawnjax.input_pipeline.reading.columns import Columns, Content, Made, Rows
from dawnjax.input_pipeline.reading.dataset import (
    DataError,
    DatasetSpec,
    Declaration,
    MissingDataError,
    Split,
    directory_of,
)
from dawnjax.input_pipeline.reading.image_files import decode_square, decode_upright
from dawnjax.input_pipeline.reading.image_set import ImageColumns, ImageFacts, class_counts
from dawnjax.input_pipeline.reading.labelled_images import class_names_of, read_npz
from dawnjax.input_pipeline.reading.photographs import (
    SIDE,
    Photographs,
    Source,
    open_source,
    open_tfds,
)
from dawnjax.input_pipeline.reading.preparing import (
    Flag,
    FlagError,
    Preparation,
    Request,
    check_fraction,
)
from dawnjax.input_pipeline.reading.rows_on_demand import RowsOnDemand

SIDES = range(8, 1025)
"""Heights and widths that may be asked for, in pixels."""

ROWS_AT_ONCE = 512

WHOLE_KIND = "photographs"
"""Kind of whole photographs: shards of files with their labels, and a column of the labels."""

_TAKEN = re.compile(
    "cifar10|coco|digits|go_games|image_arrays|images|imagenet|movielens|parallel_text|pgx.*|squad"
    "|synthetic.*|token_shards"
)
"""Names of other datasets: a person's images are never taken for them."""

Declare = Callable[[ImageFacts, str], Declaration]
"""Names images by their facts, and the source of prepared ones."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageDirectory:
    """A directory of labelled images: prepared, or as TensorFlow Datasets keeps them.

    Attributes:
      dataset: Name that it must have been prepared under.
      title: Name of the data in messages.
      command: Flags of `dawnjax prepare` that make it.
      side: Height and width of the images in pixels; None takes those of the prepared ones.
      declare: Names the data by their facts, and the source of prepared ones.
      decode: Makes an image of `side` of a file.
      is_drawn: Whether training images are random parts of photographs.
    """

    path: pathlib.Path
    dataset: str
    title: str
    command: str
    tfds_name: str
    side: int | None
    sides: range
    declare: Declare
    decode: Callable[[bytes, int], np.ndarray] = decode_square
    is_drawn: bool = False

    def facts(self) -> tuple[ImageFacts, str, str, tuple[int, int, int]]:
        """Facts, source and fingerprint of the images, and their shape, from metadata."""
        if self.side is not None and self.side not in self.sides:
            low, high = self.sides[0], self.sides[-1]
            raise ValueError(f"data.image_side={self.side} must lie in [{low}, {high}]")
        if self._is_prepared():
            there = self._columns()
            fingerprint = there.fingerprint(there.facts.classes)
            shape = self._square() if self._is_whole else image_set.image_shape(there)
            return there.facts, there.source, fingerprint, shape
        shape, source = self._square(), self._source()
        return _facts(source), "", source.listing, shape

    def spec(
        self, mean: tuple[float, ...] | None = None, std: tuple[float, ...] | None = None
    ) -> DatasetSpec:
        """Count and shapes, from metadata.

        Without mean and deviation it takes those measured at preparation, or else 0.5 and 0.25.
        """
        facts, source, fingerprint, shape = self.facts()
        measured = facts.statistics.get("train", ((0.5,) * 3, (0.25,) * 3))
        return DatasetSpec(
            num_train_examples=facts.num_examples["train"],
            num_eval_examples=facts.num_examples["eval"],
            image_shape=shape,
            num_classes=len(facts.classes),
            mean=mean or measured[0],
            std=std or measured[1],
            fingerprint=fingerprint,
            declaration=self.declare(facts, source),
            is_drawn=self.is_drawn,
        )

    def load(self, split: Split) -> dict[str, np.ndarray | RowsOnDemand]:
        """Images uint8 [N, height, width, channels] and labels int32 [N] of one split.

        Labels are verified, and so are squares of up to 2 GiB. Photographs are decoded when a batch
        asks for them; a damaged one ends the run then.
        """
        if self._is_prepared() and not self._is_whole:
            # To read the whole of ImageNet takes minutes of the clock; `dawnjax prepare`, done
            # again, compares all of it.
            most = image_set.LARGEST_VERIFIED_BYTES
            return {**image_set.read_split(self._columns(), split, most_bytes=most)}
        photographs, shape = self._photographs(split), self._square()
        if self.is_drawn and split == "train":
            return {"image": photographs.drawn_parts(shape[0]), "label": photographs.labels}
        images = photographs.rows(shape, lambda content: self.decode(content, shape[0]))
        return {"image": images, "label": photographs.labels}

    def _photographs(self, split: Split) -> Photographs:
        if self._is_prepared():
            labels, read = self._columns().array(_labels(split)), shards.images_of(self.path, split)
            where = f"{self.path}: {shards.SPLITS[split]} example"
            return Photographs(labels, lambda index: (read(index), f"{where} {index}:"))
        return self._source().splits[split]

    def classes(self) -> tuple[str, ...]:
        if self._is_prepared():
            return self._columns().facts.classes
        return self._source().classes

    def _square(self) -> tuple[int, int, int]:
        if self.side is None:
            raise ValueError(
                f"data.image_side is missing: the photographs in {self.path} may have any size; "
                f"give --data.image_side={SIDE}, or prepare squares"
            )
        return self.side, self.side, 3

    def _source(self) -> Source:
        version = tfds_directory.find_version(self.path, self.tfds_name)
        assert version is not None  # where it is not prepared
        return open_tfds(version)

    def _is_prepared(self) -> bool:
        if (self.path / columns.FILE).exists():
            if self.is_drawn and not self._is_whole:
                raise DataError(
                    f"{self.path}: has squares, but data.form=photographs needs whole "
                    "photographs; prepare them with --form=photographs, or give --data.form=squares"
                )
            return True
        if tfds_directory.find_version(self.path, self.tfds_name) is None:
            raise MissingDataError(
                f"{self.path}: no {self.title} there, neither prepared nor TFDS; `dawnjax prepare "
                f"{self.command} --from=PATH --out={self.path}` prepares it (--data.data_dir names "
                "another place)"
            )
        return False

    @property
    def _is_whole(self) -> bool:
        """Whether prepared photographs are whole: shards lie beside the columns."""
        return (self.path / tfds_directory.INFO_FILE).exists()

    def _columns(self) -> ImageColumns:
        kind = WHOLE_KIND if self._is_whole else image_set.KIND
        there = columns.read(self.path, kind, ImageFacts, f"{self.command} --from=PATH")
        if there.dataset != self.dataset:
            raise DataError(
                f"{self.path / columns.FILE}: describes {there.dataset}, not {self.title}"
            )
        if self._is_whole:
            return there
        height, width, _ = image_set.image_shape(there)
        if self.side is not None and (height, width) != (self.side, self.side):
            size = f"{height}" if height == width else f"{height}x{width}"
            raise ValueError(
                f"data.image_side={self.side}, but {self.path} was prepared with {size}; "
                f"give --data.image_side={height if height == width else 0}, or prepare another "
                f"with --image_side={self.side}"
            )
        return there


def _facts(source: Source) -> ImageFacts:
    counted: dict[Split, tuple[int, ...]] = {
        split: class_counts(part.labels, len(source.classes))
        for split, part in source.splits.items()
        if isinstance(part.labels, np.ndarray)
    }
    return ImageFacts(
        num_examples={split: len(part.labels) for split, part in source.splits.items()},
        classes=source.classes,
        class_counts=counted,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Images:
    """Labelled images that were prepared under a name, or photographs as TFDS has them.

    Attributes:
      name: The name that they were prepared under, or that TensorFlow Datasets has for them.
      data_dir: The directory that `dawnjax prepare` wrote, or a TFDS directory in ArrayRecord
        files. Empty takes one of the name in the directory of the environment variable
        DAWNJAX_DATA, or in `./data` without it.
      image_side: Height and width of the images in pixels; squares must have them, and 0 takes
        those of the squares. Photographs need it, and are normalized with mean 0.5 and standard
        deviation 0.25.
    """

    TAG: ClassVar[str] = "images"
    RESIZES: ClassVar[bool] = True
    name: str
    data_dir: str = ""
    image_side: int = 0

    def spec(self) -> DatasetSpec:
        return self._directory().spec()

    def load(self, split: Split) -> dict[str, np.ndarray | RowsOnDemand]:
        return self._directory().load(split)

    def classes(self) -> tuple[str, ...]:
        return self._directory().classes()

    def _directory(self) -> ImageDirectory:
        wrong = reason_against(self.name)
        if wrong:
            raise ValueError(f"data.name={self.name} {wrong}")
        return ImageDirectory(
            path=directory_of(self.name, self.data_dir),
            dataset=self.name,
            title=self.name,
            command=f"--dataset=images --name={self.name}",
            tfds_name=self.name,
            side=self.image_side or None,
            sides=SIDES,
            declare=lambda facts, _: Declaration(
                name=f"images of {self.name}", overlap=facts.overlap
            ),
        )


def reason_against(name: str) -> str:
    """Reason why a name cannot be given to images; empty where it can."""
    if _TAKEN.fullmatch(name):
        return "is the name of another dataset; choose a different name"
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}", name):
        return (
            "must be up to 80 letters, digits, '_', '.' and '-', and begin with a letter or digit: "
            "it names a directory"
        )
    return ""


FLAGS = (
    Flag("image_side", f"Height and width of the squares in pixels (default: {SIDE}).", int),
    Flag("form", "squares, or photographs (whole, in ArrayRecord shards)."),
)


def _prepare(request: Request) -> Made:
    source, name = request.required_source(), request.flags["name"]
    if not name:
        raise FlagError("--name is missing: name the images")
    wrong = reason_against(name)
    if wrong:
        raise FlagError(f"--name={name} {wrong}")
    if source.suffix != ".npz":
        return squares(request, name, name, name, SIDES)
    for flag in ("image_side", "form", "eval_fraction"):
        if request.flags[flag] is not None:
            raise FlagError(f"--{flag} needs photographs; the images of an .npz stay as they are")
    out, digest = request.out_for(name), archives.sha256(source)
    return made(out, name, *read_splits(source), source=f"arrays, sha256 {digest}")


def squares(
    request: Request,
    dataset: str,
    title: str,
    tfds_name: str,
    sides: range,
    declare: Declare | None = None,
) -> Made:
    """Middle squares of photographs, all of one size, or photographs as they are."""
    side, fraction = request.flags["image_side"], request.flags.get("eval_fraction")
    if side is not None and side not in sides:
        raise FlagError(f"--image_side={side} must lie in [{sides[0]}, {sides[-1]}]")
    check_fraction(fraction)
    form = request.flags["form"] or "squares"
    if form not in ("squares", "photographs"):
        raise FlagError(f"--form={form} must be squares or photographs")
    if form == "photographs" and side is not None:
        raise FlagError("--image_side needs squares; photographs keep their size")
    path, out = request.required_source(), request.out_for(dataset)
    source = open_source(path, title, tfds_name, eval_fraction=fraction or 0.0)
    labels: dict[Split, np.ndarray] = {
        split: np.asarray(part.labels) for split, part in source.splits.items()
    }
    if form == "photographs":
        return _whole(out, dataset, source, labels, declare)
    shape = (side or SIDE, side or SIDE, 3)

    def blocks(photographs: Photographs, start: int) -> Iterator[np.ndarray]:
        rows = photographs.rows(shape, lambda content: decode_square(content, shape[0]))
        for first in range(start, len(rows), ROWS_AT_ONCE):
            yield (block := rows[first : first + ROWS_AT_ONCE])
            request.progress.add(len(block))

    images: dict[Split, Content] = {
        split: Rows(shape=shape, dtype="uint8", blocks=functools.partial(blocks, part))
        for split, part in source.splits.items()
    }
    return made(
        out,
        dataset,
        source.classes,
        images,
        labels,
        source=f"squares of {shape[0]} pixels of {source.kind}, listing {source.listing}",
        declare=declare,
    )


def _whole(
    out: pathlib.Path,
    dataset: str,
    source: Source,
    labels: dict[Split, np.ndarray],
    declare: Declare | None,
) -> Made[ImageFacts]:
    """Whole photographs to be written as shards."""

    def examples(split: Split, start: int) -> Iterator[shards.Example]:
        photographs = source.splits[split]

        def contents() -> Iterator[tuple[tuple[int, str], bytes]]:
            for row in range(start, len(labels[split])):
                content, name = photographs.read(row)
                yield (row, name), content

        def check(key: tuple[int, str], content: bytes) -> None:
            try:
                decode_upright(content)  # refuses what no run could decode
            except DataError as error:
                raise DataError(f"{key[1]} {error}") from None

        for (row, _), content in shards.checked(contents(), check):
            yield {"image": content, "label": int(labels[split][row])}

    made_from = f"photographs of {source.kind}, listing {source.listing}"

    def facts(written: Columns[None]) -> ImageFacts:
        counts = {
            split: class_counts(numbers, len(source.classes)) for split, numbers in labels.items()
        }
        return dataclasses.replace(
            _facts(source), class_counts=counts, overlap=shards.overlap_of(written, "images")
        )

    def features(tfds: Any) -> dict[str, Any]:
        label = tfds.features.ClassLabel(names=list(source.classes))
        return {"image": tfds.features.Image(), "label": label}

    def summary(written: ImageColumns) -> str:
        counts = written.facts.num_examples
        return (
            f"{counts['train']:,} train and {counts['eval']:,} eval photographs in "
            f"{len(source.classes)} classes, as TensorFlow Datasets keeps them"
        ) + _note(written.facts, made_from, declare)

    return Made(
        directory=out,
        kind=WHOLE_KIND,
        dataset=dataset,
        files={_labels(split): numbers for split, numbers in labels.items()},
        facts=facts,
        form=ImageFacts,
        source=made_from,
        summary=summary,
        shards=shards.ExampleShards(
            name="photographs",
            description=made_from,
            features=features,
            counts={split: len(numbers) for split, numbers in labels.items()},
            examples=examples,
        ),
    )


def _labels(split: Split) -> str:
    return f"{split}_labels.npy"


def _note(facts: ImageFacts, source: str, declare: Declare | None) -> str:
    """Line that says why images are not the benchmark's."""
    declaration = declare and declare(facts, source)
    if not declaration or declaration.benchmark:
        return ""
    return f"\nnote: these are {declaration.name}: {declaration.evidence}"


def made(
    out: pathlib.Path,
    dataset: str,
    classes: tuple[str, ...],
    images: Mapping[Split, Content],
    labels: Mapping[Split, np.ndarray],
    *,
    source: str,
    declare: Declare | None = None,
) -> Made[ImageFacts]:
    """Labelled images of one size to be written; images may be blocks, larger than memory.

    `images` are uint8 [num_examples, height, width, channels], `labels` positions in `classes`.
    """
    image_set.check_classes(f"{dataset}:", labels, classes)
    files: dict[str, Content] = {}
    for split, content in images.items():
        if isinstance(content, np.ndarray):
            image_set.check_images(f"{split}: images", content)
            if labels[split].shape != content.shape[:1]:
                shape = labels[split].shape
                raise DataError(f"{split}: {len(content)} images with labels {shape}; wanted [n]")
        if not len(labels[split]):
            raise DataError(f"{split}: no images")
        files[f"{split}_images.npy"] = content
        files[_labels(split)] = labels[split].astype("<i4")

    def summary(written: ImageColumns) -> str:
        facts = written.facts
        height, width, channels = image_set.image_shape(written)
        mean, std = (
            " ".join(f"{value:.4f}" for value in part) for part in facts.statistics["train"]
        )
        return (
            f"{facts.num_examples['train']:,} train and {facts.num_examples['eval']:,} eval images "
            f"{height}x{width}x{channels} in {len(facts.classes)} classes; train mean {mean}, "
            f"std {std}{_note(facts, source, declare)}"
        )

    return Made(
        directory=out,
        kind=image_set.KIND,
        dataset=dataset,
        files=files,
        facts=functools.partial(image_set.facts_of, classes),
        form=ImageFacts,
        source=source,
        summary=summary,
    )


def read_splits(
    path: pathlib.Path,
) -> tuple[tuple[str, ...], dict[Split, np.ndarray], dict[Split, np.ndarray]]:
    """Classes, images and labels of an .npz of `train_x`, `train_y`, `test_x` and `test_y`."""
    folders: dict[Split, str] = {"train": "train", "eval": "test"}
    arrays = read_npz(path, [f"{name}_{part}" for name in folders.values() for part in ("x", "y")])
    pixels: dict[Split, np.ndarray] = {}
    labels: dict[Split, np.ndarray] = {}
    for split, folder in folders.items():
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
    names = class_names_of(f"{path}:", arrays["classes"]) if "classes" in arrays else None
    # Checked before the names are made: a label of 2**62 would make as many.
    num_classes = image_set.check_classes(f"{path}:", labels, names)
    return names or tuple(str(label) for label in range(num_classes)), pixels, labels


PREPARATION = Preparation(
    name="images",
    usage=(
        "--name=NAME --from=PATH [--out=DIR]\n"
        "[--overwrite] [--image_side=PIXELS] [--form=photographs] [--eval_fraction=FRACTION]",
    ),
    takes="""Any labelled images, for an experiment with Images(name=NAME). PATH is what imagenet
takes, with the evaluation split val, validation, eval or test; or a folder of class folders, of
which --eval_fraction is held out, by a hash of each file's content; or an .npz of train_x, train_y,
test_x and test_y (images uint8 [n, height, width] or [n, height, width, channels]) and, optionally,
classes with the labels' names.""",
    flags=(
        *FLAGS,
        Flag("name", "The name of the images: letters, digits, _ . and -."),
        Flag("eval_fraction", "Fraction of a folder without splits to evaluate.", float),
    ),
    run=_prepare,
)
