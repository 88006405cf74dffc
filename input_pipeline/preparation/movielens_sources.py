"""Ratings in the forms of MovieLens, which the first line decides:

u.data         user TAB item TAB rating TAB time
ratings.dat    user::item::rating::time
ratings.csv    a header, then user,item,rating,time
"""

import dataclasses
import io
import pathlib
import re

import numpy as np

from dawnjax import records
from dawnjax.input_pipeline.datasets.movielens import (
    INTERACTIONS_FILE,
    KIND,
    MOST_NEGATIVES,
    NEGATIVES_FILE,
    RatingFacts,
)
from dawnjax.input_pipeline.preparation.request import DONE, Flag, FlagError, Preparation, Request
from dawnjax.input_pipeline.preparation.writing import Outcome, refuse_strangers, write_files
from dawnjax.input_pipeline.reading import text_files
from dawnjax.input_pipeline.reading.dataset import DataError
from dawnjax.input_pipeline.reading.interactions import is_rated, rated
from dawnjax.input_pipeline.reading.manifest import Manifest

MOST_BYTES = 4 * 2**30
LARGEST_NUMBER = 2**53
"""Of a user, an item or a time: up to it float64, in which they are read, holds whole numbers."""

_HEADER = b"userId,movieId,rating,timestamp"
_FIELDS = "user, item, rating and time"
_HELD_OUT = re.compile(rb"\(?(\d{1,16}),(\d{1,16})\)?")


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
    whole = table.shape[1] == 4 and np.isfinite(table).all()
    # Larger whole numbers are rounded to even ones: two users would become one.
    whole = whole and bool((abs(table[:, [0, 1, 3]]) < LARGEST_NUMBER).all())
    whole = whole and bool((table[:, [0, 1, 3]] == table[:, [0, 1, 3]].astype(np.int64)).all())
    # A line without text is none to NumPy: the numbers of lines would be wrong.
    if not whole or (table[:, :2] < 0).any() or len(table) != text.rstrip().count(b"\n") + 1:
        raise _bad_line(path, text, separator, first_line)
    user, item, time = (table[:, column].astype(np.int64) for column in (0, 1, 3))
    return Ratings(path, user, item, time, first_line)


def _bad_line(path: pathlib.Path, text: bytes, separator: bytes, first_line: int) -> DataError:
    for number, line in enumerate(text.rstrip().split(b"\n"), first_line):
        where, fields = f"{path}:{number}", line.strip().split(separator)
        if len(fields) == 3:
            return DataError(f"{where}: a rating without a time; wanted {_FIELDS}")
        if len(fields) != 4:
            return DataError(f"{where}: {len(fields)} fields; wanted {_FIELDS}")
        for name, field in zip(("user", "item", "time"), (*fields[:2], fields[3]), strict=True):
            shown = field[:40].decode("ascii", "replace")
            if not re.fullmatch(rb" *\d+(\.0*)? *", field):
                return DataError(f"{where}: {name} {shown!r} is no whole number")
            if float(field) >= LARGEST_NUMBER:
                rule = "times in seconds" if name == "time" else f"number the {name}s anew"
                return DataError(f"{where}: {name} {shown!r} is 2**53 or more; {rule}")
        try:
            is_finite = bool(np.isfinite(float(fields[2])))
        except ValueError:
            is_finite = False
        if not is_finite:
            shown = fields[2][:40].decode("ascii", "replace")
            return DataError(f"{where}: rating {shown!r} is no number")
    return DataError(f"{path}: no table of {_FIELDS}")


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
        (1, "has one rating: held out, it leaves none to train on; leave this user out"),
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


def read_negatives(path: pathlib.Path, interactions: Interactions) -> np.ndarray:
    """Negatives int32 [users, n], from a line `(user,item)`, TAB, item, ... for each user.

    It is the form of `test.negative` files of the paper's code.
    """
    pairs, users, items = interactions.pairs, interactions.users, interactions.items
    last = pairs[np.append(pairs[1:, 0] != pairs[:-1, 0], True), 1]
    table = rated(pairs[:, 0], pairs[:, 1], len(items))
    found: dict[int, np.ndarray] = {}
    text = text_files.read_content(path, MOST_BYTES)
    for number, line in enumerate(text.rstrip().split(b"\n"), 1):
        where = f"{path}:{number}"
        head, *rest = line.strip().split(b"\t")
        match = _HELD_OUT.fullmatch(head)
        if match is None or not rest or not all(re.fullmatch(rb"\d{1,16}", word) for word in rest):
            raise DataError(f"{where}: wanted (user,item), then TAB and a number for each negative")
        user, item = (int(group) for group in match.groups())
        row = int(np.searchsorted(users, user))
        if row == len(users) or users[row] != user:
            raise DataError(f"{where}: user {user} is unknown")
        if row in found:
            raise DataError(f"{where}: user {user} is there twice")
        if items[last[row]] != item:
            raise DataError(
                f"{where}: item {item} is not the last that user {user} rated, "
                f"which is {items[last[row]]}"
            )
        wanted = np.array([int(word) for word in rest])
        numbers = np.searchsorted(items, wanted)
        known = items[np.minimum(numbers, len(items) - 1)] == wanted
        if not known.all():
            raise DataError(f"{where}: item {wanted[~known][0]} has no rating")
        if (numbers == last[row]).any():
            raise DataError(f"{where}: the held-out item {item} is among its own negatives")
        if (bad := is_rated(table, np.full(len(numbers), row), numbers)).any():
            raise DataError(f"{where}: user {user} rated item {wanted[bad][0]}: it is no negative")
        if len(np.unique(numbers)) < len(numbers):
            raise DataError(f"{where}: an item is there twice")
        found[row] = numbers.astype(np.int32)
        if len(numbers) != len(next(iter(found.values()))) or len(numbers) > MOST_NEGATIVES:
            raise DataError(f"{where}: {len(numbers)} negatives; wanted as many as in line 1")
    missing = set(range(len(users))) - found.keys()
    if missing:
        raise DataError(f"{path}: no line for user {users[min(missing)]}")
    return np.stack([found[row] for row in range(len(users))])


def prepare(
    source: pathlib.Path,
    out: pathlib.Path,
    *,
    negatives: pathlib.Path | None = None,
    overwrite: bool = False,
) -> tuple[Manifest[RatingFacts], Outcome]:
    refuse_strangers(out)
    interactions = in_order(read_ratings(source))
    arrays: dict[str, np.ndarray | bytes] = {INTERACTIONS_FILE: interactions.pairs}
    num_negatives = 0
    if negatives is not None:
        arrays[NEGATIVES_FILE] = given = read_negatives(negatives, interactions)
        num_negatives = given.shape[1]
    facts = RatingFacts(
        num_users=len(interactions.users),
        num_items=len(interactions.items),
        num_ratings=len(interactions.pairs),
        num_eval_negatives=num_negatives,
    )
    return write_files(out, KIND, facts, arrays, overwrite=overwrite)


def _prepare(request: Request) -> str:
    source = request.required_source()
    if request.out is None:
        raise FlagError("--out is missing: the directory to write to, such as data/ml-20m")
    given = request.flags["eval_negatives"]
    negatives = records.path_of(given) if given else None
    manifest, outcome = prepare(
        source, request.out, negatives=negatives, overwrite=request.overwrite
    )
    facts = manifest.facts
    line = (
        f"{request.out}: {DONE[outcome]} in {request.progress.seconds:.1f} s: "
        f"{facts.num_ratings:,} ratings of {facts.num_items:,} items by {facts.num_users:,} "
        "users, the last of each held out"
    )
    if negatives is None:
        return line
    return f"{line}; {facts.num_eval_negatives} negatives of each were given"


PREPARATION = Preparation(
    name="movielens",
    usage=("--from=u.data --out=DIR\n[--eval_negatives=FILE] [--overwrite]",),
    takes="""--from names MovieLens's u.data, ratings.dat or ratings.csv, plain or as .gz. Each
user's ratings are sorted by time. The negatives of an evaluation are drawn from a seed of the
experiment; --eval_negatives gives fixed ones: a line (user,item) for each user with its last item,
then TAB and an item for each negative.""",
    flags=(
        Flag("eval_negatives", "Items to rank each user's last one among, in place of drawn ones."),
    ),
    run=_prepare,
)
