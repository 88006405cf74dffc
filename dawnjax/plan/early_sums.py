"""Gradients that devices sum in the middle of the backward pass, as XLA does on a GPU.

XLA updates a parameter in one kernel with a sum of the backward pass that has as many operands, if
that kernel makes the operands itself, reads the parameter for it, and the parameter's gradient is
there. Before that kernel it sums all gradients that are there. They lie packed in one array until
their own updates, behind the backward pass.

Source: XLA, `MultiOutputFusion` and `AllReduceCombiner`, seen in `cells_ssd_small` for an H100.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from dawnjax.plan.ops import NAMED, SUMMED, Op, is_kernel
from dawnjax.plan.recomputing import MOST_PARTS
from dawnjax.plan.rewriting import first_place

EARLY = "summed early"
"""An op of our own: devices sum gradients that are packed."""


def with_early_sums(
    ops: Sequence[Op], avals: Sequence[Any], parameters: Collection[int], new: Callable[[Any], int]
) -> list[Op]:
    """Ops with an early sum before the first kernel that updates a parameter, if there is any.

    Args:
      avals: Shapes of all results.
      parameters: Arguments of the program.
      new: Makes the number of a new array.
    """
    first = first_place(ops, SUMMED)
    gradients = _gradients(ops[first:], avals, parameters)
    maker = {name: place for place, op in enumerate(ops[:first]) for name in op.outputs}
    for place, op in enumerate(ops[:first] if gradients else ()):
        read = _read_by_sum(op, ops, maker, avals)
        if any(maker.get(gradients.get(name, -1), place) < place for name in read):
            sums = [op for op in ops[first:] if op.primitive == SUMMED]
            early = [op for op in sums if maker.get(op.inputs[0], place) < place]
            pack, *slices = _packed(early, avals, new)
            late = [op for op in ops[first:] if op not in early]
            return [*ops[:place], pack, *ops[place:first], *slices, *late]
    return [*ops]


def _gradients(
    updates: Sequence[Op], avals: Sequence[Any], parameters: Collection[int]
) -> dict[int, int]:
    """Of each parameter the gradient before devices sum it: what its update reads of its shape."""
    of: dict[int, int] = {}
    found: dict[int, int] = {}
    for op in updates:
        shape = getattr(avals[op.outputs[0]], "shape", None) if op.outputs else None
        same = [name for name in op.inputs if getattr(avals[name], "shape", ()) == shape]
        known = op.inputs if op.primitive == SUMMED else [of[name] for name in same if name in of]
        if known:
            of |= dict.fromkeys(op.outputs, known[0])
            found |= {name: known[0] for name in same if name in parameters}
    return found


def _read_by_sum(
    op: Op, ops: Sequence[Op], maker: dict[int, int], avals: Sequence[Any]
) -> set[int]:
    """Arrays with as many elements as a sum has operands, if its kernel reads them.

    Its operand is itself a sum of few rows, which the kernel makes from what is elementwise.
    """
    if op.primitive != "reduce_sum" or not op.inputs:
        return set()
    name, size = op.inputs[0], avals[op.inputs[0]].size
    while name in maker:
        made = ops[maker[name]]
        is_sum = made.primitive == "reduce_sum"
        if len(made.inputs) != 1 or (is_kernel(made) and not is_sum):
            break
        name = made.inputs[0]
    if not size < avals[name].size <= MOST_PARTS * size or size <= avals[op.outputs[0]].size:
        return set()
    found, todo = {name}, [name]
    while todo:
        at = maker.get(name := todo.pop())
        if at is not None and not is_kernel(ops[at]):
            # Of a slice the kernel does not read the whole.
            whole = {part for part in ops[at].inputs if avals[part].size <= avals[name].size}
            todo += whole - found
            found |= whole
    return {name for name in found if avals[name].size == size}


def _packed(sums: Sequence[Op], avals: Sequence[Any], new: Callable[[Any], int]) -> list[Op]:
    """One sum of packed gradients, and the slices of it that updates read."""
    aval = avals[sums[0].outputs[0]]
    size = sum(avals[op.outputs[0]].size for op in sums)
    pack = Op(EARLY, [op.inputs[0] for op in sums], [], "gradients, packed")
    pack.outputs = [new(aval.update(shape=(size,), dtype=np.dtype("float32")))]
    slices = [Op(NAMED, [*pack.outputs], op.outputs, op.name) for op in sums]
    return [pack, *slices]
