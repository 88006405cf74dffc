"""The order in which a device runs the ops of a program.

XLA takes, of three orders, that in which the least memory is alive by its own count. Here a program
runs in JAX's order, with what is known to come late. A TPU's loops over layers run in the order of
XLA's list scheduler.

Source: programs compiled for an H100 and a v5p, beside what is named below.
"""

import collections
import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from dawnjax.plan.ops import CONVOLUTION, COPY, NAMED, PRODUCTS, REDUCED, SUMMED, is_kernel
from dawnjax.plan.recomputing import MOVES
from dawnjax.plan.rewriting import first_place
from dawnjax.plan.split_sums import PARTS

_Reads = dict[int, frozenset[int]]
"""Of ops that write, by their places: arrays in memory of which their operands are computed."""


def in_list_order(
    ops: Sequence[Any],
    stored: Collection[int],
    results: Collection[int],
    size: Callable[[int], float],
) -> list[Any]:
    """Ops in an order in which that comes next, of all that could, which frees most memory.

    What is computed where it is read comes before its first reader.

    Source: XLA, `ListMemoryScheduler`.

    Args:
      stored: Arrays that lie in memory.
      results: Of the program, which stay.
      size: Bytes of an array.
    """
    makers = {name: place for place, op in enumerate(ops) for name in op.outputs}
    reads, roots = _reads(ops, stored, makers)
    kept = {root for name in results for root in roots.get(name, ())}
    order = _greedy(ops, reads, kept, size)
    done: set[int] = set()
    found: list[Any] = []
    todo = [*reversed(order)]
    while todo:
        place = todo.pop()
        needed = [makers[name] for name in ops[place].inputs if name in makers]
        if missing := [at for at in needed if at not in done]:
            todo += [place, *missing]
        elif place not in done:
            done.add(place)
            found.append(ops[place])
    return [*found, *(op for place, op in enumerate(ops) if place not in done)]


def _reads(
    ops: Sequence[Any], stored: Collection[int], makers: Mapping[int, int]
) -> tuple[_Reads, dict[int, frozenset[int]]]:
    """What ops that write read, and of what in memory each array is computed, itself included."""
    reads: _Reads = {}
    roots: dict[int, frozenset[int]] = {}
    for place, op in enumerate(ops):
        made_of = (roots[name] for name in op.inputs if name in makers)
        found = frozenset[int]().union(*made_of)
        if op.primitive == COPY or any(name in stored for name in op.outputs):
            reads[place] = found
            roots |= {name: frozenset((name,)) for name in op.outputs}
        else:
            roots |= dict.fromkeys(op.outputs, found)
    return reads, roots


def _greedy(
    ops: Sequence[Any],
    reads: _Reads,
    kept: Collection[int],
    size: Callable[[int], float],
) -> list[int]:
    """Places of the ops that write, in order."""
    left = collections.Counter(name for names in reads.values() for name in names)
    left.update(kept)
    waits = {place: len(names) for place, names in reads.items()}
    readers = collections.defaultdict[int, list[int]](list)
    for place, names in reads.items():
        for name in names:
            readers[name].append(place)
    keys: dict[int, tuple[float, int, int]] = {}  # of the ops that could come next
    heap: list[tuple[float, int, int]] = []

    def make_ready(place: int) -> None:
        freed = sum(size(name) for name in reads[place] if left[name] == 1)
        made = sum(map(size, ops[place].outputs))
        after = {reader for name in ops[place].outputs for reader in readers[name]}
        keys[place] = made - freed, -len(after), place
        heapq.heappush(heap, keys[place])

    for place, count in waits.items():
        if not count:
            make_ready(place)
    order = []
    while heap:
        key = heapq.heappop(heap)
        place = key[-1]
        if keys.get(place) != key:
            continue  # it has come, or frees more by now
        del keys[place]
        order.append(place)
        left.subtract(reads[place])
        alone = (name for name in reads[place] if left[name] == 1)
        for reader in [at for name in alone for at in readers[name] if at in keys]:
            make_ready(reader)
        for reader in (at for name in ops[place].outputs for at in readers[name]):
            waits[reader] -= 1
            if not waits[reader]:
                make_ready(reader)
    return order


def with_late_tables(ops: Sequence[Any], tables: Collection[int]) -> list[Any]:
    """Gather rows of copied tables just before the first kernel that reads them.

    Args:
      tables: The copies.
    """
    found = list(ops)
    for gather in ops:
        if gather.primitive != NAMED or not any(name in tables for name in gather.inputs):
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


def with_late_sums(ops: Sequence[Any]) -> list[Any]:
    """Ops in which sums over what loops stacked come just before devices sum gradients.

    So a stack of gradients, of which a bias has its own, waits for the end of the backward pass. A
    sum that another kernel needs does not wait.
    """
    first = first_place(ops, SUMMED)
    if first == len(ops):
        return [*ops]
    moved = {name for op in ops if op.primitive == "scan" for name in op.outputs[op.num_carried :]}
    sums = set[int]()
    for place, op in enumerate(ops[:first]):
        is_sum = op.primitive == "reduce_sum"
        if (is_sum or op.primitive in MOVES) and op.inputs and moved.issuperset(op.inputs):
            moved |= {*op.outputs}
            sums |= {place} if is_sum else set()
    needed, late = set[int](), set[int]()
    for place in reversed(range(first)):
        op = ops[place]
        if place in sums and needed.isdisjoint(op.outputs):
            late.add(place)
        elif is_kernel(op) or not needed.isdisjoint(op.outputs):
            needed |= {*op.inputs}
    order = sorted(range(first), key=late.__contains__)
    return [*(ops[place] for place in order), *ops[first:]]


def with_late_gradients(ops: Sequence[Any], avals: Sequence[Any]) -> list[Any]:
    """Ops of a GPU whose devices sum gradients, with what makes these late.

    Convolutions that make gradients come after the last sum that any of them needs: nothing but
    the pack of all gradients waits for them. A kernel of one pixel in bfloat16 is summed where it
    lies, at once. What only changes a gradient, such as its dtype, comes just before the pack.

    Args:
      avals: Shapes of all results.
    """
    first = next((place for place, op in enumerate(ops) if op.primitive == SUMMED), 0)
    maker = {name: place for place, op in enumerate(ops) for name in op.outputs}
    made_of = [{maker[name] for name in op.inputs if name in maker} for op in ops]
    gradients, changes = _gradients(ops[:first], made_of)
    packed = {place for place in gradients if _is_packed(ops[place], avals)}
    needed, found = set(packed), [*packed]
    while found:
        more = made_of[found.pop()] - needed
        needed |= more
        found += more
    last = max((at for at in needed if ops[at].primitive.startswith(REDUCED)), default=first)
    after = list(range(first))  # the place after which an op comes
    for place in range(first):
        if place in packed:
            after[place] = max(place, last)
        elif place in changes and (
            made_of[place] & gradients or any(after[at] == first for at in made_of[place])
        ):
            after[place] = first
    order = sorted(range(first), key=lambda place: (after[place], place in packed, place))
    return [*(ops[place] for place in order), *ops[first:]]


def _gradients(ops: Sequence[Any], made_of: Sequence[set[int]]) -> tuple[set[int], set[int]]:
    """Places of products that only sums of devices read, and of what changes their results."""
    read = set[int]()  # by anything else
    products, changes = set[int](), set[int]()
    for place in reversed(range(len(ops))):
        op = ops[place]
        if place not in read and op.primitive in (*PRODUCTS, PARTS):
            products.add(place)
        elif place not in read and not op.primitive.startswith(REDUCED):
            changes.add(place)
            continue
        read |= made_of[place]
    return products, changes


def _is_packed(op: Any, avals: Sequence[Any]) -> bool:
    """Whether a gradient is a kernel's that waits for the pack of all."""
    kernel = avals[op.outputs[0]]
    is_pixel = kernel.shape[:2] == (1, 1) and kernel.dtype.itemsize == 2
    return op.primitive == CONVOLUTION and not is_pixel
