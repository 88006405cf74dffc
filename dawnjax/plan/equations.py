"""Properties of one equation of a traced program: what it calls, carries and has in common."""

from collections.abc import Iterator, Sequence
from typing import Any

LOOPS = ("scan", "while", "cond")


def key_of(eqn: Any, operands: Sequence[int | None]) -> Any:
    """Key that two ops share whose results are the same; None for a loop, which is not compared."""
    if eqn.primitive.name in LOOPS:
        return None
    literals = (str(getattr(var, "val", "")) for var in eqn.invars)
    return eqn.primitive.name, *operands, *literals, str(eqn.params)


def carried_places(eqn: Any) -> range:
    """Places of the operands that a loop carries from round to round; empty for other ops."""
    params, count = eqn.params, len(eqn.invars)
    if eqn.primitive.name == "scan":
        return range(params["num_consts"], params["num_consts"] + params["num_carry"])
    if eqn.primitive.name == "while":
        return range(params["cond_nconsts"] + params["body_nconsts"], count)
    return range(0)


def place_of(platforms: Sequence[Sequence[str] | None], platform: str) -> int:
    """Place of a platform's branch; None is that of all platforms without their own."""
    return next(at for at, names in enumerate(platforms) if names is None or platform in names)


def called_program(eqn: Any) -> Any:
    """Program that an op calls once, such as that of a `jit`; None where it calls none."""
    if eqn.primitive.name.startswith("reduce"):
        return None  # it combines two elements
    found = [
        eqn.params[name] for name in ("jaxpr", "call_jaxpr", "fun_jaxpr") if name in eqn.params
    ]
    return found[0] if found and not callable(found[0]) else None


def is_reshape(eqn: Any) -> bool:
    """Whether a sum or maximum is of one element each.

    Source: XLA, `AlgebraicSimplifierVisitor::HandleReduce`.
    """
    if eqn.primitive.name not in ("reduce_sum", "reduce_max", "reduce_min"):
        return False
    return all(eqn.invars[0].aval.shape[axis] == 1 for axis in eqn.params["axes"])


def inner_programs(eqn: Any) -> Iterator[Any]:
    """Programs within an op: what it calls, bodies and conditions of loops, branches."""
    for value in eqn.params.values():
        for inner in value if isinstance(value, tuple | list) else (value,):
            program = getattr(inner, "jaxpr", inner)
            if hasattr(program, "eqns"):
                yield program


def is_apart(eqn: Any) -> bool:
    """Whether a TPU writes the result, which no other kernel makes.

    Such are the result of a gather, and rows with zeros between them.

    Source: programs compiled for a v5p.
    """
    between = [count for _, _, count in eqn.params.get("padding_config", ())]
    return eqn.primitive.name == "gather" or any(between)
