"""Ratings with times, as `dawnjax prepare --dataset=movielens` wrote them.

    interactions.npy       int32 [ratings, 2]: user and item from 0, by user and then by time
    eval_negatives.npy     int32 [users, n], if a file of them was given
    dataset.json           the manifest, with the counts of `RatingFacts`

MovieLens may not be redistributed (GroupLens's terms of use), so DawnJAX carries nothing of it.
"""

import dataclasses
import pathlib
from typing import Annotated, Any, ClassVar

import numpy as np

from dawnjax.input_pipeline.datasets.published import NO_FINGERPRINT
from dawnjax.input_pipeline.reading.dataset import (
    DataError,
    Declaration,
    MissingDataError,
    Overlap,
    Split,
    directory_of,
)
from dawnjax.input_pipeline.reading.interactions import InteractionsSpec, draw_negatives, split_of
from dawnjax.input_pipeline.reading.manifest import Kind
from dawnjax.limits import Limit

INTERACTIONS_FILE, NEGATIVES_FILE = "interactions.npy", "eval_negatives.npy"
MOST_NEGATIVES = 10_000

PUBLISHED = {
    "ml-100k": (943, 1_682, 100_000),
    "ml-1m": (6_040, 3_706, 1_000_209),
    "ml-10m": (69_878, 10_677, 10_000_054),
    "ml-20m": (138_493, 26_744, 20_000_263),
}
"""Users, items with a rating, and ratings of each set. Source: their README files (GroupLens)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RatingFacts:
    """Counts of prepared ratings; `num_eval_negatives` is 0 where none were given."""

    num_users: int
    num_items: int
    num_ratings: int
    num_eval_negatives: int

    def summary(self) -> str:
        return (
            f"{self.num_users:,} users, {self.num_items:,} items and {self.num_ratings:,} ratings"
        )


KIND = Kind(name="movielens", title="ratings", facts=RatingFacts, files=(INTERACTIONS_FILE,))


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
        directory = self._directory()
        manifest = KIND.read(directory)
        facts = manifest.facts
        known = PUBLISHED.get(self.corpus)
        if known and known != (facts.num_users, facts.num_items, facts.num_ratings):
            wanted = RatingFacts(**_counts(known), num_eval_negatives=0).summary()
            raise ValueError(
                f"data.corpus={self.corpus} has {wanted}, and {directory} {facts.summary()}; name "
                "another corpus or directory"
            )
        if not self.num_eval_negatives and not facts.num_eval_negatives:
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
        return _spec(
            facts,
            self.num_eval_negatives or facts.num_eval_negatives,
            manifest.fingerprint(drawn if self.num_eval_negatives else "given"),
            Declaration(
                name=f"{self.corpus}, by its counts" if known else "ratings",
                # A user who rates an item twice was refused when the ratings were prepared.
                overlap=Overlap(shared=0, compared=facts.num_users, unit="held-out ratings"),
            ),
        )

    def published_spec(self) -> InteractionsSpec:
        if self.corpus not in PUBLISHED or not self.num_eval_negatives:
            raise MissingDataError(
                f"what {self.corpus} holds is known of prepared data alone: give --data.data_dir"
            )
        facts = RatingFacts(**_counts(PUBLISHED[self.corpus]), num_eval_negatives=0)
        return _spec(facts, self.num_eval_negatives, NO_FINGERPRINT, None)

    def load(self, split: Split) -> dict[str, Any]:
        directory = self._directory()
        manifest = KIND.read(directory)
        facts = manifest.facts

        def array(name: str, shape: tuple[int, ...]) -> np.ndarray:
            found = np.asarray(manifest.array(directory, name))
            if (found.shape, found.dtype.name) != (shape, "int32"):
                raise DataError(
                    f"{directory / name}: holds {found.dtype} {found.shape}, not int32 {shape}; "
                    "run `dawnjax prepare` again"
                )
            return found

        def negatives(pairs: np.ndarray) -> np.ndarray:
            if not self.num_eval_negatives:
                return array(NEGATIVES_FILE, (facts.num_users, facts.num_eval_negatives))
            return draw_negatives(
                pairs, facts.num_items, self.num_eval_negatives, self.eval_negatives_seed
            )

        pairs = array(INTERACTIONS_FILE, (facts.num_ratings, 2))
        return split_of(pairs, facts.num_items, split, negatives)

    def _directory(self) -> pathlib.Path:
        return directory_of(self.corpus, self.data_dir)


def _counts(published: tuple[int, int, int]) -> dict[str, int]:
    return dict(zip(("num_users", "num_items", "num_ratings"), published, strict=True))


def _spec(
    facts: RatingFacts, negatives: int, fingerprint: str, declaration: Declaration | None
) -> InteractionsSpec:
    return InteractionsSpec(
        num_train_examples=facts.num_ratings - facts.num_users,
        num_eval_examples=facts.num_users,
        num_users=facts.num_users,
        num_items=facts.num_items,
        num_eval_negatives=negatives,
        fingerprint=fingerprint,
        declaration=declaration,
    )
