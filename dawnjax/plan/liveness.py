"""Bytes that a traced program holds at once, without compiling it.

The program's order is JAX's, and XLA's fusion is modelled by three rules:

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
which one op makes for all stacks of a shape. A slice of a stack is computed where it is read,
unless an op needs it in memory. Arguments are left out: they lie there all the time.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np

from dawnjax.models.dropout import RANDOM
from dawnjax.models.sharding import GATHERED
from dawnjax.plan import fusing, recomputing, rewriting
from dawnjax.plan.equations import (
    LOOPS,
    called_program,
    carried_places,
    is_apart,
    key_of,
    place_of,
)
from dawnjax.plan.forms import (
    Shape,
    form_of_columns,
    form_of_rows,
    form_of_table,
    forms_of_images,
    with_forms,
)
from dawnjax.plan.heap import bytes_of_tables, heap_bytes, outside, tpu_heap_bytes
from dawnjax.plan.products import is_no_matrix, joined
from dawnjax.plan.split_sums import PARTS, with_parts

_NAMED = "stored"

_REDUCED = "reduce"
"""Beginning of the primitives of sums, and of maxima and the like."""

_CONVOLUTION = "conv_general_dilated"

_PRODUCTS = (_CONVOLUTION, "dot_general")

_SUMS = (_REDUCED, "argmax", "argmin", "cumsum", "cumlogsumexp", "cummax", _NAMED)
"""Beginnings of primitives whose result lies in memory, while their operand may be computed."""

SUMMED = "gradient"
"""Name (`checkpoint_name`) of a gradient that devices sum."""

_SUMMED = "summed"

_WHOLE = (
    _CONVOLUTION, "dot_general", "ragged_dot", "scatter", "sort", "top_k",
    "select_and_scatter", "reduce_window", "fft", "dynamic_update_slice", "while", "scan", "cond",
    "dot_product_attention", "custom_call", "ffi_call", "random_bits", "pallas_call", _SUMMED,
    rewriting.ZEROS,
)  # fmt: skip
"""Beginnings of primitives whose result and operands lie in memory."""


_SAME = ("reshape", "squeeze", "expand_dims", "copy", "sharding_constraint")
"""Primitives whose result is their operand, in the same place."""

_AGAIN = ("remat", "checkpoint")
"""Beginnings of primitives that compute again what the forward pass had."""

_COPY = "copy_of_argument"
"""An op of our own: the part of a stack that a loop takes in one round, or a kernel laid out anew.
"""


@dataclasses.dataclass
class Buffer:
    """A result of the program.

    Attributes:
      born: Place of the op that makes it.
      dies: Place of its last reader.
    """

    shape: tuple[int, ...]
    dtype: str
    num_bytes: float
    name: str
    born: int
    dies: int


@dataclasses.dataclass
class Peak:
    """Most bytes at once, and the buffers that are alive then, the largest first.

    Attributes:
      convolves: Whether the program has convolutions, outside of its loops.
    """

    num_bytes: float
    buffers: list[Buffer]
    convolves: bool = False


@dataclasses.dataclass
class _Op:
    primitive: str
    inputs: list[int]
    outputs: list[int]
    name: str
    inner: Peak
    carried: frozenset[int] = frozenset()  # operands whose memory it takes over
    num_carried: int = 0  # its first results
    equation: Any = None  # of a product

    @property
    def dimensions(self) -> Any:
        """Contracted and batch axes of a product; None of another op."""
        return self.equation and self.equation.params["dimension_numbers"]


Size = Callable[[tuple[int, ...], Any], float]
"""Bytes of an array of a shape and dtype on one device."""


def peak_of(
    closed: Any,
    size: Size,
    on_gpu: bool = False,
    whole: Size | None = None,
    splits_sums: bool = False,
    exchanges: bool = False,
) -> Peak:
    """Peak of a program, from its `ClosedJaxpr`.

    On a GPU a `ragged_dot` makes an array of all rows for each group.

    Args:
      size: Of gradients, once they are summed, and of what an update makes.
      whole: Of all else.
      splits_sums: Whether products are split as XLA splits them for an H100.
      exchanges: Whether devices exchange sums in the backward pass.
    """
    whole = whole or bytes_of
    if not on_gpu:
        forms = forms_of_images(closed.jaxpr)
        size, whole = with_forms(size, forms), with_forms(whole, forms)
    program = _Program(size, whole, on_gpu, splits_sums, exchanges)
    return program.peak(closed.jaxpr)


class _Program:
    def __init__(
        self, size: Size, whole: Size, on_gpu: bool, splits_sums: bool, exchanges: bool = False
    ):
        self._size, self._whole, self._on_gpu = size, whole, on_gpu
        self._splits_sums = splits_sums
        self._exchanges = exchanges
        self._ops: list[_Op] = []
        self._avals: list[Any] = []
        self._kernels: dict[int, int] = {}
        self._is_split: set[int] = set()
        self._written: set[int] = set()
        self._kept: set[int] = set()
        self._tables: set[int] = set()
        self._before_barrier: dict[int, int] = {}
        self._converted: dict[int, int] = {}
        self._known: dict[Any, list[int]] = {}
        self._expansions: dict[int, int] = {}
        self._forms: dict[int, Shape] = {}
        self._columns: dict[int, int] = {}

    def peak(self, jaxpr: Any) -> Peak:
        names, arguments = self._arguments(jaxpr)
        self._kernels = dict.fromkeys(arguments, 0) if self._on_gpu else {}
        self._tables = set() if self._on_gpu else arguments
        outputs = [name for name in self._inlined(jaxpr, names) if name is not None]
        self._keep_kernels()
        self._ops = rewriting.joined_scatters(self._ops, self._avals)
        self._split_products()
        rewriting.sum_unscaled(self._ops, _SUMMED, self._avals)
        if not self._on_gpu:
            rewriting.sum_narrow(self._ops, _SUMMED, self._avals)
        self._is_split = self._gradients()
        sums = (op.outputs[0] for op in self._ops if op.primitive == PARTS)
        self._written |= self._is_split.intersection(sums)
        rewriting.pack(
            self._ops, _SUMMED, self._bytes, rewriting.PACKED_BYTES if self._on_gpu else 0.0
        )
        self._make_whole()
        self._add_zeros(outputs)
        if self._on_gpu:
            self._ops = rewriting.gradients_last(
                self._ops, _SUMMED, (*_PRODUCTS, PARTS), _REDUCED, self._exchanges
            )
        buffers = self._buffers(arguments, outputs)
        found = self._sweep(buffers)
        convolves = any(op.primitive == _CONVOLUTION for op in self._ops)
        most = max(found.num_bytes, self._heap_bytes(buffers))
        if not self._on_gpu:
            most += bytes_of_tables((op.primitive for op in self._ops), _SUMMED, convolves)
        return Peak(most, found.buffers, convolves)

    def peak_of_round(self, jaxpr: Any, num_slices: int = 0, num_carried: int = 0) -> Peak:
        """Peak of a loop's body, or of a branch; its last arguments are slices of stacks.

        The loop has the memory of what is carried. A product needs its own besides, since it cannot
        be made in the place of its operand.
        """
        names, arguments = self._arguments(jaxpr)
        for var in jaxpr.invars[len(jaxpr.invars) - num_slices :]:
            names[var] = self._copy(names[var], "slice")
        results = self._inlined(jaxpr, names)
        made = [name for name in results if name is not None]
        is_layer = num_slices and any(var.aval.ndim for var in jaxpr.outvars[num_carried:])
        if is_layer and not self._on_gpu:
            self._ops = fusing.in_post_order(self._ops, made)
        self._split_products()
        self._add_zeros(made)
        carried = {name for name in results[:num_carried] if name is not None}
        return self._sweep(self._buffers(arguments, (), carried))

    def _arguments(self, jaxpr: Any) -> tuple[dict[Any, int], set[int]]:
        names = {var: self._new(var.aval) for var in (*jaxpr.constvars, *jaxpr.invars)}
        return names, set(names.values())

    def _copy(self, name: int, label: str) -> int:
        """An array made of another, where it is first read."""
        copy = self._new(self._avals[name])
        self._ops.append(_Op(_COPY, [name], [copy], label, Peak(0.0, [])))
        return copy

    def _in_columns(self, images: int, form: Shape) -> int:
        """What the gradient of a kernel reads of images, made as soon as they are there."""
        if images not in self._columns:
            copy = self._columns[images] = self._new(self._avals[images])
            self._forms[copy] = form
            made = [place for place, op in enumerate(self._ops) if images in op.outputs]
            op = _Op(_NAMED, [images], [copy], "columns of a kernel", Peak(0.0, []))
            self._ops.insert(max(made, default=-1) + 1, op)
        return self._columns[images]

    def _behind_barrier(self, name: int) -> int:
        """Another name of an array, which lies in memory; XLA does not see that both are one."""
        array = self._before_barrier.get(name, name)
        self._written.add(array)
        behind = self._new(self._avals[array])
        self._before_barrier[behind] = array
        self._ops.append(_Op("optimization_barrier", [array], [behind], "", Peak(0.0, [])))
        return behind

    def _keep_kernels(self) -> None:
        """Let an update read the copy of a kernel, whose own memory is then free before."""
        reader = {name: op for op in self._ops for name in op.inputs}
        for kernel, copy in self._kernels.items():
            if copy and reader[kernel].primitive != _COPY:
                reader[kernel].inputs.append(copy)
                self._kept.add(copy)

    def _add_zeros(self, results: Sequence[int]) -> None:
        def like(name: int) -> int:
            zeros = self._new(self._avals[name])
            if name in self._is_split:
                self._is_split.add(zeros)
            return zeros

        results = results if self._on_gpu else ()
        self._ops = rewriting.with_zeros(self._ops, self._avals, like, _new_op, results, _is_whole)

    def _gradients(self) -> set[int]:
        """Results of which a device may keep a part: gradients, and what comes of them."""
        summed = [place for place, op in enumerate(self._ops) if op.primitive == _SUMMED]
        first = min(summed, default=len(self._ops))
        found = {name for op in self._ops[first:] for name in op.outputs}
        found |= {name for place in summed for name in self._ops[place].inputs}
        for op in reversed(self._ops[:first]):
            if found.intersection(op.outputs) and not _is_kernel(op):
                found |= {*op.inputs}
        return found

    def _make_whole(self) -> None:
        """Add what a gradient needs where it is made: its device has only a part of the sum.

        The stacks of a loop are summed and split in each of its rounds.
        """
        for op in itertools.takewhile(lambda op: op.primitive != _SUMMED, self._ops):
            made = op.outputs[: op.num_carried] if op.primitive == "scan" else op.outputs
            for name in made if op.primitive.startswith(_WHOLE) else ():
                part = self._buffer(name, 0, 0, op.name or op.primitive)
                more = self._whole(part.shape, self._avals[name].dtype) - part.num_bytes
                if more > 0:
                    there = [*op.inner.buffers, dataclasses.replace(part, num_bytes=more)]
                    op.inner = Peak(op.inner.num_bytes + more, there)

    def _new(self, aval: Any) -> int:
        self._avals.append(aval)
        return len(self._avals) - 1

    def _inlined(self, jaxpr: Any, names: dict[Any, int]) -> list[int | None]:
        """Append the ops of a program, those of calls in it too; returns its results."""

        def known(var: Any) -> int | None:
            return names.get(var) if not hasattr(var, "val") else None  # a literal has no memory

        for eqn in jaxpr.eqns:
            primitive = eqn.primitive.name
            operands = [known(var) for var in eqn.invars]
            known_operands = [name for name in operands if name is not None]
            if primitive in _SAME and len(known_operands) == len(operands):
                names |= dict(zip(eqn.outvars, known_operands, strict=True))
                continue
            if primitive == "optimization_barrier":
                given = zip(eqn.outvars, operands, strict=True)
                names |= {
                    var: self._behind_barrier(name) for var, name in given if name is not None
                }
                continue
            if primitive == "convert_element_type" and known_operands:
                before = self._converted.get(known_operands[0]) if self._on_gpu else None
                if before is not None and self._avals[before].dtype == eqn.outvars[0].aval.dtype:
                    # There and back: XLA keeps what precision it has (`SimplifyFPConversions`).
                    names[eqn.outvars[0]] = before
                    continue
            inner = called_program(eqn)
            if platforms := eqn.params.get("branches_platforms"):  # an op for each platform
                inner = eqn.params["branches"][
                    place_of(platforms, "cuda" if self._on_gpu else "tpu")
                ]
                operands = operands[1:]
            elif primitive in LOOPS:
                inner = None
            if inner is not None:
                body = getattr(inner, "jaxpr", inner)
                # Constants of a closed program are small: tables and scalars.
                inside = {var: self._new(var.aval) for var in body.constvars}
                given = zip(body.invars, operands, strict=True)
                inside |= {var: name for var, name in given if name is not None}
                # What is to be computed again is not taken from before.
                before = self._known
                self._known = {} if primitive.startswith(_AGAIN) else before
                results = self._inlined(body, inside)
                self._known = before
                for var, result in zip(eqn.outvars, results, strict=True):
                    names[var] = self._new(var.aval) if result is None else result
                continue
            key = key_of(eqn, operands)
            if same := self._known.get(key):
                names |= dict(zip(eqn.outvars, same, strict=True))
                continue
            if primitive == "name":
                random = _NAMED if self._on_gpu else fusing.RANDOM_WORDS
                named = {SUMMED: _SUMMED, GATHERED: _NAMED, RANDOM: random}
                primitive = named.get(eqn.params["name"], primitive)
            is_joined = primitive == "concatenate" and eqn.outvars[0].aval.dtype != bool
            if not self._on_gpu and (is_joined or is_apart(eqn)):
                primitive = _NAMED
            if primitive == _CONVOLUTION and known_operands[-1] in self._kernels:
                kernel = known_operands[-1]
                self._kernels[kernel] = self._kernels[kernel] or self._copy(kernel, "kernel")
                known_operands[-1] = self._kernels[kernel]
            if primitive == _NAMED and eqn.primitive.name == "gather":
                # What is gathered lies in memory; its conversion waits for the rows.
                self._written |= {*known_operands[:1]} - {*self._converted}
            columns = None if self._on_gpu else form_of_columns(eqn)
            if columns is not None:
                known_operands[0] = self._in_columns(known_operands[0], columns)
            outputs = [self._new(var.aval) for var in eqn.outvars]
            rows = None if self._on_gpu else form_of_rows(eqn)
            if rows is not None and primitive == _NAMED:
                self._forms[outputs[0]] = rows
            if key is not None:
                self._known[key] = outputs
            names.update(zip(eqn.outvars, outputs, strict=True))
            if primitive == "convert_element_type" and known_operands:
                self._converted[outputs[0]] = known_operands[0]
            where = str(eqn.source_info.name_stack)
            carried = [operands[place] for place in carried_places(eqn)]
            moved = frozenset(name for name in carried if name is not None)
            inside = self._inside(eqn, operands)
            product = eqn if primitive == "dot_general" else None
            op = _Op(
                primitive, known_operands, outputs, where, inside, moved, len(carried), product
            )
            self._ops.append(op)
        return [known(var) for var in jaxpr.outvars]

    def _inside(self, eqn: Any, operands: Sequence[int | None]) -> Peak:
        """Peak of one round of a loop, or of a branch, by itself."""
        if self._on_gpu and eqn.primitive.name.startswith("ragged_dot"):
            return self._expanded(eqn, operands)
        if eqn.primitive.name == "gather" and operands[0] in self._tables:
            table = eqn.invars[0].aval
            return self._in_rows(table, form_of_table(table.shape), "rows of a table")
        rows = None if self._on_gpu else form_of_rows(eqn)
        if rows is not None and eqn.primitive.name != "gather":
            label = str(eqn.source_info.name_stack) or eqn.primitive.name
            return self._in_rows(eqn.outvars[0].aval, rows, label)
        params, num_carried = eqn.params, len(carried_places(eqn))
        bodies: Iterable[Any] = ()
        num_slices = 0
        if eqn.primitive.name == "scan":
            bodies = [params["jaxpr"]]
            num_slices = len(eqn.invars) - params["num_consts"] - num_carried
        elif eqn.primitive.name == "while":
            bodies = [params["body_jaxpr"]]
        elif eqn.primitive.name == "cond":
            bodies = params["branches"]
        peaks = (
            _Program(self._size, self._whole, self._on_gpu, self._splits_sums).peak_of_round(
                body.jaxpr, num_slices, num_carried
            )
            for body in bodies
        )
        return max(peaks, key=lambda peak: peak.num_bytes, default=Peak(0.0, []))

    def _in_rows(self, aval: Any, rows: Shape, label: str) -> Peak:
        """Rows of a gather or a scatter, beside the array itself if that lies in another layout."""
        size = self._whole(rows, aval.dtype)
        if size <= self._whole(aval.shape, aval.dtype):
            return Peak(0.0, [])
        return Peak(size, [Buffer(rows, str(aval.dtype), size, label, 0, 0)])

    def _expanded(self, eqn: Any, rows: Sequence[int | None]) -> Peak:
        """Note rows that a product has once for each group, with zeros for those of other groups.

        Of a weight's gradient both factors are such rows. Any other product takes them in another
        order of axes, a copy.
        """
        groups = eqn.invars[2].aval.shape[-1]
        is_gradient = len(eqn.invars[1].aval.shape) == len(eqn.invars[0].aval.shape)
        for name in rows[: 2 if is_gradient else 1]:
            if is_gradient and name is not None and name not in self._expansions:
                aval = self._avals[name]
                copy = self._copy(name, "rows for each group")
                self._avals[copy] = aval.update(shape=(groups, *aval.shape))
                self._expansions[name] = copy
        if is_gradient:
            return Peak(0.0, [])
        shape, dtype = (groups, *eqn.invars[0].aval.shape), eqn.invars[0].aval.dtype
        label = str(eqn.source_info.name_stack) or eqn.primitive.name
        size = bytes_of(shape, dtype)
        return Peak(size, [Buffer(shape, str(dtype), size, label, 0, 0)])

    def _buffers(
        self, arguments: set[int], outputs: Sequence[int], carried: Collection[int] = ()
    ) -> list[Buffer]:
        for op in self._ops:
            if op.primitive.startswith("ragged_dot"):
                read = [self._expansions[name] for name in op.inputs if name in self._expansions]
                op.inputs.extend(read)
        maker = {out: (place, op) for place, op in enumerate(self._ops) for out in op.outputs}
        stored = arguments | self._written
        for op in self._ops:
            if _is_whole(op):
                # A TPU computes the operands of a product where it reads them.
                is_inside = not self._on_gpu and op.primitive in _PRODUCTS
                stored |= {*op.outputs, *(() if is_inside else op.inputs)}
            elif op.primitive.startswith(_SUMS):
                stored |= set(op.outputs)
        if self._on_gpu:
            again = recomputing.written(self._ops, stored, self._avals, _is_kernel)
        else:
            again = fusing.written(self._ops, stored, self._avals, _is_kernel)
            again |= recomputing.sums_of(_CONVOLUTION, self._ops, self._avals, outputs)
        stored |= again
        roots: dict[int, frozenset[int]] = {}

        def roots_of(name: int) -> frozenset[int]:
            if name in stored or name not in maker:
                return frozenset((name,))
            return roots[name]

        dies: dict[int, int] = {}
        readers: dict[int, int] = {}
        for place, op in enumerate(self._ops):
            for name in op.inputs:
                readers.setdefault(name, place)
            read = frozenset().union(*(roots_of(name) for name in op.inputs))
            roots |= dict.fromkeys(op.outputs, read)
            if any(name in stored for name in op.outputs):
                dies |= dict.fromkeys(read, place)
        # Zeros, masks and counts are made of nothing: who reads them makes them.
        nothing = {
            name for name, (_, op) in maker.items() if not _is_kernel(op) and not roots[name]
        }
        for name in outputs:
            made_of = roots.get(name, frozenset())
            born = max((maker[root][0] for root in made_of if root in maker), default=0)
            for root in made_of:
                dies[root] = max(dies.get(root, 0), born)
        for name in stored.intersection(carried):
            dies[name] = len(self._ops)
        for name in again:
            # The kernel writes over what nothing else reads, or is a part of a product's.
            place, op = maker[name]
            over = (root for root in roots[name] if dies[root] == place and root in maker)
            same = (root for root in over if self._bytes(root) == self._bytes(name))
            op.carried |= {*itertools.islice(same, 1)}
        for place, op in enumerate(self._ops):
            # Nothing else may read them later.
            dies |= {name: place - 1 for name in op.carried if dies.get(name) == place}
        born = {name: place for name, (place, _) in maker.items()}
        if self._on_gpu:
            self._change_products(born, dies)
        kept = stored - nothing - arguments - set(outputs)
        if not self._on_gpu:
            kept -= self._summed_in_place(kept, dies)
        found: list[Buffer] = []
        free: list[tuple[float, int, int]] = []

        def known(name: int) -> list[int]:
            made = maker.get(name)
            is_stored = made is not None and _is_kernel(made[1])
            sources = (name,) if is_stored else roots.get(name, ())
            return [maker[source][0] for source in sources if source in maker]

        together = rewriting.made_together(self._expansions, readers, known, self._avals)
        for name, (place, op) in maker.items():
            if name in kept:
                # Slices are numbered before all other ops, and made where they are read.
                start = readers.get(name, place) if op.primitive == _COPY else born[name]
                start = together.get(name, start)
                last = max(start, dies.get(name, start))
                found.append(self._buffer(name, start, last, op.name or op.primitive))
                if name in self._kept:
                    free.append((found[-1].num_bytes, start, last))
        apart = outside(free, [(b.num_bytes, b.born, b.dies) for b in found])
        return [found[place] for place in apart]

    def _summed_in_place(self, kept: set[int], dies: dict[int, int]) -> set[int]:
        """Sums of gradients, for which the memory of their operands lives on."""
        found = set[int]()
        for op in self._ops:
            if op.primitive == _SUMMED and op.carried and {*op.inputs, *op.outputs} <= kept:
                [before], [after] = op.inputs, op.outputs
                if self._bytes(before) == self._bytes(after):
                    dies[before] = dies.get(after, dies[before])
                    found.add(after)
        return found

    def _split_products(self) -> None:
        """Let products make parts of their sums; those that are joined make them together."""

        def parts_of(name: int, count: int) -> int:
            aval = self._avals[name]
            return self._new(aval.update(shape=(count, *aval.shape), dtype=np.dtype("float32")))

        if self._splits_sums:
            makers = {name: place for place, op in enumerate(self._ops) for name in op.outputs}
            groups = joined(self._ops, makers, self._bytes, _is_whole)
            self._ops = with_parts(self._ops, groups, parts_of, _new_op)

    def _change_products(self, born: dict[int, int], dies: dict[int, int]) -> None:
        """Join products, whose results are then one array; copy operands that are no matrix."""

        for group in joined(self._ops, born.copy(), self._bytes, _is_whole):
            results = [name for place in group for name in self._ops[place].outputs]
            last = max(dies.get(name, born[name]) for name in results)
            born |= dict.fromkeys(results, group[0])
            dies |= dict.fromkeys(results, last)
        made = {name for op in self._ops if _is_whole(op) for name in op.outputs}
        for op in self._ops:
            axes = zip(*op.dimensions, strict=True) if op.dimensions else ()
            for name, sides in zip(op.inputs, axes, strict=False):
                shape = self._avals[name].shape
                if name in made and is_no_matrix(shape, *sides):
                    copy = self._buffer(name, 0, 0, f"copy for {op.name}")
                    there = [*op.inner.buffers, copy]
                    op.inner = Peak(op.inner.num_bytes + copy.num_bytes, there)

    def _buffer(self, name: int, born: int, dies: int, label: str) -> Buffer:
        aval = self._avals[name]
        shape, dtype = tuple(getattr(aval, "shape", ())), getattr(aval, "dtype", None)
        size = self._size if name in self._is_split else self._whole
        num_bytes = size(self._forms.get(name, shape), dtype)
        return Buffer(shape, str(dtype), num_bytes, label, born, dies)

    def _bytes(self, name: int) -> float:
        return self._buffer(name, 0, 0, "").num_bytes

    def _sweep(self, buffers: list[Buffer]) -> Peak:
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

    def _heap_bytes(self, buffers: Sequence[Buffer]) -> float:
        """Heap; on a GPU before devices sum gradients, whose packed memory has no place."""
        packs = [place for place, op in enumerate(self._ops) if op.primitive == _SUMMED]
        first = min(packs if self._on_gpu else (), default=len(self._ops))
        spans = [(b.num_bytes, b.born, b.dies) for b in buffers if b.born < first]
        spans += [
            (buffer.num_bytes, place, place)
            for place, op in enumerate(self._ops[:first])
            for buffer in op.inner.buffers
        ]
        return heap_bytes(spans) if self._on_gpu else tpu_heap_bytes(spans)


def _new_op(primitive: str) -> _Op:
    return _Op(primitive, [], [], primitive, Peak(0.0, []))


def _is_whole(op: _Op) -> bool:
    return op.primitive.startswith(_WHOLE)


def _is_kernel(op: _Op) -> bool:
    return op.primitive.startswith((*_WHOLE, *_SUMS))


def bytes_of(shape: tuple[int, ...], dtype: Any) -> float:
    """Bytes of an array; keys of random numbers count as two words."""
    return math.prod(shape) * float(getattr(dtype, "itemsize", 8))
