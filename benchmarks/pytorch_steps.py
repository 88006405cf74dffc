"""PyTorch's train step of a flagship, one round at a time; `steps` starts it.

Written for speed, as a PyTorch expert would: autocast to bfloat16, fused optimizers, cuDNN's
search, scaled dot-product attention, and one of `pytorch_settings.SETTINGS`. Parameters and batch
are those that DawnJAX's side left in a folder, so both compute the same from the first step on.
Modules have the names of ours; `load` maps them.
"""

import argparse
import contextlib
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks import (
    pytorch_images,
    pytorch_language_model,
    pytorch_optimizers,
    pytorch_settings,
    step_settings,
    workers,
)
from dawnjax.config.experiment_flags import parse_request


class Classifier(nn.Module):
    """A network for images, with the loss of a batch."""

    def __init__(self, experiment: Any):
        super().__init__()
        spec = experiment.data.spec()
        self.smoothing = experiment.task.label_smoothing
        scale = 255 * torch.tensor(spec.std)
        self.register_buffer("scale", (1 / scale).view(1, -1, 1, 1))
        shift = -torch.tensor(spec.mean) / torch.tensor(spec.std)
        self.register_buffer("shift", shift.view(1, -1, 1, 1))
        self.network = pytorch_images.ResNet(experiment.model, spec)

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        logits = self.network(batch["image"] * self.scale + self.shift)
        return F.cross_entropy(logits.float(), batch["label"], label_smoothing=self.smoothing)


class Attention(nn.Module):
    """Attention of several heads by PyTorch's scaled_dot_product_attention."""

    def __init__(self, model: Any):
        super().__init__()
        self.heads = model.num_heads
        for name in ("query", "key", "value", "output"):
            setattr(self, name, nn.Linear(model.width, model.width, bias=False))

    def forward(self, x: torch.Tensor, seen: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            layer(y).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer, y in ((self.query, x), (self.key, seen), (self.value, seen))
        )
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.output(out.transpose(1, 2).flatten(-2))


class FeedForward(nn.Module):
    def __init__(self, model: Any):
        super().__init__()
        self.linear_1 = nn.Linear(model.width, model.hidden_width)
        self.linear_2 = nn.Linear(model.hidden_width, model.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear_2(F.relu(self.linear_1(x)))


class Layer(nn.Module):
    """A pre-norm layer; of the decoder if it attends to a source."""

    def __init__(self, model: Any, attends_to_source: bool):
        super().__init__()
        self.rate = model.dropout_rate
        self.attention_norm = nn.LayerNorm(model.width, eps=1e-6)
        self.attention = Attention(model)
        if attends_to_source:
            self.source_norm = nn.LayerNorm(model.width, eps=1e-6)
            self.source_attention = Attention(model)
        self.feed_forward_norm = nn.LayerNorm(model.width, eps=1e-6)
        self.feed_forward = FeedForward(model)

    def forward(self, x, mask, source=None, source_mask=None):
        y = self.attention_norm(x)
        x = x + F.dropout(self.attention(y, y, mask), self.rate)
        if source is not None:
            y = self.source_attention(self.source_norm(x), source, source_mask)
            x = x + F.dropout(y, self.rate)
        return x + F.dropout(self.feed_forward(self.feed_forward_norm(x)), self.rate)


class Transformer(nn.Module):
    """Encoder and decoder with one embedding, and the loss of a packed batch."""

    def __init__(self, experiment: Any, vocabulary: int, length: int):
        super().__init__()
        model = experiment.model
        self.smoothing, self.rate, self.width = (
            experiment.task.label_smoothing,
            model.dropout_rate,
            model.width,
        )
        self.embedding = nn.Parameter(torch.empty(vocabulary, model.width))
        names = [f"layer_{number}" for number in range(1, model.num_layers + 1)]
        self.encoder = nn.ModuleDict({name: Layer(model, False) for name in names})
        self.encoder_norm = nn.LayerNorm(model.width, eps=1e-6)
        self.decoder = nn.ModuleDict({name: Layer(model, True) for name in names})
        self.decoder_norm = nn.LayerNorm(model.width, eps=1e-6)
        rates = 10_000.0 ** (-torch.arange(0, model.width, 2) / model.width)
        angles = torch.arange(length)[:, None] * rates
        table = torch.stack([angles.sin(), angles.cos()], -1).reshape(length, model.width)
        self.register_buffer("positions", table)

    def embed(self, tokens: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        index = torch.arange(tokens.shape[1], device=tokens.device)
        before = F.pad(segments[:, :-1], (1, 0))
        starts = torch.where(segments != before, index, 0).cummax(1).values
        embedded = F.embedding(tokens, self.embedding) * math.sqrt(self.width)
        return F.dropout(embedded + self.positions[index - starts], self.rate)

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        source, segments = batch["source"], batch["source_segments"]
        target, target_segments = batch["target"], batch["target_segments"]

        def same(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
            visible = (queries[:, :, None] == keys[:, None, :]) & (keys[:, None, :] > 0)
            # A row of padding sees itself: a softmax over nothing is NaN here.
            nothing = ~visible.any(-1, keepdim=True)
            return (visible | nothing)[:, None]

        mask = same(segments, segments)
        hidden = self.embed(source, segments)
        for layer in self.encoder.values():
            hidden = layer(hidden, mask)
        encoded = self.encoder_norm(hidden)
        inputs = F.pad(target[:, :-1], (1, 0))
        inputs = torch.where(target_segments == F.pad(target_segments[:, :-1], (1, 0)), inputs, 0)
        length = target.shape[1]
        earlier = torch.ones(length, length, dtype=torch.bool, device=target.device).tril()
        mask = same(target_segments, target_segments) & earlier
        source_mask = same(target_segments, segments)
        hidden = self.embed(inputs, target_segments)
        for layer in self.decoder.values():
            hidden = layer(hidden, mask, encoded, source_mask)
        logits = F.linear(self.decoder_norm(hidden), self.embedding)
        wanted = torch.where(target_segments > 0, target, -100)
        return F.cross_entropy(
            logits.flatten(0, 1).float(), wanted.flatten(), label_smoothing=self.smoothing
        )


class LanguageModel(pytorch_language_model.Network):
    """The language model, with the mean loss of a batch."""

    def __init__(self, experiment: Any):
        super().__init__(experiment, experiment.data.spec())

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return super().forward(batch["tokens"]).mean()


_LEAVES = {
    "kernel": ("", "weight"),
    "scale": ("", "weight"),
    "bias": ("", "bias"),
    "kernel_1": ("linear_1", "weight"),
    "bias_1": ("linear_1", "bias"),
    "kernel_2": ("linear_2", "weight"),
    "bias_2": ("linear_2", "bias"),
    **{name: (name, "weight") for name in ("query", "key", "value", "output")},
}
"""From the last part of a parameter's path of ours to a submodule and its attribute."""


def load(model: nn.Module, arrays: dict[str, np.ndarray]) -> None:
    """Copy parameters of ours, by path, into the modules of the same names.

    Raises:
      KeyError: A parameter of this model is not there.
    """
    is_final = isinstance(model, LanguageModel)
    given = {
        name: torch.from_numpy(np.ascontiguousarray(array))
        for name, array in (pytorch_language_model.renamed(arrays) if is_final else {}).items()
    }
    for path, array in ({} if is_final else arrays).items():
        *modules, leaf = path.split("/")
        if modules:
            inner, attribute = _LEAVES[leaf]
            name = ".".join([*modules, *([inner] if inner else []), attribute])
        else:
            name = leaf
        if array.ndim == 4:
            array = array.transpose(3, 2, 0, 1)
        elif array.ndim == 2 and modules:
            array = array.T
        given[name] = torch.from_numpy(np.ascontiguousarray(array))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(given.pop(name.removeprefix("network.")))
    if given:
        raise KeyError(f"no place for {sorted(given)}")


class Trainer:
    """A model, its optimizer and a batch on the device."""

    def __init__(self, experiment: Any, folder: Path, options: argparse.Namespace):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        settings = pytorch_settings.SETTINGS[options.settings]
        layout = torch.channels_last if settings.is_channels_last else torch.contiguous_format
        with np.load(folder / "batch.npz") as arrays:
            batch = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
        if "image" in batch:
            model: nn.Module = Classifier(experiment)
            images = batch["image"].permute(0, 3, 1, 2).contiguous(memory_format=layout)
            batch = {"image": images, "label": batch["label"].long()}
        elif "tokens" in batch:
            model = LanguageModel(experiment)
            batch = {"tokens": batch["tokens"].to(torch.int64)}
        else:
            batch = {name: array.to(torch.int64) for name, array in batch.items()}
            flagship = step_settings.FLAGSHIPS[options.model]
            text = flagship.tiny_text if options.tiny else flagship.text
            assert text is not None
            model = Transformer(experiment, text.vocabulary, text.length)
        self.batch = {name: array.to(self.device) for name, array in batch.items()}
        self.model = model.to(self.device, memory_format=layout).train()
        self.forward = self.model
        if settings.mode:
            self.forward = torch.compile(self.model, mode=settings.mode)
        self.optimizer = pytorch_optimizers.optimizer_of(
            experiment.optimizer, self.model, bool(settings.mode)
        )
        self.mixed = experiment.compute_dtype == "bfloat16"

    def step(self) -> torch.Tensor:
        context = (
            torch.autocast(self.device.type, torch.bfloat16)
            if self.mixed
            else contextlib.nullcontext()
        )
        with context:
            loss = self.forward(self.batch)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def main() -> int:
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    names = [name for name, flagship in step_settings.FLAGSHIPS.items() if flagship.pytorch]
    parser.add_argument("--model", choices=names, required=True)
    parser.add_argument("--steps", type=int, default=20, help="in a round")
    parser.add_argument("--check", required=True, help="folder of the other side's first state")
    parser.add_argument("--settings", choices=pytorch_settings.SETTINGS, required=True)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    flagship = step_settings.FLAGSHIPS[options.model]
    flags = [*flagship.flags, *(flagship.tiny_flags if options.tiny else ())]
    folder = Path(options.check)

    def trainer(more: tuple[str, ...]) -> Trainer:
        return Trainer(parse_request("train", [*flags, *more])[0].experiment, folder, options)

    checked = trainer(flagship.check_flags)
    with np.load(folder / "params.npz") as arrays:
        load(checked.model, {name: arrays[name] for name in arrays.files})
    started = time.perf_counter()
    losses = [float(checked.step()) for _ in range(step_settings.CHECK_STEPS)]
    timed = checked
    if flagship.check_flags:
        del checked
        timed = trainer(())
        for parameter in timed.model.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
    for _ in range(3):
        timed.step()
    timed.wait()
    compile_seconds = time.perf_counter() - started

    def one_round() -> dict[str, Any]:
        begun = time.perf_counter()
        for _ in range(options.steps):
            timed.step()
        timed.wait()
        return {"seconds_a_step": (time.perf_counter() - begun) / options.steps}

    is_cuda = timed.device.type == "cuda"
    workers.serve(
        {
            "model": options.model,
            "settings": options.settings,
            "compile_seconds": compile_seconds,
            "losses": losses,
            "device_kind": torch.cuda.get_device_name() if is_cuda else "cpu",
            "torch": torch.__version__,
            "peak_bytes": torch.cuda.max_memory_allocated() if is_cuda else None,
        },
        one_round,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
