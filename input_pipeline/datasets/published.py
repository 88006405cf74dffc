"""Published sets of benchmarks, recognized by counts and a fingerprint of published facts.

- CIFAR-10: mean and deviation of each channel of both splits, to six digits. A copy in JPEG has a
  lower deviation in the third digit.
- ImageNet: the 1,000 synset ids, and the number of images of each class: 732 to 1,300 to train on,
  50 to evaluate. Pixels are not compared: decoders and sizes differ.
- WMT English to German: the number of training pairs before any is left out, and MD5 of both
  sides of newstest2014.

They stop data that are called by a wrong name, not a person who forges data.

Source: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images" (2009), for counts of
CIFAR-10; its statistics are NumPy's over the arrays of torchvision's `CIFAR10`. O. Russakovsky et
al., "ImageNet Large Scale Visual Recognition Challenge" (2015), Table 2; the ids are those of
TensorFlow Datasets' `imagenet2012` (4.9). Counts of WMT are those of its catalog; the MD5 are in
`verify_dataset.sh` of MLPerf's reference of the Transformer (mlcommons/training, v0.5).
"""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence

from dawnjax.input_pipeline.reading.dataset import (
    DatasetSpec,
    Declaration,
    MissingDataError,
    Overlap,
    Split,
    TextSpec,
)
from dawnjax.input_pipeline.reading.image_set import ImageFacts, Statistics

NO_FINGERPRINT = "0" * 16
"""Of a published set whose content is not here."""

TOLERANCE = 1.5e-6
"""Statistics are stored with six digits; half a digit each for both sides, and some room."""

_SPLIT_WORDS: dict[Split, str] = {"train": "to train on", "eval": "to evaluate"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublishedImages:
    """A published set of labelled images.

    Attributes:
      images_a_class: The least and the most images of a class, in each split.
      classes_sha256: Of the sorted names of the classes, joined by newlines.
      statistics: Of each split; None where pixels depend on how the images are decoded.
    """

    benchmark: str
    num_examples: Mapping[Split, int]
    num_classes: int
    images_a_class: Mapping[Split, tuple[int, int]]
    classes_sha256: str
    statistics: Mapping[Split, Statistics] | None = None


CIFAR10 = PublishedImages(
    benchmark="CIFAR-10",
    num_examples={"train": 50_000, "eval": 10_000},
    num_classes=10,
    images_a_class={"train": (5_000, 5_000), "eval": (1_000, 1_000)},
    classes_sha256="bb3914949cecedee6d1257f7f5fdb8f43fa3b2c8095fd1763161caf1b873fe59",
    statistics={
        "train": ((0.49139968, 0.48215841, 0.44653091), (0.24703223, 0.24348513, 0.26158784)),
        "eval": ((0.49421428, 0.48513139, 0.45040909), (0.24665252, 0.24289226, 0.26159238)),
    },
)

IMAGENET = PublishedImages(
    benchmark="ImageNet",
    num_examples={"train": 1_281_167, "eval": 50_000},
    num_classes=1_000,
    images_a_class={"train": (732, 1_300), "eval": (50, 50)},
    classes_sha256="385e0240499426c022b773be1ae4da780f057b89c9694c7f47199f62746b6edd",
)


def images_spec(
    published: PublishedImages,
    image_shape: tuple[int, int, int],
    mean: tuple[float, ...],
    std: tuple[float, ...],
) -> DatasetSpec:
    return DatasetSpec(
        num_train_examples=published.num_examples["train"],
        num_eval_examples=published.num_examples["eval"],
        image_shape=image_shape,
        num_classes=published.num_classes,
        mean=mean,
        std=std,
        fingerprint=NO_FINGERPRINT,
    )


def declare_images(published: PublishedImages, facts: ImageFacts) -> Declaration:
    """Declaration of a dataset of images after a comparison with a published set."""
    difference, overlap = _difference(published, facts), facts.overlap
    if difference:
        counts = facts.num_examples
        return Declaration(
            name=f"{counts['train']:,} + {counts['eval']:,} images in {len(facts.classes):,} "
            f"classes, not {published.benchmark}",
            evidence=difference,
            overlap=overlap,
        )
    compared = "counts of both splits and of each class, names of the classes"
    if published.statistics is not None:
        compared += ", mean and deviation of the pixels of both splits"
    return Declaration(
        name=published.benchmark,
        benchmark=published.benchmark,
        evidence=f"equal: {compared}",
        overlap=overlap,
    )


def _difference(published: PublishedImages, facts: ImageFacts) -> str:
    name = published.benchmark
    for split, words in _SPLIT_WORDS.items():
        here, there = facts.num_examples[split], published.num_examples[split]
        if here != there:
            return f"{name} has {there:,} images {words}, and these are {here:,}"
    if len(facts.classes) != published.num_classes:
        return f"{name} has {published.num_classes:,} classes, and these are {len(facts.classes):,}"
    digest = hashlib.sha256("\n".join(sorted(facts.classes)).encode()).hexdigest()
    if digest != published.classes_sha256:
        return f"its classes do not have the names of {name}'s"
    for split, words in _SPLIT_WORDS.items():
        counts = facts.class_counts.get(split)
        if not counts:
            return (
                f"its labels were not counted: prepare it (`dawnjax prepare`) to compare it with "
                f"{name}"
            )
        low, high = published.images_a_class[split]
        if (min(counts), max(counts)) != (low, high):
            span = f"{low:,}" if low == high else f"{low:,} to {high:,}"
            return (
                f"{name} has {span} images of a class {words}, and here are {min(counts):,} to "
                f"{max(counts):,}"
            )
    for split, wanted in (published.statistics or {}).items():
        measured = facts.statistics.get(split)
        if not measured or not all(measured):
            return (
                f"its pixels were not measured: prepare it (`dawnjax prepare`) to compare it with "
                f"{name}"
            )
        for what, here, there in zip(("mean", "deviation"), measured, wanted, strict=True):
            if len(here) != len(there) or any(
                abs(a - b) > TOLERANCE for a, b in zip(here, there, strict=True)
            ):
                return (
                    f"its pixels are not those of {name}: the {what} of those "
                    f"{_SPLIT_WORDS[split]} is {_digits(here)}, not {_digits(there)}"
                )
    return ""


def _digits(values: Sequence[float]) -> str:
    return " ".join(f"{value:.6f}" for value in values)


WMT_BENCHMARK = "WMT English-German"

WMT_TRAIN_PAIRS = {
    4_508_785: "WMT14",
    4_548_885: "WMT16",
    5_906_184: "WMT17",
}
"""Training pairs of the preparations that TensorFlow Datasets publishes."""

NEWSTEST2014_MD5 = ("dabf51a9c02b2235632f3cee75c72d49", "f6c3818b477e4a25cad68b61cc883c17")
"""Of the text of newstest2014, English and German, 3,003 lines."""


def declare_text(
    num_train_pairs: int, eval_md5: Sequence[str], overlap: Overlap | None = None
) -> Declaration:
    """Declaration of parallel text, by all pairs that were read and the MD5 of its eval files."""
    name = f"parallel text of {num_train_pairs:,} pairs"
    if num_train_pairs not in WMT_TRAIN_PAIRS:
        known = ", ".join(f"{count:,}" for count in WMT_TRAIN_PAIRS)
        why = f"published preparations of {WMT_BENCHMARK} have {known} pairs"
    elif tuple(eval_md5) != NEWSTEST2014_MD5:
        why = "the text to evaluate is not that of newstest2014, English to German"
    else:
        evidence = (
            f"equal: the number of training pairs of {WMT_TRAIN_PAIRS[num_train_pairs]} and the "
            "text of newstest2014; the training text is not compared"
        )
        return Declaration(
            name=WMT_BENCHMARK, benchmark=WMT_BENCHMARK, evidence=evidence, overlap=overlap
        )
    return Declaration(name=f"{name}, not {WMT_BENCHMARK}", evidence=why, overlap=overlap)


@dataclasses.dataclass(frozen=True)
class _Corpus:
    """Approximate size of a corpus: pairs of each split, and target tokens of a pair.

    Source: Multi30K with a vocabulary of 8,000, counted (docs/translation.md); for WMT, the paper's
    25,000 tokens a batch over its steps an epoch, rounded.

    Attributes:
      short: The longest side of a pair in tokens, the pairs that are left with it, and the mean
        tokens of a side of those. A longer pair is no part of an epoch.
    """

    train_pairs: int
    eval_pairs: int
    mean_tokens: float
    longest: int
    short: tuple[int, int, float] = (0, 0, 0.0)


_CORPORA = {
    # Short pairs: MLPerf Training v0.5, nvidia/dgx2 gnmt, whose log says "Pairs before: 4068191,
    # after: 3498161" for 50 tokens; tokens are its tokens a second over pairs a second, halved.
    "wmt_en_de": _Corpus(4_508_785, 3_003, 30.0, 128, short=(50, 3_498_161, 24.2)),
    "multi30k_en_de": _Corpus(29_000, 1_000, 15.5, 48),
}

_FILLED = 0.97
"""Part of a training row that holds tokens: measured of both corpora."""


def text_spec(corpus: str, vocabulary_size: int, row_length: int) -> TextSpec:
    """Approximate specification of a published corpus whose files need not be here."""
    known = _CORPORA.get(corpus)
    if known is None:
        raise MissingDataError(
            f"how much text {corpus} holds is known of prepared data alone: give --data.data_dir"
        )
    pairs, mean_tokens = known.train_pairs, known.mean_tokens
    if row_length <= known.short[0]:
        _, pairs, mean_tokens = known.short
    return TextSpec(
        num_train_examples=round(pairs * mean_tokens / (_FILLED * row_length)),
        num_train_pairs=pairs,
        num_eval_examples=known.eval_pairs,
        source_length=row_length,
        target_length=row_length,
        eval_source_length=known.longest,
        eval_target_length=known.longest,
        vocabulary_size=vocabulary_size,
        end=1,
        fingerprint=NO_FINGERPRINT,
    )
