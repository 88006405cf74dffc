"""Parallel text for translation, as `dawnjax prepare --dataset=parallel_text` wrote it.

A prepared directory holds

    vocabulary.model                       the joint SentencePiece vocabulary
    train_{source,target}.npy              uint16 [rows, length]: several pairs in each row
    train_{source,target}_segments.npy     uint8 [rows, length]: the pair of each token, from 1
    eval_{source,target}.npy               uint16 [pairs, longest]: one pair a row, shortest first
    eval_references.txt                    the target sentences as they were, in the same order
    dataset.json                           counts, lengths, and size and hash of each file

It appears whole or not at all.
"""

import dataclasses
import functools
import hashlib
import json
import pathlib
from typing import Any, ClassVar

import numpy as np

from dawnjax import records
from dawnjax.input_pipeline.reading import published, vocabulary
from dawnjax.input_pipeline.reading.dataset import DataError, MissingDataError, Split, TextSpec
from dawnjax.input_pipeline.reading.prepared import DESCRIPTION_BYTES, OTHER_DIRECTORY, directory_of
from dawnjax.input_pipeline.reading.published import declare_text

SCHEMA_VERSION = 1
DESCRIPTION_FILE = "dataset.json"
VOCABULARY_FILE = "vocabulary.model"
REFERENCES_FILE = "eval_references.txt"
_AGAIN = "run `dawnjax prepare --dataset=parallel_text` again"


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
        """Counts and shapes; reads `dataset.json` and the files' sizes only.

        Raises:
          DataError: Missing or damaged.
          ValueError: It was prepared with another vocabulary size or row length.
        """
        for read in (_read_vocabulary, _read_references):
            read.cache_clear()  # the next run of this process reads them on its own clock
        directory = self._directory()
        description = self._description()
        spec = spec_of(description)
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
        """Counts and shapes that the published corpus has about, without its files.

        Raises:
          MissingDataError: No counts are known of this corpus.
        """
        return published.text_spec(self.corpus, self.vocabulary_size, self.row_length)

    def load(self, split: Split) -> dict[str, np.ndarray]:
        """The verified arrays of a split, memory-mapped and read only.

        Raises:
          DataError: A file that is missing, damaged, or holds a token out of range.
        """
        directory, description = self._directory(), self._description()
        spec = spec_of(description)
        arrays = {}
        for name, (shape, dtype) in spec.example_shapes(split).items():
            file = f"{split}_{name}.npy"
            _verified_bytes(directory, description, file)
            array = np.load(directory / file, mmap_mode="r", allow_pickle=False)
            count = spec.num_train_examples if split == "train" else spec.num_eval_examples
            if (array.shape, array.dtype.name) != ((count, *shape), dtype):
                raise DataError(f"{directory / file}: holds {array.dtype} {array.shape}; {_AGAIN}")
            if dtype == "uint16" and int(array.max()) >= spec.vocabulary_size:
                raise DataError(f"{directory / file}: a token is no token of the vocabulary")
            arrays[name] = array
        return arrays

    def train_pair_lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """Counts the tokens of every training pair, source and target, int64 [pairs] each.

        Raises:
          DataError: As `load`.
        """
        arrays = self.load("train")
        return pair_lengths(arrays["source_segments"], arrays["target_segments"])

    def vocabulary(self) -> vocabulary.Vocabulary:
        """The vocabulary, verified.

        Raises:
          DataError: It is missing or damaged.
        """
        return _read_vocabulary(self._directory())

    def references(self) -> tuple[str, ...]:
        """The target sentences to evaluate, in the order of the split.

        Raises:
          DataError: They are missing or damaged.
        """
        return _read_references(self._directory())

    def _directory(self) -> pathlib.Path:
        return directory_of(self.corpus, self.data_dir)

    def _description(self) -> dict[str, Any]:
        directory = self._directory()
        if not (directory / DESCRIPTION_FILE).exists():
            raise MissingDataError(
                f"{directory}: no prepared parallel text there; `dawnjax prepare "
                f"--dataset=parallel_text --vocabulary_size={self.vocabulary_size} "
                f"--row_length={self.row_length} --out={directory}` makes it from text files "
                "(--data.data_dir names another place)"
            )
        return read_description(directory)


def pair_lengths(
    source_segments: np.ndarray, target_segments: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Counts the tokens of every pair of packed rows, source and target, int64 [pairs] each.

    Args:
      source_segments: int [rows, length], the pair of each token, from 1; 0 for padding.
      target_segments: The same.
    """
    # Every pair has both sides, so both name the same segments of a row, in the same order.
    sides = []
    for segments in (source_segments, target_segments):
        rows = np.arange(len(segments), dtype=np.int64)[:, None]
        row_and_segment = rows * 256 + np.asarray(segments)
        sides.append(np.unique(row_and_segment[segments > 0], return_counts=True)[1])
    return sides[0].astype(np.int64), sides[1].astype(np.int64)


def read_description(directory: pathlib.Path) -> dict[str, Any]:
    """Reads the content of `dataset.json`; all files are there, with the right sizes.

    Raises:
      DataError: Missing or damaged; one line that names the file.
    """
    path = directory / DESCRIPTION_FILE
    try:
        body = records.load_json(records.read_plain(path, DESCRIPTION_BYTES))
        if "sha256" not in body and "crc32" in body:  # the checksum of images
            raise DataError(
                f"{path}: describes {body.get('dataset')}, not parallel text; {OTHER_DIRECTORY}"
            )
        whole = body.pop("sha256") == digest_of(body)
    except FileNotFoundError:
        raise MissingDataError(f"{directory}: no prepared dataset there") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DataError(f"{path}: damaged (no complete description); {_AGAIN}") from None
    if not whole:
        raise DataError(f"{path}: damaged (its hash does not fit); {_AGAIN}")
    if (body.get("dataset"), body.get("schema_version")) != ("parallel_text", SCHEMA_VERSION):
        raise DataError(
            f"{path}: describes {body.get('dataset')} of schema version "
            f"{body.get('schema_version')}, not parallel text of version {SCHEMA_VERSION}"
        )
    for name, file in body["files"].items():
        try:
            size = (directory / name).stat().st_size
            if not (directory / name).is_file():
                raise DataError(f"{directory / name}: is no plain file; {_AGAIN}")
        except OSError as error:
            raise DataError(f"{directory / name}: {error.strerror}; {_AGAIN}") from None
        if size != file["num_bytes"]:
            change = "truncated" if size < file["num_bytes"] else "too long"
            raise DataError(
                f"{directory / name}: {change} ({size:,} of {file['num_bytes']:,} bytes); {_AGAIN}"
            )
    return body


def digest_of(body: dict[str, Any]) -> str:
    """Hash of a description, 64 hex digits."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def spec_of(description: dict[str, Any]) -> TextSpec:
    """The counts and shapes that a description holds."""
    content = {name: file["sha256"] for name, file in description["files"].items()}
    names = [field.name for field in dataclasses.fields(TextSpec)]
    counts = {name: description[name] for name in names if name in description}
    return TextSpec(
        end=vocabulary.END,
        fingerprint=digest_of(content)[:16],
        declaration=declare_text(
            description.get("num_pairs_read"), description.get("eval_text_md5", ())
        ),
        **counts,
    )


def _verified_bytes(directory: pathlib.Path, description: dict[str, Any], name: str) -> bytes:
    path = directory / name
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); {_AGAIN}") from None
    if hashlib.sha256(content).hexdigest() != description["files"][name]["sha256"]:
        raise DataError(f"{path}: damaged (its hash does not fit); {_AGAIN}")
    return content


@functools.lru_cache(maxsize=2)
def _read_vocabulary(directory: pathlib.Path) -> vocabulary.Vocabulary:
    content = _verified_bytes(directory, read_description(directory), VOCABULARY_FILE)
    return vocabulary.Vocabulary(content, str(directory / VOCABULARY_FILE))


@functools.lru_cache(maxsize=2)
def _read_references(directory: pathlib.Path) -> tuple[str, ...]:
    content = _verified_bytes(directory, read_description(directory), REFERENCES_FILE)
    return tuple(content.decode("utf8").removesuffix("\n").split("\n"))
