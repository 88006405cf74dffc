"""Ratings made from a seed, a stand-in for MovieLens that a model can learn.

Users and items each have a place on a circle; a user rates the items near its own.
"""

import dataclasses
import hashlib
from typing import Any, ClassVar

import numpy as np

from dawnjax.input_pipeline.reading.dataset import Declaration, Split
from dawnjax.input_pipeline.reading.interactions import InteractionsSpec, draw_negatives, split_of
from dawnjax.limits import OneOrMore


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyntheticRatings:
    """Users who rate the items next to them on a circle.

    Attributes:
      num_users: Users.
      num_items: Items; more than `ratings_per_user`.
      ratings_per_user: Ratings of each user, 2 or more; the last is held out.
      num_eval_negatives: Items that a held-out one is ranked among.
      eval_negatives_seed: Seed of these items.
      seed: Seed of the order in which a user rates.
    """

    TAG: ClassVar[str] = "synthetic_ratings"
    num_users: OneOrMore[int] = 64
    num_items: OneOrMore[int] = 100
    ratings_per_user: OneOrMore[int] = 9
    num_eval_negatives: OneOrMore[int] = 20
    eval_negatives_seed: int = 0
    seed: int = 0

    def spec(self) -> InteractionsSpec:
        if not 2 <= self.ratings_per_user < self.num_items:
            raise ValueError(
                f"data.ratings_per_user={self.ratings_per_user} must lie in 2 to data.num_items - 1"
            )
        for name in ("seed", "eval_negatives_seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"data.{name}={getattr(self, name)} must be 0 or more")
        return InteractionsSpec(
            num_train_examples=self.num_users * (self.ratings_per_user - 1),
            num_eval_examples=self.num_users,
            num_users=self.num_users,
            num_items=self.num_items,
            num_eval_negatives=self.num_eval_negatives,
            fingerprint=hashlib.sha256(repr(self).encode()).hexdigest()[:16],
            declaration=Declaration(name="ratings made from a seed"),
        )

    def load(self, split: Split) -> dict[str, Any]:
        users, count = np.arange(self.num_users)[:, None], self.ratings_per_user
        raw = np.random.Philox(key=np.array([self.seed, 2**63], np.uint64)).random_raw(
            self.num_users * count
        )
        places = np.argsort(raw.reshape(self.num_users, count), axis=1)
        items = (users * self.num_items // self.num_users + places) % self.num_items
        pairs = np.stack([np.repeat(users, count), items.reshape(-1)], axis=1).astype(np.int32)
        return split_of(
            pairs,
            self.num_items,
            split,
            lambda all: draw_negatives(
                all, self.num_items, self.num_eval_negatives, self.eval_negatives_seed
            ),
        )
