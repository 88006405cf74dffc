"""Tasks and models whose promises tests/contracts/task_contract_test.py holds: a row each.

A new task adds a row. A row's run has four devices, of which two share each parameter; it is
trained once in a test run, and tests that ask more of it take a copy.
"""

import contextlib
import dataclasses
import itertools
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from first_steps import SEED
from shared_runs import made_once
from trained import failing_at_call

from dawnjax.__main__ import main
from dawnjax.call_queue import CallQueue
from dawnjax.generations import Generations
from dawnjax.journal import Journal

FROM_HOST = "--data_placement=host"
QUIET = ("--tensorboard=false", "--profile.after_run=false")

Layout = tuple[int, tuple[str, ...]]
"""Number of devices, and flags that change the placement and not the mathematics."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A task on its smallest data.

    Attributes:
      flags: Of `dawnjax train`.
      status: Exit status of the run: 0 if its target is in reach, 3 if not.
      steps: Steps of the run.
      fails_at_call: Call at which the second run is cut off, after its first checkpoint.
      is_signalled: Whether SIGTERM cuts it off, and not an error.
      signalled_in_call: The call that makes examples in which SIGTERM cuts it off; 0 if none.
      saved_at: Pattern of the checkpoint that it then leaves.
      resumes_in: Compute dtype of the run that is cut off, if it is not that of the others.
      mesh: Flags of its run's mesh of four devices.
      layouts: Placements that compute what one device does, besides that of the run. Whole
        parameters on four devices are tried by a task of images and one of text.
      falls: Whether the loss is lower after six steps.
      atol: Of the first six losses: sums are split differently, and the last bits grow.
      metric_atol: Of the metrics after as many steps; scores of few answers move by near ties.
        None where a later stage of the run has another recipe.
      repeated: Fields of an evaluation that `evaluate` finds again in the checkpoint.
      answered: Field of the last evaluation that `infer` computes again; empty where it has none.
      num_answered: Examples that `infer` answers.
      shown: Text of the report's page.
    """

    flags: tuple[str, ...]
    status: int = 3
    steps: int
    fails_at_call: int = 0
    is_signalled: bool = False
    signalled_in_call: int = 0
    saved_at: str = "step *"
    resumes_in: str = ""
    mesh: tuple[str, ...] = ("--mesh.fsdp=2",)
    layouts: tuple[Layout, ...] = ()
    falls: bool = False
    atol: float = 2e-5
    metric_atol: float | None
    repeated: tuple[str, ...]
    answered: str = ""
    num_answered: int = 0
    shown: str


TRANSLATION = (
    *("--data=synthetic_text", "--data.num_train_examples=64"),
    "--data.num_eval_examples=13",  # not a multiple of the devices
    *("--global_batch_size=8", "--num_epochs=2", "--schedule.warmup_epochs=0.1"),
    *("--evaluation.first_epoch=0", "--evaluation.every_epochs=1"),
    *("--evaluation.global_batch_size=8", "--task.decoding.max_extra_tokens=4"),
    "--targets.0.value=100",
    *("--checkpoint.every_steps=4", "--steps_per_call=4"),
)

TABLE: dict[str, Row] = {
    "classification": Row(
        flags=(
            *("--experiment=synthetic_image", "--data.num_train_examples=96"),
            *("--data.num_eval_examples=40", "--num_epochs=3", "--global_batch_size=16"),
            *("--batch_norm_group_size=4", "--model.stage_sizes=1", "--model.stage_widths=16"),
            *("--evaluation.every_epochs=1", "--targets.0.value=1"),
            *("--checkpoint.every_steps=6", "--steps_per_call=6"),
        ),
        steps=18,
        fails_at_call=2,
        layouts=((4, ()),),
        metric_atol=0.026,  # of 40 images one may change its class
        repeated=("top_1_accuracy", "loss"),
        answered="top_1_accuracy",
        num_answered=40,
        shown="top-1 accuracy",
    ),
    "translation": Row(
        flags=(
            *("--experiment=multi30k_transformer", *TRANSLATION, "--model.num_layers=1"),
            "--compute_dtype=float32",  # some processors sum bfloat16 products in another order
            *("--model.width=16", "--model.hidden_width=16", "--model.num_heads=2"),
        ),
        steps=16,
        fails_at_call=3,
        is_signalled=True,
        layouts=((4, ()),),
        metric_atol=2e-5,
        repeated=("bleu", "loss", "bleu_signature"),
        answered="bleu",
        num_answered=13,
        shown="BLEU",
    ),
    "gnmt": Row(
        flags=(
            *("--experiment=multi30k_gnmt", *TRANSLATION, "--compute_dtype=float32"),
            *("--model.num_layers=3", "--model.width=16"),
        ),
        steps=16,
        fails_at_call=3,
        metric_atol=2e-5,
        repeated=("bleu", "loss", "bleu_signature"),
        answered="bleu",
        num_answered=13,
        shown="BLEU",
    ),
    "recommendation": Row(
        flags=(
            *("--experiment=movielens_ml100k_neumf", "--data=synthetic_ratings"),
            "--global_batch_size=64",
            "--evaluation.global_batch_size=24",  # 64 users: the last batch has padding
            *("--optimizer.base_learning_rate=0.02", "--num_epochs=4", "--targets.0.value=1"),
            *("--checkpoint.every_steps=8", "--steps_per_call=8"),
        ),
        steps=32,
        fails_at_call=2,
        falls=True,
        metric_atol=0.02,  # of 64 users one may change its rank
        repeated=("hit_rate_at_10", "ndcg_at_10"),
        answered="hit_rate_at_10",
        num_answered=64,
        shown="HR@10",
    ),
    "span_answering": Row(
        flags=(
            *("--experiment=squad_small", "--data=synthetic_questions"),
            *("--data.num_train_examples=256", "--data.num_eval_examples=60"),
            *("--model.word_width=16", "--model.character_width=4"),
            *("--model.filters=8", "--model.hidden_width=12", "--global_batch_size=32"),
            "--evaluation.global_batch_size=24",  # 60 questions: the last batch has padding
            *("--optimizer.base_learning_rate=0.002", "--num_epochs=4", "--targets.0.value=0.01"),
            *("--evaluation.first_epoch=4", "--checkpoint.every_steps=8", "--steps_per_call=8"),
        ),
        status=0,
        steps=32,
        fails_at_call=2,
        layouts=((1, ("--data_placement=host",)),),
        metric_atol=0.05,  # of 60 answers a few may be near ties
        repeated=("f1_score", "exact_match"),
        answered="f1_score",
        num_answered=60,
        shown="F1 score",
    ),
    "object_detection": Row(
        flags=(
            *("--experiment=cells_ssd_small", "--data=synthetic_objects"),
            *("--data.num_train_examples=32", "--data.num_eval_examples=13"),
            *("--data.height=32", "--data.width=32", "--data.objects_an_image=6"),
            *("--model.widths=8,16,16", "--model.convolutions=1", "--model.boxes.steps=4,8"),
            *("--model.boxes.scales=4,9,16", "--model.boxes.num_ratios=1,1"),
            *("--task.augmentation.crop=all_objects", "--task.augmentation.brightness=0.1"),
            *("--optimizer=sgd", "--optimizer.base_learning_rate=0.01"),  # Adam enlarges rounding
            *("--task.search.least_score=0.01", "--task.search.most_a_class=20"),
            *("--global_batch_size=8", "--num_epochs=4", "--evaluation.first_epoch=2"),
            "--evaluation.global_batch_size=8",  # 13 images: the last batch has padding
            *("--targets.0.value=0.9", "--checkpoint.every_steps=4", "--steps_per_call=4"),
        ),
        steps=16,
        fails_at_call=3,
        falls=True,
        atol=1e-4,  # of some 10: the hardest of nearly equal boxes may be another
        metric_atol=0.02,
        repeated=("box_ap", "box_ap_50", "box_ar_100"),
        answered="box_ap",
        num_answered=13,
        shown="box AP",
    ),
    "self_play": Row(
        flags=(
            *("--experiment=connect_four_selfplay", "--data.game=tic_tac_toe"),
            *("--data.examples_per_generation=48", "--data.num_eval_games=13"),
            *("--task.games=8", "--task.moves=6", "--task.window_generations=2"),
            *("--task.search.simulations=4", "--task.search.considered=4"),
            *("--task.gating_games=2", "--task.gating_score=0.5"),
            *("--model.num_blocks=1", "--model.width=8", "--model.value_hidden_width=8"),
            *("--global_batch_size=16", "--num_epochs=6", "--evaluation.every_epochs=2"),
            "--evaluation.global_batch_size=8",  # 13 games: the last batch has padding
            *("--targets.0.value=1", "--checkpoint.every_steps=4", "--steps_per_call=3"),
        ),
        steps=18,
        # The third of the calls after step 12, which was evaluated and saved: 6 + 3 x 7 before.
        signalled_in_call=30,
        saved_at="step 12 and * calls",
        metric_atol=0.08,  # of 13 games one may go another way
        repeated=("score", "score_low"),
        shown="score",
    ),
    "instance_segmentation": Row(
        flags=(
            *("--experiment=nuclei_mask_rcnn_small", "--data=synthetic_objects"),
            *("--data.num_train_examples=32", "--data.num_eval_examples=13"),
            *("--data.height=32", "--data.width=32", "--data.objects_an_image=6"),
            *("--data.mask_side=8", "--model.backbone.stage_sizes=1,1", "--model.groups=4"),
            *("--model.backbone.stage_widths=8,16", "--model.width=8", "--model.box_width=16"),
            *("--model.anchor_sides=8,16", "--model.box_cells=2", "--model.mask_cells=2"),
            *("--model.mask_convolutions=1", "--task.regions.scored=32"),
            *("--task.regions.scored_evaluated=32", "--task.regions.proposals=16"),
            *("--task.regions.anchors=32", "--task.regions.sampled=16"),
            *("--task.search.least_score=0.01", "--task.search.most=10"),
            *("--optimizer=sgd", "--optimizer.base_learning_rate=0.02"),
            *("--global_batch_size=8", "--num_epochs=4", "--evaluation.first_epoch=2"),
            "--evaluation.global_batch_size=8",  # 13 images: the last batch has padding
            *("--targets.0.value=0.9", "--checkpoint.every_steps=4", "--steps_per_call=4"),
        ),
        steps=16,
        fails_at_call=3,
        falls=True,
        atol=1e-3,  # of some 3: nearly equal boxes may change their order
        metric_atol=0.02,
        repeated=("box_ap", "mask_ap", "box_ar_100", "mask_ar_100"),
        answered="mask_ar_100",
        num_answered=13,
        shown="mask AP",
    ),
    "language_modelling": Row(
        flags=(
            *("--experiment=wikipedia_bytes_small", "--data=synthetic_tokens"),
            *("--data.num_train_tokens=4096", "--model.num_layers=2", "--model.num_heads=2"),
            "--model.width=128",  # matrices that are large enough to be split
            *("--model.value_embeddings=1", "--task.window=8", "--task.stages.window=0"),
            *("--stages.boundary_epochs=0.75", "--max_steps=0", "--num_epochs=1"),
            *("--global_batch_size=16", "--evaluation.every_steps=8", "--targets.0.value=9"),
            *("--optimizer.base_learning_rate=0.05", "--optimizer.adam_learning_rate=0.02"),
            *("--checkpoint.every_steps=2", "--steps_per_call=1"),
        ),
        status=0,
        steps=8,
        fails_at_call=5,
        resumes_in="bfloat16",  # the dtype of its experiments at full size
        layouts=((4, ("--weight_update_sharding=true",)), (1, ("--accumulation_steps=4",))),
        falls=True,
        atol=2e-3,
        metric_atol=None,
        repeated=("loss", "bits_per_byte"),
        answered="loss",
        num_answered=7,
        shown="bits a byte",
    ),
    "llama": Row(
        flags=(
            *("--experiment=wikipedia_llama_small", "--data=synthetic_tokens"),
            *("--data.num_train_tokens=4096", "--model.num_layers=2", "--model.num_heads=2"),
            *("--model.num_kv_heads=2", "--model.width=64", "--model.mlp_width=128"),
            *("--model.loss_chunk=8", "--model.remat=full", "--max_steps=0", "--num_epochs=1"),
            *("--global_batch_size=16", "--schedule.warmup_epochs=0.2"),
            *("--evaluation.every_steps=8", "--targets.0.value=9"),
            *("--checkpoint.every_steps=2", "--steps_per_call=1"),
        ),
        status=0,
        steps=8,
        fails_at_call=5,
        mesh=("--mesh.fsdp=2", "--mesh.model=2"),
        falls=True,
        metric_atol=2e-4,
        repeated=("loss", "bits_per_byte"),
        answered="loss",
        num_answered=7,
        shown="bits a byte",
    ),
}


ANSWERED_AT_EACH_CHANGE = (
    *("classification", "translation", "span_answering"),
    *("object_detection", "self_play", "llama"),
)
"""Tasks whose runs are evaluated, asked and exported at each change; the others are every night."""


def train(name: str, run_dir: Path, compile_cache: str, *flags: str) -> int:
    """Train a row's run, or resume it; gives the exit status."""
    row = TABLE[name]
    argv = [*row.flags, *row.mesh, FROM_HOST, *QUIET, f"--seed={SEED}", compile_cache, *flags]
    return main(["train", *argv, f"--run_dir={run_dir}"])


def trained_run(factory: pytest.TempPathFactory, name: str, compile_cache: str) -> Path:
    """Directory of a row's run, made once; nobody may change it."""

    def make(folder: Path) -> None:
        assert train(name, folder / "run", compile_cache) == TABLE[name].status

    return made_once(factory, f"run_of_{name}", make) / "run"


def copied_run(
    factory: pytest.TempPathFactory, name: str, compile_cache: str, directory: Path
) -> Path:
    """Copy of a row's run, for commands that write into it."""
    return shutil.copytree(trained_run(factory, name, compile_cache), directory)


@contextlib.contextmanager
def cut_off(row: Row) -> Iterator[None]:
    """End a run early, as an error or a signal does."""
    if not row.signalled_in_call and not row.is_signalled:
        with failing_at_call(row.fails_at_call):
            yield
        return
    count, make, record = itertools.count(1), Generations.advance, Journal.record_steps
    with pytest.MonkeyPatch.context() as patch:

        def advance(self: Generations, *arguments: Any) -> Any:
            if next(count) == row.signalled_in_call:
                signal.raise_signal(signal.SIGTERM)
            return make(self, *arguments)

        def signalled(self: Journal, queue: CallQueue, waited: float) -> Any:
            fine = record(self, queue, waited)
            if self.step >= row.steps // 2:
                signal.raise_signal(signal.SIGTERM)
            return fine

        if row.signalled_in_call:
            patch.setattr(Generations, "advance", advance)
        else:
            patch.setattr(Journal, "record_steps", signalled)
        yield
