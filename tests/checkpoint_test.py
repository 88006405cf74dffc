"""Tests of the checkpoints: exact round trips, and what is left of them after real faults.

The file is also the program that its tests kill, starve of disk and run twice side by side:
`python tests/checkpoint_test.py ROLE DIRECTORY ...`.

Many kills instead of a few, about 2 s each:
`DAWNJAX_KILLS=100 python -m pytest tests/checkpoint_test.py -k killed`
"""

import contextlib
import errno
import os
import random
import resource
import shutil
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec, SingleDeviceSharding

from dawnjax import checkpoint
from dawnjax.checkpoint import MANIFEST, CheckpointError, Checkpoints

REPOSITORY = Path(__file__).resolve().parent.parent

ROWS = 1024  # Of the largest array; 256 KiB of random bits, which do not compress.


def mesh_of(num_devices):
    return jax.make_mesh(
        (num_devices,),
        ("data",),
        axis_types=(AxisType.Auto,),
        devices=jax.devices()[:num_devices],
    )


def host_state(step):
    """Gives arrays of random bits that only `step` decides, NaNs with payloads included."""
    rng = np.random.default_rng(step)

    def bits(shape, dtype):
        dtype = np.dtype(dtype)
        raw = rng.integers(0, 256, size=(*shape, dtype.itemsize), dtype=np.uint8)
        return raw.reshape(-1).view(dtype).reshape(shape)

    return {
        "params": {
            "0": {"kernel": bits((ROWS, 64), np.float32), "bias": bits((7,), jnp.bfloat16)},
            "norm.scale/x": bits((4, 4), np.float32),
        },
        "opt_state": (bits((8, 12), np.float32), [bits((8, 4), jnp.bfloat16)], ()),
        "empty": np.zeros((0, 3), np.float32),
        "count": bits((), np.int32),
        "step": np.int32(step),
    }


def shardings(num_devices):
    """Gives the kernel and one bfloat16 array split over the devices and the rest whole."""
    mesh = mesh_of(num_devices)
    whole = NamedSharding(mesh, PartitionSpec())
    tree = jax.tree.map(lambda _: whole, host_state(0))
    tree["params"]["0"]["kernel"] = NamedSharding(mesh, PartitionSpec("data"))
    tree["opt_state"][1][0] = NamedSharding(mesh, PartitionSpec(None, "data"))
    return tree


def device_state(step, num_devices):
    def place(array, sharding):
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    return jax.tree.map(place, host_state(step), shardings(num_devices))


def abstract_state(num_devices):
    return jax.tree.map(
        lambda array, sharding: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding),
        host_state(0),
        shardings(num_devices),
    )


def metadata_of(step):
    return {"clock": {"seconds": step + 0.1}, "position": step * 10**12, "note": "ä"}


def assert_exact(restored, step, num_devices):
    """Fails unless what was restored is, bit for bit, what `host_state(step)` gives."""
    assert restored is not None
    assert restored.step == step
    assert restored.metadata == metadata_of(step)
    expected = host_state(step)
    assert jax.tree.structure(restored.state) == jax.tree.structure(expected)
    actual = jax.tree.leaves(restored.state)
    wanted = zip(jax.tree.leaves(expected), jax.tree.leaves(shardings(num_devices)), strict=True)
    for array, (value, sharding) in zip(actual, wanted, strict=True):
        assert array.dtype == value.dtype
        assert array.shape == value.shape
        assert array.sharding.is_equivalent_to(sharding, array.ndim)
        for shard in array.addressable_shards:
            assert np.asarray(shard.data).tobytes() == value[shard.index].tobytes()


def open_checkpoints(directory, keep=2):
    """Gives checkpoints, and the list that their warnings go to."""
    warnings = []
    return Checkpoints(str(directory), keep=keep, warn=warnings.append), warnings


def save_steps(directory, steps, keep=2, num_devices=1):
    checkpoints, warnings = open_checkpoints(directory, keep)
    for step in steps:
        checkpoints.save(step, device_state(step, num_devices), metadata_of(step))
    checkpoints.close()
    assert warnings == []


def restore(directory, num_devices=1):
    checkpoints, warnings = open_checkpoints(directory)
    restored = checkpoints.restore_newest(abstract_state(num_devices))
    checkpoints.close()
    return restored, warnings


@contextlib.contextmanager
def compilations():
    """Gives a list to which each compilation of the block is added."""
    compiled = []

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if "backend_compile" in event:
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield compiled
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def files_of(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def folders_of(directory):
    return sorted(path.name for path in directory.iterdir())


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
    assert restored is not None and restored.skipped == ()


def test_newest_of_several_and_none_of_none(tmp_path, two_steps):
    assert restore(tmp_path / "absent") == (None, [])
    assert not (tmp_path / "absent").exists()
    assert restore(tmp_path) == (None, [])
    restored, warnings = restore(two_steps)
    assert_exact(restored, 20, 1)
    assert warnings == []


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


def truncate(path):
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def flip_a_bit(path):
    data = bytearray(path.read_bytes())
    place = random.Random(path.name).randrange(len(data) * 8)
    data[place // 8] ^= 1 << place % 8
    path.write_bytes(data)


def delete(path):
    path.unlink()


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
        assert restored is not None
        assert restored.skipped == ((20, warnings[0].split(" is not used: ")[1]),)


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


# --- Real faults ----------------------------------------------------------------------------------


def run_role(role, *arguments, prefix=()):
    """Starts this file as a program with one simulated device, unless the role makes more."""
    path = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    command = [*prefix, sys.executable, str(Path(__file__).resolve()), role, *map(str, arguments)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def save_until_killed(directory):
    """A run that resumes, then saves each step, with a state that it donates and replaces."""
    checkpoints, warnings = open_checkpoints(directory)
    restored = checkpoints.restore_newest(abstract_state(1))
    step = 0 if restored is None else restored.step
    if restored is not None:
        assert_exact(restored, step, 1)
    print("ready", flush=True)
    while True:
        step += 1
        checkpoints.save(step, device_state(step, 1), metadata_of(step))
        checkpoints.wait()
        assert warnings == [] or all("was cut off" in warning for warning in warnings), warnings
        print(step, flush=True)


@pytest.mark.faults
def test_killed_while_saving_leaves_a_saved_step_exactly(tmp_path):
    dice = random.Random(0)
    last_saved = 0
    one_save = 0.05
    for _ in range(int(os.environ.get("DAWNJAX_KILLS", "3"))):
        process = run_role("save_until_killed", tmp_path)
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "ready\n", process.stderr.read()
        # After 0 to 3 saves, somewhere in the next one, which takes about as long as the last.
        for _ in range(dice.randint(0, 3)):
            started = time.monotonic()
            last_saved = int(process.stdout.readline())
            one_save = time.monotonic() - started
        time.sleep(dice.uniform(0.0, one_save))
        process.kill()
        printed = process.communicate()[0].split()
        last_saved = int(printed[-1]) if printed else last_saved
        restored, _ = restore(tmp_path)
        if restored is None:
            assert last_saved == 0
            continue
        # The step after the last that was announced may have become whole before the kill.
        assert restored.step in (last_saved, last_saved + 1)
        assert_exact(restored, restored.step, 1)
        last_saved = restored.step
    assert last_saved > 0


def fill_disk(directory, how):
    """Saves around failures for want of space; the parent sees the exit status and this output."""
    directory = Path(directory)
    ballast = directory / "ballast"
    checkpoints, warnings = open_checkpoints(directory / "checkpoints")
    checkpoints.save(1, device_state(1, 1), metadata_of(1))
    checkpoints.wait()
    assert warnings == []
    step, whole = 1, ["1"]
    for room in (0, 4_096, 20_000, 150_000, 250_000):
        limit_space(ballast, how, room)
        for _ in range(2):
            checkpoints.save(step + 1, device_state(step + 1, 1), metadata_of(step + 1))
            checkpoints.wait()
        reason = os.strerror(errno.EFBIG if how == "file_size" else errno.ENOSPC)
        assert len(warnings) == 2
        assert all(f"could not be saved: {reason};" in warning for warning in warnings), warnings
        warnings.clear()
        restored = checkpoints.restore_newest(abstract_state(1))
        assert_exact(restored, step, 1)
        assert warnings == []
        assert folders_of(directory / "checkpoints") == whole, "a failed save gives its space back"
        free_space(ballast, how)
        step += 2
        checkpoints.save(step, device_state(step, 1), metadata_of(step))
        checkpoints.wait()
        assert warnings == []
        assert_exact(checkpoints.restore_newest(abstract_state(1)), step, 1)
        whole = sorted([str(step - 2), str(step)])
        assert folders_of(directory / "checkpoints") == whole
    checkpoints.close()
    print("done")


def limit_space(ballast, how, room):
    """Leaves `room` bytes on the disk, or lets no file grow beyond that."""
    if how == "file_size":
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
        return
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1024))
        except OSError as error:
            assert error.errno == errno.ENOSPC
        size = file.seek(0, os.SEEK_END)
        file.truncate(max(0, size - room))


def free_space(ballast, how):
    if how == "file_size":
        no_limit = resource.RLIM_INFINITY
        resource.setrlimit(resource.RLIMIT_FSIZE, (no_limit, no_limit))
    else:
        ballast.unlink()


def small_disk(mount_point):
    """Gives a command prefix that runs a program with a 3 MB disk at `mount_point`, or None."""
    script = 'mount -t tmpfs -o size=3m tmpfs "$0" && exec "$@"'
    for namespace in (["unshare", "-rm"], ["unshare", "-m"]):
        prefix = [*namespace, "sh", "-c", script, str(mount_point)]
        with_disk = [*prefix, "stat", "--file-system", "--format=%T", str(mount_point)]
        try:
            answer = subprocess.run(with_disk, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            return None
        if answer.stdout.strip() == "tmpfs":
            return prefix
    return None


@pytest.mark.faults
@pytest.mark.parametrize("how", ["small_disk", "file_size"])
def test_a_full_disk_harms_neither_older_nor_later_checkpoints(tmp_path, how):
    """A disk without room gives ENOSPC; a limit on file sizes, which needs no mount, EFBIG."""
    prefix = small_disk(tmp_path) if how == "small_disk" else ()
    if prefix is None:
        pytest.skip("no disk can be mounted here: neither unshare -rm nor unshare -m is allowed")
    process = run_role("fill_disk", tmp_path, how, prefix=prefix)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert output == "done\n"
    assert errors == "", "a failed save is told once, as a warning"


def free_port():
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def one_of_two(index, port, directory):
    """One of two processes with two devices each, which save and restore together."""
    jax.config.update("jax_num_cpu_devices", 2)
    jax.distributed.initialize(f"localhost:{port}", 2, int(index))
    assert (jax.process_index(), len(jax.devices())) == (int(index), 4)
    shared = Path(directory) / "shared"
    checkpoints, warnings = open_checkpoints(shared)
    with compilations() as compiled:
        assert checkpoints.restore_newest(abstract_state(4)) is None
        for step in (1, 2, 3, 3):
            checkpoints.save(step, device_state(step, 4), metadata_of(step))
        assert_exact(checkpoints.restore_newest(abstract_state(4)), 3, 4)
    assert compiled == []
    assert warnings == []

    # One process cannot write its part: both learn it at once, and the next save is a new start.
    def too_large(*_, **__):
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))

    write_manifest = checkpoint.write_manifest
    for step, failing, part in ((4, "0", "data"), (6, "1", "data"), (8, "0", "manifest")):
        if index == failing:
            if part == "data":
                limit_space(None, "file_size", 1000)
            else:
                checkpoint.write_manifest = too_large
        checkpoints.save(step, device_state(step, 4), metadata_of(step))
        started = time.monotonic()
        checkpoints.wait()
        assert time.monotonic() - started < 20.0
        assert len(warnings) == 1, warnings
        assert f"/{step} could not be saved: " in warnings[0]
        assert "File too large" in warnings[0], warnings
        warnings.clear()
        free_space(None, "file_size")
        checkpoint.write_manifest = write_manifest
        assert_exact(checkpoints.restore_newest(abstract_state(4)), step - 1, 4)
        checkpoints.save(step + 1, device_state(step + 1, 4), metadata_of(step + 1))
        checkpoints.wait()
    assert_exact(checkpoints.restore_newest(abstract_state(4)), 9, 4)
    assert warnings == []

    if index == "0":
        flip_a_bit(shared / "9" / "_METADATA")
    assert_exact(checkpoints.restore_newest(abstract_state(4)), 7, 4)
    assert len(warnings) == 1 and "_METADATA" in warnings[0]
    other = abstract_state(4)
    del other["count"]
    with pytest.raises(CheckpointError, match="count is int32"):
        checkpoints.restore_newest(other)
    checkpoints.close()

    checkpoint._VISIBLE_WITHIN_SECONDS = 0.2
    with pytest.raises(CheckpointError, match="not one: process 1: it does not see"):
        open_checkpoints(Path(directory) / f"private_{index}")
    print("done", flush=True)


@pytest.mark.faults
def test_two_processes_save_together_and_agree(tmp_path):
    port = free_port()
    processes = [run_role("one_of_two", index, port, tmp_path) for index in (0, 1)]
    try:
        for process in processes:
            output, errors = process.communicate(timeout=100)
            assert process.returncode == 0, errors
            assert output.endswith("done\n")
    finally:
        for process in processes:
            process.kill()
    # And one process with as many, or fewer, devices reads what two have written.
    assert_exact(restore(tmp_path / "shared", 4)[0], 7, 4)
    assert_exact(restore(tmp_path / "shared", 1)[0], 7, 1)


if __name__ == "__main__":
    roles = {function.__name__: function for function in (save_until_killed, fill_disk, one_of_two)}
    try:
        roles[sys.argv[1]](*sys.argv[2:])
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # Without the barrier at which one of several processes would wait for others.
