"""Translation: the loss of training, and evaluation by BLEU of the model's translations.

Training rows hold several sentence pairs; the loss is the mean over all target tokens of the global
batch, so it is the same on any number of devices.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from etils import epy

from dawnjax import records
from dawnjax.errors import ConfigError
from dawnjax.limits import FractionBelowOne, within
from dawnjax.tasks import bleu
from dawnjax.tasks.decoding import PAD, Decoded, beam_search, greedy_search
from dawnjax.tasks.metric import BLEU, loss_metric
from dawnjax.tasks.task import (
    MODEL,
    Answering,
    Arrays,
    Compiled,
    LabelledSet,
    Moment,
    OwnInputs,
    Setting,
    Task,
    at_places,
)

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

    from dawnjax.machine import mesh as device_mesh
    from dawnjax.models import pure_model
    from dawnjax.profile import model_flops


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decoding:
    """Search for a translation.

    Attributes:
      num_beams: Hypotheses kept by the beam search; 1 is greedy search.
      length_penalty: The exponent alpha of the length penalty; greedy search ignores it.
      coverage_penalty: The factor beta of the coverage penalty, for models that sum their
        attention; greedy search ignores it.
      max_extra_tokens: A translation is at most this many tokens longer than its source
        (Vaswani et al. 2017, section 6.1, has 50).
    """

    num_beams: Annotated[int, within(1, 64)] = 1
    length_penalty: Annotated[float, within(0, 10)] = 0.6
    coverage_penalty: Annotated[float, within(0, 10)] = 0.0
    max_extra_tokens: Annotated[int, within(0, 1000)] = 50


class _TestSet(NamedTuple):
    words: Any
    sentences: tuple[str, ...]

    def vocabulary(self) -> Any:
        return self.words

    def references(self) -> tuple[str, ...]:
        return self.sentences


@dataclasses.dataclass(frozen=True, kw_only=True)
class Translation(Task):
    """Translation of sentences from one language to another.

    Attributes:
      label_smoothing: Probability spread evenly over the vocabulary.
      decoding: How a translation is searched for in an evaluation.
      scoring: How BLEU is computed.
    """

    TAG: ClassVar[str] = "translation"
    metrics: ClassVar = (BLEU, loss_metric("nats a target token"))
    arrays: ClassVar = ("source", "source_segments", "target", "target_segments")
    example_unit: ClassVar[str] = "packed rows"
    evaluation_fields: ClassVar = ("decoding", "scoring")
    other_set_flags: ClassVar = {
        "data.source": "Another set to translate: a file of sentences.",
        "data.target": "The file of their reference translations.",
    }

    label_smoothing: FractionBelowOne = 0.0
    decoding: Decoding = Decoding()
    scoring: bleu.Scoring = bleu.CUSTOMARY

    def validate(self, model: Any, spec: Any) -> None:
        bleu.require_sacrebleu()
        if self.decoding.coverage_penalty and not getattr(model, "has_coverage", False):
            raise ConfigError(
                f"task.decoding.coverage_penalty={self.decoding.coverage_penalty:g} needs a model "
                f"that sums its attention, such as gnmt, and model={model.TAG} does not: give 0"
            )

    def validate_target(self, name: str, target: Any, spec: Any) -> None:
        if target.metric == "bleu" and target.value <= 1:
            raise ConfigError(
                f"{name}.value={target.value:g} must lie in 1 to 100: BLEU is not a fraction"
            )

    def model_arguments(self, spec: Any) -> dict[str, Any]:
        return {"vocabulary_size": spec.vocabulary_size}

    def parts_of_examples(self, spec: Any) -> dict[str, float]:
        return {"sentence pairs": spec.num_train_pairs / spec.num_train_examples}

    def loss(
        self, module: Any, batch: Arrays, moment: Moment, setting: Setting
    ) -> tuple[jax.Array, jax.Array]:
        """Summed loss of a batch's target tokens, in nats, and their number."""
        targets = batch["target"].astype(jnp.int32)
        segments = batch["target_segments"].astype(jnp.int32)
        hidden = module(
            batch["source"].astype(jnp.int32),
            batch["source_segments"].astype(jnp.int32),
            decoder_inputs(targets, segments),
            segments,
            dropout_key=moment.key(MODEL),
        )
        sums = module.loss_and_count(hidden, targets, segments > 0, self.label_smoothing)
        return sums[0], sums[1]

    def zero_totals(self, setting: Setting) -> Arrays:
        longest = setting.spec.eval_source_length + self.decoding.max_extra_tokens
        return {
            "target_tokens": jnp.zeros((), jnp.int32),
            "loss": jnp.zeros((), jnp.float32),
            "translations": jnp.zeros((setting.spec.num_eval_examples, longest), jnp.int32),
        }

    def add_batch(self, module: Any, batch: Arrays, totals: Arrays, setting: Setting) -> Arrays:
        mask = batch["mask"]
        source = jnp.where(mask[:, None], batch["source"].astype(jnp.int32), PAD)
        targets = jnp.where(mask[:, None], batch["target"].astype(jnp.int32), PAD)
        real = targets != PAD
        segments = real.astype(jnp.int32)
        source_segments = (source != PAD).astype(jnp.int32)
        hidden = module(source, source_segments, decoder_inputs(targets, segments), segments)
        loss, _ = module.loss_and_count(hidden, targets, real, 0.0)
        rows = jax.sharding.PartitionSpec(device_mesh.BATCH_AXES)
        arrays, module_of = pure_model.split_module(module)
        # Each device translates its own sentences until the last of them ends.
        translate = jax.shard_map(
            lambda arrays, source: self.translate(module_of(arrays), source, setting).tokens,
            mesh=setting.mesh,
            in_specs=(jax.sharding.PartitionSpec(), rows),
            out_specs=rows,
            check_vma=False,
        )
        translations = translate(arrays, source)
        return {
            "target_tokens": totals["target_tokens"] + real.sum(dtype=jnp.int32),
            "loss": totals["loss"] + loss,
            "translations": at_places(totals["translations"], translations, batch),
        }

    def translate(self, module: Any, source: jax.Array, setting: Setting) -> Decoded:
        """Translations of int32 [batch, source length]; padding alone gives an empty one."""
        config, real = self.decoding, source != PAD
        lengths = real.sum(axis=1)
        limits = jnp.where(lengths > 0, lengths + config.max_extra_tokens, 0)
        longest = source.shape[1] + config.max_extra_tokens
        cache = module.start_cache(source, real.astype(jnp.int32), config.num_beams, longest)
        search = {"max_length": longest, "end": setting.spec.end, "alpha": config.length_penalty}
        if config.num_beams == 1:
            return greedy_search(module.decode_next, cache, limits, **search)
        search |= {"num_beams": config.num_beams, "beta": config.coverage_penalty}
        return beam_search(module.decode_next, cache, limits, **search)

    def metrics_of(
        self, totals: Mapping[str, np.ndarray], setting: Setting
    ) -> dict[str, float | str]:
        texts = setting.data.vocabulary().decode(totals["translations"])
        score, signature = bleu.corpus_bleu(texts, setting.data.references(), self.scoring)
        loss = totals["loss"].item() / totals["target_tokens"].item()
        return {"bleu": score, "loss": loss, "bleu_signature": signature}

    def train_flops_per_example(self, setting: Setting) -> float:
        """Model FLOPs of the mean row in a train step: each pair alone, at its own length."""
        sources, targets = setting.data.train_pair_lengths()
        flops = train_flops(setting.model, sources, targets, setting.spec.vocabulary_size)
        return flops / setting.spec.num_train_examples

    def answering(
        self, compiled: Compiled, examples: Mapping[str, Any], setting: Setting
    ) -> Answering:
        words, length = setting.data.vocabulary(), setting.spec.eval_source_length
        sentences = words.decode(np.asarray(examples["source"]))
        references = setting.data.references()
        program = compiled(
            lambda module, inputs: self.translate(module, inputs["source"], setting).tokens,
            {"source": np.zeros((1, length), np.int32)},
        )

        def answer(sentence: str) -> str:
            tokens = words.encode([sentence])[0][:length]
            source = np.zeros((1, length), np.int32)
            source[0, : len(tokens)] = tokens
            return words.decode(program({"source": source}))[0]

        def quality(answers: list[str], positions: list[int]) -> dict[str, Any]:
            wanted = [references[position] for position in positions]
            score, signature = bleu.corpus_bleu(answers, wanted, self.scoring)
            return {"bleu": score, "bleu_signature": signature}

        timed = (
            "from the text of a sentence to the text of its translation, both on the host; sources "
            f"padded to {length} tokens"
        )
        return Answering(example=sentences.__getitem__, answer=answer, quality=quality, timed=timed)

    def read_inputs(self, files: Sequence[Path], setting: Setting) -> OwnInputs:
        """Sentences, one in each line of the files, in the run's own vocabulary."""
        from dawnjax.input_pipeline.reading import own_inputs, sentence_pairs

        lines = own_inputs.lines(files, sentence_pairs.MOST_EVAL_LINE_BYTES)
        words = setting.data.vocabulary()
        tokens = words.encode([line.text for line in lines])
        longest = max(len(sentence) for sentence in tokens)
        source, _ = sentence_pairs.filled([[sentence] for sentence in tokens], longest)
        spec = dataclasses.replace(
            setting.spec, num_eval_examples=len(lines), eval_source_length=longest
        )
        return OwnInputs(
            spec=spec,
            examples={"source": source},
            given=[line.given("source", line.text) for line in lines],
            stated=lambda answer, position: answer,
        )

    def read_other_set(self, paths: Mapping[str, str], setting: Setting) -> LabelledSet:
        from dawnjax.input_pipeline.reading.sentence_pairs import read_test_set

        if not all(paths.values()):
            raise ConfigError("--data.source and --data.target go together")
        source, target = (records.path_of(path) for path in paths.values())
        words = setting.data.vocabulary()
        text = read_test_set(source, target, words)
        return LabelledSet(
            kind="two files of text",
            spec=dataclasses.replace(
                setting.spec,
                num_eval_examples=len(text.references),
                eval_source_length=text.arrays["source"].shape[1],
                eval_target_length=text.arrays["target"].shape[1],
            ),
            data=_TestSet(words, text.references),
            examples=text.arrays,
            fingerprint=text.fingerprint,
        )


def train_flops(
    model: Any, source_lengths: np.ndarray, target_lengths: np.ndarray, vocabulary_size: int
) -> int:
    """Model FLOPs of training once on sentence pairs of int [pairs] tokens."""
    forward = 2 * model.multiply_adds(source_lengths, target_lengths, vocabulary_size)
    return model_flops.TRAINING_FACTOR * forward


def decoder_inputs(targets: jax.Array, segments: jax.Array) -> jax.Array:
    """Tokens int32 [batch, length] that the decoder sees: each segment's, moved on by one."""
    before = jnp.pad(targets[:, :-1], ((0, 0), (1, 0)))
    # A segment must not begin with the last token of the segment before.
    segment_before = jnp.pad(segments[:, :-1], ((0, 0), (1, 0)))
    return jnp.where(segments == segment_before, before, PAD)
