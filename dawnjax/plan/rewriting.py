"""Changes that XLA makes to a program's ops before it assigns memory, as `liveness` needs them."""

import collections
from collections.abc import Callable, Collection, Sequence
from typing import Any

ZEROS = "zeros"
"""An op of our own: the zeros on which loops write their stacks."""


PACKED_BYTES = 30 * 2**20
"""Gradients that are summed at one time; a larger one is summed where it lies.

Source: XLA, `xla_gpu_all_reduce_combine_threshold_bytes`.
"""


def pack(ops: Sequence[Any], summed: str, size: Callable[[int], float]) -> None:
    """Add the memory in which small gradients are packed, beside the one that is read last.

    Args:
      summed: Primitive of the ops that sum.
      size: Bytes of an array.
    """
    sums = [op for op in ops if op.primitive == summed]
    sizes = [size(op.outputs[0]) for op in sums]
    small = sum(size for size in sizes if size <= PACKED_BYTES)
    for op, num_bytes in zip(sums, sizes, strict=True):
        if num_bytes > PACKED_BYTES:
            op.carried = frozenset(op.inputs)
        else:
            op.inner.num_bytes = min(small, PACKED_BYTES) - num_bytes


def joined_scatters(ops: Sequence[Any]) -> list[Any]:
    """Ops with one scatter for a sum of two, as of the gradient of a table that is read twice."""
    maker = {out: op for op in ops for out in op.outputs}
    count = collections.Counter(name for op in ops for name in op.inputs)
    joined: set[int] = set()
    for op in ops:
        parts = [maker[name] for name in op.inputs if name in maker and count[name] == 1]
        kinds = [part.primitive for part in parts]
        if op.primitive == "add_any" and kinds == ["scatter-add", "scatter-add"]:
            joined |= {*op.inputs}
            op.primitive = "scatter-add"
            op.inputs = [name for part in parts for name in part.inputs]
    return [op for op in ops if not joined.intersection(op.outputs)]


def sum_unscaled(ops: Sequence[Any], summed: str, avals: Sequence[Any]) -> None:
    """Sum gradients before a number multiplies them, which is done where they are read.

    Args:
      summed: Primitive of the ops that sum.
      avals: Shapes of all results.
    """
    maker = {out: op for op in ops for out in op.outputs}
    for op in ops:
        made = maker.get(op.inputs[0]) if op.primitive == summed else None
        while made is not None and made.primitive in ("mul", "div", "transpose"):
            size = avals[op.inputs[0]].size
            same = [name for name in made.inputs if avals[name].size == size]
            if len(same) != 1:
                break
            op.inputs = same
            made = maker.get(same[0])


def with_zeros(
    ops: Sequence[Any], avals: Sequence[Any], like: Callable[[int], int], new: Callable[[str], Any]
) -> list[Any]:
    """Ops with zeros for all stacks of a shape, before the first loop that makes such a stack.

    Args:
      like: Makes a name for an array as another is.
      new: Makes an op without inputs and outputs.
    """
    zeros: dict[Any, Any] = {}
    found = []
    for op in ops:
        for stack in op.outputs[op.num_carried :] if op.primitive == "scan" else ():
            kind = avals[stack].shape, avals[stack].dtype
            if kind not in zeros:
                zeros[kind] = new(ZEROS)
                found.append(zeros[kind])
            name = like(stack)
            zeros[kind].outputs.append(name)
            op.inputs.append(name)
            op.carried |= {name}
        found.append(op)
    return found


def made_together(
    copies: dict[int, int],
    readers: dict[int, int],
    known: Callable[[int], Collection[int]],
    avals: Sequence[Any],
) -> dict[int, int]:
    """Places at which copies are made: one op makes all of a shape whose rows are known then.

    Args:
      copies: Of each array that is copied.
      readers: Place of each copy's first reader.
      known: Places of the ops of which an array is computed where it is read.
    """
    first = {copy: readers[copy] for copy in copies.values() if copy in readers}
    found = {}
    for rows, copy in copies.items():
        own = first.get(copy, 0)
        ready = max(known(rows), default=own)
        shape = avals[copy].shape
        same = [at for other, at in first.items() if avals[other].shape == shape]
        found[copy] = min((at for at in same if at >= ready), default=own)
    return found


def gradients_last(
    ops: Sequence[Any], summed: str, products: tuple[str, ...], reduced: str, exchanges: bool
) -> list[Any]:
    """Ops with what only changes a product into a gradient, such as its dtype, before the sums.

    Where devices exchange sums of the backward pass, as those of a BatchNorm whose groups straddle
    devices, the products themselves come after the last of these: XLA's `LatencyHidingScheduler`
    keeps for that time what nothing else waits for.

    Args:
      summed: Primitive of the ops that sum gradients.
      products: Primitives of products and convolutions.
      reduced: Beginning of the primitives of sums.
    """
    first = next((place for place, op in enumerate(ops) if op.primitive == summed), 0)
    maker = {name: place for place, op in enumerate(ops) for name in op.outputs}
    made_of = [{maker[name] for name in op.inputs if name in maker} for op in ops]
    readers: dict[int, set[int]] = collections.defaultdict(set)
    for place, made in enumerate(made_of):
        for at in made:
            readers[at].add(place)
    late: set[int] = set()
    between: set[int] = set()
    for place in reversed(range(first)):
        if all(at >= first or at in between for at in readers[place]):
            if ops[place].primitive in products:
                late.add(place)
            elif not ops[place].primitive.startswith(reduced):
                between.add(place)
    needed, found = set(late), [*late]
    while found:
        more = made_of[found.pop()] - needed
        needed |= more
        found += more
    sums = (at for at in needed if ops[at].primitive.startswith(reduced))
    last = max(sums, default=first) if exchanges else 0
    after = list(range(first))  # the place after which an op comes
    for place in range(first):
        if place in late:
            after[place] = max(place, last)
        elif place in between and (
            made_of[place] & late or any(after[at] == first for at in made_of[place])
        ):
            after[place] = first
    order = sorted(range(first), key=lambda place: (after[place], place in late, place))
    return [*(ops[place] for place in order), *ops[first:]]
