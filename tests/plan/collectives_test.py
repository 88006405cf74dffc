"""Collectives that the compilers for TPU and GPU make of the rules, counted in whole programs.

A network of two layers of `c4_llama31_8b` on 64 devices, of which 16 share the weights and 4 a
layer: its compiled step communicates what `sharding.RULES` imply, byte for byte but for scalars.
"""

import pytest

from dawnjax.errors import RunError
from dawnjax.plan.compiling import compiled, compilers
from dawnjax.plan.hardware.systems import parse_system

FSDP, MODEL, LAYERS = 16, 4, 2
ROWS, LENGTH, CHUNK, WIDTH, QUERIES, KEYS, MIDDLE = 64, 128, 32, 256, 512, 256, 512
VOCABULARY = 128_256

FLAGS = (
    *("--experiment=c4_llama31_8b", f"--mesh.fsdp={FSDP}", f"--mesh.model={MODEL}"),
    *(f"--data.sequence_length={LENGTH}", "--data.max_eval_tokens=8192"),
    *(f"--global_batch_size={ROWS}", f"--model.num_layers={LAYERS}", f"--model.width={WIDTH}"),
    *("--model.num_heads=8", "--model.num_kv_heads=4", "--model.head_width=64"),
    *(f"--model.mlp_width={MIDDLE}", f"--model.loss_chunk={CHUNK}"),
)

TEXT = ROWS // FSDP * LENGTH * WIDTH * 2
"""Bytes of a device's rows in bfloat16, whole in text."""

LAYER = 2 * WIDTH * (QUERIES + KEYS) + 3 * WIDTH * MIDDLE
"""Elements of a layer's matrices."""

SMALL = TEXT // 4
"""Token numbers, scalars and sums of each token's loss: more than they all have."""


@pytest.mark.processes
@pytest.mark.parametrize("system", ["v5p:4x4x4", "h100:64"])
def test_a_step_on_64_devices_has_the_collectives_of_the_rules(system):
    described = parse_system(system)
    try:
        compilers.environment(described.accelerator.device.platform)
    except RunError as error:
        pytest.skip(str(error))
    answer = compiled.answer_of_compiler({"argv": FLAGS}, described)
    axes = {(MODEL, 1): "model", (FSDP, MODEL): "fsdp", (FSDP * MODEL, 1): "all"}
    found: dict[tuple[str, str], float] = {}
    for kind, size, num_bytes, _, stride in answer["stages"][0]["train"]["exchanges"]:
        # A sum is scattered or not, as the compiler likes.
        sums = kind in ("all-reduce", "reduce-scatter")
        key = (axes.get((size, stride), "other"), "sums" if sums else kind)
        found[key] = found.get(key, 0) + num_bytes

    def holds(axis: str, kind: str, num_bytes: float) -> None:
        extra = found.pop((axis, kind), 0) - num_bytes
        assert 0 <= extra <= SMALL, f"{kind} over {axis}: {num_bytes} and {extra} bytes more"

    # Each half of a layer gathers the text forward, again for the backward pass, and its gradient
    # there; so do the output layer forward and the embedding backward.
    holds("model", "all-gather", (6 * LAYERS + 2) * TEXT)
    # Each half sums its products forward and backward, and its attention once more for the backward
    # pass. So do the embedding, forward, and the chunks of the loss, backward.
    embedding = found.pop(("all", "sums"), 0)
    on_model = TEXT if embedding < TEXT else 0  # or by a scatter over all devices
    assert 0 <= embedding - (TEXT - on_model) <= SMALL
    holds("model", "sums", 5 * LAYERS * TEXT + on_model + TEXT)
    # Weights cross devices in bfloat16 forward and backward, each of the two tables once.
    weights, tables = LAYERS * LAYER // MODEL, VOCABULARY * WIDTH // MODEL
    holds("fsdp", "all-gather", 2 * 2 * weights + 2 * 2 * tables)
    # Gradients are summed in float32, that of the output table once for all chunks.
    holds("fsdp", "sums", 4 * weights + 4 * tables)
    # Of the embedding's gradient each device takes all rows' part of its columns.
    holds("fsdp", "all-to-all", TEXT)
    assert sum(found.values()) <= SMALL, found
