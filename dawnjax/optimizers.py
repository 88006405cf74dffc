"""The update rules and learning rate schedules of an experiment, as Optax transformations."""

from typing import assert_never

import jax
import optax

from dawnjax import muon
from dawnjax.experiment import Constant, Experiment, Muon, Sgd, WarmupCosine, WarmupLinear
from dawnjax.input_pipeline.dataset import DatasetSpec


def relative_schedule(experiment: Experiment, spec: DatasetSpec) -> optax.Schedule:
    """Gives the learning rate as a fraction of its peak, from the count of steps already done."""
    config = experiment.schedule
    num_steps = experiment.num_steps(spec)
    warmup_steps = round(config.warmup_epochs * experiment.steps_per_epoch(spec))
    rest = max(1, num_steps - warmup_steps)
    match config:
        case WarmupCosine():
            decay = optax.cosine_decay_schedule(1.0, rest, alpha=config.final_fraction)
        case WarmupLinear():
            decay = optax.linear_schedule(1.0, config.final_fraction, rest)
        case Constant():
            decay = optax.constant_schedule(1.0)
        case _:
            assert_never(config)
    if warmup_steps == 0:
        return decay
    warmup = optax.linear_schedule(config.initial_fraction, 1.0, warmup_steps)
    return optax.join_schedules([warmup, decay], [warmup_steps])


def peak_learning_rate(experiment: Experiment) -> float:
    """Gives the schedule's peak rate at the experiment's batch size."""
    config = experiment.optimizer
    if isinstance(config, Sgd) and config.reference_batch_size:
        scale = experiment.global_batch_size / config.reference_batch_size
        return config.base_learning_rate * scale
    return config.base_learning_rate


def make_optimizer(experiment: Experiment, spec: DatasetSpec) -> optax.GradientTransformation:
    """Gives the transformation from gradients to parameter updates."""
    config = experiment.optimizer
    relative = relative_schedule(experiment, spec)
    match config:
        case Sgd():
            peak = peak_learning_rate(experiment)
            return optax.chain(
                optax.add_decayed_weights(
                    config.weight_decay, None if config.decay_norm_and_bias else _is_matrix
                ),
                optax.sgd(
                    lambda count: peak * relative(count),
                    momentum=config.momentum,
                    nesterov=config.nesterov,
                ),
            )
        case Muon():
            return muon.muon(
                config,
                relative,
                steps_per_epoch=experiment.steps_per_epoch(spec),
                global_batch_size=experiment.global_batch_size,
            )
        case _:
            assert_never(config)


def _is_matrix(params: optax.Params) -> optax.Params:
    return jax.tree.map(lambda leaf: leaf.ndim > 1, params)
