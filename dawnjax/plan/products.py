"""How a GPU's compiler changes matrix products: which it joins, and whose operands it copies."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

JOINED_BYTES = 32 * 2**20
"""Most bytes of one of two products that are joined, with its operands.

Source: XLA, `xla_gpu_dot_merger_threshold_mb`.
"""


class Op(Protocol):
    """An op of a program; `dimensions` are those of a `dot_general`, or None."""

    @property
    def inputs(self) -> list[int]: ...
    @property
    def outputs(self) -> list[int]: ...
    @property
    def dimensions(self) -> Any: ...


def joined(
    ops: Sequence[Op],
    makers: Mapping[int, int],
    size: Callable[[int], float],
    is_heavy: Callable[[Any], bool],
) -> list[list[int]]:
    """Places of products that are one: they share an operand, along the same axes.

    Source: XLA, `DotMerger`. A product that waits for another heavy op after the first is left out.

    Args:
      makers: Place of the op that makes each array.
      size: Bytes of an array.
      is_heavy: Whether an op is more than element-wise.
    """
    groups: dict[Any, list[int]] = {}
    for place, op in enumerate(ops):
        if op.dimensions is None or len(op.inputs) != 2:
            continue
        contracted, batch = op.dimensions
        for side in (0, 1):
            key = side, op.inputs[side], contracted[side], batch[side]
            first = groups.setdefault(key, [])
            if not first or _waits_for_none(ops, makers, first[0], place, is_heavy):
                first.append(place)
                if len(first) > 1:
                    break

    def is_small(place: int) -> bool:
        return sum(map(size, (*ops[place].inputs, *ops[place].outputs))) <= JOINED_BYTES

    return [group for group in groups.values() if len(group) > 1 and any(map(is_small, group))]


def _waits_for_none(
    ops: Sequence[Op],
    makers: Mapping[int, int],
    first: int,
    place: int,
    is_heavy: Callable[[Any], bool],
) -> bool:
    found, seen = [place], {place}
    while found:
        for name in ops[found.pop()].inputs:
            made = makers.get(name, -1)
            if made >= first and made not in seen:
                if is_heavy(ops[made]):
                    return False
                seen.add(made)
                found.append(made)
    return True


def is_no_matrix(shape: Sequence[int], contracted: Sequence[int], batch: Sequence[int]) -> bool:
    """Whether contracted axes lie between the others, so that a product needs a copy."""
    kinds = [
        axis in contracted for axis in range(len(shape)) if axis not in batch and shape[axis] > 1
    ]
    changes = sum(one != other for one, other in zip(kinds, kinds[1:], strict=False))
    return changes > 1
