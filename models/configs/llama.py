"""Decoders of the Llama family: sizes and parts; `decoder` computes them.

Source: Touvron et al. 2023 (arXiv 2302.13971); "The Llama 3 Herd of Models" (arXiv 2407.21783),
table 3, for the sizes; Ainslie et al. 2023 (arXiv 2305.13245) for grouped queries; Jiang et al.
2024 (arXiv 2401.04088) for Mixtral; OpenAI 2025 (arXiv 2508.10925), sections 2.2 and 2.3, for
GPT-OSS; Shoeybi et al. 2019 (arXiv 1909.08053), section 4.1, for the scaled projections; Henry et
al. 2020 (arXiv 2010.04245) for normalized queries.
"""

import dataclasses
from typing import Annotated, Any, ClassVar, Literal

from dawnjax.limits import Limit, NonNegative, OneOrMore, Positive, require
from dawnjax.models.configs.experts import Experts
from dawnjax.models.configs.lora import ADAPTER_AXES, Lora
from dawnjax.models.configs.network import network
from dawnjax.models.configs.published_llama import (
    Published,
    Setting,
    published_names,
    stated_settings,
)
from dawnjax.models.configs.rotary import Rotary
from dawnjax.models.configs.types import Axes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Llama:
    """Size and parts of a decoder.

    Attributes:
      num_layers: Blocks of attention and MLP.
      width: Width of the residual stream.
      num_heads: Query heads.
      num_kv_heads: Key and value heads; all serve equally many query heads.
      head_width: Channels of a head.
      mlp_width: Width of an MLP's middle, or of each expert's.
      experts: MLPs from which a router chooses some for each token; none by default.
      rotary: Rates of the rotary positions.
      windows: Tokens that a token attends to, a number for each layer in turn; 0 is no limit. Empty
        takes the task's window.
      has_biases: All products, the router and the experts have biases.
      has_sinks: Each head has a learned score that enters the softmax but adds no value.
      normalizes_queries: Queries and keys pass an RMSNorm over the channels of a head, before
        their positions are added.
      norm_epsilon: Added to the mean square in a norm.
      ties_embedding: The output layer is the embedding's transpose.
      masks_documents: A token attends only to its own document.
      initial_std: Initial standard deviation of all matrices.
      scales_projections: The matrices that write to the residual stream (attention's output and
        the MLPs' down projection) begin with `initial_std / sqrt(2 * num_layers)`.
      lora: Adapters to train, while everything else stays frozen; none by default.
      param_dtype: Dtype of all parameters except adapters, which are float32.
      remat: What the backward pass recomputes: `full` keeps only the input of each layer,
        `products` also keeps the results of its matrix products.
      loss_chunk: Tokens of each row with logits in memory at a time; 0 computes all at once.
    """

    TAG: ClassVar[str] = "llama"
    num_layers: OneOrMore[int] = 32
    width: OneOrMore[int] = 4096
    num_heads: OneOrMore[int] = 32
    num_kv_heads: OneOrMore[int] = 8
    head_width: OneOrMore[int] = 128
    mlp_width: OneOrMore[int] = 14_336
    experts: Experts = Experts()
    rotary: Rotary = Rotary()
    windows: Annotated[
        tuple[int, ...], Limit(lambda values: min(values, default=0) >= 0, "be 0 or more")
    ] = ()
    has_biases: bool = False
    has_sinks: bool = False
    normalizes_queries: bool = False
    norm_epsilon: Positive[float] = 1e-5
    ties_embedding: bool = False
    masks_documents: bool = False
    initial_std: Positive[float] = 0.02
    scales_projections: bool = False
    lora: Lora = Lora()
    param_dtype: Literal["float32", "bfloat16"] = "float32"
    remat: Literal["none", "full", "products"] = "none"
    loss_chunk: NonNegative[int] = 0

    def check_together(self, prefix: str) -> None:
        require(
            self.num_heads % self.num_kv_heads == 0,
            f"{prefix}num_heads",
            self.num_heads,
            f"be a multiple of {prefix}num_kv_heads={self.num_kv_heads}",
        )
        rule = "be even: channels turn in pairs"
        require(self.head_width % 2 == 0, f"{prefix}head_width", self.head_width, rule)
        rule = f"have a number of values that divides {prefix}num_layers={self.num_layers}"
        is_whole = not self.windows or self.num_layers % len(self.windows) == 0
        require(is_whole, f"{prefix}windows", self.windows, rule)
        mlp = {"gate", "up", "down"} & set(self.lora.targets)
        rule = "leave out gate, up and down: experts have no adapters"
        is_dense = not (self.lora.rank and self.experts.count and mlp)
        require(is_dense, f"{prefix}lora.targets", self.lora.targets, rule)

    @property
    def trained_parts(self) -> tuple[str, ...]:
        """Parts of the parameters that are trained; empty for all."""
        return ("adapters",) if self.lora.rank else ()

    @property
    def trained_dtype(self) -> str:
        return "float32" if self.lora.rank else self.param_dtype

    def published_names(self) -> dict[str, Published]:
        """Place of each parameter in a published checkpoint, by its path."""
        return published_names(self)

    def other_settings(self, fields: dict[str, Any], window: int, length: int) -> list[Setting]:
        """Settings that a published `config.json` states otherwise, for rows of `length` tokens.

        `window` is the task's. An error for a setting that no `Llama` has: one of `records.FORGED`.
        """
        return [
            setting
            for setting in stated_settings(fields)
            if not setting.holds(self, self.windows or (window,), length)
        ]

    def split_sizes(self, spec: Any) -> dict[str, tuple[tuple[str, int], ...]]:
        """For each axis of the mesh, the fields that it must divide, and their values."""
        names = ("num_heads", "num_kv_heads", "mlp_width")
        chunk = (("model.loss_chunk", self.loss_chunk),) if self.loss_chunk else ()
        return {
            "fsdp": (("model.width", self.width),),
            "model": tuple((f"model.{name}", getattr(self, name)) for name in names),
            "context": (("data.sequence_length", spec.sequence_length), *chunk),
            "expert": (("model.experts.count", self.experts.count),) if self.experts.count else (),
        }

    def logical_axes(self) -> dict[str, Axes]:
        """Named axes of each parameter, by the end of its path; `sharding.RULES` places them."""
        return {
            "embedding": ("vocab", "embed"),
            "classifier": ("embed", "vocab"),
            "blocks/attention_norm": ("layers", None),
            "blocks/mlp_norm": ("layers", None),
            "blocks/query": ("layers", "embed", "heads"),
            "blocks/key": ("layers", "embed", "kv_heads"),
            "blocks/value": ("layers", "embed", "kv_heads"),
            "blocks/output": ("layers", "heads", "embed"),
            "blocks/query_bias": ("layers", "heads"),
            "blocks/key_bias": ("layers", "kv_heads"),
            "blocks/value_bias": ("layers", "kv_heads"),
            "blocks/output_bias": ("layers", None),
            "blocks/sinks": ("layers", "heads"),
            "blocks/query_norm": ("layers", None),
            "blocks/key_norm": ("layers", None),
            "blocks/gate": ("layers", "embed", "mlp"),
            "blocks/up": ("layers", "embed", "mlp"),
            "blocks/down": ("layers", "mlp", "embed"),
            "blocks/router": ("layers", "embed", None),
            "blocks/router_bias": ("layers", None),
            "blocks/expert_gate": ("layers", "experts", "embed", "mlp"),
            "blocks/expert_up": ("layers", "experts", "embed", "mlp"),
            "blocks/expert_down": ("layers", "experts", "mlp", "embed"),
            "blocks/expert_gate_bias": ("layers", "experts", "mlp"),
            "blocks/expert_up_bias": ("layers", "experts", "mlp"),
            "blocks/expert_down_bias": ("layers", "experts", None),
            **{f"adapters/{name}": axes for name, axes in ADAPTER_AXES.items()},
        }

    def products_per_token(self, vocabulary_size: int) -> int:
        """Multiply-adds of a token's matrix products in the forward pass, without attention's."""
        queries, keys = (n * self.head_width for n in (self.num_heads, self.num_kv_heads))
        mlp = 3 * self.width * self.mlp_width
        if self.experts.count:
            mlp = self.experts.chosen * mlp + self.width * self.experts.count
        layer = 2 * self.width * (queries + keys) + mlp
        return self.num_layers * layer + self.width * vocabulary_size

    def flops_without_gradients(
        self, *, vocabulary_size: int, sequence_length: int, **_: Any
    ) -> int:
        """Forward FLOPs of a row in products whose weights are frozen: they need no gradient."""
        if not self.lora.rank:
            return 0
        return 2 * sequence_length * self.products_per_token(vocabulary_size)

    def tiny(self) -> "Llama":
        """Network of the same kind for `--tiny`."""
        experts, lora = self.experts, self.lora
        return dataclasses.replace(
            self,
            num_layers=2,
            width=16,
            num_heads=2,
            num_kv_heads=1,
            head_width=8,
            mlp_width=32,
            loss_chunk=min(8, self.loss_chunk),
            windows=(8, 0) if self.windows else (),
            experts=dataclasses.replace(experts, count=min(4, experts.count), chosen=2),
            lora=dataclasses.replace(lora, rank=min(2, lora.rank)),
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
        if self.loss_chunk:
            rule = f"divide data.sequence_length={sequence_length}"
            is_whole = sequence_length % self.loss_chunk == 0
            require(is_whole, "model.loss_chunk", self.loss_chunk, rule)
        return network("decoder.Decoder")(self, vocabulary_size, separator, execution, rngs)


LLAMA_3 = Rotary(scaling="llama3")
GPT_OSS = Llama(
    num_layers=24,
    width=2880,
    num_heads=64,
    num_kv_heads=8,
    head_width=64,
    mlp_width=2880,
    experts=Experts(count=32, chosen=4, activation="clipped_swiglu"),
    rotary=Rotary(base=150_000.0, scaling="yarn", factor=32.0, original_length=4096, high=32.0),
    windows=(128, 0),
    has_biases=True,
    has_sinks=True,
)
LLAMA_SIZES: dict[str, Llama] = {
    "llama_3_2_1b": Llama(
        num_layers=16,
        width=2048,
        num_heads=32,
        head_width=64,
        mlp_width=8192,
        rotary=dataclasses.replace(LLAMA_3, factor=32.0),
        ties_embedding=True,
    ),
    "llama_3_1_8b": Llama(rotary=LLAMA_3),
    "llama_3_1_70b": Llama(
        num_layers=80, width=8192, num_heads=64, mlp_width=28_672, rotary=LLAMA_3
    ),
    "llama_3_1_405b": Llama(
        num_layers=126, width=16_384, num_heads=128, mlp_width=53_248, rotary=LLAMA_3
    ),
    "llama_2_70b": Llama(
        num_layers=80,
        width=8192,
        num_heads=64,
        mlp_width=28_672,
        rotary=Rotary(base=10_000.0),
    ),
    "mixtral_8x7b": Llama(experts=Experts(count=8, chosen=2), rotary=Rotary(base=1e6)),
    "gpt_oss_20b": GPT_OSS,
    # MLPerf trains the same sizes without biases, sinks, clipping and YaRN. Its window counts
    # 128 tokens before a token, and ours the token itself too.
    "gpt_oss_20b_mlperf": dataclasses.replace(
        GPT_OSS,
        experts=Experts(count=32, chosen=4),
        rotary=Rotary(base=150_000.0),
        windows=(129, 0),
        has_biases=False,
        has_sinks=False,
        normalizes_queries=True,
        norm_epsilon=1e-6,
        initial_std=0.008,
        scales_projections=True,
    ),
}
"""Published sizes, by name."""
