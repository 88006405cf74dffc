"""The image models once more, from PyTorch's own functions in float64, for the parameters of ours.

Written from the papers and their authors' programs, and apart from `models/`: a network is a
function of a nested dict of tensors and of images [batch, channels, height, width]. Normalization
uses the batch's own statistics.
"""

from typing import Any

import numpy as np
import torch
from torch.nn import functional

Params = dict[str, Any]


def tensors(params: Any) -> Any:
    """Turns a nested dict of arrays into float64 leaves; kernels [out, in, height, width]."""
    if isinstance(params, dict):
        return {name: tensors(value) for name, value in params.items()}
    value = np.asarray(params)
    if value.ndim == 4:
        value = value.transpose(3, 2, 0, 1)
    return torch.tensor(value, dtype=torch.float64, requires_grad=True)


def gradients(params: Any) -> Any:
    """Turns the gradients of the leaves of `tensors` into arrays in our layout."""
    if isinstance(params, dict):
        return {name: gradients(value) for name, value in params.items()}
    if params.grad is None:
        return np.zeros(params.shape)
    value = params.grad.numpy()
    return value.transpose(2, 3, 1, 0) if value.ndim == 4 else value


def by_number(names: dict[str, Any]) -> list[str]:
    """Sorts names such as `stage_2_block_10` by their numbers."""
    return sorted(names, key=lambda name: [int(part) for part in name.split("_") if part.isdigit()])


def norm(p: Params, x: torch.Tensor) -> torch.Tensor:
    return functional.batch_norm(x, None, None, p["scale"], p["bias"], training=True, eps=1e-5)


def conv(p: Params, x: torch.Tensor, stride: int = 1) -> torch.Tensor:
    size = p["kernel"].shape[2]
    return functional.conv2d(x, p["kernel"], stride=stride, padding=size // 2)


def linear(p: Params, x: torch.Tensor) -> torch.Tensor:
    y = x @ p["kernel"]
    return y + p["bias"] if "bias" in p else y


def resnet(p: Params, x: torch.Tensor, *, pooled_stem: bool, bottleneck: bool) -> torch.Tensor:
    """Post-activation; shortcuts without parameters are the paper's option A."""
    x = torch.relu(norm(p["stem_norm"], conv(p["stem"], x, 2 if pooled_stem else 1)))
    if pooled_stem:
        x = functional.max_pool2d(x, 3, stride=2, padding=1)
    for name in by_number(p["blocks"]):
        block = p["blocks"][name]
        stage, number = (int(part) for part in name.split("_") if part.isdigit())
        stride = 2 if stage > 1 and number == 1 else 1
        if "projection" in block:
            shortcut = norm(block["projection_norm"], conv(block["projection"], x, stride))
        else:
            shortcut = x[:, :, ::stride, ::stride]
        y = norm(block["norm_1"], conv(block["conv_1"], x, 1 if bottleneck else stride))
        y = norm(block["norm_2"], conv(block["conv_2"], torch.relu(y), stride if bottleneck else 1))
        if bottleneck:
            y = norm(block["norm_3"], conv(block["conv_3"], torch.relu(y)))
        new = y.shape[1] - shortcut.shape[1]
        x = torch.relu(y + functional.pad(shortcut, (0, 0, 0, 0, 0, new)))
    return linear(p["classifier"], x.mean((2, 3)))


def preactivation_resnet(p: Params, x: torch.Tensor, *, bottleneck: bool) -> torch.Tensor:
    x = conv(p["stem"], x)
    for name in by_number(p["blocks"]):
        block = p["blocks"][name]
        stage, number = (int(part) for part in name.split("_") if part.isdigit())
        stride = 2 if stage > 1 and number == 1 else 1
        layers = block["layers"]
        activated = torch.relu(norm(layers["norm_1"], x))
        shortcut = conv(block["projection"], activated, stride) if "projection" in block else x
        y = conv(layers["conv_1"], activated, 1 if bottleneck else stride)
        y = torch.relu(norm(layers["norm_2"], y))
        y = conv(layers["conv_2"], y, stride if bottleneck else 1)
        if bottleneck:
            y = conv(layers["conv_3"], torch.relu(norm(layers["norm_3"], y)))
        x = y + shortcut
    return linear(p["classifier"], torch.relu(norm(p["final_norm"], x)).mean((2, 3)))


def same_padding(x: torch.Tensor, size: tuple[int, int], stride: tuple[int, int], value: float):
    """Pads as TensorFlow does: in all what the last window lacks, the larger half at the end."""
    pads: list[int] = []
    for length, taps, step in zip(x.shape[2:], size, stride, strict=True):
        lacking = max((-(-length // step) - 1) * step + taps - length, 0)
        pads = [lacking // 2, lacking - lacking // 2, *pads]
    return functional.pad(x, pads, value=value)


def same_conv(q: Params, y: torch.Tensor, stride: tuple[int, int] = (1, 1)) -> torch.Tensor:
    size = (q["kernel"].shape[2], q["kernel"].shape[3])
    return functional.conv2d(same_padding(y, size, stride, 0.0), q["kernel"], stride=stride)


def same_pool(kind: str, y: torch.Tensor, size: int, stride: int) -> torch.Tensor:
    square, steps = (size, size), (stride, stride)
    if kind == "max":
        padded = same_padding(y, square, steps, -torch.inf)
        return functional.max_pool2d(padded, size, stride)
    count = same_padding(torch.ones_like(y), square, steps, 0.0)
    sums = functional.avg_pool2d(same_padding(y, square, steps, 0.0), size, stride)
    return sums / functional.avg_pool2d(count, size, stride)


def amoebanet_operation(q: Params, name: str, y: torch.Tensor, stride: int) -> torch.Tensor:
    convs, norms = q.get("convs", {}), q.get("norms", {})
    strides = {
        "3x3": [(1, 1), (stride, stride), (1, 1)],
        "1x7_7x1": [(1, 1), (1, stride), (stride, 1), (1, 1)],
        "1x1": [(stride, stride)],
        "none": [(stride, stride)],
    }
    if "pool" in name:
        y = same_pool(name[:3], y, int(name[-1]), stride)
    for index, key in enumerate(sorted(convs)):
        if "pool" in name:
            y = same_conv(convs[key], y)
        else:
            y = same_conv(convs[key], torch.relu(y), strides[name][index])
        y = norm(norms[f"norm_{index + 1}"], y)
    return y


# The cells as the diagrams of the DAWNBench entry list them, pair by pair.
NORMAL_PAIRS = (
    [(1, "1x1"), (1, "max_pool_3x3")],
    [(1, "none"), (0, "1x7_7x1")],
    [(0, "1x1"), (0, "1x7_7x1")],
    [(2, "max_pool_3x3"), (2, "none")],
    [(1, "avg_pool_3x3"), (5, "1x1")],
)
REDUCTION_PAIRS = (
    [(0, "max_pool_2x2"), (0, "max_pool_3x3")],
    [(2, "none"), (1, "3x3")],
    [(2, "1x7_7x1"), (2, "max_pool_3x3")],
    [(3, "none"), (1, "max_pool_2x2")],
    [(2, "avg_pool_3x3"), (3, "1x1")],
)


def amoebanet_cell(q: Params, last: torch.Tensor, previous: torch.Tensor, stride: int):
    pairs = NORMAL_PAIRS if stride == 1 else REDUCTION_PAIRS
    if "previous_layer" in q:
        layer, y = q["previous_layer"], torch.relu(previous)
        if "even_conv" in layer:
            odd = functional.pad(y, (0, 1, 0, 1))[:, :, 1:, 1:]
            halves = [
                same_conv(layer["even_conv"], y, (2, 2)),
                same_conv(layer["odd_conv"], odd, (2, 2)),
            ]
            previous = norm(layer["norm"], torch.cat(halves, 1))
        else:
            previous = norm(layer["norm"], same_conv(layer["conv"], y))
    first = q["first_layer"]
    states = [norm(first["norm"], same_conv(first["conv"], torch.relu(last))), previous]
    for index, pair in enumerate(pairs):
        results = []
        for side, (state, name) in enumerate(pair):
            key = f"operation_{2 * index + side:02d}"
            step = stride if state < 2 else 1
            parameters = q["operations"].get(key, {})
            results.append(amoebanet_operation(parameters, name, states[state], step))
        states.append(results[0] + results[1])
    kept = (0, 3, 4, 6) if stride == 1 else (4, 5, 6)
    return torch.cat([states[index] for index in kept], 1)


def amoebanet_d(p: Params, x: torch.Tensor, num_cells: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Computes the logits of both heads, without drop path and dropout."""

    stem = functional.conv2d(x, p["stem"]["kernel"], stride=2)
    outputs = [norm(p["stem_norm"], stem)]
    auxiliary = None
    sequence = [("stem_cell_1", 2), ("stem_cell_2", 2)]
    for index in range(num_cells):
        if index and index % (num_cells // 3) == 0:
            sequence.append((f"reduction_cell_{index // (num_cells // 3)}", 2))
        sequence.append((f"cell_{index + 1}", 1))
    for name, stride in sequence:
        before = outputs[-2] if len(outputs) > 1 else outputs[-1]
        outputs.append(amoebanet_cell(p["cells"][name], outputs[-1], before, stride))
        if name == f"cell_{2 * num_cells // 3}":
            head = p["auxiliary_head"]
            y = functional.avg_pool2d(torch.relu(outputs[-1]), 5, stride=3)
            y = torch.relu(norm(head["norm_1"], same_conv(head["conv_1"], y)))
            y = functional.conv2d(y, head["conv_2"]["kernel"])
            y = torch.relu(norm(head["norm_2"], y)).flatten(1)
            auxiliary = linear(head["classifier"], y)
    assert auxiliary is not None
    return linear(p["classifier"], torch.relu(outputs[-1]).mean((2, 3))), auxiliary
