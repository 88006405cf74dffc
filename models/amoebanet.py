"""AmoebaNet-D: cells of ten operations that an evolutionary search found.

A cell reads states 0 and 1, the outputs of the two cells before it. Five times, the sum of two
operations makes a new state. A reduction cell halves height and width.

Source: Real et al. 2019, "Regularized Evolution for Image Classifier Architecture Search" (arXiv
1802.01548), section 3 and appendix D. Where they leave it open: `model_specs.py`,
`network_utils.py` and `model_builder.py` of `models/official/amoeba_net` in
https://github.com/tensorflow/tpu.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from dawnjax.models.configs.amoebanet import NUM_STACKS, AmoebaNetD
from dawnjax.models.configs.types import ImageShape
from dawnjax.models.convolution import he_normal_fan_out
from dawnjax.models.execution import Execution, TrainingMoment
from dawnjax.models.layers import Layers
from dawnjax.models.pooling import average_pool, max_pool

OperationName = Literal[
    "none", "1x1", "3x3", "1x7_7x1", "max_pool_2x2", "max_pool_3x3", "avg_pool_3x3"
]
Head = tuple[jax.Array, jax.Array]


class CellSpec(NamedTuple):
    """Pairs (state, operation) whose results are added two by two to new states; output states."""

    operations: tuple[tuple[int, OperationName], ...]
    outputs: tuple[int, ...]


NORMAL_CELL = CellSpec(
    operations=(
        (1, "1x1"),
        (1, "max_pool_3x3"),
        (1, "none"),
        (0, "1x7_7x1"),
        (0, "1x1"),
        (0, "1x7_7x1"),
        (2, "max_pool_3x3"),
        (2, "none"),
        (1, "avg_pool_3x3"),
        (5, "1x1"),
    ),
    outputs=(0, 3, 4, 6),
)
REDUCTION_CELL = CellSpec(
    operations=(
        (0, "max_pool_2x2"),
        (0, "max_pool_3x3"),
        (2, "none"),
        (1, "3x3"),
        (2, "1x7_7x1"),
        (2, "max_pool_3x3"),
        (3, "none"),
        (1, "max_pool_2x2"),
        (2, "avg_pool_3x3"),
        (3, "1x1"),
    ),
    outputs=(4, 5, 6),
)
STEM_CELLS = 2


class AmoebaNetModule(nnx.Module):
    """Stem, cells, mean over positions, linear classifier; an auxiliary head in training."""

    def __init__(
        self,
        config: AmoebaNetD,
        *,
        image_shape: ImageShape,
        num_classes: int,
        execution: Execution,
        rngs: nnx.Rngs,
    ):
        self.config, layers = config, Layers(config, execution, rngs)
        self.stem = layers.conv(image_shape[-1], config.stem_width, (3, 3), 2, "VALID")
        self.stem_norm = layers.norm(config.stem_width)
        height, width = ((size - 3) // 2 + 1 for size in image_shape[:2])
        # Shapes (height, width, channels) of the outputs of the cell before the last, and the last.
        shape = (height, width, config.stem_width)
        previous: ImageShape | None = None
        cells: dict[str, Cell] = {}
        scale = 0.5**STEM_CELLS
        auxiliary_after, auxiliary_head = "", None

        def add(name: str, spec: CellSpec, stride: int) -> None:
            nonlocal shape, previous
            cells[name] = cell = Cell(
                spec, stride, int(config.num_filters * scale), shape, previous, layers
            )
            previous, shape = shape, cell.out_shape

        for index in range(STEM_CELLS):
            add(f"stem_cell_{index + 1}", REDUCTION_CELL, 2)
            scale *= 2
        scale = 1.0
        per_stack = config.num_cells // NUM_STACKS
        for index in range(config.num_cells):
            if index and index % per_stack == 0:
                scale *= 2
                add(f"reduction_cell_{index // per_stack}", REDUCTION_CELL, 2)
            add(f"cell_{index + 1}", NORMAL_CELL, 1)
            if config.has_auxiliary_head and index + 1 == (NUM_STACKS - 1) * per_stack:
                auxiliary_after = f"cell_{index + 1}"
                auxiliary_head = AuxiliaryHead(shape, num_classes, layers)
        self.auxiliary_after, self.auxiliary_head = auxiliary_after, auxiliary_head
        self.order = tuple(cells)
        self.cells = nnx.Dict(cells)
        self.classifier = layers.classifier(shape[-1], num_classes, he_normal_fan_out)

    def __call__(
        self, images: jax.Array, *, train: bool, moment: TrainingMoment | None = None
    ) -> jax.Array | Head:
        """Float32 logits of normalized images [batch, height, width, channels].

        In training with an auxiliary head the result is the pair of these and of the head's logits.
        """
        config = self.config
        if train and moment is None:
            raise ValueError("AmoebaNet draws random numbers in training: it needs a moment")
        draws = None
        if train and moment is not None and config.drop_path_keep < 1:
            draws = drop_path_draws(config, moment, len(self.cells))
        hidden = self.stem_norm(self.stem(images), train=train)
        outputs: list[jax.Array | None] = [None, hidden]
        auxiliary = None
        for index, name in enumerate(self.order):
            factors = None if draws is None else draws[:, index]
            hidden = self.cells[name](hidden, outputs[-2], train=train, factors=factors)
            outputs.append(hidden)
            if train and self.auxiliary_head is not None and name == self.auxiliary_after:
                auxiliary = self.auxiliary_head(hidden, train=train)
        features = jax.nn.relu(hidden).mean((1, 2))
        if train and moment is not None and config.dropout_keep < 1:
            features = _dropout(features, moment.keys, config.dropout_keep)
        logits = self.classifier(features)
        return logits if auxiliary is None else (logits, auxiliary)


class Cell(nnx.Module):
    """One cell; `out_shape` is (height, width, channels) of its output."""

    def __init__(
        self,
        spec: CellSpec,
        stride: int,
        width: int,
        in_shape: ImageShape,
        previous_shape: ImageShape | None,
        layers: Layers,
    ):
        self.spec = spec
        previous_width = width
        if previous_shape is None:
            # The first cell has one output before it, and reads that twice.
            previous_width, self.previous_layer = in_shape[-1], None
        elif previous_shape[:2] != in_shape[:2]:
            self.previous_layer = FactorizedReduction(previous_shape[-1], width, layers)
        elif previous_shape[-1] != width:
            self.previous_layer = Projection(previous_shape[-1], width, layers)
        else:
            self.previous_layer = None
        self.first_layer = Projection(in_shape[-1], width, layers)
        widths = [width, previous_width] + [width] * (len(spec.operations) // 2)
        self.operations = nnx.Dict(
            {
                f"operation_{index:02d}": Operation(
                    name, widths[state], width, stride if state < 2 else 1, layers
                )
                for index, (state, name) in enumerate(spec.operations)
            }
        )
        height, columns = (-(-size // stride) for size in in_shape[:2])
        self.out_shape = (height, columns, width * len(spec.outputs))

    def __call__(
        self,
        inputs: jax.Array,
        previous: jax.Array | None,
        *,
        train: bool,
        factors: jax.Array | None,
    ) -> jax.Array:
        """Output of a cell, [batch, height, width, channels], from those of the two cells before.

        `factors` are drop path's factors of the results, float32 [batch, operations], or None.
        """
        if previous is None:
            previous = inputs
        elif self.previous_layer is not None:
            previous = self.previous_layer(jax.nn.relu(previous), train=train)
        states = [self.first_layer(jax.nn.relu(inputs), train=train), previous]
        results = []
        for index, (state, name) in enumerate(self.spec.operations):
            result = self.operations[f"operation_{index:02d}"](states[state], train=train)
            if factors is not None and name != "none":
                result *= factors[:, index, None, None, None].astype(result.dtype)
            results.append(result)
            if len(results) == 2:
                states.append(results[0] + results[1])
                results = []
        return jnp.concatenate([states[state] for state in self.spec.outputs], axis=-1)


class Operation(nnx.Module):
    """One operation of a cell; each convolution is ReLU, convolution, BatchNorm."""

    def __init__(self, name: OperationName, in_width: int, width: int, stride: int, layers: Layers):
        self.name, self.stride, self.execution = name, stride, layers.execution
        # `network_utils.py` narrows to a quarter of the channels inside convolutions larger than
        # 1x1.
        inner, step = width // 4, (stride, stride)
        match name:
            case "3x3":
                shapes = [(in_width, inner, 1, 1), (inner, inner, 3, step), (inner, width, 1, 1)]
            case "1x7_7x1":
                shapes = [
                    (in_width, inner, 1, 1),
                    (inner, inner, (1, 7), (1, stride)),
                    (inner, inner, (7, 1), (stride, 1)),
                    (inner, width, 1, 1),
                ]
            case "1x1":
                shapes = [(in_width, width, 1, step)]
            case "none":
                shapes = [(in_width, width, 1, step)] if stride > 1 or in_width != width else []
            case _:
                shapes = [(in_width, width, 1, 1)] if in_width != width else []
        self.num_convs = len(shapes)
        convs, norms = {}, {}
        for index, (before, after, size, strides) in enumerate(shapes, start=1):
            convs[f"conv_{index}"] = layers.conv(before, after, size, strides, "SAME")
            norms[f"norm_{index}"] = layers.norm(after)
        self.convs, self.norms = nnx.Dict(convs), nnx.Dict(norms)

    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Map [batch, height, width, in] to [batch, height / stride, ..., width]."""
        is_pool = "pool" in self.name
        if self.name == "avg_pool_3x3":
            images = average_pool(images, 3, stride=self.stride)
        elif is_pool:
            window = (2, 2) if self.name == "max_pool_2x2" else (3, 3)
            strides = (self.stride, self.stride)
            images = max_pool(images, window, strides=strides, execution=self.execution)
        for index in range(1, self.num_convs + 1):
            conv, norm = self.convs[f"conv_{index}"], self.norms[f"norm_{index}"]
            images = norm(conv(images if is_pool else jax.nn.relu(images)), train=train)
        return images


class Projection(nnx.Module):
    """A 1x1 convolution and BatchNorm."""

    def __init__(self, in_width: int, width: int, layers: Layers):
        self.conv, self.norm = layers.conv(in_width, width), layers.norm(width)

    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        return self.norm(self.conv(images), train=train)


class FactorizedReduction(nnx.Module):
    """Halve height and width by two 1x1 convolutions, of the even and of the odd pixels."""

    def __init__(self, in_width: int, width: int, layers: Layers):
        self.even_conv = layers.conv(in_width, width // 2)
        self.odd_conv = layers.conv(in_width, width - width // 2)
        self.norm = layers.norm(width)

    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Map [batch, height, width, in] to [batch, ceil(height / 2), ..., width]."""
        odd = jnp.pad(images, ((0, 0), (0, 1), (0, 1), (0, 0)))[:, 1::2, 1::2]
        halves = [self.even_conv(images[:, ::2, ::2]), self.odd_conv(odd)]
        return self.norm(jnp.concatenate(halves, axis=-1), train=train)


class AuxiliaryHead(nnx.Module):
    """A small classifier of an inner cell's output."""

    def __init__(self, shape: ImageShape, num_classes: int, layers: Layers):
        if min(shape[:2]) < 5:
            raise ValueError(
                f"the auxiliary head pools 5x5 positions, but its cell gives {shape[0]}x"
                f"{shape[1]}; take larger images or has_auxiliary_head=false"
            )
        fraction = layers.config.auxiliary_width_fraction
        inner, outer = int(128 * fraction), int(768 * fraction)
        size = ((shape[0] - 5) // 3 + 1, (shape[1] - 5) // 3 + 1)
        self.conv_1, self.norm_1 = layers.conv(shape[-1], inner), layers.norm(inner)
        self.conv_2, self.norm_2 = layers.conv(inner, outer, size, 1, "VALID"), layers.norm(outer)
        self.classifier = layers.classifier(outer, num_classes, he_normal_fan_out)

    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        hidden = average_pool(jax.nn.relu(images), 5, stride=3, padding="VALID")
        hidden = jax.nn.relu(self.norm_1(self.conv_1(hidden), train=train))
        hidden = jax.nn.relu(self.norm_2(self.conv_2(hidden), train=train))
        return self.classifier(hidden.reshape(len(images), -1))


def drop_path_draws(config: AmoebaNetD, moment: TrainingMoment, num_cells: int) -> jax.Array:
    """Factors of the operations' results, float32 [batch, cells, operations].

    The probability of dropping grows with the steps done.

    Source: `_apply_drop_path` in the authors' `network_utils.py`.
    """
    shape = (num_cells, len(NORMAL_CELL.operations))
    draws = jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, 0), shape))(moment.keys)
    keep = jnp.asarray(1 - (1 - config.drop_path_keep) * moment.progress, jnp.float32)
    return jnp.where(draws < keep, 1 / keep, 0.0)


def _dropout(features: jax.Array, keys: jax.Array, keep: float) -> jax.Array:
    shape = features.shape[1:]
    # Number 1 of each example's key; drop path has number 0.
    draws = jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, 1), shape))(keys)
    return jnp.where(draws < keep, features / keep, 0).astype(features.dtype)
