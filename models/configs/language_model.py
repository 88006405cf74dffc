"""Settings of the decoder-only Transformer."""

import dataclasses
from typing import Annotated, Any, ClassVar, Literal

from dawnjax.limits import Limit, NonNegative, OneOrMore, require
from dawnjax.models.configs.network import built
from dawnjax.models.configs.types import Axes


@dataclasses.dataclass(frozen=True, kw_only=True)
class LanguageModel:
    """Size and parts of a network that predicts the next token.

    Attributes:
      num_layers: Blocks of attention and MLP.
      width: Width of the residual stream, a multiple of twice `num_heads`.
      num_heads: Heads of an attention.
      mlp_factor: Width of an MLP's middle, as a multiple of `width`.
      has_biases: Biases, and LayerNorm with factor and bias, as GPT-2 has them; otherwise RMSNorm
        without parameters and no bias.
      ties_embedding: The output layer is the embedding's transpose.
      positions: Rotary, or a learned embedding.
      activation: The MLP's.
      normalizes_queries: Queries and keys are divided by their root mean square.
      zero_projections: The output of each block starts at 0.
      logit_soft_cap: Logits x become cap * tanh(x / cap); 0 leaves them.
      value_embeddings: Layers at each end whose values have a token's embedding added.
      unet_skips: The output of layer i of the first half is added to the input of layer n - 1 - i.
      masks_documents: A token attends only to its own document.
    """

    TAG: ClassVar[str] = "language_model"
    num_layers: OneOrMore[int] = 12
    width: OneOrMore[int] = 768
    num_heads: OneOrMore[int] = 6
    mlp_factor: OneOrMore[int] = 4
    has_biases: bool = False
    ties_embedding: bool = False
    positions: Literal["rotary", "learned"] = "rotary"
    activation: Literal["squared_relu", "gelu"] = "squared_relu"
    normalizes_queries: bool = True
    zero_projections: bool = True
    logit_soft_cap: Annotated[
        float, Limit(lambda value: 0 <= value <= 1000, "lie in 0 to 1000")
    ] = 15.0
    value_embeddings: NonNegative[int] = 0
    unet_skips: bool = True
    masks_documents: bool = True

    def check_together(self, prefix: str) -> None:
        require(
            self.width % (2 * self.num_heads) == 0,
            f"{prefix}width",
            self.width,
            f"be a multiple of twice num_heads={self.num_heads}",
        )
        require(
            2 * self.value_embeddings <= self.num_layers,
            f"{prefix}value_embeddings",
            self.value_embeddings,
            f"be at most half of num_layers={self.num_layers}",
        )

    def split_sizes(self, spec: Any) -> dict[str, tuple[tuple[str, int], ...]]:
        """For each axis of the mesh, the fields that it must divide, and their values."""
        return {
            "fsdp": (("model.width", self.width),),
            "model": (("model.num_heads", self.num_heads),),
        }

    def logical_axes(self) -> dict[str, Axes]:
        """Named axes of each parameter, by the end of its path; `sharding.RULES` places them."""
        return {
            "embedding": ("vocab", "embed"),
            "classifier/kernel": ("embed", "vocab"),
            "query/kernel": ("embed", "heads"),
            "key/kernel": ("embed", "heads"),
            "value/kernel": ("embed", "heads"),
            "attention_projection/kernel": ("heads", "embed"),
            "mlp/kernel": ("embed", "mlp"),
            "mlp_projection/kernel": ("mlp", "embed"),
        }

    def tiny(self) -> "LanguageModel":
        """Network of the same kind for `--tiny`."""
        return dataclasses.replace(
            self,
            num_layers=2,
            width=16,
            num_heads=2,
            value_embeddings=min(1, self.value_embeddings),
        )

    def build(
        self,
        *,
        vocabulary_size: int,
        sequence_length: int,
        separator: int,
        execution: Any,
        rngs: Any,
    ) -> Any:
        return built(
            self,
            "language_model.LanguageModelModule",
            vocabulary_size=vocabulary_size,
            sequence_length=sequence_length,
            separator=separator,
            execution=execution,
            rngs=rngs,
        )
