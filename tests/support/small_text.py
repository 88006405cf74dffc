"""A small made-up language, prepared for the tests that train a translator on it."""

from pathlib import Path

import numpy as np

from dawnjax.input_pipeline.datasets.parallel_text import Corpus, made

WORDS = [
    *("der", "eine", "Mann", "Frau", "Hund", "rot", "blau"),
    *("läuft", "sitzt", "sieht", "groß", "klein", "Haus", "Baum"),
]

VOCABULARY_SIZE, ROW_LENGTH = 340, 24
NUM_EVALUATED = 13
"""Not a multiple of the devices, so that evaluation has padding."""

FLAGS = [
    *(f"--data.vocabulary_size={VOCABULARY_SIZE}", f"--data.row_length={ROW_LENGTH}"),
    *("--global_batch_size=8", "--num_epochs=0.8", "--schedule.warmup_epochs=0.1"),
    *("--evaluation.first_epoch=0", "--evaluation.every_epochs=0.4"),
    *("--evaluation.global_batch_size=8", "--task.decoding.max_extra_tokens=4"),
    *("--model.num_layers=1", "--model.width=16", "--model.hidden_width=16"),
    *("--model.num_heads=2", "--tensorboard=false", "--profile.after_run=false"),
]
"""Flags that make an experiment with a Transformer tiny: about two steps an evaluation."""


LEARNS = [
    *("--num_epochs=40", "--model.width=64", "--model.hidden_width=128", "--model.dropout_rate=0"),
    *("--evaluation.weights=raw", "--optimizer.base_learning_rate=5e-3"),
    "--schedule.warmup_epochs=2",
]
"""Flags for 160 steps, after which the small translator has a BLEU far from 0."""


def translate(word: str) -> str:
    """Translates a word."""
    return WORDS[(WORDS.index(word) + 5) % len(WORDS)]


def write(folder: Path, seed: int = 3) -> None:
    """Writes `{train,eval}.{a,b}`: each word has one translation, in the same place."""
    random = np.random.default_rng(seed)
    for name, count in (("train", 160), ("eval", NUM_EVALUATED)):
        rows = [random.choice(WORDS, random.integers(1, 7)).tolist() for _ in range(count)]
        (folder / f"{name}.a").write_text("".join(" ".join(r) + "\n" for r in rows))
        (folder / f"{name}.b").write_text("".join(" ".join(map(translate, r)) + "\n" for r in rows))


def prepare_small_text(folder: Path) -> Path:
    """Writes and prepares the corpus."""
    write(folder)
    corpus = Corpus(
        train_sources=(folder / "train.a",),
        train_targets=(folder / "train.b",),
        eval_source=folder / "eval.a",
        eval_target=folder / "eval.b",
        vocabulary_size=VOCABULARY_SIZE,
        row_length=ROW_LENGTH,
    )
    made(corpus, folder / "prepared").write()
    return folder / "prepared"
