"""A Flax NNX module as two pure functions; the one place where NNX meets `jax.jit`.

NNX walks its object graph in Python at each call that crosses a `jit` boundary (17 ms a call for a
ResNet-50, against 0.6 ms for plain dicts). Here the graph is split and merged inside the trace, so
that it is walked once, at compilation, and a step passes nested dicts of arrays.
"""

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
from flax import nnx

from dawnjax.models.execution import TrainingMoment

Tree = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class PureModel:
    """A model without state of its own.

    Attributes:
      init: From a PRNG key to `(params, batch_stats)`, nested dicts of float32 arrays.
      apply: From `(params, batch_stats, images, train)` to `(logits, batch_stats)`. In training the
        statistics come back one row a normalization group, [groups, channels] for [channels];
        otherwise as they were given. Models with `takes_moment` take a `TrainingMoment` as a fifth
        argument there. Models with an auxiliary head give the pair of both heads' logits in
        training.
      bind: From `(params, batch_stats)` to the module that holds them, for models with more than
        one entry; it lives inside a trace and goes no further.
    """

    init: Callable[[jax.Array], tuple[Tree, Tree]]
    apply: Callable[..., tuple[Any, Tree]]
    bind: Callable[[Tree, Tree], Any]


def pure_model(build: Callable[[nnx.Rngs], nnx.Module]) -> PureModel:
    """Gives the pure functions of the module that `build` makes.

    Args:
      build: Makes the module from its random streams. The module holds `nnx.Param` and
        `nnx.BatchStat` variables only, and is called as `module(images, train=...)`, in training
        also with `moment=...` where its configuration has `takes_moment`.

    Raises:
      TypeError: The module holds another kind of variable, which a step would silently drop.
    """
    abstract = nnx.eval_shape(lambda: build(nnx.Rngs(0)))
    graph, _, _, rest = nnx.split(abstract, nnx.Param, nnx.BatchStat, ...)
    if jax.tree.leaves(rest):
        raise TypeError(f"the model holds variables that a step cannot carry: {rest}")

    def init(key: jax.Array) -> tuple[Tree, Tree]:
        _, params, batch_stats, _ = nnx.split(build(nnx.Rngs(key)), nnx.Param, nnx.BatchStat, ...)
        return _text_keys(nnx.to_pure_dict(params)), _text_keys(nnx.to_pure_dict(batch_stats))

    def bind(params: Tree, batch_stats: Tree) -> Any:
        states = (nnx.State(_number_keys(params)), nnx.State(_number_keys(batch_stats)))
        return nnx.merge(graph, *states, rest)

    def apply(
        params: Tree,
        batch_stats: Tree,
        images: jax.Array,
        train: bool,
        moment: TrainingMoment | None = None,
    ) -> tuple[Any, Tree]:
        module = bind(params, batch_stats)
        told = {} if moment is None else {"moment": moment}
        with _named_layers(module):
            logits = module(images, train=train, **told)
        return logits, _text_keys(nnx.to_pure_dict(nnx.state(module, nnx.BatchStat)))

    return PureModel(init, apply, bind)


_CLASSES_LOCK = threading.RLock()
"""Held while a model is traced: two threads must not wrap the same classes."""


@contextlib.contextmanager
def _named_layers(module: nnx.Module) -> Iterator[None]:
    """Traces each layer's operations under its place in the model, such as `blocks/1/conv_1`.

    NNX itself names nothing, and a profile could not say which layer an operation belongs to. The
    names are no part of the mathematics, nor of the compile cache's key.
    """
    places = {id(layer): "/".join(map(str, path)) for path, layer in nnx.iter_modules(module)}
    classes = {type(layer) for _, layer in nnx.iter_modules(module) if callable(layer)}
    open_layers = [""]

    def named(call: Callable[..., Any]) -> Callable[..., Any]:
        def call_with_name(self: nnx.Module, *arguments: Any, **options: Any) -> Any:
            place = places.get(id(self), "")
            if not place or place == open_layers[-1]:
                return call(self, *arguments, **options)
            relative = place.removeprefix(open_layers[-1] + "/")
            open_layers.append(place)
            try:
                with jax.named_scope(relative):
                    return call(self, *arguments, **options)
            finally:
                open_layers.pop()

        return call_with_name

    # Python looks a call up in the class, so the class is what can be wrapped, while it traces.
    with _CLASSES_LOCK:
        own = {one: vars(one).get("__call__") for one in classes}
        for one in classes:
            one.__call__ = named(one.__call__)  # type: ignore[method-assign]
        try:
            yield
        finally:
            for one, call in own.items():
                if call is None:
                    del one.__call__
                else:
                    one.__call__ = call  # type: ignore[method-assign]


def _text_keys(tree: Any) -> Any:
    """Makes list positions strings: a checkpoint's paths are strings."""
    if isinstance(tree, dict):
        return {str(key): _text_keys(value) for key, value in tree.items()}
    return tree


def _number_keys(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {int(k) if k.isdigit() else k: _number_keys(value) for k, value in tree.items()}
    return tree
