"""Tests of the checkpoints: exact round trips, and what is done about damage."""

import errno
import itertools
import os
import shutil
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint
import pytest
from etils import epath
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding
from saved_states import (
    abstract_state,
    assert_exact,
    compilations,
    delete,
    device_state,
    files_of,
    flip_a_bit,
    folders_of,
    mesh_of,
    metadata_of,
    open_checkpoints,
    restore,
    save_steps,
    truncate,
)

from dawnjax.checkpoints.location import refuse_unwritable
from dawnjax.checkpoints.store import MANIFEST, Checkpoints
from dawnjax.errors import CheckpointError, ConfigError


@pytest.fixture(scope="module")
def two_steps(tmp_path_factory):
    """A directory with the checkpoints 10 and 20, not to be changed."""
    directory = tmp_path_factory.mktemp("two_steps")
    save_steps(directory, [10, 20])
    return directory


# --- Round trips ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("saved_on", "restored_on"), [(1, 1), (4, 4), (4, 2), (4, 1), (1, 4)])
def test_round_trip_is_exact_on_any_number_of_devices(tmp_path, saved_on, restored_on):
    save_steps(tmp_path, [3], num_devices=saved_on)
    restored, warnings = restore(tmp_path, restored_on)
    assert_exact(restored, 3, restored_on)
    assert warnings == []


def test_a_wall_clock_that_is_set_forward_ends_no_save(tmp_path, monkeypatch):
    days, wall_clock = itertools.count(), time.time
    monkeypatch.setattr(time, "time", lambda: wall_clock() + 86400.0 * next(days))
    save_steps(tmp_path, [3, 4])
    restored, warnings = restore(tmp_path)
    assert_exact(restored, 4, 1)
    assert warnings == []


def test_newest_of_several_and_none_of_none(tmp_path, two_steps):
    assert restore(tmp_path / "absent") == (None, [])
    assert not (tmp_path / "absent").exists()
    assert restore(tmp_path) == (None, [])
    restored, warnings = restore(two_steps)
    assert_exact(restored, 20, 1)
    assert warnings == []


@pytest.mark.compiles
def test_a_state_that_is_donated_at_once_is_saved_as_it_was(tmp_path):
    state = device_state(5, 4)
    sharding = jax.tree.map(lambda array: array.sharding, state)

    def overwrite(tree):
        return jax.tree.map(lambda array: jnp.ones_like(array), tree)

    step = jax.jit(overwrite, donate_argnums=0, out_shardings=sharding, keep_unused=True)
    step(device_state(6, 4))  # Compiles, so that the overwriting below is quick.
    checkpoints, warnings = open_checkpoints(tmp_path)
    checkpoints.save(5, state, metadata_of(5))
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
        checkpoints.save(1, state, metadata_of(1))
        assert checkpoints.restore_newest(like) is not None
        checkpoints.close()
        assert compiled == []


def test_a_step_that_is_saved_is_not_saved_again(tmp_path):
    save_steps(tmp_path, [10])
    before = {name: (tmp_path / "10" / name).stat() for name in files_of(tmp_path / "10")}
    checkpoints, warnings = open_checkpoints(tmp_path)
    checkpoints.restore_newest(abstract_state(1))
    checkpoints.save(10, device_state(10, 1), metadata_of(10))
    checkpoints.save(11, device_state(11, 1), metadata_of(11))
    checkpoints.save(11, device_state(11, 1), metadata_of(11))
    checkpoints.close()
    assert warnings == []
    after = {name: (tmp_path / "10" / name).stat() for name in files_of(tmp_path / "10")}
    assert {n: s.st_mtime_ns for n, s in after.items()} == {
        n: s.st_mtime_ns for n, s in before.items()
    }
    assert_exact(restore(tmp_path)[0], 11, 1)


def test_metadata_is_taken_when_save_is_called(tmp_path):
    metadata = metadata_of(1)
    checkpoints, _ = open_checkpoints(tmp_path)
    checkpoints.save(1, device_state(1, 1), metadata)
    metadata["position"] = -1
    checkpoints.close()
    assert_exact(restore(tmp_path)[0], 1, 1)


# --- Wrong use ------------------------------------------------------------------------------------


@pytest.mark.compiles
def test_another_structure_names_the_first_path_that_differs(two_steps):
    whole = SingleDeviceSharding(jax.devices()[0])

    def message(change):
        like = abstract_state(1)
        change(like)
        checkpoints, _ = open_checkpoints(two_steps)
        with pytest.raises(CheckpointError) as caught:
            checkpoints.restore_newest(like)
        checkpoints.close()
        assert "\n" not in str(caught.value)
        return str(caught.value)

    def another_shape(like):
        shape = jax.ShapeDtypeStruct((8,), jnp.bfloat16, sharding=whole)
        like["params"]["0"]["bias"] = shape

    def another_dtype(like):
        like["params"]["0"]["bias"] = jax.ShapeDtypeStruct((7,), jnp.float32, sharding=whole)

    def one_more(like):
        like["params"]["1"] = jax.ShapeDtypeStruct((2, 3), jnp.float32, sharding=whole)

    def one_less(like):
        del like["params"]["norm.scale/x"]

    assert "params/0/bias is bfloat16[7] in it and bfloat16[8] in this run" in message(
        another_shape
    )
    assert "params/0/bias is bfloat16[7] in it and float32[7] in this run" in message(another_dtype)
    assert "params/1 is absent in it and float32[2,3] in this run" in message(one_more)
    assert "params/norm.scale/x is float32[4,4] in it and absent in this run" in message(one_less)


@pytest.mark.compiles
def test_what_cannot_be_saved_is_refused_at_once(tmp_path):
    checkpoints, _ = open_checkpoints(tmp_path)
    with pytest.raises(TypeError, match="a/0 is a ndarray"):
        checkpoints.save(1, {"a": [np.zeros(3)]}, {})
    with pytest.raises(TypeError, match="key is a"):
        checkpoints.save(1, {"key": jax.random.key(0)}, {})
    with pytest.raises(TypeError, match="not JSON serializable"):
        checkpoints.save(1, device_state(1, 1), {"array": np.zeros(3)})
    with pytest.raises(TypeError, match="step: what to restore has no sharding"):
        checkpoints.restore_newest({"step": jax.ShapeDtypeStruct((), jnp.int32)})
    with pytest.raises(ValueError, match="step=-1"):
        checkpoints.save(-1, device_state(1, 1), {})
    with pytest.raises(ValueError, match="keep=0"):
        open_checkpoints(tmp_path, keep=0)
    checkpoints.close()
    assert folders_of(tmp_path) == []


# --- Damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [truncate, flip_a_bit, delete])
def test_any_damaged_file_means_a_warning_and_the_step_before(tmp_path, two_steps, damage):
    files = files_of(two_steps / "20")
    assert MANIFEST in files
    assert len(files) > 8, "Orbax's own metadata, its database and its data"
    for number, name in enumerate(files):
        copy = tmp_path / str(number)
        shutil.copytree(two_steps, copy)
        damage(copy / "20" / name)
        restored, warnings = restore(copy)
        assert_exact(restored, 10, 1)
        assert len(warnings) == 1
        assert f"{copy}/20 is not used: {name} " in warnings[0]


def test_an_added_file_and_a_renamed_step_are_damage(tmp_path, two_steps):
    shutil.copytree(two_steps, tmp_path / "added")
    (tmp_path / "added" / "20" / "d" / "extra").write_bytes(b"{}")
    restored, warnings = restore(tmp_path / "added")
    assert_exact(restored, 10, 1)
    assert "d/extra is not of this checkpoint" in warnings[0]

    shutil.copytree(two_steps, tmp_path / "renamed")
    (tmp_path / "renamed" / "10").rename(tmp_path / "renamed" / "30")
    restored, warnings = restore(tmp_path / "renamed")
    assert_exact(restored, 20, 1)
    assert "is of step 10" in warnings[0]


def test_when_none_verifies_the_run_does_not_start_over_by_itself(tmp_path, two_steps):
    copy = tmp_path / "damaged"
    shutil.copytree(two_steps, copy)
    for step in ("10", "20"):
        truncate(copy / step / "_METADATA")
    with pytest.raises(
        CheckpointError, match="no checkpoint in .* verifies .*_METADATA has"
    ) as caught:
        restore(copy)
    assert "\n" not in str(caught.value)


def test_a_first_save_without_its_manifest_is_no_checkpoint(tmp_path):
    save_steps(tmp_path, [10])
    delete(tmp_path / "10" / MANIFEST)
    restored, warnings = restore(tmp_path)
    assert restored is None
    assert "manifest.json is missing" in warnings[0]
    # The run that starts over replaces it.
    save_steps(tmp_path, [10])
    assert_exact(restore(tmp_path)[0], 10, 1)


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


def test_a_directory_that_is_lost_costs_a_failed_save_no_wait(tmp_path):
    directory, aside = tmp_path / "checkpoints", tmp_path / "aside"
    checkpoints, warnings = open_checkpoints(directory)
    checkpoints.save(1, device_state(1, 1), metadata_of(1))
    checkpoints.wait()
    threads = threading.active_count()
    directory.rename(aside)
    directory.touch()
    started = time.monotonic()
    for step in range(2, 12):
        checkpoints.save(step, device_state(step, 1), metadata_of(step))
    checkpoints.wait()
    assert time.monotonic() - started < 100.0  # Orbax would wait for five minutes
    assert threading.active_count() <= threads, "a thread that waits keeps the program from ending"
    assert len(warnings) == 10
    assert f"{directory}/2 could not be saved: File exists; the run goes on" in warnings[0]
    directory.unlink()
    aside.rename(directory)
    checkpoints.save(12, device_state(12, 1), metadata_of(12))
    checkpoints.close()
    assert len(warnings) == 10
    assert_exact(restore(directory)[0], 12, 1)


def test_what_must_be_on_disk_before_a_checkpoint_is(tmp_path):
    seen = []
    checkpoints = Checkpoints(
        str(tmp_path),
        keep=1,
        warn=lambda _: None,
        before_manifest=lambda: seen.append((tmp_path / "1" / MANIFEST).exists()),
    )
    checkpoints.save(1, device_state(1, 1), metadata_of(1))
    checkpoints.close()
    assert seen == [False]
    assert_exact(restore(tmp_path)[0], 1, 1)


def test_remains_that_cannot_be_deleted_are_not_waited_for(tmp_path, monkeypatch):
    checkpoints, warnings = open_checkpoints(tmp_path)

    remains = epath.Path(tmp_path) / "1.orbax-checkpoint-tmp"

    def fail(*_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    def leave_remains(*_, **__):
        remains.mkdir()
        fail()

    monkeypatch.setattr(orbax.checkpoint.AsyncCheckpointer, "save", leave_remains)
    monkeypatch.setattr(type(remains), "rmtree", fail)
    started = time.monotonic()
    checkpoints.save(1, device_state(1, 1), metadata_of(1))
    checkpoints.wait()
    assert time.monotonic() - started < 100.0
    assert len(warnings) == 1 and "Permission denied" in warnings[0]
    assert remains.exists()
    checkpoints.close()


def test_a_damaged_step_is_replaced_when_the_run_comes_by_again(tmp_path, two_steps):
    copy = tmp_path / "damaged"
    shutil.copytree(two_steps, copy)
    flip_a_bit(copy / "20" / "_METADATA")
    (copy / "30.orbax-checkpoint-tmp" / "d").mkdir(parents=True)
    (copy / "30.orbax-checkpoint-tmp" / "d" / "part").write_bytes(b"part")
    checkpoints, warnings = open_checkpoints(copy)
    assert_exact(checkpoints.restore_newest(abstract_state(1)), 10, 1)
    assert len(warnings) == 1
    checkpoints.save(20, device_state(20, 1), metadata_of(20))
    checkpoints.wait()
    assert folders_of(copy) == ["10", "20"], "what a killed save left is deleted"
    checkpoints.close()
    assert len(warnings) == 1
    restored, warnings = restore(copy)
    assert_exact(restored, 20, 1)
    assert warnings == []


def test_a_checkpoint_that_was_never_looked_at_is_not_overwritten(tmp_path, two_steps):
    copy = tmp_path / "copy"
    shutil.copytree(two_steps, copy)
    checkpoints, warnings = open_checkpoints(copy)
    checkpoints.save(20, device_state(21, 1), metadata_of(21))
    checkpoints.close()
    assert len(warnings) == 1
    assert f"{copy}/20 could not be saved" in warnings[0]
    assert_exact(restore(copy)[0], 20, 1)


# --- Retention ------------------------------------------------------------------------------------


def test_the_newest_are_kept(tmp_path):
    checkpoints, _ = open_checkpoints(tmp_path, keep=2)
    kept = []
    for step in (9, 10, 11, 100):
        checkpoints.save(step, device_state(step, 1), metadata_of(step))
        checkpoints.wait()
        kept.append(sorted(int(name) for name in folders_of(tmp_path)))
    checkpoints.close()
    assert kept == [[9], [9, 10], [10, 11], [11, 100]]


def test_a_newer_damaged_step_does_not_push_out_a_whole_one(tmp_path, two_steps):
    copy = tmp_path / "damaged"
    shutil.copytree(two_steps, copy)
    flip_a_bit(copy / "20" / "_METADATA")
    checkpoints, _ = open_checkpoints(copy, keep=2)
    checkpoints.restore_newest(abstract_state(1))
    checkpoints.save(15, device_state(15, 1), metadata_of(15))
    checkpoints.wait()
    assert folders_of(copy) == ["10", "15", "20"]
    checkpoints.save(25, device_state(25, 1), metadata_of(25))
    checkpoints.wait()
    assert folders_of(copy) == ["15", "20", "25"]
    checkpoints.save(35, device_state(35, 1), metadata_of(35))
    checkpoints.close()
    assert folders_of(copy) == ["25", "35"]
