"""Steps that both sides of the step benchmark compute: flags and shapes."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Text:
    """Shape of synthetic packed text.

    Attributes:
      length: Tokens of a row, in the source and in the target.
      vocabulary: Number of tokens.
      sentence: Tokens of a sentence; a row is packed with as many as fit.
    """

    length: int
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
      pytorch: Whether there is a PyTorch side.
      check_flags: More flags of the check's own program, where the timed one draws random numbers;
        empty where the timed program itself is checked.
      text: Shape of a translator's rows; None for the others.
    """

    flags: tuple[str, ...]
    batch: int
    tiny_flags: tuple[str, ...]
    tiny_batch: int
    unit: str
    pytorch: bool = True
    check_flags: tuple[str, ...] = ()
    text: Text | None = None
    tiny_text: Text | None = None

    def sized_flags(self, is_tiny: bool) -> list[str]:
        """All flags of the step, at its own batch or the tiny one."""
        batch = self.tiny_batch if is_tiny else self.batch
        sizes = [f"--global_batch_size={batch}"]
        if "--data=synthetic" in self.flags:
            sizes += [f"--batch_norm_group_size={batch}", f"--data.num_train_examples={batch}"]
        return [*self.flags, *(self.tiny_flags if is_tiny else ()), *sizes]


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
    "--optimizer.reference_batch_size=0",
)

FLAGSHIPS = {
    "resnet50": Flagship(
        flags=(
            "--experiment=imagenet_resnet50",
            *_IMAGES,
            "--optimizer.base_learning_rate=0.1",
        ),
        batch=256,
        tiny_flags=(
            "--data.image_height=32",
            "--data.image_width=32",
            "--data.num_classes=10",
            "--model.stage_sizes=1,1",
            "--model.stage_widths=16,32",
            "--compute_dtype=float32",
        ),
        tiny_batch=8,
        unit="images",
    ),
    "amoebanet_d": Flagship(
        flags=(
            "--experiment=imagenet_amoebanet_d",
            *_IMAGES,
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
        pytorch=False,
    ),
    # An epoch is one step, so from the fourth step on the whitening's bias has no gradient, as in
    # five of a run's eight epochs.
    "record_net": Flagship(
        flags=(
            "--experiment=cifar10_record",
            "--data=synthetic",
            "--data.image_height=32",
            "--data.image_width=32",
            "--data.image_channels=3",
            "--data.num_classes=10",
            "--schedule=constant",
            "--num_epochs=1000",
        ),
        batch=2000,
        tiny_flags=(
            "--data.image_height=16",
            "--data.image_width=16",
            "--model.group_widths=16,32,32",
            "--compute_dtype=float32",
        ),
        tiny_batch=8,
        unit="images",
        pytorch=False,
    ),
    "transformer_big": Flagship(
        flags=(
            "--experiment=wmt_transformer_big",
            "--schedule=constant",
            "--optimizer.base_learning_rate=3e-4",
        ),
        batch=96,
        tiny_flags=(
            "--model.num_layers=1",
            "--model.width=32",
            "--model.hidden_width=64",
            "--model.num_heads=2",
            "--compute_dtype=float32",
        ),
        tiny_batch=4,
        unit="tokens",
        check_flags=("--model.dropout_rate=0", "--model.num_layers=1"),
        text=Text(length=256, vocabulary=32_768, sentence=30),
        tiny_text=Text(length=16, vocabulary=64, sentence=8),
    ),
    "gpt2_small": Flagship(
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
    ),
}

CHECK_STEPS = 6
"""Steps on one batch, from the same parameters, whose losses both sides must share."""

CHECK_TOLERANCE = {"bfloat16": 0.02, "float32": 0.002}
"""Of the losses. Sums are rounded in other places; the losses themselves move several times this
far over the check's steps, which the check asks for too."""
