"""Bytes that a traced program holds at once, without compiling it.

The program's order is JAX's but for what `scheduling.py` and `rewriting.py` move, and XLA's fusion
is modelled by three rules:

- results of products, convolutions, loops and sums lie in memory, and so does what goes through a
  barrier, and each operand of a loop or, on a GPU, of a product or convolution;
- all else is computed where it is read, from what lies in memory, as often as it is read, unless
  that takes longer (`recomputing.py`, `fusing.py`); what is the same is computed once, and random
  numbers, or on a TPU their masks, lie in memory;
- a result dies after its last reader. Outputs take over the memory of donated arguments, and are
  made as soon as their operands are there.

Results lie in one heap, whose holes count too (`heap.py`).

Devices sum their gradients once all are there: until then each lies in memory, and a GPU packs
those that are summed at one time. Its convolution takes its kernel in another layout, which waits
for the update; the kernel's own memory is free until then, and takes no array that lives longer.

A loop carries its values in one place from round to round, and writes stacks of results on zeros,
which on a GPU one op makes for all stacks of a shape. A slice of a stack is computed where it is
read, unless an op needs it in memory. Arguments are left out: they lie there all the time.
"""

import dataclasses
import itertools
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from dawnjax.plan import fusing, recomputing, rewriting, scheduling
from dawnjax.plan.forms import forms_of_images, with_forms
from dawnjax.plan.heap import heap_bytes, outside, tpu_heap_bytes
from dawnjax.plan.inlining import Inlining
from dawnjax.plan.ops import (
    CONVOLUTION,
    COPY,
    NAMED,
    PRODUCTS,
    SUMMED,
    Buffer,
    Op,
    Peak,
    Size,
    bytes_of,
    is_kernel,
    is_whole,
    new_op,
)
from dawnjax.plan.products import is_no_matrix, joined
from dawnjax.plan.split_sums import PARTS, with_parts
from dawnjax.plan.tables import bytes_of_tables


def peak_of(
    closed: Any,
    size: Size,
    on_gpu: bool = False,
    whole: Size | None = None,
    splits_sums: bool = False,
    is_wide: bool = False,
    num_updates: int = 0,
) -> Peak:
    """Peak of a program, from its `ClosedJaxpr`, and what is alive there.

    Args:
      on_gpu: Whether XLA's rules are those for a GPU, or else for a TPU.
      size: Of gradients, once they are summed, and of what an update makes.
      whole: Of all else.
      splits_sums: Whether products are split as XLA splits them for an H100.
      is_wide: Whether a TPU's matrix unit has 256 rows and columns, and not 128.
      num_updates: Parameters that the program updates.
    """
    whole = whole or bytes_of
    if not on_gpu:
        forms = forms_of_images(closed.jaxpr)
        size, whole = with_forms(size, forms), with_forms(whole, forms)
    program = _Program(size, whole, on_gpu, splits_sums, is_wide)
    return program.peak(closed.jaxpr, num_updates)


@dataclasses.dataclass
class _Lives:
    """What lies in memory, by the numbers of arrays, and until which place.

    Attributes:
      stored: What lies in memory, arguments included.
      over: Elementwise results that are written over operands which nothing reads later, and over
        how many at most.
      maker: Place and op that make an array.
      roots: What lies in memory, of which an array is computed where it is read.
      dies: Place of the last reader.
    """

    stored: set[int]
    over: dict[int, int]
    maker: dict[int, tuple[int, Op]]
    roots: dict[int, frozenset[int]]
    dies: dict[int, int]


class _Program:
    def __init__(self, size: Size, whole: Size, on_gpu: bool, splits_sums: bool, is_wide: bool):
        self._size, self._whole, self._on_gpu = size, whole, on_gpu
        self._splits_sums, self._is_wide = splits_sums, is_wide
        self._arrays = Inlining(whole, on_gpu, self._peak_of_body)
        self._ops, self._avals = self._arrays.ops, self._arrays.avals
        self._is_split: set[int] = set()
        self._kept: set[int] = set()

    def peak(self, jaxpr: Any, num_updates: int) -> Peak:
        arguments, results = self._arrays.program(jaxpr)
        outputs = [name for name in results if name is not None]
        self._keep_kernels()
        self._ops = rewriting.joined_scatters(self._ops, self._avals)
        self._split_products()
        rewriting.sum_unscaled(self._ops, SUMMED, self._avals)
        if not self._on_gpu:
            rewriting.sum_narrow(self._ops, SUMMED, self._avals)
        self._is_split = self._gradients()
        sums = (op.outputs[0] for op in self._ops if op.primitive == PARTS)
        self._arrays.written |= self._is_split.intersection(sums)
        packed = rewriting.PACKED_BYTES if self._on_gpu else 0.0
        rewriting.pack(self._ops, SUMMED, self._bytes, packed)
        self._make_whole()
        self._add_zeros(outputs)
        if self._on_gpu:
            self._ops = scheduling.with_late_gradients(self._ops, self._avals)
        else:
            self._ops = scheduling.with_late_tables(self._ops, self._arrays.tables.values())
            self._ops = fusing.with_whole_updates(self._ops, SUMMED, self._avals, outputs)
            self._ops = scheduling.with_late_sums(self._ops)
        buffers = self._buffers(arguments, outputs)
        found = self._with_holes(buffers)
        if not self._on_gpu:
            found.num_bytes += self._tables(num_updates)
        return found

    def _peak_of_body(self, jaxpr: Any, num_slices: int, num_carried: int) -> Peak:
        rules = self._on_gpu, self._splits_sums, self._is_wide
        inner = _Program(self._size, self._whole, *rules)
        return inner.peak_of_round(jaxpr, num_slices, num_carried)

    def peak_of_round(self, jaxpr: Any, num_slices: int, num_carried: int) -> Peak:
        """Peak of a loop's body, or of a branch; its last arguments are slices of stacks.

        The loop has the memory of what is carried. A product needs its own besides, since it cannot
        be made in the place of its operand.
        """
        arguments, results = self._arrays.body(jaxpr, num_slices)
        made = [name for name in results if name is not None]
        is_layer = bool(num_slices) and any(var.aval.ndim for var in jaxpr.outvars[num_carried:])
        self._split_products()
        self._add_zeros(made)
        if is_layer and not self._on_gpu:
            stored, _ = self._stored(arguments, ())
            self._ops = scheduling.in_list_order(self._ops, stored, made, self._bytes)
        carried = {name for name in results[:num_carried] if name is not None}
        buffers = self._buffers(arguments, (), carried)
        if self._on_gpu:
            return self._sweep(buffers)
        found = self._with_holes(buffers)
        found.tables = self._tables()
        return found

    def _keep_kernels(self) -> None:
        """Let an update read the copy of a kernel, whose own memory is then free before."""
        reader = {name: op for op in self._ops for name in op.inputs}
        for kernel, copy in self._arrays.kernels.items():
            if copy and reader[kernel].primitive != COPY:
                reader[kernel].inputs.append(copy)
                self._kept.add(copy)

    def _split_products(self) -> None:
        """Let products make parts of their sums; those that are joined make them together."""

        def parts_of(name: int, count: int) -> int:
            aval = self._avals[name]
            shape = (count, *aval.shape)
            return self._arrays.new(aval.update(shape=shape, dtype=np.dtype("float32")))

        if self._splits_sums:
            makers = {name: place for place, op in enumerate(self._ops) for name in op.outputs}
            groups = joined(self._ops, makers, self._bytes, is_whole)
            self._ops = with_parts(self._ops, groups, parts_of, new_op)

    def _gradients(self) -> set[int]:
        """Results of which a device may keep a part: gradients, and what comes of them."""
        summed = [place for place, op in enumerate(self._ops) if op.primitive == SUMMED]
        first = rewriting.first_place(self._ops, SUMMED)
        found = {name for op in self._ops[first:] for name in op.outputs}
        found |= {name for place in summed for name in self._ops[place].inputs}
        for op in reversed(self._ops[:first]):
            if found.intersection(op.outputs) and not is_kernel(op):
                found |= {*op.inputs}
        return found

    def _make_whole(self) -> None:
        """Add what a gradient needs where it is made: its device has only a part of the sum.

        The stacks of a loop are summed and split in each of its rounds.
        """
        for op in itertools.takewhile(lambda op: op.primitive != SUMMED, self._ops):
            made = op.outputs[: op.num_carried] if op.primitive == "scan" else op.outputs
            if op.primitive == "scan" and not self._on_gpu:
                # What a loop carries is a gradient of its own, which a TPU sums with all others.
                self._is_split.difference_update(made)
                continue
            for name in made if is_whole(op) else ():
                part = self._buffer(name, 0, 0, op.label)
                more = self._whole(part.shape, self._avals[name].dtype) - part.num_bytes
                if more > 0:
                    op.inner = op.inner.plus(dataclasses.replace(part, num_bytes=more))

    def _add_zeros(self, results: Sequence[int]) -> None:
        def like(name: int) -> int:
            zeros = self._arrays.new(self._avals[name])
            if name in self._is_split:
                self._is_split.add(zeros)
            if name in self._arrays.forms:
                self._arrays.forms[zeros] = self._arrays.forms[name]
            return zeros

        order = results if self._on_gpu else None
        self._ops = rewriting.with_zeros(self._ops, self._avals, like, new_op, order, is_whole)

    def _buffers(
        self, arguments: set[int], outputs: Sequence[int], carried: Collection[int] = ()
    ) -> list[Buffer]:
        """Arrays of the heap: all that lies in memory but arguments and results."""
        expansions = self._arrays.expansions
        for op in self._ops:
            if op.primitive.startswith("ragged_dot"):
                op.inputs.extend([expansions[name] for name in op.inputs if name in expansions])
        lives = self._lives(arguments, outputs)
        maker, dies = lives.maker, lives.dies
        dies |= dict.fromkeys(lives.stored.intersection(carried), len(self._ops))
        if not self._on_gpu:
            late = fusing.stacked_gradients(self._ops, SUMMED, NAMED, self._avals)
            dies |= dict.fromkeys(late.intersection(lives.stored), len(self._ops))
        self._write_over(lives)
        born = {name: place for name, (place, _) in maker.items()}
        if self._on_gpu:
            self._change_products(born, dies)
        # Zeros, masks and counts are made of nothing: who reads them makes them.
        of_nothing = (
            name for name, (_, op) in maker.items() if not is_kernel(op) and not lives.roots[name]
        )
        kept = lives.stored.difference(of_nothing, arguments, outputs)
        if not self._on_gpu:
            kept -= self._made_in_place(kept, dies)
        return self._placed(kept, born, lives)

    def _lives(self, arguments: set[int], outputs: Sequence[int]) -> _Lives:
        """What lies in memory, and its last readers."""
        maker = {out: (place, op) for place, op in enumerate(self._ops) for out in op.outputs}
        stored, over = self._stored(arguments, outputs)
        roots: dict[int, frozenset[int]] = {}
        dies: dict[int, int] = {}

        def roots_of(name: int) -> frozenset[int]:
            return frozenset((name,)) if name in stored or name not in maker else roots[name]

        for place, op in enumerate(self._ops):
            read = frozenset().union(*map(roots_of, op.inputs))
            roots |= dict.fromkeys(op.outputs, read)
            if any(name in stored for name in op.outputs):
                dies |= dict.fromkeys(read, place)
        for name in outputs:
            # It is made as soon as its operands are there.
            made_of = roots.get(name, frozenset())
            place = max((maker[root][0] for root in made_of if root in maker), default=0)
            dies |= {root: max(dies.get(root, 0), place) for root in made_of}
        return _Lives(stored, over, maker, roots, dies)

    def _stored(
        self, arguments: set[int], outputs: Sequence[int]
    ) -> tuple[set[int], dict[int, int]]:
        """What lies in memory, and `_Lives.over`."""
        stored = arguments | self._arrays.written
        for op in self._ops:
            # A TPU computes the operands of a product where it reads them.
            is_inside = not self._on_gpu and op.primitive in PRODUCTS
            if is_whole(op) and not is_inside:
                stored |= {*op.inputs}
            if is_kernel(op):
                stored |= {*op.outputs}
        if self._on_gpu:
            written = recomputing.written(self._ops, stored, self._avals, is_kernel)
            return stored | written, dict.fromkeys(written, 1)
        written = fusing.written(self._ops, stored, self._avals, is_kernel, self._is_wide)
        # A convolution that adds to an array writes there, and has no other result.
        sums = fusing.sums_of(CONVOLUTION, self._ops, self._avals, outputs)
        stored |= written | sums
        computing = (op for op in self._ops if not is_kernel(op))
        computing = (op for op in computing if op.primitive not in (*recomputing.MOVES, COPY))
        written |= stored.intersection(name for op in computing for name in op.outputs)
        return stored, dict.fromkeys(written, 1) | dict.fromkeys(sums, 2)

    def _write_over(self, lives: _Lives) -> None:
        """Let results take over the memory of operands that nothing reads later."""
        dies = lives.dies
        for name, most in lives.over.items():
            # The kernel writes over what nothing else reads, or is a part of a product's.
            place, op = lives.maker[name]
            over = (root for root in lives.roots[name] if root in lives.maker)
            over = (root for root in over if dies[root] == place)
            same = (root for root in over if self._bytes(root) == self._bytes(name))
            op.carried |= {*itertools.islice(same, most)}
        for place, op in enumerate(self._ops):
            dies |= {name: place - 1 for name in op.carried if dies.get(name) == place}

    def _made_in_place(self, kept: set[int], dies: dict[int, int]) -> set[int]:
        """Results for which the memory of an operand lives on, such as sums of gradients."""
        found = set[int]()
        for op in reversed(self._ops):
            if len(op.outputs) != 1 or not kept.issuperset(op.outputs):
                continue
            [after] = op.outputs
            before, *others = sorted(op.carried & kept) or [after]
            if before != after and self._bytes(before) == self._bytes(after):
                dies[before] = dies.get(after, dies[before])
                found |= {after, *others}
        return found

    def _placed(self, kept: set[int], born: dict[int, int], lives: _Lives) -> list[Buffer]:
        """Buffers of arrays, but for those that find room in the memory of kernels."""
        readers: dict[int, int] = {}
        for place, op in enumerate(self._ops):
            for name in op.inputs:
                readers.setdefault(name, place)

        def known(name: int) -> list[int]:
            made = lives.maker.get(name)
            is_stored = made is not None and is_kernel(made[1])
            sources = (name,) if is_stored else lives.roots.get(name, ())
            return [lives.maker[source][0] for source in sources if source in lives.maker]

        expansions = self._arrays.expansions
        together = rewriting.made_together(expansions, readers, known, self._avals)
        found: list[Buffer] = []
        free: list[tuple[float, int, int]] = []
        for name, (place, op) in lives.maker.items():
            if name in kept:
                # Slices are numbered before all other ops, and made where they are read.
                start = readers.get(name, place) if op.primitive == COPY else born[name]
                start = together.get(name, start)
                last = max(start, lives.dies.get(name, start))
                found.append(self._buffer(name, start, last, op.label))
                if name in self._kept:
                    free.append((found[-1].num_bytes, start, last))
        apart = outside(free, [(b.num_bytes, b.born, b.dies) for b in found])
        return [found[place] for place in apart]

    def _change_products(self, born: dict[int, int], dies: dict[int, int]) -> None:
        """Join products, whose results are then one array; copy operands that are no matrix."""
        for group in joined(self._ops, born.copy(), self._bytes, is_whole):
            results = [name for place in group for name in self._ops[place].outputs]
            last = max(dies.get(name, born[name]) for name in results)
            born |= dict.fromkeys(results, group[0])
            dies |= dict.fromkeys(results, last)
        made = {name for op in self._ops if is_whole(op) for name in op.outputs}
        for op in self._ops:
            axes = zip(*op.dimensions, strict=True) if op.dimensions else ()
            for name, sides in zip(op.inputs, axes, strict=False):
                shape = self._avals[name].shape
                if name in made and is_no_matrix(shape, *sides):
                    op.inner = op.inner.plus(self._buffer(name, 0, 0, f"copy for {op.name}"))

    def _buffer(self, name: int, born: int, dies: int, label: str) -> Buffer:
        aval = self._avals[name]
        shape, dtype = tuple(getattr(aval, "shape", ())), getattr(aval, "dtype", None)
        size = self._size if name in self._is_split else self._whole
        num_bytes = size(self._arrays.forms.get(name, shape), dtype)
        return Buffer(shape, str(dtype), num_bytes, label, born, dies)

    def _bytes(self, name: int) -> float:
        return self._buffer(name, 0, 0, "").num_bytes

    def _sweep(self, buffers: list[Buffer]) -> Peak:
        """Most bytes at one place of the program, with what the op there holds."""
        change = [0.0] * (len(self._ops) + 2)
        for buffer in buffers:
            change[buffer.born] += buffer.num_bytes
            change[buffer.dies + 1] -= buffer.num_bytes
        alive, most, at = 0.0, 0.0, 0
        for place, op in enumerate(self._ops):
            alive += change[place]
            if alive + op.inner.num_bytes > most:
                most, at = alive + op.inner.num_bytes, place
        there = [buffer for buffer in buffers if buffer.born <= at <= buffer.dies]
        there += self._ops[at].inner.buffers if self._ops else []
        return Peak(most, sorted(there, key=lambda buffer: -buffer.num_bytes))

    def _tables(self, num_updates: int = 0) -> float:
        """Bytes of tables of kernels, with those of loops, which lie there all the time."""
        own = bytes_of_tables(self._ops, self._avals, num_updates)
        return own + sum(op.inner.tables for op in self._ops)

    def _with_holes(self, buffers: list[Buffer]) -> Peak:
        """Peak of a program, or its heap if that is larger."""
        found = self._sweep(buffers)
        return Peak(max(found.num_bytes, self._heap_bytes(buffers)), found.buffers)

    def _heap_bytes(self, buffers: Sequence[Buffer]) -> float:
        """Heap; on a GPU before devices sum gradients, whose packed memory has no place."""
        packs = [place for place, op in enumerate(self._ops) if op.primitive == SUMMED]
        first = min(packs if self._on_gpu else (), default=len(self._ops))
        spans = [(b.num_bytes, b.born, b.dies) for b in buffers if b.born < first]
        spans += [
            (buffer.num_bytes, place, place)
            for place, op in enumerate(self._ops[:first])
            for buffer in op.inner.buffers
        ]
        return heap_bytes(spans) if self._on_gpu else tpu_heap_bytes(spans)
