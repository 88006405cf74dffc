"""Memory of a decoder's train step on a device, by formulas: a search tries thousands of meshes.

A compiled plan has XLA's own figure for one of them.
"""

import dataclasses
from typing import TYPE_CHECKING

from dawnjax.machine.mesh_shape import MeshShape
from dawnjax.plan.decoders.terms import (
    RECOMPUTED,
    Arrangement,
    held_parameters,
    layer_parameters,
    seen_pairs,
)

if TYPE_CHECKING:
    from dawnjax.models.configs.llama import Llama

SIZES = {"float32": 4, "bfloat16": 2}
"""Bytes of a number."""

SCORE_BYTES = 8
"""Bytes of a score in memory and of what is computed from it, counted in traced programs."""

COMPUTED = 2
"""Bytes of a number of an activation."""

WITHIN = 4
"""Copies of a layer's results in its backward pass, their gradients included."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecoderMemory:
    """Bytes on one device.

    Attributes:
      state: Parameters, their averages and the optimizer's moments.
      gradients: Gradients of all layers, until the update.
      gathered: Weights that are whole on the device, as `gathered_bytes` counts them.
      kept: Results of the forward pass that the backward pass reads.
      working: Results within one layer, or of the logits.
    """

    state: float
    gradients: float
    gathered: float
    kept: float
    working: float

    @property
    def num_bytes(self) -> float:
        return self.state + self.gradients + self.gathered + self.kept + self.working


def gathered_bytes(model: "Llama", mesh: MeshShape, vocabulary_size: int, remat: str) -> float:
    """Bytes of weights that `fsdp` gathers to a device.

    Of a layer and the next one, whose gather runs beside it, and of the output layer. Without remat
    the backward pass reads the weights that the forward pass gathered, those of all layers, in the
    dtype of the parameters: a step of 63 million parameters in 16 layers, compiled for 8 simulated
    devices, needs 312 MB more than with remat, of which 252 are these.
    """
    if mesh.fsdp == 1:
        return 0.0
    dense, routed = layer_parameters(model)
    layer = dense / mesh.model + routed / (mesh.model * mesh.expert)
    found = COMPUTED * (2 * layer + model.width * vocabulary_size / mesh.model)
    if remat == "none":
        found += SIZES[model.param_dtype] * model.num_layers * layer
    return found


def decoder_memory(
    model: "Llama", arrangement: Arrangement, averages: bool = False
) -> DecoderMemory:
    """Memory of a step.

    Args:
      averages: Whether the run keeps a moving average of the parameters.
    """
    mesh, tokens = arrangement.mesh, arrangement.tokens * arrangement.mesh.model
    table = model.width * arrangement.vocabulary_size
    share = sum(held_parameters(model, arrangement)) / mesh.fsdp
    each = SIZES[model.param_dtype]
    means = 0 if model.lora.rank else arrangement.moment_bytes
    queries, keys = (n * model.head_width for n in (model.num_heads, model.num_kv_heads))
    # Devices along `expert` compute each other's tokens.
    rows = model.experts.chosen * mesh.expert if model.experts.count else 1
    middle = 2 * rows * model.mlp_width / mesh.model
    attention = (2 * queries + 2 * keys) / mesh.model
    narrow = attention + middle
    named = attention if model.experts.count else narrow
    if model.experts.count:  # their inputs and outputs, in the order of the experts
        narrow += 2 * rows * model.width
    kept = {
        "full": 0.0,
        "products": named,
        "none": narrow + queries / mesh.model + middle + 4 * model.width,
    }
    # The residual stream is split along the text by `mesh.model` between the halves of a layer.
    between = model.width / mesh.model
    remat = next(name for name in kept if RECOMPUTED[name] == arrangement.recomputed)
    # In float32, and rounded for the product with the values.
    scores = 0.0
    if not arrangement.is_fused:
        pairs = seen_pairs(model, arrangement) * model.num_heads
        scores = SCORE_BYTES * pairs * arrangement.tokens
    kept_scores = model.num_layers * scores if remat == "none" else 0.0
    length = arrangement.sequence_length / mesh.context
    logits = (
        tokens / length * (model.loss_chunk or length) * arrangement.vocabulary_size / mesh.model
    )
    within = COMPUTED * tokens * (WITHIN * narrow + 6 * model.width)
    if arrangement.is_expanded:
        # Of each product, one factor and its gradient, with zeros for other experts' rows.
        factor = max(model.width, model.mlp_width / mesh.model)
        within += 2 * COMPUTED * tokens * rows * factor * model.experts.count / mesh.expert
    return DecoderMemory(
        state=share * (each + means + (SIZES["float32"] if averages else 0)),
        gradients=0.0 if model.lora.rank else 4 * share,
        gathered=gathered_bytes(model, mesh, arrangement.vocabulary_size, remat),
        kept=COMPUTED * tokens * model.num_layers * (between + kept[remat]) + kept_scores,
        working=max(within + scores, 2 * 4 * logits + (4 * table / mesh.model)),
    )
