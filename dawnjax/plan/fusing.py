"""What the kernels of a TPU write to memory, and in which order a layer runs.

XLA's compiler for TPUs is not public.

Source: the memory that XLA assigns to programs for a v5p.
"""

import collections
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

from dawnjax.plan import recomputing

RANDOM_WORDS = "random words"
"""An op of our own: random words, of which a TPU keeps only the masks that are made of them."""

_GATHERED_ROWS = "stored"
"""Primitive of a gather whose result lies in memory."""

_ADDS = ("add", "add_any")

MOST_PAIRS = 64
"""Batches of a product that computes a softmax where it reads it: 48 do, 96 do not."""


def written(
    ops: Sequence[Any],
    stored: Collection[int],
    avals: Sequence[Any],
    is_kernel: Callable[[Any], bool],
) -> set[int]:
    """Results of elementwise ops that a TPU writes, besides those that lie in memory anyway.

    Comparisons are computed again, but those with random words are not. Of what XLA writes on a GPU
    a TPU writes the rest, and a softmax for products of many pairs of an example and a head.

    Args:
      stored: Results that lie in memory.
      avals: Shapes of all results.
      is_kernel: Whether an op is a kernel of its own, such as a product or a sum.
    """
    found = recomputing.written(ops, stored, avals, is_kernel)
    found = {name for name in found if avals[name].dtype != bool}
    maker = {name: op for op in ops for name in op.outputs}
    random = set[int]()
    for op in ops:
        is_drawn = bool(random.intersection(op.inputs)) and not is_kernel(op)
        if is_drawn and avals[op.outputs[0]].dtype == bool:
            found |= {*op.outputs}
        elif is_drawn or op.primitive == RANDOM_WORDS:
            random |= {*op.outputs}
        if op.dimensions is not None and _batches(op) > MOST_PAIRS:
            made = (maker[name] for name in op.inputs if name in maker)
            found |= {name for op in made for name in op.outputs if _is_softmax(op, maker, avals)}
    return found - {*stored}


def _batches(op: Any) -> int:
    """Batches of a product, such as pairs of an example and a head."""
    _, (left, _) = op.dimensions
    shape = op.equation.invars[0].aval.shape
    return math.prod(shape[axis] for axis in left)


def _is_softmax(op: Any, maker: dict[int, Any], avals: Sequence[Any]) -> bool:
    """Whether an op rounds a quotient."""
    made = maker.get(op.inputs[0]) if narrows(op, avals) else None
    return made is not None and made.primitive == "div"


def narrows(op: Any, avals: Sequence[Any]) -> bool:
    """Whether an op converts to a smaller dtype."""
    if op.primitive != "convert_element_type" or not op.inputs:
        return False
    before, after = avals[op.inputs[0]].dtype, avals[op.outputs[0]].dtype
    return before.itemsize > after.itemsize


def sums_of(
    maker: str, ops: Sequence[Any], avals: Sequence[Any], results: Collection[int]
) -> set[int]:
    """Sums that a convolution writes in place of its own result, which only they read.

    Source: "convolution_add_fusion" in programs compiled for a v5p.

    Args:
      maker: Primitive of convolutions.
      avals: Shapes of all results.
      results: Of the program, which are read besides.
    """
    readers = collections.defaultdict[int, list[Any]](list)
    for op in ops:
        for name in {*op.inputs}:
            readers[name].append(op)
    found = set[int]()
    for own in (op.outputs[0] for op in ops if op.primitive == maker):
        name = own
        while name not in results and [op.primitive in _ADDS for op in readers[name]] == [True]:
            [name] = readers[name][0].outputs
        if name != own and avals[name].size == avals[own].size:
            found.add(name)
    return found


def in_post_order(ops: Sequence[Any], results: Sequence[int]) -> list[Any]:
    """Ops in the order in which results need them, depth first."""
    maker = {name: place for place, op in enumerate(ops) for name in op.outputs}
    opened: set[int] = set()
    found: list[Any] = []
    todo = [(maker[name], False) for name in reversed(results) if name in maker]
    while todo:
        place, is_ready = todo.pop()
        if is_ready:
            found.append(ops[place])
        elif place not in opened:
            opened.add(place)
            needs = (maker[name] for name in reversed(ops[place].inputs) if name in maker)
            todo += [(place, True), *((at, False) for at in needs)]
    return [*found, *(op for place, op in enumerate(ops) if place not in opened)]


def with_late_tables(ops: Sequence[Any], is_kernel: Callable[[Any], bool]) -> list[Any]:
    """Ops in which rows of a table are gathered just before the first kernel that reads them.

    Such a gather has a copy of its table beside it (`inner`).
    """
    found = list(ops)
    for gather in ops:
        if gather.primitive != _GATHERED_ROWS or not gather.inner.buffers:
            continue
        at = found.index(gather)
        late, names = [gather], {*gather.outputs}
        for place in range(at + 1, len(found)):
            op = found[place]
            if names.isdisjoint(op.inputs):
                continue
            if is_kernel(op):
                between = [other for other in found[at:place] if other not in late]
                found[at:place] = [*between, *late]
                break
            late.append(op)
            names |= {*op.outputs}
    return found
