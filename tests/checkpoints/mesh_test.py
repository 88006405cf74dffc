"""A state saved on one mesh is restored on another, bit for bit, and its run continues."""

import jax
import numpy as np
import pytest
from first_steps import build
from task_table import TABLE, cut_off, train, trained_run
from trained import restored_checkpoint, result_of

from dawnjax.checkpoints.saved import SavePoint
from dawnjax.checkpoints.store import Checkpoints
from dawnjax.programs import state_shapes

FLAGS = TABLE["llama"].flags
FSDP_MODEL = ("--mesh.fsdp=2", "--mesh.model=2")
CONTEXT = ("--mesh.fsdp=1", "--mesh.model=1", "--mesh.context=2")


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("saved_on", "restored_on"),
    [
        ((4, *FSDP_MODEL), (4, "--mesh.model=2", "--mesh.context=2")),
        ((4, *FSDP_MODEL), (1,)),
        ((4, "--mesh.fsdp=4"), (4, *FSDP_MODEL)),
    ],
    ids=["context_model", "one_device", "fsdp_model"],
)
def test_a_state_is_the_same_bits_on_another_mesh(saved_on, restored_on, tmp_path):
    random = np.random.default_rng(0)
    recipe, other = (build(count, *FLAGS, *mesh)[0] for count, *mesh in (saved_on, restored_on))

    def drawn(leaf):
        raw = random.bytes(leaf.size * leaf.dtype.itemsize)
        array = np.frombuffer(raw, leaf.dtype).reshape(leaf.shape)
        return jax.make_array_from_callback(leaf.shape, leaf.sharding, lambda index: array[index])

    state = jax.tree.map(drawn, state_shapes(recipe))
    checkpoints = Checkpoints(str(tmp_path / "checkpoints"), keep=1, warn=print)
    checkpoints.save(SavePoint(3), state, {}, "")
    checkpoints.close()
    restored = restored_checkpoint(other, tmp_path)
    wanted = jax.tree.leaves(state_shapes(other))
    split = [leaf for leaf in jax.tree.leaves(state) if not leaf.sharding.is_fully_replicated]
    assert len(split) >= 15  # five parameters or more, and both moments of each
    leaves = zip(jax.tree.leaves(restored.state), jax.tree.leaves(state), wanted, strict=True)
    for found, saved, place in leaves:
        assert np.asarray(found).tobytes() == np.asarray(saved).tobytes()
        assert found.sharding.is_equivalent_to(place.sharding, found.ndim)


@pytest.mark.compiles
def test_a_run_that_resumes_on_another_mesh_ends_as_one_that_stayed(
    tmp_path, tmp_path_factory, compile_cache
):
    row, run_dir = TABLE["llama"], tmp_path / "cut"
    assert row.mesh == FSDP_MODEL
    whole = result_of(trained_run(tmp_path_factory, "llama", compile_cache))
    with cut_off(row):
        assert train("llama", run_dir, compile_cache) == 1
    assert train("llama", run_dir, compile_cache, *CONTEXT) == row.status
    resumed = result_of(run_dir)
    assert resumed["interruptions"] == 1 and resumed["steps"] == row.steps
    # Sums in another order.
    np.testing.assert_allclose(resumed["first_losses"], whole["first_losses"], atol=1e-5)
    last, wanted = resumed["evaluations"][-1], whole["evaluations"][-1]
    assert last["loss"] == pytest.approx(wanted["loss"], abs=2e-5)
