"""What the kernels of a TPU write to memory.

XLA's compiler for TPUs is not public.

Source: the memory that XLA assigns to programs for a v5p.
"""

import collections
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

from dawnjax.plan import recomputing
from dawnjax.plan.rewriting import first_place

RANDOM_WORDS = "random words"
"""An op of our own: random words, of which a TPU keeps only the masks that are made of them."""

_ADDS = ("add", "add_any")

_AFTER = (*_ADDS, "convert_element_type")
"""What a product's kernel computes of its result."""

_CYCLES = recomputing.CYCLES | {"erf": 10 * (3 + 7) + 19 + 4 * 3}
"""As on a GPU, but for what XLA expands: an error function is a quotient of polynomials of degrees
6 and 4, so 10 products and sums, a quotient, and 4 other operations. Source: XLA, `Erf32`."""

MOST_PAIRS = 64
"""Batches of a product that computes a softmax where it reads it: 48 do, 96 do not."""

MOST_WEIGHTS = 2**24
"""Weights of such a softmax in one batch, where the matrix unit is wide: twice as many are written.

Source: programs compiled for a v6e.
"""


def written(
    ops: Sequence[Any],
    stored: Collection[int],
    avals: Sequence[Any],
    is_kernel: Callable[[Any], bool],
    is_wide: bool,
) -> set[int]:
    """Results of elementwise ops that a TPU writes, besides those that lie in memory anyway.

    Comparisons are computed again, but those with random words are not. Of what XLA writes on a GPU
    a TPU writes the rest, and a softmax for products of many pairs of an example and a head, or if
    its matrix unit is wide, of many weights for a pair.

    Args:
      stored: Results that lie in memory.
      avals: Shapes of all results.
      is_kernel: Whether an op is a kernel of its own, such as a product or a sum.
      is_wide: Whether the matrix unit has 256 rows and columns, and not 128.
    """
    found = recomputing.written(ops, stored, avals, is_kernel, _CYCLES)
    found = {name for name in found if avals[name].dtype != bool}
    maker = {name: op for op in ops for name in op.outputs}
    random = set[int]()
    for op in ops:
        is_drawn = bool(random.intersection(op.inputs)) and not is_kernel(op)
        if is_drawn and avals[op.outputs[0]].dtype == bool:
            found |= {*op.outputs}
        elif is_drawn or op.primitive == RANDOM_WORDS:
            random |= {*op.outputs}
        if op.dimensions is not None:
            batches = _batches(op)
            made = (maker[name] for name in op.inputs if name in maker)
            softmax = {name for op in made for name in op.outputs if _is_softmax(op, maker, avals)}
            if is_wide:
                softmax = {name for name in softmax if avals[name].size > MOST_WEIGHTS * batches}
            found |= softmax if is_wide or batches > MOST_PAIRS else set()
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
    readers = _readers(ops)
    found = set[int]()
    for own in (op.outputs[0] for op in ops if op.primitive == maker):
        chain = _only_readers(own, readers, results, _ADDS)
        name = chain[-1].outputs[0] if chain else own
        if name != own and avals[name].size == avals[own].size:
            found.add(name)
    return found


def _readers(ops: Sequence[Any]) -> dict[int, list[Any]]:
    """Ops that read each array."""
    readers = collections.defaultdict[int, list[Any]](list)
    for op in ops:
        for name in {*op.inputs}:
            readers[name].append(op)
    return readers


def _only_readers(
    name: int,
    readers: dict[int, list[Any]],
    results: Collection[int],
    primitives: Collection[str],
) -> list[Any]:
    """Ops one after another, each the only one that reads what is before it."""
    found = list[Any]()
    while name not in results and [op.primitive in primitives for op in readers[name]] == [True]:
        found.append(readers[name][0])
        [name] = found[-1].outputs
    return found


def with_whole_updates(
    ops: Sequence[Any], summed: str, avals: Sequence[Any], results: Collection[int]
) -> list[Any]:
    """Ops in which a product of an update, and sums and a conversion that alone read it, are one.

    Source: "convolution_add_fusion" in programs compiled for a v5p.

    Args:
      summed: Primitive of the ops that sum gradients, after which the update comes.
      avals: Shapes of all results.
      results: Of the program, which are read besides.
    """
    readers = _readers(ops)
    dropped = set[int]()
    for op in ops[first_place(ops, summed) :]:
        if op.primitive != "dot_general":
            continue
        [own] = op.outputs
        chain = [op, *_only_readers(own, readers, results, _AFTER)]
        [name] = chain[-1].outputs
        # A sum of several products is one with the first of them.
        if name == own or name in dropped or avals[name].size != avals[own].size:
            continue
        last, made = chain[-1], {out for other in chain for out in other.outputs}
        last.inputs = [at for other in chain for at in other.inputs if at not in made]
        last.primitive, last.equation = op.primitive, op.equation
        dropped |= made - {name}
    return [op for op in ops if dropped.isdisjoint(op.outputs)]


def stacked_gradients(
    ops: Sequence[Any], summed: str, joined: str, avals: Sequence[Any]
) -> set[int]:
    """Gradients that an update stacks for its products, and has in the layout of the stack.

    They, or what is made of them in that layout, lie in memory until the end of the update.

    Args:
      summed: Primitive of the ops that sum gradients.
      joined: Primitive of the ops that stack.
      avals: Shapes of all results.
    """
    maker = {name: op for op in ops for name in op.outputs}
    stacks = [op for op in ops[first_place(ops, summed) :] if op.primitive == joined]
    todo = [name for op in stacks for name in op.inputs if len(op.inputs) > 1]
    found, seen = set[int](), set[int]()
    while todo:
        name = todo.pop()
        if name in seen or name not in maker:
            continue
        seen.add(name)
        if maker[name].primitive == summed:
            found.add(name)
        else:  # and not by numbers, such as a norm of all gradients
            many = (at for at in maker[name].inputs if getattr(avals[at], "size", 1) > 1)
            todo += (at for at in many if maker[name].primitive != "reduce_sum")
    return found
