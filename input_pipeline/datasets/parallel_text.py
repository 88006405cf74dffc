"""Parallel text for translation, as `dawnjax prepare --dataset=parallel_text` wrote it.

vocabulary.model                       the joint SentencePiece vocabulary
train_{source,target}.npy              uint16 [rows, length]: several pairs in each row
train_{source,target}_segments.npy     uint8 [rows, length]: the pair of each token, from 1
eval_{source,target}.npy               uint16 [pairs, longest]: one pair a row, shortest first
eval_references.txt                    the target sentences as they were, in the same order
dataset.json                           the manifest, with the counts and lengths of `TextFacts`
"""

import dataclasses
import functools
import pathlib
from typing import ClassVar

import numpy as np

from dawnjax.input_pipeline.datasets import published
from dawnjax.input_pipeline.datasets.published import declare_text
from dawnjax.input_pipeline.reading import vocabulary
from dawnjax.input_pipeline.reading.dataset import (
    DataError,
    Overlap,
    Split,
    TextSpec,
    directory_of,
)
from dawnjax.input_pipeline.reading.manifest import Kind, Manifest

VOCABULARY_FILE = "vocabulary.model"
REFERENCES_FILE = "eval_references.txt"
_TRAIN_ARRAYS = ("source", "source_segments", "target", "target_segments")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFacts:
    """Facts of prepared parallel text; `TextSpec` has those of the same names.

    Attributes:
      num_pairs_read: Training pairs before any is left out.
      num_empty_pairs: Training pairs with an empty side, left out.
      num_too_long_pairs: Training pairs with a side longer than a row, left out.
      eval_text_md5: Of the text of both sides to evaluate; of files alone.
      overlap: Pairs in both splits, both sides equal.
    """

    num_pairs_read: int
    num_empty_pairs: int
    num_too_long_pairs: int
    num_train_examples: int
    num_train_pairs: int
    num_eval_examples: int
    source_length: int
    target_length: int
    eval_source_length: int
    eval_target_length: int
    num_source_tokens: int
    num_target_tokens: int
    vocabulary_size: int
    eval_text_md5: tuple[str, ...]
    overlap: Overlap | None = None

    def summary(self) -> str:
        rows = self.num_train_examples
        padding = [
            1 - self.num_source_tokens / (rows * self.source_length),
            1 - self.num_target_tokens / (rows * self.target_length),
        ]
        left_out = self.num_too_long_pairs + self.num_empty_pairs
        return (
            f"{self.num_train_pairs:,} pairs in {rows:,} rows of {self.source_length} + "
            f"{self.target_length} tokens ({left_out:,} pairs left out, too long or empty), "
            f"padding {padding[0]:.2%} and {padding[1]:.2%}; {self.num_eval_examples:,} pairs to "
            f"evaluate; vocabulary of {self.vocabulary_size:,}"
        )


KIND = Kind(
    name="parallel_text",
    title="parallel text",
    facts=TextFacts,
    files=(
        *(f"train_{name}.npy" for name in _TRAIN_ARRAYS),
        *("eval_source.npy", "eval_target.npy", VOCABULARY_FILE, REFERENCES_FILE),
    ),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParallelText:
    """Sentence pairs of two languages.

    An example of the training split is a packed row, not a sentence: `global_batch_size` counts
    rows, each of nearly `row_length` source and target tokens.

    Attributes:
      corpus: Name of the corpus and the direction; the directory that is looked for.
      vocabulary_size: Tokens of the joint vocabulary; the prepared one must have as many.
      row_length: Room of a training row, in tokens of the side that has more; the prepared rows
        must have as much.
      data_dir: The prepared directory. Empty takes one named as the corpus in the directory that
        the environment variable DAWNJAX_DATA names, or in `./data` without it.
    """

    TAG: ClassVar[str] = "parallel_text"
    corpus: str
    vocabulary_size: int
    row_length: int
    data_dir: str = ""

    def spec(self) -> TextSpec:
        for read in (_read_vocabulary, _read_references):
            read.cache_clear()  # the next run of this process reads them on its own clock
        directory = self._directory()
        spec = spec_of(self._manifest())
        longer = max(spec.source_length, spec.target_length)
        for name, there in (("vocabulary_size", spec.vocabulary_size), ("row_length", longer)):
            wanted = getattr(self, name)
            if there != wanted:
                raise ValueError(
                    f"data.{name}={wanted}, but {directory} was prepared with {there}; prepare it "
                    f"with --{name}={wanted} --overwrite, or give --data.{name}={there}"
                )
        return spec

    def published_spec(self) -> TextSpec:
        """Approximate counts and shapes of the published corpus, without its files."""
        return published.text_spec(self.corpus, self.vocabulary_size, self.row_length)

    def load(self, split: Split) -> dict[str, np.ndarray]:
        """Arrays of a split, verified, memory-mapped and read only."""
        directory, manifest = self._directory(), self._manifest()
        spec = spec_of(manifest)
        arrays = {}
        for name, (shape, dtype) in spec.example_shapes(split).items():
            file = f"{split}_{name}.npy"
            array = manifest.array(directory, file)
            count = spec.num_train_examples if split == "train" else spec.num_eval_examples
            if (array.shape, array.dtype.name) != ((count, *shape), dtype):
                raise DataError(
                    f"{directory / file}: holds {array.dtype} {array.shape}, not {dtype} "
                    f"{(count, *shape)}; run `dawnjax prepare` again"
                )
            # JAX raises no error for an index out of range: the model would train on wrong tokens.
            if dtype == "uint16" and int(array.max()) >= spec.vocabulary_size:
                raise DataError(f"{directory / file}: a token is no token of the vocabulary")
            arrays[name] = array
        return arrays

    def train_pair_lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """Tokens of every training pair, source and target, int64 [pairs] each."""
        arrays = self.load("train")
        return pair_lengths(arrays["source_segments"], arrays["target_segments"])

    def vocabulary(self) -> vocabulary.Vocabulary:
        return _read_vocabulary(self._directory())

    def references(self) -> tuple[str, ...]:
        """Target sentences to evaluate, in the order of the split."""
        return _read_references(self._directory())

    def _directory(self) -> pathlib.Path:
        return directory_of(self.corpus, self.data_dir)

    def _manifest(self) -> Manifest[TextFacts]:
        directory = self._directory()
        command = (
            f"--dataset=parallel_text --vocabulary_size={self.vocabulary_size} "
            f"--row_length={self.row_length} --out={directory}"
        )
        return KIND.read(directory, command)


def pair_lengths(
    source_segments: np.ndarray, target_segments: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of every pair of packed rows, source and target, int64 [pairs] each.

    Segments are int [rows, length], the pair of each token, from 1; 0 for padding.
    """
    # Every pair has both sides, so both name the same segments of a row, in the same order.
    sides = []
    for segments in (source_segments, target_segments):
        rows = np.arange(len(segments), dtype=np.int64)[:, None]
        # Segments are uint8, so 256 keeps those of two rows apart.
        row_and_segment = rows * 256 + np.asarray(segments)
        sides.append(np.unique(row_and_segment[segments > 0], return_counts=True)[1])
    return sides[0].astype(np.int64), sides[1].astype(np.int64)


def spec_of(manifest: Manifest[TextFacts]) -> TextSpec:
    facts = manifest.facts
    names = [field.name for field in dataclasses.fields(TextSpec) if hasattr(facts, field.name)]
    return TextSpec(
        end=vocabulary.END,
        fingerprint=manifest.fingerprint(),
        declaration=declare_text(facts.num_pairs_read, facts.eval_text_md5, facts.overlap),
        **{name: getattr(facts, name) for name in names},
    )


@functools.lru_cache(maxsize=2)
def _read_vocabulary(directory: pathlib.Path) -> vocabulary.Vocabulary:
    content = KIND.read(directory).content(directory, VOCABULARY_FILE)
    return vocabulary.Vocabulary(content, str(directory / VOCABULARY_FILE))


@functools.lru_cache(maxsize=2)
def _read_references(directory: pathlib.Path) -> tuple[str, ...]:
    manifest = KIND.read(directory)
    lines = manifest.text(directory, REFERENCES_FILE).removesuffix("\n").split("\n")
    if len(lines) != manifest.facts.num_eval_examples:
        raise DataError(f"{directory / REFERENCES_FILE}: damaged (other counts than the arrays)")
    return tuple(lines)
