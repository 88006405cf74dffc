"""A batch taken a few examples at a time, so that intermediate arrays stay in a CPU's caches."""

import math

import jax


def nearest_divisor(number: int, wanted: float) -> int:
    """Divisor of a number whose ratio to the wanted one is nearest to 1."""
    divisors = [size for size in range(1, number + 1) if number % size == 0]
    return min(divisors, key=lambda size: abs(math.log(size / wanted)))


def in_chunks(array: jax.Array, chunk: int, batch_shards: int) -> jax.Array:
    """[chunks, chunk, ...] of a batch, without moving an example between devices.

    `chunk` counts examples of all shards together; they come shard by shard.
    """
    parts = array.reshape(batch_shards, -1, chunk // batch_shards, *array.shape[1:])
    return parts.swapaxes(0, 1).reshape(-1, chunk, *array.shape[1:])


def from_chunks(array: jax.Array, batch_shards: int) -> jax.Array:
    """[batch, ...] from the chunks of `in_chunks`."""
    parts = array.reshape(len(array), batch_shards, -1, *array.shape[2:]).swapaxes(0, 1)
    return parts.reshape(-1, *array.shape[2:])
