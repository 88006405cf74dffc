"""Muon as language models use it: orthogonal updates of hidden kernels, Adam for the rest.

Source: see `update_rules.MuonAdam`.
"""

import math

import jax
import optax
from jax.sharding import Mesh

from dawnjax.optim import muon
from dawnjax.optim.update_rules import Muon, MuonAdam

_SAFETY = 1.01
_EXPRESS = (
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
    (1.891301407787398, -1.2679958271945868, 0.37680408948524835),
    (1.8750014808534479, -1.2500016453999487, 0.3750001645474248),
    (1.875, -1.25, 0.375),
)
"""Polynomials for singular values from 0.001 to 1. Source: arXiv 2505.16932, algorithm 1."""

POLAR_EXPRESS = (
    *((a / _SAFETY, b / _SAFETY**3, c / _SAFETY**5) for a, b, c in _EXPRESS[:-1]),
    _EXPRESS[-1],
)
"""The same, each but the last taken at x / 1.01: a value that rounding lifts above 1 stays."""


def muon_adam(
    config: MuonAdam, relative_schedule: optax.Schedule, mesh: Mesh | None = None
) -> optax.GradientTransformation:
    """Transformation from gradients to parameter updates; `mesh` as of `muon.orthogonalize`."""

    def rate(peak: float) -> optax.Schedule:
        return lambda count: peak * relative_schedule(count)

    return optax.partition(
        {
            "hidden": optax.chain(
                optax.trace(config.momentum, nesterov=True),
                muon.orthogonalize(polynomials(config), mesh),
                optax.stateless(lambda updates, _: jax.tree.map(_scaled, updates)),
                optax.add_decayed_weights(config.weight_decay),
                optax.scale_by_learning_rate(rate(config.base_learning_rate)),
            ),
            "other": optax.adam(
                rate(config.adam_learning_rate), config.beta_1, config.beta_2, config.epsilon
            ),
        },
        parameter_kinds,
    )


def polynomials(config: MuonAdam) -> tuple[muon.Coefficients, ...]:
    if config.orthogonalization == "polar_express":
        return POLAR_EXPRESS[: config.iterations]
    return (Muon().newton_schulz_coefficients,) * config.iterations


def parameter_kinds(params: optax.Params) -> optax.Params:
    """Name of each parameter's rule: a layer's kernel is `hidden`, the classifier's is not."""

    def kind(path: tuple, leaf: jax.Array) -> str:
        names = [str(getattr(entry, "key", entry)) for entry in path]
        is_hidden = names[-1] == "kernel" and leaf.ndim > 1 and "classifier" not in names
        return "hidden" if is_hidden else "other"

    return jax.tree_util.tree_map_with_path(kind, params)


def _scaled(update: jax.Array) -> jax.Array:
    # sqrt(max(1, outputs / inputs)), as in KellerJordan/Muon, `muon.py`
    outputs = update.shape[-1]
    return update * math.sqrt(max(1.0, outputs * outputs / update.size))
