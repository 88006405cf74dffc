"""`dawnjax prepare`: a dataset into its form on disk, once, so that runs read it in no time."""

import pathlib
import sys
import time
import traceback
from typing import Any

from absl import flags

from dawnjax.config import command_line
from dawnjax.errors import ConfigError, ExitStatus
from dawnjax.input_pipeline import cifar10, imagenet, prepared
from dawnjax.input_pipeline.dataset import Split

USAGE = """dawnjax prepare --dataset=cifar10|imagenet --from=PATH [--out=DIR] [--overwrite]
         [--image_side=PIXELS]
       dawnjax prepare --dataset=parallel_text --train_source=FILES --train_target=FILES
         --eval_source=FILE --eval_target=FILE --vocabulary_size=N --row_length=N --out=DIR
         [--vocabulary=FILE] [--overwrite]
       dawnjax prepare --dataset=parallel_text --from=TFDS_DIR --source_language=CODE
         --target_language=CODE [--eval_split=NAME] --vocabulary_size=N --row_length=N --out=DIR"""

DESCRIPTION = """
Converts a dataset into plain arrays with checksums, which runs map into memory. For cifar10, PATH
is one of these, told apart by content:

  the original archive   cifar-10-python.tar.gz or cifar-10-binary.tar.gz, or its folder
  image files            train/<class>/*.jpg|png and test/<class>/*.jpg|png: a folder, or a .tar,
                         .tar.gz, .tar.xz, .tar.bz2 or .zip of it
  arrays                 an .npz of train_x, train_y, test_x, test_y
  TensorFlow Datasets    a data directory with ArrayRecord files

For imagenet, PATH is a folder with train/<class>/* and val/<class>/* (JPEG or PNG), or a TensorFlow
Datasets directory with ArrayRecord files; each photograph becomes a square of 256 pixels, 197 KB,
or of --image_side.

Nothing of an archive is unpacked to disk. Done again with the same content, it changes nothing;
interrupted, imagenet goes on where it was.

For parallel_text, the files are UTF-8 or .gz, line n of the target being the translation of line n
of the source. It trains a joint SentencePiece vocabulary on the training text, encodes, and packs
whole pairs into rows of row_length tokens; --vocabulary takes one that was trained before
(vocabulary.model in a prepared directory). Instead of files, or beside more files to train on,
--from names a translation dataset of TensorFlow Datasets in ArrayRecord files, such as
wmt14_translate/de-en, and the two languages' codes in it.
"""

WITHOUT_PREPARATION = {
    "digits": "its images come with scikit-learn",
    "synthetic": "its images are made from a seed",
}
DATASETS = ("cifar10", "imagenet", "parallel_text")

SECONDS_BETWEEN_LINES = 2.0

_TEXT_FLAGS = {
    "source_language": "Code of the language to translate, such as en: with --from.",
    "target_language": "Code of the language to translate to, such as de: with --from.",
    "eval_split": "Split of --from to evaluate; without it, validation, or else test.",
    "train_source": "Files of source sentences to train on, separated by commas.",
    "train_target": "Files of their translations, in the same order.",
    "eval_source": "The file of source sentences to evaluate.",
    "eval_target": "The file of their reference translations.",
    "vocabulary": "A SentencePiece model to use instead of training one.",
}
"""Flags of parallel text."""


def main(argv: list[str]) -> int:
    """Runs the command; gives its exit status."""
    flag_values = flags.FlagValues()
    flags.DEFINE_string("dataset", None, "Which dataset.", flag_values=flag_values)
    flags.DEFINE_string(
        "from", None, "The archive, folder or .npz to convert.", flag_values=flag_values
    )
    flags.DEFINE_string(
        "out",
        None,
        "Directory to write to; without it, where the dataset is looked for: "
        "$DAWNJAX_DATA/DATASET, or ./data/DATASET.",
        flag_values=flag_values,
    )
    flags.DEFINE_bool(
        "overwrite",
        False,
        "Replace other content in the directory, or write beside other files.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "image_side",
        None,
        f"Height and width of ImageNet's squares, in pixels; {imagenet.SIDE} without it.",
        flag_values=flag_values,
    )
    for name, text in _TEXT_FLAGS.items():
        flags.DEFINE_string(name, None, text, flag_values=flag_values)
    flags.DEFINE_integer("vocabulary_size", None, "Tokens.", flag_values=flag_values)
    flags.DEFINE_integer(
        "row_length",
        None,
        "Room of a packed row, in tokens of the side that has more.",
        flag_values=flag_values,
    )
    rest = command_line.parse("prepare", flag_values, argv, USAGE, DESCRIPTION)
    if rest:
        raise ConfigError(f"unexpected argument {rest[0]!r}; the source is given as --from=PATH")
    dataset = _known_dataset(flag_values["dataset"].value)
    _check_side(dataset, flag_values["image_side"].value)
    if dataset == "parallel_text":
        return _prepare_parallel_text(flag_values)
    if not flag_values["from"].value:
        raise ConfigError("--from is missing: the archive, folder or .npz to convert")
    source = pathlib.Path(flag_values["from"].value).expanduser()
    default_directory = (imagenet if dataset == "imagenet" else cifar10).default_directory()
    out = pathlib.Path(flag_values["out"].value or default_directory).expanduser()
    overwrite, side = bool(flag_values["overwrite"].value), flag_values["image_side"].value
    try:
        if dataset == "imagenet":
            _prepare_imagenet(source, out, side or imagenet.SIDE, overwrite=overwrite)
        else:
            _prepare_cifar10(source, out, overwrite=overwrite)
    except KeyboardInterrupt as error:
        return _interrupted(error)
    return ExitStatus.DONE


def _interrupted(error: KeyboardInterrupt) -> ExitStatus:
    """Says so. What was interrupted while it was made, such as an open archive, says nothing."""
    show, sys.unraisablehook = sys.unraisablehook, lambda _: None
    traceback.clear_frames(error.__traceback__)  # deletes it, which fails
    sys.unraisablehook = show
    print("dawnjax prepare: interrupted; run it again to complete it", file=sys.stderr)
    return ExitStatus.INTERRUPTED


def _known_dataset(name: str | None) -> str:
    if not name:
        raise ConfigError(f"--dataset is missing; known: {', '.join(DATASETS)}")
    if name in WITHOUT_PREPARATION:
        raise ConfigError(f"--dataset={name} needs no preparation: {WITHOUT_PREPARATION[name]}")
    if name not in DATASETS:
        near = command_line.closest(name, list(DATASETS))
        hint = f"did you mean {near}?" if near else f"known: {', '.join(DATASETS)}"
        raise ConfigError(f"--dataset={name} is not known; {hint}")
    return name


def _check_side(dataset: str, side: int | None) -> None:
    if side is None:
        return
    if dataset != "imagenet":
        raise ConfigError(f"--image_side is for imagenet; {dataset} has a size of its own")
    if side not in imagenet.SIDES:
        least, most = imagenet.SIDES[0], imagenet.SIDES[-1]
        raise ConfigError(f"--image_side={side} must lie in [{least}, {most}]")


def _prepare_cifar10(source: pathlib.Path, out: pathlib.Path, *, overwrite: bool) -> None:
    # OpenCV and the readers of archives are needed here alone; --help does without them.
    from dawnjax.input_pipeline import cifar10_sources

    progress = _Progress()
    description, outcome = prepared.write(
        out,
        lambda: cifar10_sources.read_source(source, progress.add),
        dataset="cifar10",
        overwrite=overwrite,
    )
    _report(out, description, outcome, progress.seconds)
    _note_part("CIFAR-10", description, cifar10.NUM_EXAMPLES)


def _prepare_imagenet(
    source: pathlib.Path, out: pathlib.Path, side: int, *, overwrite: bool
) -> None:
    from dawnjax.input_pipeline import imagenet_sources, photograph_writer

    progress = _Progress()
    description, outcome = photograph_writer.write(
        out,
        imagenet_sources.open_source(source),
        dataset="imagenet",
        side=side,
        overwrite=overwrite,
        progress=progress.add,
    )
    _report(out, description, outcome, progress.seconds)
    _note_part("ImageNet", description, imagenet.NUM_EXAMPLES)


def _report(
    out: pathlib.Path, description: prepared.Description, outcome: str, seconds: float
) -> None:
    counts = {split: description.num_examples(split) for split in ("train", "eval")}
    height, width, channels = description.image_shape
    mean = " ".join(f"{value:.4f}" for value in description.train_mean)
    std = " ".join(f"{value:.4f}" for value in description.train_std)
    done = "holds this already, nothing written" if outcome == "unchanged" else "written"
    print(
        f"{out}: {done}: {counts['train']:,} train and {counts['eval']:,} eval images "
        f"{height}x{width}x{channels} in {len(description.classes)} classes, from "
        f"{description.source['kind']}, in {seconds:.1f} s; train mean {mean}, std {std}"
    )


def _note_part(name: str, description: prepared.Description, whole: dict[Split, int]) -> None:
    if any(description.num_examples(split) != count for split, count in whole.items()):
        print(
            f"note: this is a part of {name}, which has {whole['train']:,} train and "
            f"{whole['eval']:,} eval images"
        )


def _prepare_parallel_text(flag_values: flags.FlagValues) -> int:
    from dawnjax.input_pipeline import parallel_text_sources

    values: dict[str, Any] = {name: flag_values[name].value for name in flag_values}
    files = ["train_source", "train_target", "eval_source", "eval_target"]
    needed = ["source_language", "target_language"] if values["from"] else files
    for name in [*needed, "vocabulary_size", "row_length", "out"]:
        if not values[name]:
            raise ConfigError(f"--{name} is missing: parallel_text needs it")
    languages = [name for name in ("source_language", "target_language") if values[name]]
    if languages and not values["from"]:
        raise ConfigError(f"--{languages[0]} is for a TFDS directory, given as --from=PATH")
    if bool(values["eval_source"]) != bool(values["eval_target"]):
        raise ConfigError("--eval_source and --eval_target go together")

    def paths(name: str) -> tuple[pathlib.Path, ...]:
        parts = (values[name] or "").split(",")
        return tuple(pathlib.Path(part).expanduser() for part in parts if part)

    out = pathlib.Path(values["out"]).expanduser()
    tfds = None
    if values["from"]:
        tfds = parallel_text_sources.TfdsPairs(
            directory=pathlib.Path(values["from"]).expanduser(),
            source_language=values["source_language"],
            target_language=values["target_language"],
            eval_split=values["eval_split"] or "",
        )
    corpus = parallel_text_sources.Corpus(
        train_sources=paths("train_source"),
        train_targets=paths("train_target"),
        eval_source=next(iter(paths("eval_source")), None),
        eval_target=next(iter(paths("eval_target")), None),
        tfds=tfds,
        vocabulary_size=values["vocabulary_size"],
        row_length=values["row_length"],
        vocabulary_file=(
            pathlib.Path(values["vocabulary"]).expanduser() if values["vocabulary"] else None
        ),
    )
    started = time.perf_counter()
    try:
        description, outcome = parallel_text_sources.prepare(
            corpus,
            out,
            overwrite=values["overwrite"],
            say=lambda line: print(line, file=sys.stderr, flush=True),
        )
    except KeyboardInterrupt as error:
        return _interrupted(error)
    done = "holds this already, nothing written" if outcome == "unchanged" else "written"
    seconds = time.perf_counter() - started
    print(f"{out}: {done} in {seconds:.1f} s: {parallel_text_sources.describe(description)}")
    return ExitStatus.DONE


class _Progress:
    """Says on standard error, every other second, how many examples are read."""

    def __init__(self) -> None:
        self._started = self._last = time.perf_counter()
        self._count = 0

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._started

    def add(self, count: int) -> None:
        self._count += count
        now = time.perf_counter()
        if now - self._last >= SECONDS_BETWEEN_LINES:
            self._last = now
            print(
                f"{self._count:,} images read in {self.seconds:.0f} s", file=sys.stderr, flush=True
            )
