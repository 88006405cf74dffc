"""States of random bits that a step decides, and checkpoints of them, for the tests."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from dawnjax.checkpoints.saved import SavePoint
from dawnjax.checkpoints.store import Checkpoints
from dawnjax.machine.mesh import make_mesh
from dawnjax.machine.mesh_shape import MeshShape

ROWS = 1024  # Of the largest array; 256 KiB of random bits, which do not compress.


def mesh_of(num_devices):
    return make_mesh(MeshShape(), jax.devices()[:num_devices])


def host_state(step):
    """Makes arrays of random bits from `step` alone, NaNs with payloads included."""
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
        "count": bits((), np.int32),
        "step": np.int32(step),
    }


def shardings(num_devices):
    """Splits the kernel and one bfloat16 array over the devices; the rest stays whole."""
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
    """Opens checkpoints, with the list that their warnings go to."""
    warnings = []
    return Checkpoints(str(directory), keep=keep, warn=warnings.append), warnings


def save_steps(directory, steps, keep=2, num_devices=1):
    checkpoints, warnings = open_checkpoints(directory, keep)
    for step in steps:
        save(checkpoints, step, num_devices)
    checkpoints.close()
    assert warnings == []


def save(checkpoints, step, num_devices=1):
    state = device_state(step, num_devices)
    checkpoints.save(SavePoint(step), state, metadata_of(step), log_of(step))


def log_of(step):
    return f'{{"event": "step", "step": {step}}}\n'


def restore(directory, num_devices=1):
    checkpoints, warnings = open_checkpoints(directory)
    restored = checkpoints.restore_newest(abstract_state(num_devices))
    checkpoints.close()
    return restored, warnings


@contextlib.contextmanager
def compilations():
    """Collects each compilation of the block in a list."""
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


def truncate(path):
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
