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


def pack(ops: Sequence[Any], summed: str, size: Callable[[int], float], most: float) -> None:
    """Add the memory in which small gradients are packed, beside the one that is read last.

    Args:
      summed: Primitive of the ops that sum.
      size: Bytes of an array.
      most: Bytes that are packed at one time; with 0 all are summed where they lie, but for what a
        scatter makes.
    """
    sums = [op for op in ops if op.primitive == summed]
    sizes = [size(op.outputs[0]) for op in sums]
    maker = {name: op.primitive for op in ops for name in op.outputs}
    small = sum(size for size in sizes if size <= most)
    for op, num_bytes in zip(sums, sizes, strict=True):
        is_apart = not most and maker.get(op.inputs[0], "").startswith("scatter")
        if num_bytes > most:
            op.carried = frozenset(() if is_apart else op.inputs)
        else:
            op.inner.num_bytes = min(small, most) - num_bytes


def first_place(ops: Sequence[Any], primitive: str) -> int:
    """Place of the first op of a primitive; behind all ops where there is none."""
    return next((place for place, op in enumerate(ops) if op.primitive == primitive), len(ops))


def joined_scatters(ops: Sequence[Any], avals: Sequence[Any]) -> list[Any]:
    """Ops with one scatter for a sum of two, such as of the gradient of a table that is read twice.

    Two are joined if their rows together are fewer than those of the sum. A scatter that is added
    to anything else writes on that.

    Source: XLA, `AlgebraicSimplifierVisitor::HandleAdd`.
    """
    maker = {out: op for op in ops for out in op.outputs}
    count = collections.Counter(name for op in ops for name in op.inputs)
    joined: set[int] = set()
    for op in ops:
        if op.primitive not in ("add", "add_any") or len(op.inputs) != 2:
            continue
        parts = [
            maker[name]
            for name in op.inputs
            if name in maker and count[name] == 1 and maker[name].primitive == "scatter-add"
        ]
        rows = sum(avals[part.inputs[-1]].size for part in parts)
        if len(parts) == 2 and rows < avals[op.outputs[0]].size:
            op.inputs = [name for part in parts for name in part.inputs]
        elif len(parts) == 1:
            [part] = parts
            other = [name for name in op.inputs if name not in part.outputs]
            op.inputs = [*other, *part.inputs[1:]]
        else:
            continue
        op.primitive = "scatter-add"
        op.inner = parts[0].inner
        joined |= {out for part in parts for out in part.outputs}
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


def sum_narrow(ops: Sequence[Any], summed: str, avals: list[Any]) -> None:
    """Sum gradients in the narrower dtype that they are made in, as a TPU does.

    Source: "all-reduce" of bfloat16 kernels in programs compiled for a v5p.

    Args:
      summed: Primitive of the ops that sum.
      avals: Shapes of all results; those of the sums are changed.
    """
    maker = {out: op for op in ops for out in op.outputs}
    for op in ops:
        made = maker.get(op.inputs[0]) if op.primitive == summed else None
        if made is not None and made.primitive == "convert_element_type":
            narrow, wide = avals[made.inputs[0]], avals[op.inputs[0]]
            if narrow.dtype.itemsize < wide.dtype.itemsize:
                op.inputs = made.inputs
                avals[op.outputs[0]] = narrow


def with_zeros(
    ops: Sequence[Any],
    avals: Sequence[Any],
    like: Callable[[int], int],
    new: Callable[[str], Any],
    results: Sequence[int] | None,
    is_heavy: Callable[[Any], bool],
) -> list[Any]:
    """Ops with zeros for all stacks of a shape, before the first loop that makes such a stack.

    Zeros on which scatters write are made at once too, where XLA comes to them on its way from each
    result to all that it is made of: before what is scattered, if nothing needed that before.
    Without `results`, as on a TPU, each stack has its own zeros, just before its loop, and a
    scatter has none.

    Source: XLA, `MultiOutputFusion` and `PostOrderScheduler`.

    Args:
      like: Makes a name for an array as another is.
      new: Makes an op without inputs and outputs.
      results: Of the program, in order.
    """
    maker = {name: place for place, op in enumerate(ops) for name in op.outputs}
    reached = _first_needed(ops, maker, results or (), is_heavy)
    zeros: dict[Any, Any] = {}
    places: dict[Any, int] = {}
    for place, op in enumerate(ops):
        stacks = op.outputs[op.num_carried :] if op.primitive == "scan" else ()
        if place in reached:
            stacks = op.inputs[:1]
        for stack in stacks:
            kind = stack if results is None else (avals[stack].shape, avals[stack].dtype)
            zeros[kind] = zeros.get(kind) or new(ZEROS)
            places[kind] = min(places.get(kind, place), reached.get(place, place))
            name = like(stack)
            zeros[kind].outputs.append(name)
            op.inputs = [name, *op.inputs[1:]] if place in reached else [*op.inputs, name]
            op.carried |= {name}
    found = []
    for place, op in enumerate(ops):
        found += [zeros[kind] for kind, at in places.items() if at == place]
        found.append(op)
    return found


def _first_needed(
    ops: Sequence[Any],
    maker: dict[int, int],
    results: Sequence[int],
    is_heavy: Callable[[Any], bool],
) -> dict[int, int]:
    """Of each scatter on zeros the first heavy op that no result before it has needed."""
    made_of = [[maker[name] for name in op.inputs if name in maker] for op in ops]
    done: set[int] = set()
    found = {}
    for result in results:
        stack = [maker[result]] if result in maker else []
        opened: set[int] = set()
        while stack:
            place = stack[-1]
            if place in opened or place in done:
                done.add(stack.pop())
                continue
            opened.add(place)
            before = [other for other in made_of[place] if other not in done]
            stack += reversed(before)
            operand = maker.get(ops[place].inputs[0]) if ops[place].inputs else None
            on_zeros = operand is not None and not ops[operand].inputs
            if on_zeros and ops[place].primitive.startswith("scatter"):
                needed, more = {place}, before
                while more:
                    needed.update(more)
                    more = {at for other in more for at in made_of[other]} - needed - done
                found[place] = min(at for at in needed if at == place or is_heavy(ops[at]))
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
