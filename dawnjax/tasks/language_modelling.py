"""Language modelling: the next token of a stream, scored by the mean loss over all of it.

The mean over tokens, or over rows, is the same for any batch size and any number of devices.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from etils import epy

from dawnjax.errors import ConfigError
from dawnjax.limits import NonNegative
from dawnjax.tasks.metric import Metric, loss_metric
from dawnjax.tasks.task import MODEL, Arrays, Moment, OwnInputs, Setting, Task, at_places

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

    from dawnjax.models import cross_entropy, maxima
    from dawnjax.models import experts as expert_layers

BITS_PER_BYTE = Metric(
    name="bits_per_byte", title="bits a byte", unit="1", least=0.0, direction="at_most"
)
EXPERT_BALANCE = Metric(
    name="expert_balance", title="balance loss of experts", unit="1", least=0.0, direction="at_most"
)
DROPPED_TOKENS = Metric(
    name="dropped_tokens",
    title="dropped tokens",
    unit="tokens",
    least=0.0,
    direction="at_most",
    decimals=0,
)


MOST_NEW_TOKENS = 128
"""Limit of a prompt's continuation."""

MOST_PROMPT_BYTES = 2**20


@dataclasses.dataclass(frozen=True, kw_only=True)
class WindowStages:
    """Changes at the stages of a run.

    Attributes:
      window: `window` from each boundary on; empty if it stays.
    """

    window: tuple[NonNegative[int], ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class LanguageModelling(Task):
    """The next token of a text.

    `loss` is in nats a token. `bits_per_byte` divides the sum of the tokens' losses by the bytes
    of the same tokens, if their numbers of bytes are known. Models with experts also have
    `expert_balance` and `dropped_tokens`: see `experts.Routing`.

    Attributes:
      target_vocabulary: The vocabulary of a target on `loss`. Data with another vocabulary are
        refused, because nats per token are not comparable between vocabularies.
      window: Tokens that a token attends to, including itself; 0 is the whole row.
      averages: Whether `loss` is the mean over `tokens`, or over the means of `rows`, which count
        equally.
      masks_separators: The token after a separator counts neither in training nor in an
        evaluation, because nothing before it predicts the next document.
      stages: Changes in the course of a run.
    """

    TAG: ClassVar[str] = "language_modelling"
    metrics: ClassVar = (loss_metric("nats a token"), BITS_PER_BYTE, EXPERT_BALANCE, DROPPED_TOKENS)
    arrays: ClassVar = ("tokens",)
    example_unit: ClassVar[str] = "rows"

    target_vocabulary: Literal["bytes", "gpt2", "llama2", "llama3", "file"] = "bytes"
    window: NonNegative[int] = 0
    averages: Literal["tokens", "rows"] = "tokens"
    masks_separators: bool = False
    stages: WindowStages = WindowStages()

    def validate_target(self, name: str, target: Any, spec: Any) -> None:
        """Refuse nats of other tokens than the target counts, and what is unknown or no quality."""
        if target.metric in (EXPERT_BALANCE.name, DROPPED_TOKENS.name):
            raise ConfigError(
                f"{name}.metric={target.metric} is not a quality: take loss or bits_per_byte"
            )
        if target.metric == "bits_per_byte" and not spec.bytes_of_token:
            raise ConfigError(
                f"{name}.metric=bits_per_byte: how many bytes a token of data.vocabulary="
                f"{spec.vocabulary} stands for is not known; take loss, or data with a "
                "vocabulary.json"
            )
        if target.metric == "loss" and spec.vocabulary != self.target_vocabulary:
            raise ConfigError(
                f"{name}.value={target.value:g} is in nats a token of {self.target_vocabulary}, "
                f"and the data's tokens are {spec.vocabulary}: give --{name}.metric=bits_per_byte "
                f"with a value, or --task.target_vocabulary={spec.vocabulary} with a value for it"
            )

    def in_stage(self, index: int) -> LanguageModelling:
        windows = self.stages.window
        window = windows[index - 1] if index and windows else self.window
        return dataclasses.replace(self, window=window, stages=WindowStages())

    def stage_values(self) -> dict[str, Any]:
        return {"window": self.window}

    def model_arguments(self, spec: Any) -> dict[str, Any]:
        return {
            "vocabulary_size": spec.vocabulary_size,
            "sequence_length": spec.sequence_length,
            "separator": spec.separator,
        }

    def refuse_setting(self, experiment: Any, setting: Setting) -> None:
        """Refuse an evaluation whose choices of experts an int32 cannot count."""
        if expert_layers.no_routing(setting.model) is None:
            return
        spec, chosen = setting.spec, setting.model.experts.chosen
        choices = spec.num_eval_examples * spec.sequence_length * chosen
        if choices >= 2**31:
            raise ConfigError(
                f"an evaluation makes {choices:,} choices of experts, and at most 2**31 - 1 are "
                f"counted: give --data.max_eval_tokens={2**31 // chosen - spec.sequence_length} "
                "or less"
            )

    def parts_of_examples(self, spec: Any) -> dict[str, float]:
        return {"tokens": float(spec.sequence_length)}

    def loss(
        self, module: Any, batch: Arrays, moment: Moment, setting: Setting
    ) -> tuple[jax.Array, jax.Array | int]:
        """Summed loss of a batch's tokens, in nats, and their number.

        A model may add to the loss of each token, such as for the balance of its experts.
        """
        tokens, added = batch["tokens"].astype(jnp.int32), 0.0
        if hasattr(module, "losses"):
            key = moment.key(MODEL)
            losses, added, _ = module.losses(tokens[:, :-1], tokens[:, 1:], self.window, key)
        else:
            losses, _ = self._losses(module, tokens, setting)
        count: jax.Array | int = len(tokens) * setting.spec.targets_a_row
        if self.masks_separators or count < losses.size:
            is_counted = self._is_counted(batch, setting.spec)
            losses = jnp.where(is_counted, losses, 0.0)
            count = is_counted.sum() if self.masks_separators else count
        return losses.sum() + added * count, count

    def _is_counted(self, batch: Mapping[str, Any], spec: Any) -> Any:
        """Whether each target counts, bool [batch or 1, length], of arrays anywhere."""
        tokens = batch["tokens"]
        num_targets = batch.get("num_targets", np.array([spec.targets_a_row]))
        is_counted = np.arange(tokens.shape[1] - 1) < num_targets[:, None]
        if "is_target" in batch:
            is_counted = is_counted & batch["is_target"]
        if self.masks_separators:
            is_counted = is_counted & (tokens[:, :-1] != spec.separator)
        return is_counted

    def read_inputs(self, files: Sequence[Path], setting: Setting) -> OwnInputs:
        """Prompts, one in each line of the files, each the beginning of a document."""
        from dawnjax.input_pipeline.reading import own_inputs
        from dawnjax.input_pipeline.reading.rows_on_demand import RowsOnDemand

        spec = setting.spec
        if not hasattr(setting.data, "token_text"):
            raise ConfigError(f"data={setting.data.TAG} defines no token_text() for prompts")
        text = setting.data.token_text()
        lines = own_inputs.lines(files, MOST_PROMPT_BYTES)
        room = spec.sequence_length
        prompts: list[np.ndarray] = []
        for line in lines:
            prompt = text.encode(line.text)
            if len(prompt) + 1 >= room:
                raise line.refuse(f"has {len(prompt)} tokens; below {room - 1} leave room for more")
            prompts.append(np.array([spec.separator, *prompt], np.int32))

        def padded(row: int) -> np.ndarray:
            missing = (0, room - len(prompts[row]))
            return np.pad(prompts[row], missing, constant_values=spec.separator)

        # A row may be far longer than its prompt: all of them at once could fill the memory.
        tokens = RowsOnDemand(len(lines), (room,), "int32", padded, num_threads=1)
        lengths = np.array([len(prompt) for prompt in prompts], np.int32)
        return OwnInputs(
            spec=dataclasses.replace(spec, num_eval_examples=len(lines)),
            examples={"tokens": tokens, "length": lengths},
            given=[line.given("prompt", line.text) for line in lines],
            stated=lambda answer, position: text.decode(answer[0][answer[0] >= 0].tolist()),
        )

    def zero_totals(self, setting: Setting) -> Arrays:
        routing = expert_layers.no_routing(setting.model)
        rows = (setting.spec.num_eval_examples,)
        # Of each row: an int32 of the whole split would overflow at 2 GiB of text.
        return {
            "loss": jnp.zeros(rows, jnp.float32),
            "tokens": jnp.zeros(rows, jnp.int32),
            "bytes": jnp.zeros(rows, jnp.int32),
            **(routing._asdict() if routing else {}),
        }

    def add_batch(self, module: Any, batch: Arrays, totals: Arrays, setting: Setting) -> Arrays:
        tokens = batch["tokens"].astype(jnp.int32)
        is_real = jnp.arange(tokens.shape[1] - 1) < batch["num_targets"][:, None]
        is_real &= batch["mask"][:, None]
        losses, routing = self._losses(module, tokens, setting, is_real)
        is_counted = self._is_counted(batch, setting.spec)
        sums = jnp.where(is_counted, losses, 0.0).sum(axis=1)
        num_bytes = jnp.asarray(setting.spec.bytes_of_token or [0], jnp.int32)[tokens[:, 1:]]
        chosen = routing._asdict() if routing else {}
        return {
            "loss": at_places(totals["loss"], sums, batch),
            "tokens": at_places(totals["tokens"], is_counted.sum(axis=1, dtype=jnp.int32), batch),
            "bytes": at_places(
                totals["bytes"],
                jnp.where(is_counted, num_bytes, 0).sum(axis=1, dtype=jnp.int32),
                batch,
            ),
            **{name: totals[name] + added for name, added in chosen.items()},
        }

    def logits_and_targets(
        self, module: Any, batch: Arrays, setting: Setting
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        tokens = batch["tokens"].astype(jnp.int32)
        counts = jnp.where(batch["mask"], batch["num_targets"], 0)[:, None]
        is_real = jnp.arange(tokens.shape[1] - 1) < counts
        return module(tokens[:, :-1], self.window), tokens[:, 1:], is_real

    def metrics_of(
        self, totals: Mapping[str, np.ndarray], setting: Setting
    ) -> dict[str, float | str]:
        """Nats a token, and bits a byte where the bytes of a token are known."""
        # float64 on the host: a sum of float32 would depend on the batch size and the devices.
        nats, tokens = (totals[name].astype(np.float64) for name in ("loss", "tokens"))
        measured: dict[str, float | str] = {"loss": self._mean(nats, tokens)}
        num_bytes = totals["bytes"].astype(np.float64).sum()
        if num_bytes:
            measured["bits_per_byte"] = float(nats.sum() / math.log(2) / num_bytes)
        if "dropped" in totals:
            routing = expert_layers.Routing(
                *(totals[name] for name in expert_layers.Routing._fields)
            )
            measured["expert_balance"] = float(expert_layers.balance_loss(routing))
            measured["dropped_tokens"] = float(routing.dropped.sum())
        return measured

    def _mean(self, nats: np.ndarray, tokens: np.ndarray) -> float:
        """Mean of what `averages` names, from each row's sum and number of tokens."""
        if self.averages == "tokens":
            return float(nats.sum() / tokens.sum())
        counts = tokens > 0
        return float((nats[counts] / tokens[counts]).mean())

    def answer(self, module: Any, inputs: Arrays, setting: Setting) -> jax.Array:
        """Mean loss of each row's tokens, in nats: float32 [batch].

        With `length`, the tokens of prompts, it is their continuation: int32 [batch, tokens], -1
        behind its end.
        """
        if "length" in inputs:
            return self._continuation(module, inputs, setting)
        losses, _ = self._losses(module, inputs["tokens"], setting)
        is_counted = self._is_counted(inputs, setting.spec)
        counts = jnp.maximum(is_counted.sum(axis=1), 1)
        return jnp.where(is_counted, losses, 0.0).sum(axis=1) / counts

    def quality(
        self, answers: list[Any], examples: Mapping[str, np.ndarray], setting: Setting
    ) -> dict[str, Any]:
        counts = self._is_counted(examples, setting.spec).sum(axis=1).astype(np.float64)
        return {"loss": self._mean(np.concatenate(answers) * counts, counts)}

    def _continuation(self, module: Any, inputs: Arrays, setting: Setting) -> jax.Array:
        """Likeliest token after token, up to a separator, the row's end or `MOST_NEW_TOKENS`."""
        tokens, lengths = inputs["tokens"], inputs["length"]
        # The built-in models keep the keys of earlier tokens; others read the whole row again.
        keeps = hasattr(module, "extend")
        ends = jnp.minimum(lengths + MOST_NEW_TOKENS, tokens.shape[1])
        rows = jnp.arange(len(tokens))

        def unfinished(carry: tuple) -> jax.Array:
            return carry[2].any()

        def extend(carry: tuple) -> tuple:
            tokens, places, alive, logits, past = carry
            _, best = maxima.maxima(logits)
            alive &= best != setting.spec.separator
            chosen = jnp.where(alive, best, tokens[rows, places])
            tokens = tokens.at[rows, places].set(chosen)
            if keeps:
                logits, past = module.extend(chosen, places, past, self.window)
            else:
                logits = module(tokens, self.window)[rows, places]
            places += alive
            return tokens, places, alive & (places < ends), logits, past

        if keeps:
            logits, past = module.begin(tokens, lengths, self.window)
        else:
            logits, past = module(tokens, self.window)[rows, lengths - 1], ()
        start = (tokens, lengths, lengths < ends, logits, past)
        tokens, places, *_ = jax.lax.while_loop(unfinished, extend, start)
        index = lengths[:, None] + jnp.arange(MOST_NEW_TOKENS)
        new = jnp.take_along_axis(tokens, jnp.minimum(index, tokens.shape[1] - 1), axis=1)
        return jnp.where(index < places[:, None], new, -1)

    def _losses(
        self, module: Any, tokens: jax.Array, setting: Setting, is_real: jax.Array | None = None
    ) -> tuple[jax.Array, Any]:
        """Losses [batch, length - 1], and the routing of the real tokens, None without experts."""
        tokens = tokens.astype(jnp.int32)
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        if hasattr(module, "losses"):  # a model that never holds all logits
            losses, _, routing = module.losses(inputs, targets, self.window, real=is_real)
            return losses, routing
        return cross_entropy.plain_losses(
            module(inputs, self.window), targets, setting.execution
        ), None
