"""Translation: the loss that is trained, and evaluation by BLEU of what the model writes.

Training rows hold several sentence pairs; the loss is the mean over all target tokens of the global
batch, so it is the same on any number of devices. In an evaluation every device translates its own
sentences, and the tokens are gathered by the sentence's place in the split: each host then has all
translations, and computes the same BLEU.
"""

import dataclasses
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from dawnjax.config.experiment import Experiment
from dawnjax.input_pipeline.dataset import TextSpec
from dawnjax.input_pipeline.parallel_text import ParallelText
from dawnjax.machine.mesh import BATCH_AXES
from dawnjax.models.execution import Execution
from dawnjax.models.pure_model import Tree, pure_model
from dawnjax.optim.optimizers import make_optimizer
from dawnjax.runs.stages import Span
from dawnjax.tasks import bleu, decoding
from dawnjax.train_step import MODEL, Arrays, Recipe, TrainState, execution_of


@dataclasses.dataclass(frozen=True)
class TranslationRecipe(Recipe):
    """A translator's pure functions on a mesh, before they are compiled.

    Attributes:
      references: What translations are compared with; None takes those of the experiment's data.
    """

    spec: TextSpec  # pyright: ignore[reportIncompatibleVariableOverride]
    references: tuple[str, ...] | None = None

    def train_step(
        self, state: TrainState, batch: Arrays, root_key: jax.Array
    ) -> tuple[TrainState, jax.Array]:
        """Makes one step.

        Args:
          state: The state.
          batch: The arrays of `TextSpec` for training, [batch, length].
          root_key: The trial's key.

        Returns:
          The next state, and the mean loss of the batch's target tokens before the update.
        """
        step_key = jax.random.fold_in(jax.random.fold_in(root_key, MODEL), state.step)
        targets = batch["target"].astype(jnp.int32)
        segments = batch["target_segments"].astype(jnp.int32)
        arguments = (
            batch["source"].astype(jnp.int32),
            batch["source_segments"].astype(jnp.int32),
            decoder_inputs(targets, segments),
            segments,
        )

        def summed_loss(params: Tree) -> tuple[jax.Array, jax.Array]:
            module = self.model.bind(params, {})
            hidden = module(*arguments, dropout_key=step_key)
            smoothing = self.experiment.label_smoothing
            sums = module.loss_and_count(hidden, targets, segments > 0, smoothing)
            return sums[0], sums

        # Sums are differentiated and divided once, by the count of all devices.
        gradients, (loss, count) = jax.grad(summed_loss, has_aux=True)(state.params)
        gradients = jax.tree.map(lambda gradient: gradient / count, gradients)
        return self.updated(state, gradients, loss / count, {})

    @property
    def longest_translation(self) -> int:
        """The most tokens that a translation may have."""
        extra = self.experiment.evaluation.decoding.max_extra_tokens
        return self.spec.eval_source_length + extra

    def zero_totals(self) -> Arrays:
        """Gives the totals of no examples."""
        shape = (self.spec.num_eval_examples, self.longest_translation)
        return {
            "examples": jnp.zeros((), jnp.int32),
            "target_tokens": jnp.zeros((), jnp.int32),
            "loss": jnp.zeros((), jnp.float32),
            "translations": jnp.zeros(shape, jnp.int32),
        }

    def evaluation_step(
        self, params: Tree, batch_stats: Tree, batch: Arrays, totals: Arrays
    ) -> Arrays:
        """Adds one evaluation batch to the totals.

        Args:
          params: The raw or averaged parameters.
          batch_stats: Empty.
          batch: `source` and `target` [batch, length], `index` int32 [batch], `mask` bool [batch],
            False for padding.
          totals: As `zero_totals` gives them: counts, the sum of the unsmoothed losses, and the
            translations so far, each at its place in the split.
        """
        del batch_stats
        mask = batch["mask"]
        source = jnp.where(mask[:, None], batch["source"].astype(jnp.int32), decoding.PAD)
        targets = jnp.where(mask[:, None], batch["target"].astype(jnp.int32), decoding.PAD)
        real = targets != decoding.PAD
        segments = real.astype(jnp.int32)
        module = self.model.bind(params, {})
        source_segments = (source != decoding.PAD).astype(jnp.int32)
        hidden = module(source, source_segments, decoder_inputs(targets, segments), segments)
        loss, _ = module.loss_and_count(hidden, targets, real, 0.0)
        rows = PartitionSpec(BATCH_AXES)
        translate = jax.shard_map(
            lambda params, source: self.translate(params, source).tokens,
            mesh=self.mesh,
            in_specs=(PartitionSpec(), rows),
            out_specs=rows,
            check_vma=False,
        )
        translations = translate(params, source)
        place = jnp.where(mask, batch["index"], self.spec.num_eval_examples)  # out of range: none
        return {
            "examples": totals["examples"] + mask.sum(dtype=jnp.int32),
            "target_tokens": totals["target_tokens"] + real.sum(dtype=jnp.int32),
            "loss": totals["loss"] + loss,
            "translations": totals["translations"].at[place].set(translations, mode="drop"),
        }

    def translate(self, params: Tree, source: jax.Array) -> decoding.Decoded:
        """Searches for the translations of sentences.

        Args:
          params: The parameters.
          source: int32 [batch, source length]; a row of padding alone gives an empty translation.
        """
        config = self.experiment.evaluation.decoding
        module = self.model.bind(params, {})
        real = source != decoding.PAD
        lengths = real.sum(axis=1)
        limits = jnp.where(lengths > 0, lengths + config.max_extra_tokens, 0)
        longest = source.shape[1] + config.max_extra_tokens
        cache = module.start_cache(source, real.astype(jnp.int32), config.num_beams, longest)
        search = {
            "max_length": longest,
            "end": self.spec.end,
            "alpha": config.length_penalty,
        }
        if config.num_beams == 1:
            return decoding.greedy_search(module.decode_next, cache, limits, **search)
        return decoding.beam_search(
            module.decode_next, cache, limits, num_beams=config.num_beams, **search
        )

    def metrics_of(self, totals: dict[str, np.ndarray]) -> dict[str, float | str]:
        """Gives the metrics of an evaluation.

        Args:
          totals: The totals, on the host.

        Returns:
          `bleu` from 0 to 100, `loss` in nats a target token, and `bleu_signature`, which says how
          BLEU was computed.
        """
        data = cast(ParallelText, self.experiment.data)
        texts = data.vocabulary().decode(totals["translations"])
        references = data.references() if self.references is None else self.references
        score, signature = bleu.corpus_bleu(texts, references)
        loss = totals["loss"].item() / totals["target_tokens"].item()
        return {"bleu": score, "loss": loss, "bleu_signature": signature}


def decoder_inputs(targets: jax.Array, segments: jax.Array) -> jax.Array:
    """Gives each segment's tokens moved on by one: what the decoder sees before each token.

    Args:
      targets: int32 [batch, length].
      segments: int32 [batch, length].
    """
    before = jnp.pad(targets[:, :-1], ((0, 0), (1, 0)))
    segment_before = jnp.pad(segments[:, :-1], ((0, 0), (1, 0)))
    return jnp.where(segments == segment_before, before, decoding.PAD)


def make_translation_recipe(
    experiment: Experiment,
    spec: TextSpec,
    mesh: Mesh,
    span: Span,
    shards_update: bool = False,
    execution: Execution | None = None,
) -> TranslationRecipe:
    """Gives the pure functions of a translator for the devices of a mesh, in one stage of a run.

    Raises:
      ConfigError: sacreBLEU is not installed.
      ValueError: The model's fields do not fit together.
    """
    bleu.require_sacrebleu()
    execution = execution or execution_of(experiment, mesh)
    build: Any = experiment.model.build
    model = pure_model(
        lambda rngs: build(vocabulary_size=spec.vocabulary_size, execution=execution, rngs=rngs)
    )
    optimizer = make_optimizer(experiment, spec, span.step_shift)
    fields = (model, optimizer, span, shards_update)
    return TranslationRecipe(experiment, cast(Any, spec), mesh, *fields)
