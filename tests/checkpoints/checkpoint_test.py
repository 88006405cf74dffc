"""Tests of the checkpoints: exact round trips, and what is done about damage."""

import errno
import shutil
import threading
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import no_renames
import numpy as np
import orbax.checkpoint as ocp
import pytest
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding
from saved_states import (
    abstract_state,
    assert_exact,
    compilations,
    device_state,
    files_of,
    folders_of,
    log_of,
    mesh_of,
    metadata_of,
    open_checkpoints,
    restore,
    save,
    save_steps,
    truncate,
)

from dawnjax.checkpoints import store
from dawnjax.checkpoints.location import refuse_unwritable
from dawnjax.checkpoints.saved import SavePoint, newest_saved
from dawnjax.errors import CheckpointError, ConfigError


@pytest.fixture(scope="module")
def two_steps(tmp_path_factory):
    """A directory with checkpoints of the steps 10 and 20, not to be changed."""
    directory = tmp_path_factory.mktemp("two_steps")
    save_steps(directory, [10, 20])
    return directory


@pytest.mark.parametrize(("saved_on", "restored_on"), [(4, 2), (4, 1), (1, 4)])
def test_round_trip_is_exact_on_any_number_of_devices(tmp_path, saved_on, restored_on):
    save_steps(tmp_path, [3], num_devices=saved_on)
    restored, warnings = restore(tmp_path, restored_on)
    assert_exact(restored, 3, restored_on)
    assert warnings == []


def test_newest_of_several_and_none_of_none(tmp_path, two_steps):
    assert restore(tmp_path / "absent") == (None, [])
    assert not (tmp_path / "absent").exists()
    assert restore(tmp_path) == (None, [])
    assert newest_saved(str(tmp_path / "absent")) is None
    restored, warnings = restore(two_steps)
    assert_exact(restored, 20, 1)
    assert warnings == []
    assert newest_saved(str(two_steps)) == (metadata_of(20), log_of(20))


def test_a_restore_in_parts_reports_each(two_steps, monkeypatch):
    monkeypatch.setattr(store, "CHUNK_BYTES", 500)
    reports = []
    checkpoints, _ = open_checkpoints(two_steps)
    restored = checkpoints.restore_newest(abstract_state(1), lambda: reports.append(1))
    assert_exact(restored, 20, 1)
    assert len(reports) == 2  # the kernel is larger than a part, and the rest are small
    checkpoints.close()


@pytest.mark.compiles
def test_what_is_donated_or_changed_at_once_is_saved_as_it_was(tmp_path):
    state = device_state(5, 4)
    sharding = jax.tree.map(lambda array: array.sharding, state)

    def overwrite(tree):
        return jax.tree.map(lambda array: jnp.ones_like(array), tree)

    step = jax.jit(overwrite, donate_argnums=0, out_shardings=sharding, keep_unused=True)
    step(device_state(6, 4))  # Compiles, so that the overwriting below is quick.
    checkpoints, warnings = open_checkpoints(tmp_path)
    metadata = metadata_of(5)
    checkpoints.save(SavePoint(5), state, metadata, log_of(5))
    metadata["position"] = -1
    for _ in range(5):
        state = step(state)
    jax.block_until_ready(state)
    checkpoints.close()
    assert warnings == []
    assert_exact(restore(tmp_path, 4)[0], 5, 4)


@pytest.mark.compiles
def test_saving_and_restoring_compile_nothing(tmp_path):
    whole = NamedSharding(mesh_of(4), PartitionSpec())
    state = jax.device_put({"of a shape of its own": np.ones((36, 44), np.float32)}, whole)
    like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=whole), state)
    with compilations() as compiled:
        jax.jit(lambda x: x * 3 + 1)(np.arange(11.0))
        assert compiled, "compilations are seen"
        compiled.clear()
        checkpoints, _ = open_checkpoints(tmp_path)
        checkpoints.save(SavePoint(1), state, metadata_of(1), "")
        assert checkpoints.restore_newest(like) is not None
        checkpoints.close()
        assert compiled == []


def test_a_state_that_is_saved_is_not_saved_again(tmp_path):
    save_steps(tmp_path, [10])
    checkpoints, warnings = open_checkpoints(tmp_path)
    checkpoints.restore_newest(abstract_state(1))
    for step in (10, 11, 11):
        save(checkpoints, step)
    checkpoints.close()
    assert warnings == []
    assert folders_of(tmp_path) == ["save_1", "save_2"]
    assert_exact(restore(tmp_path)[0], 11, 1)


def test_states_between_two_steps_are_in_the_order_of_the_run(tmp_path):
    checkpoints, _ = open_checkpoints(tmp_path, keep=1)
    for point in (SavePoint(2), SavePoint(2, 7), SavePoint(2, 12)):
        checkpoints.save(point, device_state(2, 1), metadata_of(2), "")
    checkpoints.close()
    restored, _ = restore(tmp_path)
    assert_exact(restored, 2, 1)
    assert restored is not None and restored.point == SavePoint(2, 12)


def test_a_save_is_seen_while_it_is_written_and_timed(tmp_path, monkeypatch):
    finish, may_end = ocp.CheckpointManager.wait_until_finished, threading.Event()

    def finish_late(manager):
        if threading.current_thread() is not threading.main_thread():
            may_end.wait(60)
        finish(manager)

    monkeypatch.setattr(ocp.CheckpointManager, "wait_until_finished", finish_late)
    checkpoints, _ = open_checkpoints(tmp_path)
    assert not checkpoints.is_saving
    save(checkpoints, 2)
    assert checkpoints.is_saving
    time.sleep(0.2)
    may_end.set()
    checkpoints.close()
    assert checkpoints.last_save_seconds >= 0.2


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("path", "leaf", "message"),
    [
        ("bias", ((8,), jnp.bfloat16), "params/0/bias is bfloat16[7] in it and bfloat16[8] in"),
        ("bias", ((7,), jnp.float32), "params/0/bias is bfloat16[7] in it and float32[7] in this"),
        ("more", ((2, 3), jnp.float32), "params/0/more is absent in it and float32[2,3] in this"),
        ("bias", None, "params/0/bias is bfloat16[7] in it and absent in this run"),
    ],
)
def test_another_structure_names_the_first_path_that_differs(path, leaf, message, two_steps):
    like = abstract_state(1)
    if leaf is None:
        del like["params"]["0"][path]
    else:
        whole = SingleDeviceSharding(jax.devices()[0])
        like["params"]["0"][path] = jax.ShapeDtypeStruct(*leaf, sharding=whole)
    checkpoints, _ = open_checkpoints(two_steps)
    with pytest.raises(CheckpointError) as caught:
        checkpoints.restore_newest(like)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("damage", [truncate, Path.unlink])
def test_a_damaged_file_costs_at_most_its_checkpoint(tmp_path, two_steps, damage):
    stepped_over = []
    for number, name in enumerate(files_of(two_steps / "save_2")):
        copy = tmp_path / str(number)
        shutil.copytree(two_steps, copy)
        damage(copy / "save_2" / name)
        restored, warnings = restore(copy)
        # Some files are a commitment or a summary, which a restore does without.
        step = 10 if warnings else 20
        assert_exact(restored, step, 1)
        if warnings:
            assert f"{copy}/save_2 cannot be restored: " in warnings[0]
            stepped_over.append(name)
    assert "metadata/metadata.json" in stepped_over
    assert [name for name in stepped_over if name.startswith("state/ocdbt.process_0/d/")]


def test_when_none_can_be_restored_the_run_does_not_start_over_by_itself(tmp_path, two_steps):
    shutil.copytree(two_steps, tmp_path / "damaged")
    for path in (tmp_path / "damaged").rglob("_METADATA"):
        truncate(path)
    with pytest.raises(
        CheckpointError, match="save_2 cannot be restored: .*; restore a copy"
    ) as caught:
        restore(tmp_path / "damaged")
    assert "\n" not in str(caught.value)


def test_what_a_killed_save_left_is_no_checkpoint_and_is_deleted(tmp_path, two_steps):
    copy = tmp_path / "copy"
    shutil.copytree(two_steps, copy)
    (copy / "save_2").rename(copy / "save_2.orbax-checkpoint-tmp")
    assert_exact(restore(copy)[0], 10, 1)
    assert folders_of(copy) == ["save_1", "save_2.orbax-checkpoint-tmp"], "a reader deletes nothing"
    save_steps(copy, [30])
    assert folders_of(copy) == ["save_1", "save_2"]
    assert_exact(restore(copy)[0], 30, 1)


def test_a_damaged_checkpoint_is_replaced_and_pushes_no_whole_one_out(tmp_path, two_steps):
    copy = tmp_path / "damaged"
    shutil.copytree(two_steps, copy)
    truncate(copy / "save_2" / "state" / "_METADATA")
    checkpoints, warnings = open_checkpoints(copy)
    assert_exact(checkpoints.restore_newest(abstract_state(1)), 10, 1)
    save(checkpoints, 20)
    checkpoints.close()
    assert len(warnings) == 1
    restored, warnings = restore(copy)
    assert_exact(restored, 20, 1)
    assert warnings == []
    assert folders_of(copy) == ["save_2", "save_3"]


def test_a_directory_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for directory, reason in (
        (tmp_path / "file", "File exists"),
        (tmp_path / "file" / "below", "Not a directory"),
    ):
        with pytest.raises(ConfigError) as caught:
            refuse_unwritable(str(directory))
        assert f"{directory}: {reason}; choose another --checkpoint.directory" in str(caught.value)
    refuse_unwritable(str(tmp_path / "absent" / "deep"))
    assert folders_of(tmp_path / "absent" / "deep") == []


def test_a_directory_whose_folders_cannot_be_renamed_is_refused(tmp_path, monkeypatch):
    no_renames.mount(monkeypatch, errno.EMFILE, files=False)
    with pytest.raises(ConfigError) as caught:
        refuse_unwritable(str(tmp_path / "saves"))
    assert str(caught.value) == (
        f"checkpoints cannot be written to {tmp_path / 'saves'}: folders there cannot be renamed, "
        "as on a mounted bucket (gs:// needs no mount); choose another --checkpoint.directory"
    )
    assert folders_of(tmp_path / "saves") == []


def test_a_directory_that_is_lost_costs_a_failed_save_no_wait(tmp_path):
    directory, aside = tmp_path / "checkpoints", tmp_path / "aside"
    checkpoints, warnings = open_checkpoints(directory)
    save(checkpoints, 1)
    checkpoints.wait()
    directory.rename(aside)
    directory.touch()
    started = time.monotonic()
    for step in (2, 3, 4):
        save(checkpoints, step)
    assert time.monotonic() - started < 100.0  # Orbax would wait for five minutes
    assert len(warnings) == 3
    assert (
        f"step 2 could not be saved in {directory}: File exists; the run continues" in warnings[0]
    )
    assert checkpoints.shortfall() == (
        "saves failed (3), including the newest state: the newest checkpoint is of step 1"
    )
    directory.unlink()
    aside.rename(directory)
    save(checkpoints, 12)
    assert checkpoints.shortfall() == ""
    checkpoints.close()
    assert len(warnings) == 3
    assert_exact(restore(directory)[0], 12, 1)
