"""Ratings with times, as `dawnjax prepare --dataset=movielens` wrote them.

    interactions.npy       int32 [ratings, 2]: user and item from 0, by user and then by time

Originals are in one of MovieLens's forms, which the first line decides:

    u.data         user TAB item TAB rating TAB time
    ratings.dat    user::item::rating::time
    ratings.csv    a header, then user,item,rating,time

MovieLens may not be redistributed (GroupLens's terms of use), so DawnJAX carries nothing of it.
"""

import dataclasses
import io
import pathlib
import re
from typing import Annotated, Any, ClassVar

import numpy as np

from dawnjax.input_pipeline.reading import columns, text_files
from dawnjax.input_pipeline.reading.columns import Columns, Made
from dawnjax.input_pipeline.reading.dataset import (
    NO_FINGERPRINT,
    DataError,
    Declaration,
    MissingDataError,
    Overlap,
    Split,
    directory_of,
)
from dawnjax.input_pipeline.reading.interactions import InteractionsSpec, draw_negatives, split_of
from dawnjax.input_pipeline.reading.preparing import FlagError, Preparation, Request
from dawnjax.limits import Limit

INTERACTIONS_FILE = "interactions.npy"
KIND = "movielens"
MOST_BYTES = 4 * 2**30
LARGEST_NUMBER = 2**53
"""Limit of a user, an item or a time: float64, in which they are read, is exact up to it."""

_HEADER = b"userId,movieId,rating,timestamp"

MOST_NEGATIVES = 10_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class RatingFacts:
    """Counts of prepared ratings."""

    num_users: int
    num_items: int
    num_ratings: int

    def __str__(self) -> str:
        return (
            f"{self.num_ratings:,} ratings of {self.num_items:,} items by {self.num_users:,} users"
        )


PUBLISHED = {
    name: RatingFacts(num_users=users, num_items=items, num_ratings=ratings)
    for name, users, items, ratings in (
        ("ml-100k", 943, 1_682, 100_000),
        ("ml-1m", 6_040, 3_706, 1_000_209),
        ("ml-10m", 69_878, 10_677, 10_000_054),
        ("ml-20m", 138_493, 26_744, 20_000_263),
    )
}
"""Users, items with a rating, and ratings of each set. Source: their README files (GroupLens)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MovieLens:
    """Users' ratings of films; the last of each user is held out.

    Attributes:
      corpus: Name of the set and of its directory. A MovieLens name, such as `ml-20m`, must have
        that set's users, items and ratings.
      num_eval_negatives: Unrated items among which a held-out item is ranked: 99 in the paper, 999
        in MLPerf.
      eval_negatives_seed: Seed of these items, separate from a trial's seed.
      data_dir: The prepared directory. Empty takes the corpus's folder in the directory of the
        environment variable DAWNJAX_DATA, or in `./data` without it.
    """

    TAG: ClassVar[str] = "movielens"
    corpus: str
    num_eval_negatives: Annotated[
        int, Limit(lambda value: 1 <= value <= MOST_NEGATIVES, f"lie in 1 to {MOST_NEGATIVES}")
    ] = 99
    eval_negatives_seed: Annotated[
        int, Limit(lambda value: 0 <= value < 2**63, "lie in 0 to 2**63 - 1")
    ] = 0
    data_dir: str = ""

    def spec(self) -> InteractionsSpec:
        prepared = self._prepared()
        facts, known = prepared.facts, PUBLISHED.get(self.corpus)
        if known and known != facts:
            raise ValueError(
                f"data.corpus={self.corpus} has {known}, and {prepared.directory} {facts}; name "
                "another corpus or directory"
            )
        return self._spec(
            facts,
            prepared.fingerprint(self.num_eval_negatives, self.eval_negatives_seed),
            Declaration(
                name=f"{self.corpus}, by its counts" if known else "ratings",
                # A user who rates an item twice was refused when the ratings were prepared.
                overlap=Overlap(shared=0, compared=facts.num_users, unit="held-out ratings"),
            ),
        )

    def published_spec(self) -> InteractionsSpec:
        if self.corpus not in PUBLISHED:
            raise MissingDataError(
                f"the size of {self.corpus} is known only from prepared data: give --data.data_dir"
            )
        return self._spec(PUBLISHED[self.corpus], NO_FINGERPRINT, None)

    def load(self, split: Split) -> dict[str, Any]:
        prepared = self._prepared()
        num_items = prepared.facts.num_items
        pairs = np.asarray(prepared.array(INTERACTIONS_FILE))
        count, seed = self.num_eval_negatives, self.eval_negatives_seed
        return split_of(
            pairs, num_items, split, lambda all: draw_negatives(all, num_items, count, seed)
        )

    def _prepared(self) -> Columns[RatingFacts]:
        directory = directory_of(self.corpus, self.data_dir)
        return columns.read(directory, KIND, RatingFacts, "--dataset=movielens --from=FILE")

    def _spec(
        self, facts: RatingFacts, fingerprint: str, declaration: Declaration | None
    ) -> InteractionsSpec:
        return InteractionsSpec(
            num_train_examples=facts.num_ratings - facts.num_users,
            num_eval_examples=facts.num_users,
            num_users=facts.num_users,
            num_items=facts.num_items,
            num_eval_negatives=self.num_eval_negatives,
            fingerprint=fingerprint,
            declaration=declaration,
        )


@dataclasses.dataclass(frozen=True)
class Ratings:
    """Ratings as they were read: int64 [ratings] each, times in seconds."""

    path: pathlib.Path
    user: np.ndarray
    item: np.ndarray
    time: np.ndarray
    first_line: int

    def place(self, row: int) -> str:
        return f"{self.path}:{self.first_line + row}"


def read_ratings(path: pathlib.Path) -> Ratings:
    """Ratings in any of the forms, plain or packed."""
    text = text_files.read_content(path, MOST_BYTES)
    first_line = 1
    if text.startswith(_HEADER):
        text, first_line = text[text.find(b"\n") + 1 :], 2
    start = text[: text.find(b"\n") + 1] or text
    separator = next((s for s in (b"::", b"\t", b",") if s in start), b"\t")
    if not text.strip():
        raise DataError(f"{path}: holds no ratings")
    columns = text if len(separator) == 1 else text.replace(separator, b"\t")
    delimiter = "," if separator == b"," else "\t"
    try:
        table = np.loadtxt(
            io.BytesIO(columns), np.float64, delimiter=delimiter, comments=None, ndmin=2
        )
    except ValueError:
        table = np.empty((0, 0))
    lines = text.rstrip().split(b"\n")
    # A line without text is none to NumPy: the numbers of lines would be wrong.
    is_good = table.shape == (len(lines), 4) and bool(np.isfinite(table).all())
    # Larger whole numbers are rounded to even ones: two users would become one.
    whole = table[:, [0, 1, 3]] if is_good else table
    is_good = is_good and bool(((whole >= 0) & (whole < LARGEST_NUMBER)).all())
    if not is_good or (whole != np.floor(whole)).any():
        place = next((n for n, line in enumerate(lines) if not _is_rating(line, separator)), 0)
        shown = lines[place][:60].decode("ascii", "replace")
        raise DataError(
            f"{path}:{first_line + place}: {shown!r} is not a rating; wanted user, item, rating "
            "and time: whole numbers below 2**53, except the rating"
        )
    user, item, time = (table[:, column].astype(np.int64) for column in (0, 1, 3))
    return Ratings(path, user, item, time, first_line)


def _is_rating(line: bytes, separator: bytes) -> bool:
    fields = line.strip().split(separator)
    whole = [*fields[:2], *fields[3:]]
    return (
        len(fields) == 4
        and re.fullmatch(rb" *-?\d*\.?\d+(e-?\d+)? *", fields[2]) is not None
        and all(re.fullmatch(rb" *\d+(\.0*)? *", field) for field in whole)
        and max(map(float, whole)) < LARGEST_NUMBER
    )


@dataclasses.dataclass(frozen=True)
class Interactions:
    """Ratings in order.

    Attributes:
      pairs: int32 [ratings, 2], user and item from 0, sorted by user, then time, then line.
      users: int64 [users], each user's number in the file, ascending; `items` likewise.
    """

    pairs: np.ndarray
    users: np.ndarray
    items: np.ndarray


def in_order(ratings: Ratings) -> Interactions:
    """Number users and items from 0 and sort the ratings."""
    users, user = np.unique(ratings.user, return_inverse=True)
    items, item = np.unique(ratings.item, return_inverse=True)
    _refuse_twice(ratings, user, item)
    counts = np.bincount(user)
    for count, problem in (
        (1, "has only one rating: holding it out leaves none to train on; leave this user out"),
        (len(items), "rated every item: no negative is left; leave this user out"),
    ):
        (found,) = np.nonzero(counts == count)
        if len(found):
            row = int(np.flatnonzero(user == found[0])[0])
            raise DataError(f"{ratings.place(row)}: user {users[found[0]]} {problem}")
    order = np.lexsort((ratings.time, user))  # stable: of equal times the later line stays later
    pairs = np.stack([user[order], item[order]], axis=1).astype(np.int32)
    return Interactions(pairs, users, items)


def _refuse_twice(ratings: Ratings, user: np.ndarray, item: np.ndarray) -> None:
    pair = user * (int(item.max()) + 1) + item
    order = np.argsort(pair, kind="stable")
    (again,) = np.nonzero(pair[order][1:] == pair[order][:-1])
    if len(again):
        row, before = int(order[again[0] + 1]), int(order[again[0]])
        raise DataError(
            f"{ratings.place(row)}: user {ratings.user[row]} rates item {ratings.item[row]} again, "
            f"after line {ratings.first_line + before}"
        )


def _prepare(request: Request) -> Made:
    source = request.required_source()
    if request.out is None:
        raise FlagError("--out is missing: the directory to write to, such as data/ml-20m")
    out = request.out_for("movielens")
    ordered = in_order(read_ratings(source))
    return Made(
        directory=out,
        kind=KIND,
        dataset="movielens",
        files={INTERACTIONS_FILE: ordered.pairs},
        facts=RatingFacts(
            num_users=len(ordered.users),
            num_items=len(ordered.items),
            num_ratings=len(ordered.pairs),
        ),
        form=RatingFacts,
        summary=lambda written: f"{written.facts}, the last of each held out",
    )


PREPARATION = Preparation(
    name="movielens",
    usage=("--from=u.data --out=DIR [--overwrite]",),
    takes="""--from names MovieLens's u.data, ratings.dat or ratings.csv, plain or as .gz. Each
user's ratings are sorted by time.""",
    run=_prepare,
)
