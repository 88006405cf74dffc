"""The ops of a traced program and of the calls in it, one after another, as XLA inlines them."""

from collections.abc import Callable, Sequence
from typing import Any

from dawnjax.models.dropout import RANDOM
from dawnjax.models.sharding import GATHERED
from dawnjax.plan import fusing
from dawnjax.plan.equations import (
    LOOPS,
    called_program,
    carried_places,
    is_apart,
    is_reshape,
    key_of,
    place_of,
)
from dawnjax.plan.forms import Shape, form_of_columns, form_of_rows, form_of_stack, form_of_table
from dawnjax.plan.ops import CONVOLUTION, COPY, NAMED, SUMMED, Buffer, Op, Peak, Size, bytes_of

GRADIENT = "gradient"
"""Name (`checkpoint_name`) of a gradient that devices sum."""

_SAME = ("reshape", "squeeze", "expand_dims", "copy", "sharding_constraint")
"""Primitives whose result is their operand, in the same place."""

_AGAIN = ("remat", "checkpoint")
"""Beginnings of primitives that compute again what the forward pass had."""

_JOINED = ("concatenate", "stack")

_CONVERTED = "convert_element_type"

Names = dict[Any, int]
"""Numbers of the arrays that a program's variables stand for."""

_Operands = list[int | None]
"""Numbers of an equation's operands; a literal has none, and no memory."""


class Inlining:
    """Ops of one program, with all that is noted of its arrays on the way.

    Attributes:
      avals: Shapes and dtypes of all arrays, by number.
      kernels: Arguments that convolutions take, and their copies in another layout; 0 for none.
      written: Arrays that lie in memory besides the results of kernels.
      forms: Padded shapes of arrays that lie otherwise than in `tiles`.
      expansions: Rows that a product has once for each group, by the rows.
      tables: Copies of arguments with their rows one after another, by arguments and shapes.
    """

    def __init__(self, whole: Size, on_gpu: bool, peak_of_body: Callable[[Any, int, int], Peak]):
        self._whole, self._on_gpu, self._peak_of_body = whole, on_gpu, peak_of_body
        self.ops: list[Op] = []
        self.avals: list[Any] = []
        self.kernels: dict[int, int] = {}
        self.written: set[int] = set()
        self.forms: dict[int, Shape] = {}
        self.expansions: dict[int, int] = {}
        self.tables: dict[tuple[int, Shape], int] = {}
        self._before_barrier: dict[int, int] = {}
        self._converted: dict[int, int] = {}
        self._known: dict[Any, list[int]] = {}
        self._columns: dict[int, int] = {}
        self._arguments: set[int] = set()
        self._of_loops: set[int] = set()

    def program(self, jaxpr: Any) -> tuple[set[int], _Operands]:
        """Append the ops of a whole program; returns its arguments and its results."""
        names = self._names(jaxpr)
        arguments = self._arguments = set(names.values())
        if self._on_gpu:
            self.kernels = dict.fromkeys(arguments, 0)
        return arguments, self._inlined(jaxpr, names)

    def body(self, jaxpr: Any, num_slices: int) -> tuple[set[int], _Operands]:
        """Append the ops of a loop's body, whose last arguments are slices of stacks."""
        names = self._names(jaxpr)
        arguments = set(names.values())
        for var in jaxpr.invars[len(jaxpr.invars) - num_slices :]:
            names[var] = self._copy(names[var], "slice")
        return arguments, self._inlined(jaxpr, names)

    def new(self, aval: Any) -> int:
        """Number of a new array."""
        self.avals.append(aval)
        return len(self.avals) - 1

    def _names(self, jaxpr: Any) -> Names:
        return {var: self.new(var.aval) for var in (*jaxpr.constvars, *jaxpr.invars)}

    def _inlined(self, jaxpr: Any, names: Names) -> _Operands:
        """Append the ops of a program, those of calls in it too; returns its results."""

        def known(var: Any) -> int | None:
            return names.get(var) if not hasattr(var, "val") else None

        for eqn in jaxpr.eqns:
            operands = [known(var) for var in eqn.invars]
            results = self._renamed(eqn, operands)
            if results is None:
                results = self._called(eqn, operands)
            if results is None:
                results = self._computed(eqn, operands)
            given = zip(eqn.outvars, results, strict=True)
            names |= {var: name for var, name in given if name is not None}
        return [known(var) for var in jaxpr.outvars]

    def _renamed(self, eqn: Any, operands: _Operands) -> _Operands | None:
        """Results of an op that only renames its operands; None of another."""
        primitive = eqn.primitive.name
        if primitive in _SAME and None not in operands:
            return operands
        if operands[:1] and operands[0] in self._of_loops and is_reshape(eqn):
            return operands  # others share a kernel, whose table counts (`tables.py`)
        if primitive == "optimization_barrier":
            return [None if name is None else self._behind_barrier(name) for name in operands]
        if self._on_gpu and primitive == _CONVERTED and operands[0] is not None:
            before = self._converted.get(operands[0])
            if before is not None and self.avals[before].dtype == eqn.outvars[0].aval.dtype:
                # There and back: XLA keeps what precision it has (`SimplifyFPConversions`).
                return [before]
        return None

    def _behind_barrier(self, name: int) -> int:
        """Another name of an array, which lies in memory; XLA does not see that both are one."""
        array = self._before_barrier.get(name, name)
        self.written.add(array)
        behind = self.new(self.avals[array])
        self._before_barrier[behind] = array
        self.ops.append(Op("optimization_barrier", [array], [behind], ""))
        return behind

    def _called(self, eqn: Any, operands: _Operands) -> _Operands | None:
        """Results of a program that an equation calls; None where it calls none, or a loop."""
        inner = called_program(eqn)
        if platforms := eqn.params.get("branches_platforms"):  # an op for each platform
            place = place_of(platforms, "cuda" if self._on_gpu else "tpu")
            inner, operands = eqn.params["branches"][place], operands[1:]
        elif eqn.primitive.name in LOOPS:
            inner = None
        if inner is None:
            return None
        body = getattr(inner, "jaxpr", inner)
        # Constants of a closed program are small: tables and scalars.
        inside = {var: self.new(var.aval) for var in body.constvars}
        given = zip(body.invars, operands, strict=True)
        inside |= {var: name for var, name in given if name is not None}
        before = self._known
        if eqn.primitive.name.startswith(_AGAIN):
            self._known = {}  # what is to be computed again is not taken from before
        results = self._inlined(body, inside)
        self._known = before
        pairs = zip(eqn.outvars, results, strict=True)
        return [self.new(var.aval) if name is None else name for var, name in pairs]

    def _computed(self, eqn: Any, operands: _Operands) -> _Operands:
        """Results of an op that is appended, or of one before that is the same."""
        key = key_of(eqn, operands)
        if same := self._known.get(key):
            return [*same]
        primitive = self._kind(eqn)
        inputs = self._read(eqn, primitive, [name for name in operands if name is not None])
        outputs = [self.new(var.aval) for var in eqn.outvars]
        rows = None if self._on_gpu else form_of_rows(eqn)
        if rows is not None and primitive == NAMED:
            self.forms[outputs[0]] = rows
        if key is not None:
            self._known[key] = outputs
        if primitive == _CONVERTED and inputs:
            self._converted[outputs[0]] = inputs[0]
        if primitive in LOOPS:
            self._of_loops.update(outputs)
        carried = [operands[place] for place in carried_places(eqn)]
        if primitive == "scan" and not self._on_gpu:
            for stack in outputs[len(carried) :]:
                self.forms[stack] = form_of_stack(self.avals[stack].shape)
        self.ops.append(
            Op(
                primitive,
                inputs,
                outputs,
                name=str(eqn.source_info.name_stack),
                inner=self._inside(eqn, operands),
                carried=frozenset(name for name in carried if name is not None),
                num_carried=len(carried),
                equation=eqn if primitive == "dot_general" else None,
            )
        )
        return [*outputs]

    def _kind(self, eqn: Any) -> str:
        """Primitive of an equation, or what stands for it here."""
        primitive = eqn.primitive.name
        if primitive == "name":
            random = NAMED if self._on_gpu else fusing.RANDOM_WORDS
            named = {GRADIENT: SUMMED, GATHERED: NAMED, RANDOM: random}
            is_number = hasattr(eqn.invars[0], "val")
            return primitive if is_number else named.get(eqn.params["name"], primitive)
        is_joined = primitive in _JOINED and eqn.outvars[0].aval.dtype != bool
        return NAMED if not self._on_gpu and (is_joined or is_apart(eqn)) else primitive

    def _read(self, eqn: Any, kind: str, inputs: list[int]) -> list[int]:
        """Arrays that an op reads: copies in another layout in the place of some operands."""
        if kind == CONVOLUTION and inputs[-1] in self.kernels:
            kernel = inputs[-1]
            self.kernels[kernel] = self.kernels[kernel] or self._copy(kernel, "kernel")
            inputs[-1] = self.kernels[kernel]
        if not self._on_gpu and eqn.primitive.name == "gather" and inputs[0] in self._arguments:
            inputs[0] = self._in_rows(inputs[0], eqn.invars[0].aval)
        if kind == NAMED and eqn.primitive.name in ("gather", "pad"):
            # What it takes from lies in memory; a conversion of that waits for the rows.
            self.written |= {*inputs[:1]} - {*self._converted}
        columns = None if self._on_gpu else form_of_columns(eqn)
        if columns is not None:
            inputs[0] = self._in_columns(inputs[0], columns)
        return inputs

    def _copy(self, name: int, label: str) -> int:
        """An array made of another, where it is first read."""
        copy = self.new(self.avals[name])
        self.ops.append(Op(COPY, [name], [copy], label))
        return copy

    def _in_rows(self, table: int, aval: Any) -> int:
        """A table's rows one after another, for all gathers; itself where it lies so.

        Args:
          aval: The table as it is gathered from, which may be reshaped.
        """
        rows = form_of_table(aval.shape)
        if self._whole(rows, aval.dtype) <= self._whole(aval.shape, aval.dtype):
            return table
        key = table, aval.shape
        if key not in self.tables:
            self.tables[key] = self._copy(table, "rows of a table")
            self.forms[self.tables[key]] = rows
        return self.tables[key]

    def _in_columns(self, images: int, form: Shape) -> int:
        """What the gradient of a kernel reads of images, made as soon as they are there.

        All columns but one are cut from the images and laid out; then all are joined.
        """
        if images not in self._columns:
            count, *one = form
            cut, laid = (self._like(images, count - 1, tuple(one)) for _ in range(2))
            [joined] = self._like(images, 1, form)
            steps = [([images], cut)]
            steps += [([before], [after]) for before, after in zip(cut, laid, strict=True)]
            steps += [([images, *laid], [joined])]
            made = [place for place, op in enumerate(self.ops) if images in op.outputs]
            start = max(made, default=-1) + 1
            label = "columns of a kernel"
            self.ops[start:start] = [Op(NAMED, inputs, outputs, label) for inputs, outputs in steps]
            self._columns[images] = joined
        return self._columns[images]

    def _like(self, name: int, count: int, form: Shape) -> list[int]:
        """New arrays as another is, but for their padded shape."""
        made = [self.new(self.avals[name]) for _ in range(count)]
        self.forms |= dict.fromkeys(made, form)
        return made

    def _inside(self, eqn: Any, operands: _Operands) -> Peak:
        """What an op holds while it runs: a round of a loop, a branch, or copies of its own."""
        primitive, label = eqn.primitive.name, str(eqn.source_info.name_stack)
        if self._on_gpu and primitive.startswith("ragged_dot"):
            return self._expanded(eqn, operands)
        rows = None if self._on_gpu else form_of_rows(eqn)
        if rows is not None and primitive != "gather":
            return self._on_rows(eqn.outvars[0].aval, rows, label or primitive)
        params, num_carried = eqn.params, len(carried_places(eqn))
        bodies: list[tuple[Any, int, int]] = []  # with the numbers of slices and of what is carried
        if primitive == "scan":
            num_slices = len(eqn.invars) - params["num_consts"] - num_carried
            bodies = [(params["jaxpr"], num_slices, num_carried)]
        elif primitive == "while":
            bodies = [(params["cond_jaxpr"], 0, 0), (params["body_jaxpr"], 0, num_carried)]
        elif primitive == "cond":
            bodies = [(branch, 0, 0) for branch in params["branches"]]
        peaks = (self._peak_of_body(body.jaxpr, *counts) for body, *counts in bodies)
        return max(peaks, key=lambda peak: peak.num_bytes, default=Peak(0.0, []))

    def _on_rows(self, aval: Any, rows: Shape, label: str) -> Peak:
        """Rows of a scatter, beside the array itself if that lies in another layout."""
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
            if is_gradient and name is not None and name not in self.expansions:
                aval = self.avals[name]
                copy = self._copy(name, "rows for each group")
                self.avals[copy] = aval.update(shape=(groups, *aval.shape))
                self.expansions[name] = copy
        if is_gradient:
            return Peak(0.0, [])
        shape, dtype = (groups, *eqn.invars[0].aval.shape), eqn.invars[0].aval.dtype
        label = str(eqn.source_info.name_stack) or eqn.primitive.name
        size = bytes_of(shape, dtype)
        return Peak(size, [Buffer(shape, str(dtype), size, label, 0, 0)])
