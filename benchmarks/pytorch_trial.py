"""A trial of PyTorch's side of an experiment: warm-up, clock, steps to the target, record.

    python -m benchmarks pytorch_trial --side=digits --seed=3 --settings="compiled, memory kept"

A file `pytorch_NAME.py` beside this one holds an `EXPERIMENT` and its `Trainer`: network, batches
and step, written for speed as a PyTorch expert would. Every number of the recipe is read from the
experiment. Prepared data are found as by `dawnjax train`, in $DAWNJAX_DATA or `./data`.

The clock is DawnJAX's. It starts when every shape is warmed up and compiled, on synthetic data and
a state that is discarded. It stops at the end of the first evaluation that reaches the target.
Reading data, batching and all evaluations count. The setup before it holds all imports except JAX
and DawnJAX's own code (`recipe_import.py`).
"""

import argparse
import importlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks import program_start, pytorch_optimizers, pytorch_settings, recipe_import
from dawnjax.config.experiment import Experiment
from dawnjax.evaluation import reaches
from dawnjax.optim.optimizers import relative_schedule

Batch = tuple[torch.Tensor, ...]

SIDES = ("digits", "recommendation", "language_model", "gnmt", "squad", "cells")


def main() -> int:
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--side", choices=SIDES, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=0, help="of a trial, to compare speeds")
    parser.add_argument("--settings", choices=pytorch_settings.SETTINGS, default="eager")
    options = parser.parse_args()
    module: Any = importlib.import_module(f"benchmarks.pytorch_{options.side}")
    side = module.Trainer(module.EXPERIMENT, pytorch_settings.SETTINGS[options.settings])
    side.warm_up()
    setup_seconds = time.perf_counter() - program_start - recipe_import.SECONDS
    record = trial(side, options.seed, options.steps)
    record["total_seconds"] = setup_seconds + record["run_seconds"]
    record["setup_seconds"] = setup_seconds
    record["recipe_import_seconds"] = recipe_import.SECONDS
    record["settings"] = options.settings
    record["threads"] = torch.get_num_threads()
    record["torch"] = torch.__version__
    print(json.dumps(record))
    return 0


def trial(side: "Trainer", seed: int, most_steps: int) -> dict[str, Any]:
    """Train one seed to the target; return its record.

    Args:
      seed: Of parameters and batches.
      most_steps: Limit of steps, without an evaluation of its own; 0 for none.
    """
    experiment, spec = side.experiment, side.spec
    (target,) = experiment.targets
    side.reset(seed)
    num_steps = experiment.num_steps(spec)
    rates = relative_schedule(experiment, spec)(np.arange(num_steps))
    rates = np.broadcast_to(np.asarray(rates, np.float64), num_steps)
    num_steps = min(most_steps or num_steps, num_steps)
    evaluation_steps = set(experiment.evaluation_steps(spec))
    evaluations, losses, train_seconds, reached_seconds, step = [], [], 0.0, None, 0
    run_start = time.perf_counter()
    stream, evaluated = side.load(seed)
    stretch_start = time.perf_counter()
    while step < num_steps and reached_seconds is None:
        loss = side.train(next(stream), rates[step])
        step += 1
        if step <= 10:
            losses.append(loss.item())
        if step in evaluation_steps:
            train_seconds += time.perf_counter() - stretch_start
            metrics = side.evaluate(*evaluated)
            stretch_start = time.perf_counter()
            seconds = stretch_start - run_start
            epoch = experiment.epoch_of_step(step, spec)
            evaluations.append(
                {"step": step, "epoch": epoch, "seconds_since_run_start": seconds, **metrics}
            )
            print(json.dumps(evaluations[-1]), file=sys.stderr, flush=True)
            if reaches(experiment.targets, metrics):
                reached_seconds = seconds
    train_seconds += time.perf_counter() - stretch_start
    best = max if target.direction == "at_least" else min
    return {
        "seed": seed,
        "reached": reached_seconds is not None,
        "time_to_accuracy_seconds": reached_seconds,
        "train_seconds": train_seconds,
        "run_seconds": time.perf_counter() - run_start,
        "best": best((entry[target.metric] for entry in evaluations), default=None),
        "epochs": experiment.epoch_of_step(step, spec),
        "steps": step,
        "step_seconds": train_seconds / step,
        "losses": losses,
        "evaluations": evaluations,
    }


class Trainer:
    """A network, its fused optimizer, and the two functions that may be compiled.

    A subclass gives what is declared here.

    Attributes:
      loss: Of a batch.
      warm_up: Runs every shape, on a state that is discarded.
      load: From a seed to an endless stream of batches, and the arguments of `evaluate`.
      evaluate: Measures the experiment's metrics.
    """

    loss: Callable[..., torch.Tensor]
    warm_up: Callable[[], None]
    load: Callable[[int], tuple[Iterator[Batch], tuple[Any, ...]]]
    evaluate: Callable[..., dict[str, Any]]

    def __init__(
        self,
        experiment: Experiment,
        settings: pytorch_settings.Settings,
        network: Callable[[], nn.Module],
    ):
        self.experiment, self.spec, self.network = experiment, experiment.data.spec(), network
        self.model = network()
        self.forward = compiled(self.model, settings)
        self.loss_of = compiled(self.loss, settings)

    def reset(self, seed: int) -> None:
        """Draw a fresh state in the memory of the old one."""
        torch.manual_seed(seed)
        self.model.load_state_dict(self.network().state_dict())
        self.optimizer = pytorch_optimizers.optimizer_of(self.experiment.optimizer, self.model)

    def train(self, batch: Batch, rate: float) -> torch.Tensor:
        """Train one step at a fraction of the peak learning rate; return its loss."""
        config: Any = self.experiment.optimizer
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss_of(*batch)
        loss.backward()
        if getattr(config, "clip_global_norm", 0):
            nn.utils.clip_grad_norm_(self.model.parameters(), config.clip_global_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * config.base_learning_rate
        self.optimizer.step()
        return loss


def compiled(function: Any, settings: pytorch_settings.Settings) -> Any:
    """A function compiled as the settings say; unchanged where they are eager."""
    if not settings.mode:
        return function
    return torch.compile(function, mode=settings.mode, dynamic=False)


def endless_rows(count: int, size: int) -> Iterator[torch.Tensor]:
    """Yield row numbers [size] of an endless stream of shuffled epochs; nothing is dropped."""
    rows = torch.empty(0, dtype=torch.int64)
    while True:
        while len(rows) < size:
            rows = torch.cat([rows, torch.randperm(count)])
        yield rows[:size]
        rows = rows[size:]


if __name__ == "__main__":
    sys.exit(main())
