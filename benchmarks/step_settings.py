"""Steps that both sides of the step benchmark compute: flags, shapes and variants.

    python -m benchmarks.step_settings resnet50

prints the flags of its step, one a line.
"""

import dataclasses
import sys

from benchmarks import pytorch_settings


@dataclasses.dataclass(frozen=True)
class Text:
    """Shape of synthetic packed text.

    Attributes:
      source_length: Tokens of a row's source.
      vocabulary: Number of tokens.
      sentence: Tokens of a sentence; a row is packed with as many as fit.
    """

    source_length: int
    target_length: int
    vocabulary: int
    sentence: int


@dataclasses.dataclass(frozen=True)
class Flagship:
    """One flagship's train step on synthetic data.

    Attributes:
      flags: Of `dawnjax train`: the experiment, with schedules and augmentation off, so that a few
        steps show whether two programs compute the same.
      tiny_flags: Smaller sizes, to try the benchmark itself; so `tiny_batch` and `tiny_text`.
      unit: Unit of throughput.
      limit_per_second: Bound by one H100's arithmetic, and its source.
      goal: In words, for the table.
      pytorch: Whether there is a PyTorch side.
      variants: Names of `VARIANTS` to run, most promising first.
      check_flags: More flags of the check's own program, where the timed one draws random numbers;
        empty where the timed program itself is checked.
      text: Shape of a translator's rows; None for images.
      steps_per_call: Steps of one call of our program, as a run chooses on a CPU.
      cpu_ways: PyTorch's ways to try on a CPU.
    """

    flags: tuple[str, ...]
    batch: int
    tiny_flags: tuple[str, ...]
    tiny_batch: int
    unit: str
    limit_per_second: float | None
    goal: str
    pytorch: bool
    variants: tuple[str, ...]
    check_flags: tuple[str, ...] = ()
    text: Text | None = None
    tiny_text: Text | None = None
    steps_per_call: int = 1
    cpu_ways: tuple[str, ...] = pytorch_settings.CPU


@dataclasses.dataclass(frozen=True)
class Variant:
    """One way to compute the same step.

    Attributes:
      xla_flags: Added to XLA_FLAGS; a flag that this XLA does not know ends the variant alone.
      keeps_memory: Whether glibc keeps freed memory.
    """

    xla_flags: str = ""
    keeps_memory: bool = False


_IMAGES = (
    "--data=synthetic",
    "--data.image_height=224",
    "--data.image_width=224",
    "--data.image_channels=3",
    "--data.num_classes=1000",
    "--task.augmentation.crop_pixels=0",
    "--task.augmentation.flip=none",
    "--schedule=constant",
    "--num_epochs=1000",
)
_TINY_IMAGES = ("--data.image_height=32", "--data.image_width=32", "--data.num_classes=10")
_TINY_WIDTHS = (
    "--model.num_layers=1",
    "--model.width=32",
    "--model.hidden_width=64",
    "--model.num_heads=2",
)
_TINY_TRANSFORMER = (*_TINY_WIDTHS, "--compute_dtype=float32")
_TINY_TEXT = Text(source_length=16, target_length=16, vocabulary=64, sentence=8)

_MULTI30K = Flagship(
    flags=(
        "--experiment=multi30k_transformer",
        "--schedule=constant",
        "--optimizer.base_learning_rate=1e-3",
        "--ema_decay=0",
        "--evaluation.weights=raw",
    ),
    batch=16,
    tiny_flags=_TINY_WIDTHS,
    tiny_batch=4,
    unit="tokens",
    limit_per_second=None,
    goal="",
    pytorch=True,
    variants=("base", "memory_kept"),
    check_flags=("--model.dropout_rate=0",),
    text=Text(source_length=62, target_length=64, vocabulary=8_000, sentence=15),
    tiny_text=_TINY_TEXT,
)

_GPT2_SMALL = Flagship(
    flags=(
        "--experiment=fineweb_gpt2_small",
        "--data=synthetic_tokens",
        "--data.vocabulary=gpt2",
        "--data.sequence_length=1024",
        "--data.num_train_tokens=65536",
        "--model.value_embeddings=0",
        "--model.masks_documents=false",
        "--task.window=0",
        "--stages.boundary_epochs=",
        "--schedule=constant",
        "--num_epochs=1000",
        "--accumulation_steps=1",
    ),
    batch=32,
    tiny_flags=(
        "--data.vocabulary=bytes",
        "--task.target_vocabulary=bytes",
        "--data.sequence_length=32",
        "--model.num_layers=2",
        "--model.width=32",
        "--model.num_heads=2",
        "--compute_dtype=float32",
    ),
    tiny_batch=4,
    unit="tokens",
    limit_per_second=None,
    goal="as fast as PyTorch with flash attention and batched Muon",
    pytorch=True,
    variants=("base", "no_triton_gemm", "cublaslt"),
)

_SMALL_IMAGES = (
    "--data=synthetic",
    "--data.image_height=32",
    "--data.image_width=32",
    "--data.image_channels=3",
    "--data.num_classes=10",
    "--schedule=constant",
    "--num_epochs=1000",
)
_ON_A_CPU = (
    "--compute_dtype=float32",
    "--task.augmentation.max_translation_pixels=0",
    "--task.augmentation.flip=none",
)

_RECORD_NET = Flagship(
    flags=("--experiment=cifar10_record", *_SMALL_IMAGES),
    batch=2000,
    tiny_flags=(
        "--data.image_height=16",
        "--data.image_width=16",
        "--model.group_widths=16,32,32",
        "--compute_dtype=float32",
    ),
    tiny_batch=8,
    unit="images",
    limit_per_second=None,
    goal="a run of 200 steps and one evaluation in 0.5 s, half the best peer's",
    pytorch=False,
    variants=("base",),
)
"""An epoch is one step, so from the fourth step on the whitening's bias has no gradient, as in five
of a run's eight epochs."""

_DIGITS = Flagship(
    flags=(
        "--experiment=digits",
        *_SMALL_IMAGES,
        *_ON_A_CPU,
        "--data.image_height=8",
        "--data.image_width=8",
        "--data.image_channels=1",
        "--task.augmentation.max_scale_fraction=0",
        "--optimizer.base_learning_rate=0.05",
    ),
    batch=64,
    tiny_flags=(),
    tiny_batch=16,
    unit="images",
    limit_per_second=None,
    goal="on a CPU, 1.5 times PyTorch's",
    pytorch=True,
    variants=("base", "memory_kept"),
    steps_per_call=32,
    cpu_ways=pytorch_settings.CPU_SMALL,
)

FLAGSHIPS = {
    "gpt2_small": _GPT2_SMALL,
    "record_net": _RECORD_NET,
    "record_net_float32": dataclasses.replace(
        _RECORD_NET,
        flags=(
            *(*_RECORD_NET.flags, *_ON_A_CPU),
            *("--optimizer=sgd", "--optimizer.base_learning_rate=0.5"),
        ),
        goal="on a CPU, 0.9 times PyTorch's",
        pytorch=True,
        variants=("base", "memory_kept"),
        cpu_ways=pytorch_settings.CPU_IMAGES,
    ),
    "digits": _DIGITS,
    "cifar10_resnet18": dataclasses.replace(
        _DIGITS,
        flags=(
            *("--experiment=cifar10_resnet18", *_SMALL_IMAGES, *_ON_A_CPU),
            *("--optimizer.reference_batch_size=0", "--optimizer.base_learning_rate=0.02"),
        ),
        batch=128,
        tiny_flags=("--model.stage_sizes=1,1", "--model.stage_widths=16,32"),
        goal="on a CPU, 0.9 times PyTorch's",
        steps_per_call=1,
        cpu_ways=pytorch_settings.CPU_IMAGES,
    ),
    "resnet50": Flagship(
        flags=(
            "--experiment=imagenet_resnet50",
            *_IMAGES,
            "--optimizer.reference_batch_size=0",
            "--optimizer.base_learning_rate=0.1",
        ),
        batch=256,
        tiny_flags=(
            *_TINY_IMAGES,
            "--model.stage_sizes=1,1",
            "--model.stage_widths=16,32",
            "--compute_dtype=float32",
        ),
        tiny_batch=8,
        unit="images",
        limit_per_second=17_500,  # with BatchNorm fused into the convolutions
        goal="12,000 images/s, and twice PyTorch's; the best published on an H200 is 7,981",
        pytorch=True,
        variants=("base",),
    ),
    "amoebanet_d": Flagship(
        flags=(
            "--experiment=imagenet_amoebanet_d",
            *_IMAGES,
            "--optimizer.reference_batch_size=0",
            "--optimizer.base_learning_rate=0.01",
        ),
        batch=128,
        tiny_flags=(
            "--data.image_height=136",
            "--data.image_width=136",
            "--data.num_classes=10",
            "--model.num_cells=3",
            "--model.num_filters=16",
            "--model.stem_width=8",
            "--compute_dtype=float32",
        ),
        tiny_batch=4,
        unit="images",
        limit_per_second=7_800,
        goal="0.9 of the limit of 7,800 images/s",
        pytorch=False,
        variants=("base",),
    ),
    "transformer_big": Flagship(
        flags=(
            "--experiment=wmt_transformer_big",
            "--schedule=constant",
            "--optimizer.base_learning_rate=3e-4",
        ),
        batch=96,
        tiny_flags=_TINY_TRANSFORMER,
        tiny_batch=4,
        unit="tokens",
        limit_per_second=None,
        goal="55 % MFU, and 1.3 times PyTorch's with SDPA",
        pytorch=True,
        variants=("base", "cublaslt"),
        check_flags=("--model.dropout_rate=0", "--model.num_layers=1"),
        text=Text(source_length=256, target_length=256, vocabulary=32_768, sentence=30),
        tiny_text=_TINY_TEXT,
    ),
    "multi30k_transformer": dataclasses.replace(
        _MULTI30K,
        flags=(*_MULTI30K.flags, "--compute_dtype=float32"),
        goal="on a CPU, 1.4 times PyTorch's in float32",
    ),
    "multi30k_transformer_bfloat16": dataclasses.replace(
        _MULTI30K,
        flags=(*_MULTI30K.flags, "--compute_dtype=bfloat16"),
        goal="on a CPU, as fast as PyTorch under autocast",
    ),
}

VARIANTS = {
    "base": Variant(),
    "memory_kept": Variant(keeps_memory=True),
    "no_triton_gemm": Variant(xla_flags="--xla_gpu_enable_triton_gemm=false"),
    "cublaslt": Variant(xla_flags="--xla_gpu_enable_cublaslt=true"),
}

CHECK_STEPS = 6
"""Steps on one batch, from the same parameters, whose losses both sides must share."""

CHECK_TOLERANCE = {"bfloat16": 0.02, "float32": 0.002}
"""Of the losses. Sums are rounded in other places; the losses themselves move several times this
far over the check's steps, which the check asks for too."""


def flags_of(model: str, is_tiny: bool, batch: int = 0) -> list[str]:
    """Flags of `dawnjax` for a flagship's step on made-up data; its own batch if `batch` is 0."""
    flagship = FLAGSHIPS[model]
    batch = batch or (flagship.tiny_batch if is_tiny else flagship.batch)
    sizes = [f"--global_batch_size={batch}"]
    if "--data=synthetic" in flagship.flags:
        sizes += [f"--batch_norm_group_size={batch}", f"--data.num_train_examples={batch}"]
    return [*flagship.flags, *(flagship.tiny_flags if is_tiny else ()), *sizes]


if __name__ == "__main__":
    print(*flags_of(sys.argv[1], "--tiny" in sys.argv), sep="\n")
