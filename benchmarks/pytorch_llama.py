"""PyTorch's side of the small Llama; `pytorch_trial.py` runs its trials.

    python -m benchmarks pytorch_llama --seeds=3

The network is transformers' form of Llama, written out with fused attention.
"""

import sys
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks import pytorch_language_model, pytorch_trial
from dawnjax.config.experiment import Experiment
from dawnjax.experiments.wikipedia_llama_small import EXPERIMENT
from dawnjax.models.llama import Llama


class Block(nn.Module):
    """Attention of grouped queries and a gated MLP, each added to the residual stream."""

    def __init__(self, config: Llama):
        super().__init__()
        self.config = config
        queries, keys = (n * config.head_width for n in (config.num_heads, config.num_kv_heads))
        self.attention_norm = nn.Parameter(torch.ones(config.width))
        self.query = nn.Parameter(torch.empty(queries, config.width))
        self.key = nn.Parameter(torch.empty(keys, config.width))
        self.value = nn.Parameter(torch.empty(keys, config.width))
        self.output = nn.Parameter(torch.empty(config.width, queries))
        self.mlp_norm = nn.Parameter(torch.ones(config.width))
        self.gate = nn.Parameter(torch.empty(config.mlp_width, config.width))
        self.up = nn.Parameter(torch.empty(config.mlp_width, config.width))
        self.down = nn.Parameter(torch.empty(config.width, config.mlp_width))

    def forward(
        self, hidden: torch.Tensor, mask: torch.Tensor | None, turn: tuple[torch.Tensor, ...]
    ) -> torch.Tensor:
        normed = self.normalized(hidden, self.attention_norm)

        def heads(kernel: torch.Tensor) -> torch.Tensor:
            projected = F.linear(normed, kernel)
            return projected.unflatten(-1, (-1, self.config.head_width)).transpose(1, 2)

        mixed = F.scaled_dot_product_attention(
            rotated(heads(self.query), *turn),
            rotated(heads(self.key), *turn),
            heads(self.value),
            attn_mask=mask,
            is_causal=mask is None,
            enable_gqa=True,
        )
        hidden = hidden + F.linear(mixed.transpose(1, 2).flatten(-2), self.output)
        normed = self.normalized(hidden, self.mlp_norm)
        middle = F.silu(F.linear(normed, self.gate)) * F.linear(normed, self.up)
        return hidden + F.linear(middle, self.down)

    def normalized(self, hidden: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(hidden, hidden.shape[-1:], scale, self.config.norm_epsilon)


def rotated(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = heads.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class Network(nn.Module):
    """The decoder, with the parts that the experiment enables."""

    def __init__(self, experiment: Experiment, spec: Any):
        super().__init__()
        config = experiment.model
        self.config, self.separator = config, spec.separator
        length = spec.sequence_length
        self.embedding = nn.Parameter(torch.empty(spec.vocabulary_size, config.width))
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = nn.Parameter(torch.ones(config.width))
        self.classifier = nn.Parameter(torch.empty(spec.vocabulary_size, config.width))
        rates = torch.from_numpy(config.rotary.rates(config.head_width)).float()
        angles = torch.arange(length)[:, None] * rates
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        self.register_buffer("causal", causal, persistent=False)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=config.initial_std)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Losses, in nats, of the tokens [batch, 1 + length] except the first."""
        seen, mask = tokens[:, :-1], None
        if self.config.masks_documents:
            documents = (seen == self.separator).cumsum(1)
            mask = (self.causal & (documents[:, :, None] == documents[:, None]))[:, None]
        hidden = F.embedding(seen, self.embedding)
        for block in self.blocks:
            hidden = block(hidden, mask, (self.cos, self.sin))
        hidden = F.rms_norm(hidden, hidden.shape[-1:], self.norm, self.config.norm_epsilon)
        logits = F.linear(hidden, self.classifier)
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")


class Trainer(pytorch_language_model.Trainer):
    network = Network

    def reset(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.model.load_state_dict(Network(self.experiment, self.spec).state_dict())
        self.optimizer.state.clear()

    def train(self, batch: tuple[torch.Tensor], rate: float) -> torch.Tensor:
        peak = self.experiment.optimizer.base_learning_rate
        self.optimizer.param_groups[0]["lr"] = peak * rate
        self.optimizer.zero_grad()
        loss = self.losses(*batch).mean()
        loss.backward()
        self.optimizer.step()
        return loss


def main() -> int:
    config = EXPERIMENT.model
    if config.experts.count or config.lora.rank or config.windows or config.ties_embedding:
        sys.exit("pytorch_llama: only the experiment's own parts are written here")
    return pytorch_trial.run(__doc__, EXPERIMENT, Trainer)


if __name__ == "__main__":
    sys.exit(main())
