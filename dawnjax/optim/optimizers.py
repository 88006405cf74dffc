"""Update rules and learning rate schedules of an experiment, as Optax transformations.

`experiment` is an `Experiment` everywhere; its module imports the configs of this package.
"""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from dawnjax.errors import GUIDE, ConfigError
from dawnjax.input_pipeline.reading.dataset import AnySpec
from dawnjax.models.sharding import Axes, axes_of
from dawnjax.optim import muon, muon_adam
from dawnjax.optim.update_rules import (
    Adam,
    Constant,
    Exponential,
    InverseSquareRoot,
    Lars,
    Muon,
    MuonAdam,
    PiecewiseLinear,
    PiecewiseStep,
    Polynomial,
    RmsProp,
    Sgd,
    WarmupCosine,
    WarmupLinear,
    builds_itself,
)


def relative_schedule(experiment: Any, spec: AnySpec) -> optax.Schedule:
    """Learning rate as a fraction of its peak, from the count of steps already done."""
    config = experiment.schedule
    steps_per_epoch = experiment.steps_per_epoch(spec)
    num_steps = experiment.num_steps(spec)
    warmup_steps = round(config.warmup_epochs * steps_per_epoch)
    rest = max(1, num_steps - warmup_steps)
    match config:
        case _ if builds_itself(config):
            decay = config.build(num_steps=rest, steps_per_epoch=steps_per_epoch)
        case PiecewiseLinear():
            return _piecewise_linear(config, steps_per_epoch)
        case WarmupCosine():
            decay = optax.cosine_decay_schedule(1.0, rest, alpha=config.final_fraction)
        case WarmupLinear():
            decay = optax.linear_schedule(1.0, config.final_fraction, rest)
        case Constant():
            decay = optax.constant_schedule(1.0)
        case Polynomial():
            decay = optax.polynomial_schedule(1.0, config.final_fraction, config.power, rest)
        case Exponential():
            decay = _exponential(config, warmup_steps, steps_per_epoch)
        case PiecewiseStep():
            decay = _piecewise_step(config, warmup_steps, steps_per_epoch)
        case InverseSquareRoot():
            steps = max(1, warmup_steps)
            # `join_schedules` also evaluates this schedule at earlier steps and discards the
            # result; clamp so that it stays finite.
            decay = lambda count: (steps / (steps + jnp.maximum(count, 0))) ** 0.5  # noqa: E731
        case _:
            raise ConfigError(f"schedule={config.TAG} has no build(); {GUIDE}")
    if warmup_steps == 0:
        return decay
    warmup = optax.linear_schedule(config.initial_fraction, 1.0, warmup_steps)
    return optax.join_schedules([warmup, decay], [warmup_steps])


def _exponential(config: Exponential, warmup_steps: int, steps_per_epoch: float) -> optax.Schedule:
    def decay(count: Any) -> Any:
        intervals = (count + warmup_steps) / (config.every_epochs * steps_per_epoch)
        if config.is_staircase:
            # The offset guards against floor(n - epsilon) = n - 1 when the quotient is rounded just
            # below an integer.
            intervals = jnp.floor(intervals + 1e-5)
        return jnp.maximum(jnp.power(config.rate, intervals), config.final_fraction)

    return decay


def _piecewise_step(
    config: PiecewiseStep, warmup_steps: int, steps_per_epoch: float
) -> optax.Schedule:
    boundaries = jnp.asarray([round(epoch * steps_per_epoch) for epoch in config.boundary_epochs])
    factors = jnp.asarray(config.factors, jnp.float32)
    return lambda count: jnp.prod(jnp.where(count + warmup_steps >= boundaries, factors, 1.0))


def _piecewise_linear(config: PiecewiseLinear, steps_per_epoch: float) -> optax.Schedule:
    knots = [epoch * steps_per_epoch for epoch in config.knot_epochs]
    # Of two equal knots the earlier moves back by less than a step.
    places = [
        knot - (0.5 if index + 1 < len(knots) and knots[index + 1] == knot else 0.0)
        for index, knot in enumerate(knots)
    ]
    xs, ys = jnp.asarray(places, jnp.float32), jnp.asarray(config.fractions, jnp.float32)
    return lambda count: jnp.interp(jnp.asarray(count, jnp.float32), xs, ys)


def peak_learning_rate(experiment: Any) -> float:
    """Schedule's peak rate at the experiment's batch size."""
    config = experiment.optimizer
    reference = getattr(config, "reference_batch_size", 0)
    if reference:
        scale = experiment.global_batch_size / reference
        return config.base_learning_rate * scale
    return config.base_learning_rate


def learning_rate(experiment: Any, spec: AnySpec, step_shift: float = 0.0) -> optax.Schedule:
    """Learning rate of a stage, from the count of the run's steps already done.

    `step_shift` is added to it, since earlier stages had steps of another size.
    """
    relative, peak = relative_schedule(experiment, spec), peak_learning_rate(experiment)
    return lambda count: peak * relative(count + step_shift if step_shift else count)


def make_optimizer(
    experiment: Any, spec: AnySpec, step_shift: float = 0.0, mesh: Mesh | None = None
) -> optax.GradientTransformation:
    """Transformation from gradients to parameter updates.

    `step_shift` as of `learning_rate`; each device of `mesh` makes its part of an update alone.

    Raises:
      ConfigError: The rule looks at whole matrices, and the model stacks those of its layers; or
        parameters that are not float32 would be trained.
    """
    config = experiment.optimizer
    is_own = builds_itself(config)
    named = experiment.model.logical_axes() if hasattr(experiment.model, "logical_axes") else {}
    takes_matrices = isinstance(config, Lars | Muon | MuonAdam) and not is_own
    if takes_matrices and any("layers" in axes for axes in named.values()):
        raise ConfigError(
            f"optimizer={config.TAG} would take the stacked layers of model={experiment.model.TAG} "
            "for one matrix; choose adam, sgd or rmsprop"
        )
    trained_dtype = getattr(experiment.model, "trained_dtype", "float32")
    if trained_dtype != "float32":
        raise ConfigError(
            f"model.param_dtype={trained_dtype} is for parameters that stay as they are: give "
            "float32, or adapters with --model.lora.rank"
        )
    is_matrix = functools.partial(_is_matrix, named)
    rate = learning_rate(experiment, spec, step_shift)
    if is_own:
        return experiment.optimizer.build(rate)
    match config:
        case Sgd():
            decayed = None if config.decay_norm_and_bias else is_matrix
            # The update is linear in the gradient, so a factor of it is one of the rate.
            factor = config.bias_rate_factor
            scales = [] if factor == 1 else [optax.masked(optax.scale(factor), _is_bias)]
            return optax.chain(
                optax.add_decayed_weights(config.weight_decay, decayed),
                *scales,
                optax.sgd(rate, momentum=config.momentum, nesterov=config.nesterov),
            )
        case Lars():
            return optax.chain(
                scale_by_lars(config),
                optax.scale_by_learning_rate(rate),
                optax.trace(config.momentum),
            )
        case RmsProp():
            clip = config.clip_global_norm
            return optax.chain(
                optax.add_decayed_weights(config.weight_decay, is_matrix),
                optax.clip_by_global_norm(clip) if clip else optax.identity(),
                optax.rmsprop(
                    rate,
                    config.decay,
                    config.epsilon,
                    initial_scale=1.0,
                    eps_in_sqrt=True,
                    momentum=config.momentum,
                ),
            )
        case Adam():
            adam = optax.adamw(
                rate,
                b1=config.beta_1,
                b2=config.beta_2,
                eps=config.epsilon,
                weight_decay=config.weight_decay,
                mask=is_matrix,
            )
            if config.clip_global_norm:
                return optax.chain(optax.clip_by_global_norm(config.clip_global_norm), adam)
            return adam
        case Muon():
            return muon.muon(
                config,
                relative_schedule(experiment, spec),
                steps_per_epoch=experiment.steps_per_epoch(spec),
                global_batch_size=experiment.global_batch_size,
            )
        case MuonAdam():
            relative = relative_schedule(experiment, spec)
            return muon_adam.muon_adam(config, lambda count: relative(count + step_shift), mesh)
    raise ConfigError(f"optimizer={config.TAG} has no build(); {GUIDE}")


def average_decay(decay: float, has_warmup: bool, step: jax.Array) -> jax.Array | float:
    """Decay of the parameters' moving average after `step` earlier steps.

    Source: `num_updates` of TensorFlow's `ExponentialMovingAverage`, for the warm-up.
    """
    if not has_warmup:
        return decay
    count = step.astype(jnp.float32)
    return jnp.minimum(decay, (1 + count) / (10 + count))


def scale_by_lars(config: Lars) -> optax.GradientTransformation:
    """Add weight decay and multiply each parameter's update by its trust ratio.

    Source: You, Gitman and Ginsburg 2017 (arXiv 1708.03888), equation 6 and algorithm 1.
    """

    def scale(gradient: jax.Array, param: jax.Array) -> jax.Array:
        if param.ndim <= 1:
            return gradient
        norm = jnp.linalg.norm(param.reshape(-1))
        # Optax's own divides by the norm of the decayed gradient, the paper by this sum of norms.
        total = jnp.linalg.norm(gradient.reshape(-1)) + config.weight_decay * norm + config.epsilon
        is_defined = (norm > 0) & (total > 0)
        ratio = config.trust_coefficient * norm / jnp.where(is_defined, total, 1.0)
        return jnp.where(is_defined, ratio, 1.0) * (gradient + config.weight_decay * param)

    return optax.stateless(lambda updates, params: jax.tree.map(scale, updates, params))


def _is_bias(params: optax.Params) -> optax.Params:
    def of(location: Any, leaf: jax.Array) -> bool:
        return jax.tree_util.keystr(location[-1:], simple=True) == "bias"

    return jax.tree_util.tree_map_with_path(of, params)


def _is_matrix(named: Mapping[str, Axes], params: optax.Params) -> optax.Params:
    def of(location: Any, leaf: jax.Array) -> bool:
        path = jax.tree_util.keystr(location, simple=True, separator="/")
        axes = axes_of(path, leaf.ndim, named)
        # A stack of vectors, such as the norms of all layers, is not a matrix.
        return leaf.ndim - (axes is not None and "layers" in axes) > 1

    return jax.tree_util.tree_map_with_path(of, params)
