"""DawnJAX's train step of a flagship, one round at a time; `steps` starts it.

A separate process isolates XLA's flags, its memory and its failures.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks import step_settings, workers
from dawnjax.config.experiment import Experiment
from dawnjax.config.experiment_flags import parse_request
from dawnjax.config.run_options import MeshShape
from dawnjax.input_pipeline.datasets.parallel_text import pair_lengths
from dawnjax.input_pipeline.reading.dataset import AnySpec, TextSpec
from dawnjax.machine import compilation, hardware
from dawnjax.machine.mesh import make_mesh
from dawnjax.programs import compile_program, state_shapes, xla_options
from dawnjax.tasks.translation import train_flops
from dawnjax.train_step import PRNG_IMPLEMENTATION, Recipe, make_recipe


def main() -> int:
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--model", choices=step_settings.FLAGSHIPS, required=True)
    parser.add_argument("--steps", type=int, default=20, help="in a round")
    parser.add_argument("--check", default="", help="folder for the first parameters and the batch")
    parser.add_argument("--tiny", action="store_true")
    arguments = parser.parse_args()
    flagship = step_settings.FLAGSHIPS[arguments.model]
    flags = flagship.sized_flags(arguments.tiny)
    batch_size = flagship.tiny_batch if arguments.tiny else flagship.batch
    text = flagship.tiny_text if arguments.tiny else flagship.text
    timed = Step(flags, batch_size, text)
    checked = timed
    if flagship.check_flags:
        checked = Step([*flags, *flagship.check_flags], batch_size, text)
    losses = checked.first_losses(step_settings.CHECK_STEPS, arguments.check)
    timed.start()
    timed.run(3)
    device = jax.devices()[0]
    known, reason = hardware.find_device(device.device_kind)
    dtype = timed.recipe.experiment.compute_dtype
    peak = known.peak(dtype) if known is not None else None
    workers.serve(
        {
            "model": arguments.model,
            "flags": flags,
            "batch": batch_size,
            "units_a_step": timed.units,
            "model_flops_a_step": timed.flops,
            "peak_flops_per_second": peak,
            "peak_reason": reason,
            "compile_seconds": timed.compile_seconds,
            "losses": losses,
            "dtype": dtype,
            "device_kind": device.device_kind,
            "jax": jax.__version__,
            "peak_bytes": (device.memory_stats() or {}).get("peak_bytes_in_use"),
        },
        lambda: {"seconds_a_step": timed.run(arguments.steps)},
    )
    return 0


class Step:
    """One compiled train step, its state and its batch on the device.

    Attributes:
      flops: Model FLOPs of a step.
      units: Images, real target tokens, or tokens to predict, of a step.
    """

    def __init__(self, flags: list[str], batch_size: int, text: step_settings.Text | None):
        experiment = parse_request("train", flags)[0].experiment
        if text is None:
            spec, batch = made_examples(experiment, batch_size)
        else:
            spec, batch = made_text(text, batch_size)
        compilation.configure("")
        mesh = make_mesh(MeshShape(), jax.devices()[:1])
        self.recipe = make_recipe(experiment, spec, mesh)
        self.flops = _flops(self.recipe, batch)
        self.units = batch_size
        if text is not None:
            self.units = int((batch["target_segments"] > 0).sum())
        elif "tokens" in batch:
            self.units = batch["tokens"][:, 1:].size
        self._batch = jax.device_put(batch)
        self._key = jax.random.key(0, impl=PRNG_IMPLEMENTATION)
        self.compile_seconds = 0.0

        def record(_: str, seconds: float, __: str) -> None:
            self.compile_seconds = seconds

        shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), self._batch)
        self._call = compile_program(
            "step",
            self.recipe.train_step,
            (state_shapes(self.recipe), shapes, self._key),
            None,
            (0,),
            record,
            xla_options(self.recipe),
        )
        self._initialize = jax.jit(self.recipe.initial_state)
        self._state: Any = None

    def start(self) -> None:
        self._state = self._initialize(self._key)

    def run(self, steps: int) -> float:
        """Run on the one batch; return seconds a step."""
        state, loss = self._state, None
        started = time.perf_counter()
        for _ in range(steps):
            state, loss = self._call(state, self._batch, self._key)
        # Calls return before the device is done; the last state depends on all of them.
        jax.block_until_ready((state, loss))
        self._state = state
        return (time.perf_counter() - started) / steps

    def first_losses(self, steps: int, folder: str) -> list[float]:
        """Losses of the first steps; `folder` gets `params.npz` and `batch.npz` for PyTorch."""
        self.start()
        if folder:
            leaves = jax.tree_util.tree_leaves_with_path(self._state.params)
            arrays = {
                "/".join(str(entry.key) for entry in path): np.asarray(a) for path, a in leaves
            }
            np.savez(Path(folder) / "params.npz", **arrays)  # pyright: ignore[reportArgumentType]
            batch = {name: np.asarray(array) for name, array in self._batch.items()}
            np.savez(Path(folder) / "batch.npz", **batch)  # pyright: ignore[reportArgumentType]
        losses: list[float] = []
        for _ in range(steps):
            self._state, loss = self._call(self._state, self._batch, self._key)
            losses.append(float(loss))
        self._state = None
        return losses


def made_examples(experiment: Experiment, batch_size: int) -> tuple[AnySpec, dict[str, np.ndarray]]:
    """Batch of an experiment's synthetic examples, and their specification."""
    index = np.arange(batch_size, dtype=np.int32)
    examples = {name: np.asarray(a[index]) for name, a in experiment.data.load("train").items()}
    batch = {**examples, "index": index, "epoch": np.zeros_like(index)}
    return experiment.data.spec(), batch


def made_text(text: step_settings.Text, rows: int) -> tuple[AnySpec, dict[str, np.ndarray]]:
    """Batch of packed synthetic text, and its specification."""
    spec = TextSpec(
        num_train_examples=rows,
        num_train_pairs=rows,
        num_eval_examples=rows,
        source_length=text.length,
        target_length=text.length,
        eval_source_length=text.length,
        eval_target_length=text.length,
        vocabulary_size=text.vocabulary,
        end=1,
        fingerprint="0" * 16,
    )
    random = np.random.default_rng(0)
    batch = {}
    for side in ("source", "target"):
        tokens = random.integers(3, text.vocabulary, (rows, text.length)).astype(np.uint16)
        # What is left at the end is padding.
        sentences, padding = text.length // text.sentence, max(1, round(0.03 * text.length))
        segments = 1 + np.arange(text.length) * sentences // (text.length - padding)
        segments = np.where(segments <= sentences, segments, 0).astype(np.uint8)
        batch[f"{side}_segments"] = np.broadcast_to(segments, (rows, text.length)).copy()
        batch[side] = np.where(segments > 0, tokens, 0).astype(np.uint16)
    return spec, batch


def _flops(recipe: Recipe, batch: dict[str, Any]) -> float:
    """Model FLOPs of a step: those of the mathematical products, not of the compiled program."""
    if "target_segments" not in batch:
        return recipe.train_flops_per_example() * len(batch["index"])
    lengths = pair_lengths(batch["source_segments"], batch["target_segments"])
    return train_flops(recipe.experiment.model, *lengths, recipe.spec.vocabulary_size)


if __name__ == "__main__":
    sys.exit(main())
