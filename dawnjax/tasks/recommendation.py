"""Recommendation from implicit feedback: negatives drawn on the device, and ranks among negatives.

A training example is a user and an item that the user rated, beside new negatives at each step. An
evaluation ranks the item that a user rated last among fixed items that the user never rated.

Source: X. He et al. 2017 (arXiv 1708.05031), equation 7 for the loss, section 4.1 for the protocol;
mlcommons/training, v0.5, `recommendation/pytorch`: `dataset.py` for what is drawn, `ncf.py` for
ties.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import numpy as np
from etils import epy

from dawnjax.errors import ConfigError
from dawnjax.limits import check_fields, within
from dawnjax.tasks.metric import Metric, fraction
from dawnjax.tasks.task import AUGMENTATION, Arrays, LabelledSet, Moment, Setting, Task

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

CUT = 10
"""Ranks that count: the first ten."""

HIT_RATE = fraction("hit_rate_at_10", "HR@10", is_proportion=True)
NDCG = Metric(name="ndcg_at_10", title="NDCG@10", unit="1", least=0.0, most=1.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recommendation(Task):
    """The next item of each user.

    Attributes:
      num_negatives: Unrated items drawn for each rated item.
    """

    TAG: ClassVar[str] = "recommendation"
    metrics: ClassVar = (HIT_RATE, NDCG)
    arrays: ClassVar = ("user", "item", "seen")
    example_unit: ClassVar[str] = "ratings"
    other_set_flags: ClassVar = {
        "data.eval_negatives_seed": "The seed of other items to rank the held-out ones among.",
        "data.num_eval_negatives": "How many of them; without it, as many as in the run.",
    }

    num_negatives: Annotated[int, within(1, 1000)] = 4

    def model_arguments(self, spec: Any) -> dict[str, Any]:
        return {"num_users": spec.num_users, "num_items": spec.num_items}

    def loss(
        self, module: Any, batch: Arrays, moment: Moment, setting: Setting
    ) -> tuple[jax.Array, int]:
        """Mean binary cross entropy of each rated item and its negatives in nats; the count."""
        keys = moment.keys(AUGMENTATION, batch["index"])
        negatives = jax.vmap(draw_unseen, in_axes=(0, 0, None))(
            keys, batch["seen"], self.num_negatives
        )
        items = jnp.concatenate([batch["item"][:, None], negatives], axis=1)
        logits = module(batch["user"], items)
        # -log sigmoid(x) is softplus(-x) for the rated item, and softplus(x) for the others.
        signs = jnp.where(jnp.arange(items.shape[1]) == 0, -1.0, 1.0)
        return jax.nn.softplus(signs * logits).mean(axis=1), len(items)

    def measure(self, module: Any, batch: Arrays, setting: Setting) -> Arrays:
        scores = module(batch["user"], jnp.maximum(batch["items"], 0))
        return measures(ranks_of_first(scores, batch["items"]))

    def answer(self, module: Any, inputs: Arrays, setting: Setting) -> jax.Array:
        """Scores of a user's candidates: float32 [batch, items]; the first is held out."""
        # Padding is below 0; `ranks_of_first` ignores its score.
        return module(inputs["user"], jnp.maximum(inputs["items"], 0))

    def quality(
        self, answers: list[Any], examples: Mapping[str, np.ndarray], setting: Setting
    ) -> dict[str, Any]:
        ranks = ranks_of_first(np.concatenate(answers), examples["items"])
        return {name: float(values.mean()) for name, values in measures(ranks).items()}

    def read_other_set(self, paths: Any, setting: Setting) -> LabelledSet:
        numbers = {name: text for name, text in paths.items() if text}
        try:
            fields = {name.removeprefix("data."): int(text) for name, text in numbers.items()}
        except ValueError:
            given = " ".join(f"--{name}={text}" for name, text in numbers.items())
            raise ConfigError(f"{given}: a whole number is needed") from None
        if "eval_negatives_seed" not in fields:
            raise ConfigError("--data.num_eval_negatives goes with --data.eval_negatives_seed")
        data = dataclasses.replace(setting.data, **fields)
        check_fields(data, "data.")
        try:
            spec = data.spec()
        except ValueError as error:
            raise ConfigError(str(error)) from None
        return LabelledSet(
            kind=f"the same users among {data.num_eval_negatives} items of another draw",
            spec=spec,
            data=data,
            examples=dict(data.load("eval")),
            fingerprint=spec.fingerprint,
        )


def draw_unseen(key: jax.Array, seen: jax.Array, count: int) -> jax.Array:
    """Items drawn evenly, with replacement, from those whose bit is not set: int32 [count].

    `seen` is uint32 [words], bit i of word w for item 32 w + i; at least one bit is 0.
    """
    unseen = ~seen
    ends = jnp.cumsum(jax.lax.population_count(unseen).astype(jnp.int32))
    # Draw the rank among unseen items and find its word, then its bit: none is drawn in vain.
    ranks = jax.random.randint(key, (count,), 0, ends[-1])
    word = (ends[None] <= ranks[:, None]).sum(axis=1)
    ranks -= jnp.where(word > 0, ends[jnp.maximum(word - 1, 0)], 0)
    bits, place = unseen[word], jnp.zeros(count, jnp.uint32)
    for width in (16, 8, 4, 2, 1):
        low = jax.lax.population_count((bits >> place) & jnp.uint32(2**width - 1)).astype(jnp.int32)
        is_above = ranks >= low
        ranks = jnp.where(is_above, ranks - low, ranks)
        place = jnp.where(is_above, place + jnp.uint32(width), place)
    return 32 * word + place.astype(jnp.int32)


def ranks_of_first(scores: Any, items: Any) -> Any:
    """Rank, from 0, of each row's first item: int32 [rows], of scores [rows, items].

    Items below 0 are padding and count nowhere.
    """
    # Ties count against the first item, and so does a score that is not a number.
    is_before = ~(scores[:, 1:] < scores[:, :1]) & (items[:, 1:] >= 0)
    return is_before.sum(axis=1)


def measures(ranks: Any) -> dict[str, jax.Array]:
    """Metrics of each rank, from 0, by name: float32 [rows]."""
    is_hit = ranks < CUT
    # The ideal gain, of one relevant item at rank 0, is 1.
    gains = jnp.where(is_hit, 1 / jnp.log2(ranks + 2.0), 0.0)
    return {"hit_rate_at_10": is_hit.astype(jnp.float32), "ndcg_at_10": gains}
