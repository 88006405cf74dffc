"""Optimizers and learning rate schedules that an experiment chooses from, as frozen configs.

`optimizers` makes Optax transformations of them.
"""

import dataclasses
from typing import Annotated, Any, ClassVar, Literal

from dawnjax.limits import (
    Ascending,
    Fraction,
    FractionBelowOne,
    Limit,
    NonNegative,
    NonNegatives,
    Positive,
    require,
    require_as_many,
    within,
)


def builds_itself(config: Any) -> bool:
    """True for a class of an experiment's own file, one that extends a class of this module too."""
    return hasattr(config, "build")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _LinearlyScaled:
    """A rule whose learning rate follows the size of the batch.

    Attributes:
      base_learning_rate: The peak learning rate at `reference_batch_size` examples.
      reference_batch_size: The linear scaling rule: peak = base * global batch / reference. 0 takes
        the base rate unchanged.

    Source: Goyal et al. 2017 (arXiv 1706.02677), section 2.1.
    """

    base_learning_rate: NonNegative[float]
    reference_batch_size: NonNegative[int] = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sgd(_LinearlyScaled):
    """Stochastic gradient descent with momentum and coupled weight decay.

    Attributes:
      momentum: Decay of the velocity, v = momentum * v + gradient.
      nesterov: Whether the step looks ahead along the velocity.
      weight_decay: Added to the gradient as weight_decay * parameter.
      decay_norm_and_bias: Whether the decay covers one-dimensional parameters too (biases,
        normalization scales).
      bias_rate_factor: Factor on the learning rate of biases, the parameters named `bias`; 2 in
        Detectron.
    """

    TAG: ClassVar[str] = "sgd"
    momentum: FractionBelowOne = 0.9
    nesterov: bool = True
    weight_decay: NonNegative[float] = 0.0
    decay_norm_and_bias: bool = False
    bias_rate_factor: Positive[float] = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Muon:
    """Orthogonalized momentum for convolution kernels, SGD for the rest.

    Attributes:
      base_learning_rate: Step size of the orthogonalized updates, at the schedule's peak.
      momentum: Nesterov momentum of the orthogonalized parameters.
      newton_schulz_steps: Iterations of the quintic that orthogonalizes an update.
      newton_schulz_coefficients: (a, b, c) of the quintic a x + b x^3 + c x^5. The default is steep
        at 0, and once above 0.68 a value stays there, near 1.
      bias_learning_rate: Peak rate of one-dimensional parameters (biases, normalization).
      head_learning_rate: Peak rate of the classifier's matrix.
      whitening_bias_epochs: Epochs over which the whitening bias's rate falls to 0.
      sgd_momentum: Nesterov momentum of the parameters that are not orthogonalized.
      sgd_weight_decay: Their weight decay, relative to each one's learning rate.

    Source: K. Jordan, "Muon: an optimizer for hidden layers in neural networks" (2024), with the
    coefficients of its section "Tuning the coefficients", and the recipe of the CIFAR-10 speed
    record that it came from.
    """

    TAG: ClassVar[str] = "muon"
    base_learning_rate: NonNegative[float] = 0.24
    momentum: FractionBelowOne = 0.6
    newton_schulz_steps: NonNegative[int] = 3
    newton_schulz_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315)
    bias_learning_rate: NonNegative[float] = 0.053
    head_learning_rate: NonNegative[float] = 0.67
    whitening_bias_epochs: NonNegative[float] = 3.0
    sgd_momentum: FractionBelowOne = 0.85
    sgd_weight_decay: NonNegative[float] = 0.004


@dataclasses.dataclass(frozen=True, kw_only=True)
class MuonAdam:
    """Orthogonalized momentum for the kernels of hidden layers, Adam for the rest.

    The rest are embeddings, the classifier and all one-dimensional parameters. The two peak rates
    follow one schedule.

    Attributes:
      base_learning_rate: Step size of the orthogonalized updates, at the schedule's peak. An update
        of a kernel [inputs, outputs] is multiplied by sqrt(max(1, outputs / inputs)).
      momentum: Nesterov momentum of the orthogonalized parameters.
      orthogonalization: `newton_schulz` repeats `Muon`'s default quintic; `polar_express` has
        another polynomial at each iteration.
      iterations: Iterations of the orthogonalization.
      adam_learning_rate: Adam's rate, at the schedule's peak.
      beta_1: Adam's decay of the mean gradient.
      beta_2: Adam's decay of the mean squared gradient.
      epsilon: Added to the root of the mean square.
      weight_decay: Decoupled decay of the orthogonalized kernels, times their learning rate.

    Source: K. Jordan, "Muon: an optimizer for hidden layers in neural networks" (2024); Amsel et
    al. 2025, "The Polar Express" (arXiv 2505.16932), algorithm 1; the factor of an update,
    KellerJordan/Muon, `muon.py`.
    """

    TAG: ClassVar[str] = "muon_adam"
    base_learning_rate: NonNegative[float] = 0.02
    momentum: FractionBelowOne = 0.95
    orthogonalization: Literal["newton_schulz", "polar_express"] = "polar_express"
    iterations: Annotated[int, within(1, 8)] = 5
    adam_learning_rate: NonNegative[float] = 3e-3
    beta_1: FractionBelowOne = 0.8
    beta_2: FractionBelowOne = 0.95
    epsilon: NonNegative[float] = 1e-10
    weight_decay: NonNegative[float] = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lars(_LinearlyScaled):
    """Layer-wise adaptive rate scaling: SGD whose rate follows each parameter's norm.

    With gradient g, decay b and parameter w, v = momentum * v + rate * ratio * (g + b w), where
    ratio = trust_coefficient * |w| / (|g| + b |w| + epsilon), and w = w - v. One-dimensional
    parameters (biases, normalization) have ratio 1 and no decay.

    Attributes:
      momentum: Decay of the velocity.
      weight_decay: b above.
      trust_coefficient: How far a step may move a parameter relative to its norm.
      epsilon: Added to the denominator.

    Source: You, Gitman and Ginsburg 2017 (arXiv 1708.03888), algorithm 1; the exemption and
    `epsilon` as in the ResNet-50 submissions to MLPerf training v0.6.
    """

    TAG: ClassVar[str] = "lars"
    momentum: FractionBelowOne = 0.9
    weight_decay: NonNegative[float] = 1e-4
    trust_coefficient: NonNegative[float] = 0.001
    epsilon: NonNegative[float] = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class RmsProp(_LinearlyScaled):
    """RMSProp with momentum, as TensorFlow computes it.

    The mean of squares s starts at 1; s = decay * s + (1 - decay) * g^2 and v = momentum * v +
    rate * g / sqrt(s + epsilon): epsilon lies inside the root.

    Attributes:
      decay: Of the mean of squares.
      momentum: Decay of the velocity.
      epsilon: Added to the mean of squares.
      weight_decay: Added to the gradient as weight_decay * parameter; not for one-dimensional
        parameters.
      clip_global_norm: The gradient, decay included, is scaled down to this norm; 0 clips nothing.

    Source: `tf.train.RMSPropOptimizer`; the defaults are AmoebaNet's hyperparameters,
    `models/official/amoeba_net/amoeba_net_model.py` in https://github.com/tensorflow/tpu. The flags
    of its `amoeba_net.py` replace some of them; they clip nothing.
    """

    TAG: ClassVar[str] = "rmsprop"
    decay: FractionBelowOne = 0.9
    momentum: FractionBelowOne = 0.9
    epsilon: NonNegative[float] = 1.0
    weight_decay: NonNegative[float] = 4e-5
    clip_global_norm: NonNegative[float] = 10.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class _WarmUp:
    """A schedule that begins with a linear warm-up to the peak.

    Attributes:
      warmup_epochs: Length of the warm-up in epochs.
      initial_fraction: The first step's rate, as a fraction of the peak.
    """

    warmup_epochs: float = 0.0
    initial_fraction: Fraction = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Falling(_WarmUp):
    """A schedule that falls from the peak until the run ends.

    Attributes:
      final_fraction: The rate at the end of the run, as a fraction of the peak.
    """

    final_fraction: Fraction = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class WarmupCosine(_Falling):
    """Linear warm-up to the peak, then a half cosine down to `final_fraction` of the peak."""

    TAG: ClassVar[str] = "warmup_cosine"


@dataclasses.dataclass(frozen=True, kw_only=True)
class WarmupLinear(_Falling):
    """Linear warm-up to the peak, then a straight line down to `final_fraction` of the peak."""

    TAG: ClassVar[str] = "warmup_linear"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Constant(_WarmUp):
    """Linear warm-up to the peak, which then stays."""

    TAG: ClassVar[str] = "constant"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Polynomial(_Falling):
    """Linear warm-up to the peak, then (1 - progress)^power down to `final_fraction` of it.

    Attributes:
      power: Of what is left of the run after the warm-up.
    """

    TAG: ClassVar[str] = "polynomial"
    power: Positive[float] = 2.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exponential(_WarmUp):
    """Linear warm-up to the peak, then `rate` to the power of the epochs of the run so far.

    Attributes:
      warmup_epochs: Length of the warm-up in epochs; decay counts from the start of the run.
      rate: What the learning rate is multiplied with in each `every_epochs`.
      every_epochs: The interval of `rate`.
      is_staircase: Whether the rate falls in steps, at the end of each interval.
      final_fraction: The rate never falls below this fraction of the peak.
    """

    TAG: ClassVar[str] = "exponential"
    rate: Positive[float] = 0.97
    every_epochs: Positive[float] = 1.0
    is_staircase: bool = True
    final_fraction: Fraction = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class PiecewiseStep(_WarmUp):
    """Linear warm-up to the peak, then a factor at each boundary.

    Attributes:
      boundary_epochs: Where the rate changes, in epochs of the run, ascending.
      factors: Factors of the rate at each boundary.
    """

    TAG: ClassVar[str] = "piecewise_step"
    boundary_epochs: Ascending = (30.0, 60.0, 80.0)
    factors: NonNegatives = (0.1, 0.1, 0.1)

    def check_together(self, prefix: str) -> None:
        """Refuse boundaries without a factor, and those within the warm-up."""
        require_as_many(self, "factors", "boundary_epochs", prefix)
        require(
            not self.boundary_epochs or self.boundary_epochs[0] >= self.warmup_epochs,
            f"{prefix}boundary_epochs",
            self.boundary_epochs,
            f"not lie within the warm-up of {self.warmup_epochs:g} epochs",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PiecewiseLinear:
    """Straight lines between knots; the rate is constant before the first and after the last.

    Attributes:
      knot_epochs: Epochs of the run, ascending. Two equal epochs make a step, to the later knot's
        rate.
      fractions: The rate at each knot, as a fraction of the peak.
    """

    TAG: ClassVar[str] = "piecewise_linear"
    warmup_epochs: ClassVar[float] = 0.0
    knot_epochs: Annotated[Ascending, Limit(bool, "name a knot")] = (0.0, 5.0, 24.0)
    fractions: NonNegatives = (0.0, 1.0, 0.0)

    def check_together(self, prefix: str) -> None:
        require_as_many(self, "fractions", "knot_epochs", prefix)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Adam:
    """Adam with bias correction and, if it is above 0, decoupled weight decay of matrices.

    Attributes:
      base_learning_rate: The rate at the schedule's peak.
      beta_1: Decay of the mean gradient.
      beta_2: Decay of the mean squared gradient.
      epsilon: Added to the root of the mean square.
      weight_decay: Decoupled decay: each step subtracts it times the learning rate and the
        parameter; 0 is plain Adam.
      clip_global_norm: The gradient is scaled down to this norm; 0 clips nothing.

    Source: Kingma and Ba 2015 (arXiv 1412.6980), algorithm 1; the decay, Loshchilov and Hutter 2019
    (arXiv 1711.05101). beta_2 and epsilon by default as in Vaswani et al. 2017, section 5.3.
    """

    TAG: ClassVar[str] = "adam"
    base_learning_rate: NonNegative[float]
    beta_1: FractionBelowOne = 0.9
    beta_2: FractionBelowOne = 0.98
    epsilon: NonNegative[float] = 1e-9
    weight_decay: NonNegative[float] = 0.0
    clip_global_norm: NonNegative[float] = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class InverseSquareRoot:
    """Linear warm-up to the peak, then the peak times sqrt(warm-up / steps done).

    Attributes:
      warmup_epochs: Length of the warm-up in epochs.
      initial_fraction: The first step's rate, as a fraction of the peak.

    Source: Vaswani et al. 2017 (arXiv 1706.03762), equation 3; there the peak is
    (width * warm-up steps) ** -0.5.
    """

    TAG: ClassVar[str] = "inverse_square_root"
    warmup_epochs: Positive[float]
    initial_fraction: Fraction = 0.0
