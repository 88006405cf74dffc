"""A training step of convolution networks on CPU against PyTorch: ms a step in alternation.

    python -m benchmarks convolution_steps --network=record --batch_size=2000 --rounds=5
    python -m benchmarks convolution_steps --network=resnet18 --batch_size=128
    python -m benchmarks convolution_steps --network=digits --rounds=20

A step is the mean cross-entropy of a batch, its gradients, the running statistics of BatchNorm and
a plain SGD update of all parameters but fixed ones, in float32. It has no augmentation and no
optimizer state, which are the same few operations on both sides. Statistics of BatchNorm are those
of the whole batch. Both sides start from the same parameters and see the same images; the check
compares the losses of three such steps. DawnJAX makes as many steps in a call of its program as a
run of the experiment does on a CPU.

Each side is tried in every way that an expert would (`pytorch_settings`; ours with and without
`--keep_freed_memory`), and the fastest of each are compared. Each way is a process, and one
computes at a time.
"""

import argparse
import contextlib
import dataclasses
import functools
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import harness, pytorch_settings
from dawnjax.experiments import cifar10_record, cifar10_resnet18, digits
from dawnjax.machine import compilation, host_memory
from dawnjax.models.execution import Execution
from dawnjax.models.pure_model import pure_model
from dawnjax.programs import LONGEST_CALL_STEPS, compile_program, options_for_size

try:
    import torch  # pyright: ignore[reportMissingImports]
    import torch.nn.functional as F  # pyright: ignore[reportMissingImports]
    from torch import nn  # pyright: ignore[reportMissingImports]
except ImportError:
    sys.exit("convolution_steps: PyTorch is not installed: pip install torch")

EXPERIMENTS = {
    "record": cifar10_record.EXPERIMENT,
    "resnet18": cifar10_resnet18.EXPERIMENT,
    "digits": digits.EXPERIMENT,
}
IMAGE_SHAPES = {"record": (32, 32, 3), "resnet18": (32, 32, 3), "digits": (8, 8, 1)}
NUM_CLASSES = 10
"""All of the data that a network must know; the images of the steps are drawn."""

LEARNING_RATE = {"record": 5.0, "resnet18": 0.02, "digits": 0.1}
"""Large enough that the losses of three steps move; the record's logits are divided by 256."""

STEPS_PER_CALL = {"record": 1, "resnet18": 1, "digits": LONGEST_CALL_STEPS}
"""What a run chooses for itself on a CPU, where a step of `digits` takes milliseconds."""

MEMORY_KEPT = "memory kept"
OUR_WAYS = ("by default", MEMORY_KEPT)
"""Ways to run our side: as a run does unless it is told otherwise, and with
`--keep_freed_memory`."""

PASSED_ON = ("network", "batch_size", "calls")
"""Options that a side's process has from this one."""

CHECK_STEPS = 3
TOLERANCE = 1e-3
"""Of the losses of that many float32 steps, whose sums run in other orders."""


class RecordNet(nn.Module):
    """The network of the CIFAR-10 record; names are those of DawnJAX's parameters."""

    def __init__(self, config: Any, image_shape: tuple[int, ...], num_classes: int):
        super().__init__()
        self.whitening = nn.Conv2d(image_shape[2], 8 * image_shape[2], 2)
        self.whitening.weight.requires_grad = False
        groups, width = {}, 8 * image_shape[2]
        for index, out_width in enumerate(config.group_widths, start=1):
            groups[f"group_{index}"] = RecordGroup(config, width, out_width)
            width = out_width
        self.groups = nn.ModuleDict(groups)
        self.classifier = nn.Linear(width, num_classes, bias=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = F.gelu(self.whitening(images))
        for group in self.groups.values():
            hidden = group(hidden)
        features = F.max_pool2d(hidden, hidden.shape[2]).flatten(1)
        return self.classifier(features) / features.shape[1]


class RecordGroup(nn.Module):
    """Convolution, pooling, BatchNorm, GELU; then the same without pooling."""

    def __init__(self, config: Any, in_width: int, width: int):
        super().__init__()
        self.conv_1 = nn.Conv2d(in_width, width, 3, padding=1, bias=False)
        self.conv_2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm_1 = nn.BatchNorm2d(width, eps=config.batch_norm_epsilon)
        self.norm_2 = nn.BatchNorm2d(width, eps=config.batch_norm_epsilon)
        self.norm_1.weight.requires_grad = self.norm_2.weight.requires_grad = False

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = F.gelu(self.norm_1(F.max_pool2d(self.conv_1(images), 2)))
        return F.gelu(self.norm_2(self.conv_2(hidden)))


class ResNet(nn.Module):
    """A residual network of basic blocks; names are those of DawnJAX's parameters."""

    def __init__(self, config: Any, image_shape: tuple[int, ...], num_classes: int):
        super().__init__()
        width = config.stage_widths[0]
        self.stem = nn.Conv2d(image_shape[2], width, 3, 1, 1, bias=False)
        self.stem_norm = nn.BatchNorm2d(width, eps=config.batch_norm_epsilon)
        blocks = {}
        for stage, (size, out) in enumerate(
            zip(config.stage_sizes, config.stage_widths, strict=True), start=1
        ):
            for block in range(1, size + 1):
                stride = 2 if stage > 1 and block == 1 else 1
                blocks[f"stage_{stage}_block_{block}"] = Block(config, width, out, stride)
                width = out
        self.blocks = nn.ModuleDict(blocks)
        self.classifier = nn.Linear(width, num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = F.relu(self.stem_norm(self.stem(images)))
        for block in self.blocks.values():
            hidden = block(hidden)
        return self.classifier(hidden.mean((2, 3)))


class Block(nn.Module):
    """A basic residual block."""

    def __init__(self, config: Any, in_width: int, width: int, stride: int):
        super().__init__()
        self.conv_1 = nn.Conv2d(in_width, width, 3, stride, 1, bias=False)
        self.norm_1 = nn.BatchNorm2d(width, eps=config.batch_norm_epsilon)
        self.conv_2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm_2 = nn.BatchNorm2d(width, eps=config.batch_norm_epsilon)
        self.projection = None
        if stride > 1 or in_width != width:
            self.projection = nn.Conv2d(in_width, width, 1, stride, bias=False)
            self.projection_norm = nn.BatchNorm2d(width, eps=config.batch_norm_epsilon)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = self.norm_2(self.conv_2(F.relu(self.norm_1(self.conv_1(images)))))
        if self.projection is not None:
            images = self.projection_norm(self.projection(images))
        return F.relu(hidden + images)


@dataclasses.dataclass(frozen=True)
class Task:
    """What both sides compute on.

    Attributes:
      images: float32 [batch, height, width, channels].
      labels: int32 [batch].
      params: Our parameters at the start.
      rate: SGD's.
    """

    images: np.ndarray
    labels: np.ndarray
    params: Any
    rate: float


def made_batch(network: str, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Makes images float32 [batch, height, width, channels] and labels int32 [batch]."""
    random = np.random.default_rng(0)
    images = random.standard_normal((batch_size, *IMAGE_SHAPES[network])).astype(np.float32)
    return images, random.integers(NUM_CLASSES, size=batch_size).astype(np.int32)


def our_side(network: str, batch_size: int) -> tuple[Task, Callable[[], list[float]]]:
    """Returns the task, and a function that makes a call's steps and returns their losses."""
    image_shape = IMAGE_SHAPES[network]
    build: Any = EXPERIMENTS[network].model.build
    execution = Execution(platform="cpu", compute_dtype="float32", batch_norm_group_size=batch_size)
    model = pure_model(
        lambda rngs: build(
            image_shape=image_shape,
            num_classes=NUM_CLASSES,
            execution=execution,
            rngs=rngs,
        )
    )
    rate = LEARNING_RATE[network]
    images, labels = made_batch(network, batch_size)
    params, stats = jax.jit(model.init)(jax.random.key(0))

    def step(state: Any, batch: tuple[jax.Array, jax.Array]) -> tuple[Any, jax.Array]:
        params, stats = state
        images, labels = batch

        def loss_of(params: Any) -> tuple[jax.Array, Any]:
            logits, seen = model.apply(params, stats, images, train=True)
            chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)
            return -chosen.mean(), seen

        (loss, seen), gradients = jax.value_and_grad(loss_of, has_aux=True)(params)
        params = jax.tree.map(lambda p, g: p - rate * g, params, gradients)
        # The one group of statistics is the whole batch.
        stats = jax.tree.map(lambda groups: groups[0], seen)
        return (params, stats), loss

    steps = STEPS_PER_CALL[network]
    # A batch for each step: what does not depend on the step would be computed once a call.
    batches = tuple(jnp.stack([array] * steps) for array in (images, labels))

    def call(state: Any, batches: tuple[jax.Array, jax.Array]) -> tuple[Any, jax.Array]:
        if steps == 1:
            state, loss = step(state, jax.tree.map(lambda array: array[0], batches))
            return state, loss[None]
        return jax.lax.scan(step, state, batches)

    task = Task(images, labels, jax.tree.map(np.array, params), rate)
    state = params, stats
    options = options_for_size(images.size, "cpu")
    compiled = compile_program("call", call, (state, batches), None, (0,), lambda *_: None, options)

    def one_call() -> list[float]:
        nonlocal state
        state, losses = compiled(state, batches)
        jax.block_until_ready(state)
        return np.asarray(losses).tolist()

    return task, one_call


def pytorch_side(
    network: nn.Module, task: Task, settings: pytorch_settings.Settings
) -> Callable[[], float]:
    """Returns a function that makes one step and returns its loss."""
    layout = torch.channels_last if settings.is_channels_last else torch.contiguous_format
    load_parameters(network, task.params)
    moved: Any = network.to(memory_format=layout)  # pyright: ignore[reportCallIssue]
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=task.rate, fused=True)
    images = torch.from_numpy(task.images).permute(0, 3, 1, 2).contiguous(memory_format=layout)
    labels = torch.from_numpy(task.labels.astype(np.int64))

    def loss_of(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(moved(images), labels)

    forward = torch.compile(loss_of, mode=settings.mode) if settings.mode else loss_of

    def one_step() -> float:
        loss = forward(images, labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.item()

    return one_step


def load_parameters(network: nn.Module, params: dict[str, np.ndarray]) -> None:
    """Copies our parameters, by path, into a network whose parts have the same names.

    Raises:
      KeyError: A parameter has no place, or a trained one of the network no parameter.
    """
    parameters_by_name = dict(network.named_parameters())
    missing = {name for name, parameter in parameters_by_name.items() if parameter.requires_grad}
    for path, value in params.items():
        part, _, last = path.rpartition(".")
        name = f"{part}.{'bias' if last == 'bias' else 'weight'}"
        order = {4: (3, 2, 0, 1), 2: (1, 0), 1: (0,)}[value.ndim]
        with torch.no_grad():
            parameters_by_name[name].copy_(torch.from_numpy(value.transpose(order).copy()))
        missing.discard(name)
    if missing:
        raise KeyError(f"no parameters for {sorted(missing)}")


def serve_side(arguments: argparse.Namespace) -> int:
    """Is one side's process: says the losses of its first steps, then times a round when asked."""
    parameters = Path(arguments.folder) / "params.npz"
    batch_size = arguments.batch_size
    if arguments.side in OUR_WAYS:
        if arguments.side == MEMORY_KEPT:
            host_memory.keep_freed()
        compilation.configure("none")
        task, one_call = our_side(arguments.network, batch_size)
        leaves = jax.tree_util.tree_leaves_with_path(task.params)
        named = {jax.tree_util.keystr(k, simple=True, separator="."): v for k, v in leaves}
        np.savez(parameters, **named)
    else:
        images, labels = made_batch(arguments.network, batch_size)
        with np.load(parameters) as arrays:
            params = {name: arrays[name] for name in arrays.files}
        task = Task(images, labels, params, LEARNING_RATE[arguments.network])
        model: Any = EXPERIMENTS[arguments.network].model
        network_class = RecordNet if arguments.network == "record" else ResNet
        network = network_class(model, IMAGE_SHAPES[arguments.network], NUM_CLASSES)
        one_step = pytorch_side(network, task, pytorch_settings.SETTINGS[arguments.side])

        def one_call() -> list[float]:
            return [one_step() for _ in range(STEPS_PER_CALL[arguments.network])]

    def one_round() -> dict[str, Any]:
        started = time.perf_counter()
        steps = sum(len(one_call()) for _ in range(arguments.calls))
        return {"milliseconds": 1e3 * (time.perf_counter() - started) / steps}

    losses: list[float] = []
    while len(losses) < CHECK_STEPS:
        losses += one_call()
    losses = losses[:CHECK_STEPS]
    harness.serve({"losses": losses, "threads": torch.get_num_threads()}, one_round)
    return 0


def main() -> int:
    """Checks, measures, prints a table and writes `results/convolution_steps_NETWORK.json`."""
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--network", choices=sorted(EXPERIMENTS), default="record")
    parser.add_argument("--batch_size", type=int, default=0, help="0 takes the experiment's")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=1, help="in a round")
    parser.add_argument("--limit", type=float, default=600, help="seconds for a side to be ready")
    parser.add_argument("--side", default="", help=argparse.SUPPRESS)
    parser.add_argument("--folder", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    experiment: Any = EXPERIMENTS[arguments.network]
    arguments.batch_size = arguments.batch_size or experiment.global_batch_size
    if arguments.side:
        return serve_side(arguments)
    is_small = arguments.network == "digits"
    pytorchs_ways = pytorch_settings.CPU_SMALL if is_small else pytorch_settings.CPU_IMAGES
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())

        def start(name: str) -> harness.Worker:
            settings = pytorch_settings.SETTINGS.get(name)
            return harness.Worker(
                [sys.executable, "-m", "benchmarks.convolution_steps"]
                + [f"--{option}={getattr(arguments, option)}" for option in PASSED_ON]
                + [f"--side={name}", f"--folder={folder}"],
                limit_seconds=arguments.limit,
                environment=settings.environment() if settings else {},
            )

        def side(names: Sequence[str]) -> tuple[harness.Worker, dict[str, Any]]:
            starts = {name: functools.partial(start, name) for name in names}
            name, worker, tried = harness.fastest(starts, lambda answer: answer["milliseconds"])
            return stack.enter_context(worker), {"fastest": name, **worker.ready, "tried": tried}

        results = harness.Results(
            f"convolution_steps_{arguments.network}",
            network=arguments.network,
            batch_size=arguments.batch_size,
            steps_a_call=STEPS_PER_CALL[arguments.network],
            calls_a_round=arguments.calls,
        )
        ours, our_facts = side(OUR_WAYS)
        results.add(dawnjax=our_facts)
        theirs, their_facts = side(pytorchs_ways)
        results.add(pytorch=their_facts)
        check = harness.same_losses(ours.ready["losses"], theirs.ready["losses"], TOLERANCE)
        results.add(same_work=check)
        comparison = harness.alternate(
            lambda: ours.round()["milliseconds"],
            lambda: theirs.round()["milliseconds"],
            arguments.rounds,
            unit="ms a step",
        )
    results.add(float32=comparison.to_json())
    head = harness.head(f"DawnJAX, {our_facts['fastest']}", f"PyTorch, {their_facts['fastest']}")
    print(harness.table([head, comparison.row("float32", digits=1)]))
    print(results.path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
