"""Memory of a decoder's train step on a device, by formulas: a search tries thousands of meshes.

`memory.step_memory` traces one arrangement and is nearer; these formulas take no time.
"""

import dataclasses
from typing import TYPE_CHECKING, Any

from dawnjax.plan.decoder_terms import RECOMPUTED, Arrangement, layer_parameters, seen_pairs

if TYPE_CHECKING:
    from dawnjax.models.llama import Llama

SIZES = {"float32": 4, "bfloat16": 2}
"""Bytes of a number."""

SCORE_BYTES = 8
"""Of a score that lies in memory, and what is made of it: as traced programs have it."""

COMPUTED = 2
"""Bytes of a number of an activation."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecoderMemory:
    """Bytes on one device.

    Attributes:
      state: Parameters and the optimizer's means.
      gradients: Of all layers, until the update.
      gathered: Weights of a layer, and of the output layer, whole on the device.
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


def decoder_memory(model: "Llama", arrangement: Arrangement, optimizer: Any) -> DecoderMemory:
    """Memory of a step with an experiment's optimizer (`config.optimizers`)."""
    mesh, tokens = arrangement.mesh, arrangement.tokens * arrangement.mesh.model
    dense, routed = layer_parameters(model)
    table = model.width * arrangement.vocabulary_size
    tables = (1 if model.ties_embedding else 2) * table
    outside = (model.num_layers * dense + tables) / mesh.model
    inside = model.num_layers * routed / (mesh.model * mesh.expert)
    share = (outside + inside) / mesh.fsdp
    each = SIZES[model.param_dtype]
    means = 0 if model.lora.rank else 2 * SIZES[getattr(optimizer, "moment_dtype", "float32")]
    # A layer and the next one, whose gather runs beside it.
    layer = 2 * (dense / mesh.model + routed / (mesh.model * mesh.expert))
    gathered = COMPUTED * (layer + table / mesh.model) if mesh.fsdp > 1 else 0.0
    queries, keys = (n * model.head_width for n in (model.num_heads, model.num_kv_heads))
    chosen = model.experts.chosen if model.experts.count else 1
    narrow = (2 * queries + 2 * keys + 2 * chosen * model.mlp_width) / mesh.model
    kept = {
        "full": 0.0,
        "products": narrow,
        "none": narrow + (queries + 2 * chosen * model.mlp_width) / mesh.model + 4 * model.width,
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
    rows = tokens / length
    logits = rows * (model.loss_chunk or length) * arrangement.vocabulary_size / mesh.model
    within = COMPUTED * tokens * (4 * narrow + 6 * model.width)
    return DecoderMemory(
        state=share * (each + means),
        gradients=0.0 if model.lora.rank else 4 * share,
        gathered=gathered,
        kept=COMPUTED * tokens * model.num_layers * (between + kept[remat]) + kept_scores,
        working=max(within + scores, 2 * 4 * logits + (4 * table / mesh.model)),
    )
