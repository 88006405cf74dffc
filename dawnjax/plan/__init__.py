"""Estimates for absent hardware: an experiment's step time, epochs, time to accuracy and cost."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dawnjax.plan.compiling.memory import Memory


def memory(function: Callable[..., Any], *shapes: Any, on: str) -> "Memory":
    """Memory of a function on an absent device, as assigned by XLA's compiler for it.

        found = dawnjax.plan.memory(jax.jit(step, donate_argnums=0), state, batch, on="h100:8")
        found.fits, found.num_bytes, found.limit_bytes
        print(found)  # with the largest buffers

    It needs the extra `plan` and neither the device nor values. Kernels are not made, and their
    workspace and a program's code are not counted.

    Args:
      function: A function of arrays, jitted or not. Donated arguments are as in a run.
      shapes: Its arguments: arrays, `jax.ShapeDtypeStruct`s, or trees of them. For several devices
        they have shardings on a mesh, which may be a `jax.sharding.AbstractMesh`, of as many.
      on: System and number of devices, such as `v5e:16x16`.

    Raises:
      ConfigError: There is no such system, or the function is for another number of devices.
      RunError: A compiler is not installed, or refuses the function.
    """
    from dawnjax.plan.compiling.memory import of_function

    return of_function(function, shapes, on)
