"""FLOPs of a model, from its own mathematics and not from what a compiler made of it.

2 x multiply-adds of every matrix product and convolution in the forward pass, whole windows, and
three times that for training: forward, gradient of the inputs, gradient of the weights. Nothing is
counted for recomputation, for padding of a batch, or for element-wise work. Sentences that share a
row count each for itself, at its own length.
"""

import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dawnjax.config.experiment import Experiment
from dawnjax.input_pipeline.dataset import AnySpec, TextSpec
from dawnjax.input_pipeline.image_augmentation import model_image_shape
from dawnjax.input_pipeline.parallel_text import ParallelText
from dawnjax.models.execution import Execution, TrainingMoment
from dawnjax.models.pure_model import pure_model
from dawnjax.models.transformer import Transformer
from dawnjax.profile.convolution_windows import WindowDim, window_taps

TRAINING_FACTOR = 3
"""Forward, and the two gradients of each product."""


def train_flops_per_example(experiment: Experiment, spec: AnySpec) -> float:
    """Gives the model FLOPs of one example in a train step; of packed text, of the mean row.

    An image model is traced as for an accelerator: on CPU some convolutions are made of other
    products, which is a matter of execution, not of the model.

    Raises:
      ValueError: The model holds a loop whose number of rounds is not known.
      DataError: Packed text that cannot be read.
    """
    if isinstance(spec, TextSpec):
        return _train_flops_per_row(experiment, spec)
    group = experiment.batch_norm_group_size
    image_shape = model_image_shape(experiment.augmentation, spec.image_shape)
    build: Any = experiment.model.build
    model = pure_model(
        lambda rngs: build(
            image_shape=image_shape,
            num_classes=spec.num_classes,
            execution=Execution(
                platform="tpu",
                compute_dtype=experiment.compute_dtype,
                batch_norm_group_size=group,
            ),
            rngs=rngs,
        )
    )
    params, batch_stats = jax.eval_shape(model.init, jax.random.key(0))
    images = jax.ShapeDtypeStruct((group, *image_shape), "float32")
    moment = None
    if getattr(experiment.model, "takes_moment", False):
        moment = TrainingMoment(jax.random.split(jax.random.key(0), group), jnp.zeros(()))
    forward = jax.make_jaxpr(lambda p, s, x: model.apply(p, s, x, True, moment))(
        params, batch_stats, images
    )
    return TRAINING_FACTOR * product_flops(forward.jaxpr) // group


def translation_train_flops(
    model: Transformer, source_lengths: np.ndarray, target_lengths: np.ndarray, vocabulary_size: int
) -> int:
    """Gives the model FLOPs of training on sentence pairs once.

    Args:
      model: The Transformer.
      source_lengths: int [pairs], tokens.
      target_lengths: int [pairs], tokens.
      vocabulary_size: Tokens of the joint vocabulary.
    """
    forward = 2 * model.multiply_adds(source_lengths, target_lengths, vocabulary_size)
    return TRAINING_FACTOR * forward


def _train_flops_per_row(experiment: Experiment, spec: TextSpec) -> float:
    model, data = experiment.model, experiment.data
    if not isinstance(model, Transformer) or not isinstance(data, ParallelText):
        raise ValueError(f"model FLOPs of {model.TAG} on {data.TAG} are not counted")
    lengths = data.train_pair_lengths()
    flops = translation_train_flops(model, *lengths, spec.vocabulary_size)
    return flops / spec.num_train_examples


def product_flops(jaxpr: Any) -> int:
    """Counts 2 x multiply-adds of the matrix products and convolutions of a jaxpr.

    Raises:
      ValueError: It holds a loop whose number of rounds is not known, with products in it.
    """
    total = 0
    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        if name == "dot_general":
            (contracted, _), _ = params["dimension_numbers"]
            lhs = equation.invars[0].aval.shape
            depth = math.prod(lhs[dim] for dim in contracted)
            total += 2 * depth * math.prod(equation.outvars[0].aval.shape)
        elif name == "conv_general_dilated":
            total += 2 * _convolution_multiply_adds(equation)
        elif name == "cond":
            total += max(product_flops(branch.jaxpr) for branch in params["branches"])
        else:
            inner = sum(map(product_flops, _inner_jaxprs(params)))
            if inner and name == "while":
                raise ValueError("a while loop holds products: its rounds are not known")
            total += inner * params["length"] if name == "scan" else inner
    return total


def _convolution_multiply_adds(equation: Any) -> int:
    params = equation.params
    numbers = params["dimension_numbers"]
    kernel, result = equation.invars[1].aval.shape, equation.outvars[0].aval.shape
    # A spec lists the positions of batch (or out features), features, and the spatial dimensions.
    in_features = kernel[numbers.rhs_spec[1]]
    taps = 1
    for index, stride in enumerate(params["window_strides"]):
        dim = WindowDim(
            kernel[numbers.rhs_spec[2 + index]],
            stride,
            params["padding"][index][0],
            params["lhs_dilation"][index],
            params["rhs_dilation"][index],
        )
        taps *= window_taps(result[numbers.out_spec[2 + index]], dim)
    return result[numbers.out_spec[0]] * result[numbers.out_spec[1]] * in_features * taps


def _inner_jaxprs(params: dict[str, Any]) -> Iterator[Any]:
    for name, value in params.items():
        if name in ("fwd_jaxpr_thunk", "bwd", "jvp_jaxpr_fun", "cond_jaxpr"):
            continue
        for part in value if isinstance(value, tuple | list) else (value,):
            inner = getattr(part, "jaxpr", part)
            if hasattr(inner, "eqns"):
                yield inner
