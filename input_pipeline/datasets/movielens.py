"""Ratings with times, as `dawnjax prepare --dataset=movielens` wrote them.

A prepared directory holds

    interactions.npy       int32 [ratings, 2]: user and item from 0, by user and then by time
    eval_negatives.npy     int32 [users, n], if a file of them was given
    dataset.json           counts, and size and hash of each file

It appears whole or not at all. MovieLens may not be redistributed (GroupLens's terms of use), so
DawnJAX carries nothing of it.
"""

import dataclasses
import hashlib
import io
import json
import pathlib
from typing import Annotated, Any, ClassVar

import numpy as np

from dawnjax import records
from dawnjax.input_pipeline.reading.dataset import DataError, Declaration, MissingDataError, Split
from dawnjax.input_pipeline.reading.interactions import InteractionsSpec, draw_negatives, split_of
from dawnjax.input_pipeline.reading.prepared import DESCRIPTION_BYTES, OTHER_DIRECTORY, directory_of
from dawnjax.input_pipeline.reading.published import NO_FINGERPRINT
from dawnjax.limits import Limit

SCHEMA_VERSION = 1
DESCRIPTION_FILE = "dataset.json"
INTERACTIONS_FILE, NEGATIVES_FILE = "interactions.npy", "eval_negatives.npy"
MOST_NEGATIVES = 10_000
_AGAIN = "run `dawnjax prepare --dataset=movielens` again"

PUBLISHED = {
    "ml-100k": (943, 1_682, 100_000),
    "ml-1m": (6_040, 3_706, 1_000_209),
    "ml-10m": (69_878, 10_677, 10_000_054),
    "ml-20m": (138_493, 26_744, 20_000_263),
}
"""Users, items with a rating, and ratings of each set. Source: their README files (GroupLens)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MovieLens:
    """Users' ratings of films; the last of each user is held out.

    Attributes:
      corpus: Name of the set; the directory that is looked for. A name of MovieLens, such as
        `ml-20m`, must hold that set's users, items and ratings.
      num_eval_negatives: Items never rated that a held-out one is ranked among: 99 in the paper,
        999 in MLPerf. 0 takes those that were given to `dawnjax prepare`.
      eval_negatives_seed: Seed of these items, apart from a trial's seed.
      data_dir: The prepared directory. Empty takes one named as the corpus in the directory that
        the environment variable DAWNJAX_DATA names, or in `./data` without it.
    """

    TAG: ClassVar[str] = "movielens"
    corpus: str
    num_eval_negatives: Annotated[
        int, Limit(lambda value: 0 <= value <= MOST_NEGATIVES, f"lie in 0 to {MOST_NEGATIVES}")
    ] = 99
    eval_negatives_seed: Annotated[
        int, Limit(lambda value: 0 <= value < 2**63, "lie in 0 to 2**63 - 1")
    ] = 0
    data_dir: str = ""

    def spec(self) -> InteractionsSpec:
        """Counts and shapes; reads `dataset.json` and the files' sizes only.

        Raises:
          DataError: Missing or damaged.
          ValueError: Another set than `corpus`, or no negatives where they should be.
        """
        directory = self._directory()
        description = read_description(directory)
        counts = tuple(description[f"num_{name}"] for name in ("users", "items", "ratings"))
        if counts != PUBLISHED.get(self.corpus, counts):
            raise ValueError(
                f"data.corpus={self.corpus} has {_counted(PUBLISHED[self.corpus])}, and "
                f"{directory} {_counted(counts)}; name another corpus or directory"
            )
        given = description["num_eval_negatives"]
        if not self.num_eval_negatives and not given:
            raise ValueError(
                f"data.num_eval_negatives=0, and {directory} holds none: prepare it with "
                "--eval_negatives=FILE, or give a number"
            )
        if not self.num_eval_negatives and self.eval_negatives_seed:
            raise ValueError(
                f"data.eval_negatives_seed={self.eval_negatives_seed} draws nothing with "
                "data.num_eval_negatives=0; give their number"
            )
        drawn = (self.num_eval_negatives, self.eval_negatives_seed)
        content = [description["files"], drawn if self.num_eval_negatives else "given"]
        fingerprint = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
        kind = f"{self.corpus}, by its counts" if self.corpus in PUBLISHED else "ratings"
        declaration = Declaration(name=kind)
        return _spec(counts, self.num_eval_negatives or given, fingerprint, declaration)

    def published_spec(self) -> InteractionsSpec:
        """Counts and shapes of the published set, without its files.

        Raises:
          MissingDataError: `corpus` is none that is known, or its negatives are in a file.
        """
        if self.corpus not in PUBLISHED or not self.num_eval_negatives:
            raise MissingDataError(
                f"what {self.corpus} holds is known of prepared data alone: give --data.data_dir"
            )
        return _spec(PUBLISHED[self.corpus], self.num_eval_negatives, NO_FINGERPRINT, None)

    def load(self, split: Split) -> dict[str, Any]:
        """The arrays of a split, as `interactions` says.

        Raises:
          DataError: A file that is missing, damaged or other than its description.
        """
        directory = self._directory()
        description = read_description(directory)
        num_users, num_items, num_ratings = (
            description[f"num_{name}"] for name in ("users", "items", "ratings")
        )
        pairs = _verified(directory, description, INTERACTIONS_FILE, (num_ratings, 2))
        shape = (num_users, description["num_eval_negatives"])

        def negatives(pairs: np.ndarray) -> np.ndarray:
            if not self.num_eval_negatives:
                return _verified(directory, description, NEGATIVES_FILE, shape)
            return draw_negatives(
                pairs, num_items, self.num_eval_negatives, self.eval_negatives_seed
            )

        return split_of(pairs, num_items, split, negatives)

    def _directory(self) -> pathlib.Path:
        return directory_of(self.corpus, self.data_dir)


def read_description(directory: pathlib.Path) -> dict[str, Any]:
    """Reads the content of `dataset.json`; all files are there, with the right sizes.

    Raises:
      DataError: Missing or damaged; one line that names the file.
    """
    path = directory / DESCRIPTION_FILE
    try:
        body = records.load_json(records.read_plain(path, DESCRIPTION_BYTES))
        if body.get("dataset") != "movielens":
            kind = body.get("dataset")
            raise DataError(f"{path}: describes {kind}, not ratings; {OTHER_DIRECTORY}")
        whole = body.pop("sha256") == digest_of(body)
    except FileNotFoundError:
        raise MissingDataError(f"{directory}: no prepared dataset there") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DataError(f"{path}: damaged (no complete description); {_AGAIN}") from None
    if not whole:
        raise DataError(f"{path}: damaged (its hash does not fit); {_AGAIN}")
    if body["schema_version"] != SCHEMA_VERSION:
        raise DataError(f"{path}: has schema version {body['schema_version']}; {_AGAIN}")
    for name, file in body["files"].items():
        try:
            size = (directory / name).stat().st_size
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


def _spec(
    counts: tuple[int, ...], negatives: int, fingerprint: str, declaration: Declaration | None
) -> InteractionsSpec:
    users, items, ratings = counts
    return InteractionsSpec(
        num_train_examples=ratings - users,
        num_eval_examples=users,
        num_users=users,
        num_items=items,
        num_eval_negatives=negatives,
        fingerprint=fingerprint,
        declaration=declaration,
    )


def _counted(counts: tuple[int, ...]) -> str:
    users, items, ratings = counts
    return f"{users:,} users, {items:,} items and {ratings:,} ratings"


def _verified(
    directory: pathlib.Path, description: dict[str, Any], name: str, shape: tuple[int, ...]
) -> np.ndarray:
    path = directory / name
    try:
        content = path.read_bytes()
        array = np.load(io.BytesIO(content), allow_pickle=False)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); {_AGAIN}") from None
    except (ValueError, EOFError):
        raise DataError(f"{path}: damaged (no array); {_AGAIN}") from None
    if hashlib.sha256(content).hexdigest() != description["files"][name]["sha256"]:
        raise DataError(f"{path}: damaged (its hash does not fit); {_AGAIN}")
    if (array.shape, array.dtype.name) != (shape, "int32"):
        raise DataError(f"{path}: holds {array.dtype} {array.shape}; {_AGAIN}")
    return array
