"""Search: cached against uncached, one beam against greedy, beams against every translation."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from networks import PLAIN

from dawnjax.models.configs.transformer import Transformer
from dawnjax.models.maxima import maxima
from dawnjax.models.transformer import TransformerModule
from dawnjax.tasks.decoding import Decoded, beam_search, greedy_search

pytestmark = pytest.mark.compiles

END = 1


@functools.cache
def make(vocabulary, width=16, layers=2) -> TransformerModule:
    config = Transformer(num_layers=layers, width=width, hidden_width=2 * width, num_heads=2)
    module = config.build(vocabulary_size=vocabulary, execution=PLAIN, rngs=nnx.Rngs(4))
    # Layers that outweigh the token just read, whose embedding is tied to its own logit: otherwise
    # every translation repeats one token.
    for path, param in nnx.iter_graph(module):
        if isinstance(param, nnx.Param) and param.ndim == 2 and path[0] != "embedding":
            param[...] = param[...] * 4
    return module


def sources_of(vocabulary, lengths, seed=0):
    random = np.random.default_rng(seed)
    source = np.zeros((len(lengths), max(lengths)), np.int32)
    for row, length in enumerate(lengths):
        source[row, :length] = random.integers(2, vocabulary, length)
    return jnp.array(source)


@functools.cache
def forward_of(module):
    """The whole decoder, compiled once a shape."""

    @jax.jit
    def forward(source, inputs):
        hidden = module(source, source > 0, inputs, jnp.ones_like(inputs))
        return jax.nn.log_softmax(module.logits(hidden))

    return forward


def cached(vocabulary, source, limits, num_beams=None, alpha=0.6, length=None, **sizes) -> Decoded:
    module = make(vocabulary, **sizes)
    return compiled_search(module, num_beams, alpha, length or int(limits.max()))(source, limits)


@functools.cache
def compiled_search(module, num_beams, alpha, max_length):
    @jax.jit
    def search(source, limits):
        cache = module.start_cache(source, source > 0, num_beams or 1, max_length)
        arguments = {"max_length": max_length, "end": END, "alpha": alpha}
        if num_beams is None:
            return greedy_search(module.decode_next, cache, limits, **arguments)
        return beam_search(module.decode_next, cache, limits, num_beams=num_beams, **arguments)

    return search


def uncached(vocabulary, source, limits) -> np.ndarray:
    """Greedy search by the whole decoder over the whole prefix, for each token anew."""
    forward = forward_of(make(vocabulary))
    batch, length = len(source), int(limits.max())
    tokens = np.zeros((batch, length), np.int32)
    alive = np.array(limits) > 0
    for position in range(length):
        inputs = np.concatenate([np.zeros((batch, 1), np.int32), tokens[:, :-1]], axis=1)
        logits = np.array(forward(source, jnp.array(inputs)))[:, position]
        chosen = logits[:, 1:].argmax(-1) + 1  # padding is not a token of a translation
        tokens[:, position] = np.where(alive, chosen, 0)
        alive &= (tokens[:, position] != END) & (position + 1 < np.array(limits))
        if not alive.any():
            break
    return tokens


def test_cached_decoding_gives_the_tokens_of_uncached_decoding():
    source = sources_of(40, [3, 9, 6, 1, 7, 9, 2, 5])
    limits = jnp.array([12, 20, 16, 11, 0, 19, 7, 15])
    decoded = cached(40, source, limits)
    np.testing.assert_array_equal(decoded.tokens, uncached(40, source, limits))
    lengths = (np.array(decoded.tokens) != 0).sum(axis=1)
    assert lengths[4] == 0 and (lengths <= np.array(limits)).all()
    assert len(set(lengths.tolist())) > 2  # some ended by themselves


def score_by_hand(forward, source, tokens, alpha, length) -> float:
    inputs = jnp.array([[0, *tokens[:-1]] + [0] * (length - len(tokens))])
    log_probabilities = np.array(forward(source, inputs)[0])
    total = sum(log_probabilities[position, token] for position, token in enumerate(tokens))
    return total / ((5 + len(tokens)) / 6) ** alpha


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_enough_beams_find_the_best_of_all_translations(alpha):
    vocabulary, limit, sizes = 5, 3, {"width": 8, "layers": 1}
    source = sources_of(vocabulary, [4])
    others = list(range(2, vocabulary))
    every = [
        (*start, last)
        for length in range(1, limit + 1)
        for start in itertools.product(others, repeat=length - 1)
        for last in ([END, *others] if length == limit else [END])
    ]
    forward = forward_of(make(vocabulary, **sizes))
    scores = {tokens: score_by_hand(forward, source, tokens, alpha, limit) for tokens in every}
    best = max(scores, key=lambda tokens: scores[tokens])
    decoded = cached(vocabulary, source, jnp.array([limit]), num_beams=64, alpha=alpha, **sizes)
    assert np.array(decoded.tokens)[0].tolist() == [*best] + [0] * (limit - len(best))
    assert float(decoded.scores[0]) == pytest.approx(scores[best], abs=1e-5)


def test_the_rest_of_the_batch_does_not_matter():
    source = sources_of(40, [3, 9, 6, 5], seed=7)
    limits = np.array([10, 16, 12, 9])
    together = cached(40, source, jnp.array(limits), num_beams=3, length=16)
    for row in range(4):
        only = jnp.array(np.where(np.arange(4) == row, limits, 0))
        alone = cached(40, source, only, num_beams=3, length=16)
        np.testing.assert_array_equal(alone.tokens[row], together.tokens[row])
        others = np.delete(np.array(alone.tokens), row, axis=0)
        assert not others.any()


def test_of_equal_tokens_the_first_is_taken():
    values = jnp.array([[1.0, 3.0, 3.0], [2.0, 0.0, 2.0], [jnp.nan, 1.0, 2.0], [-jnp.inf] * 3])
    largest, places = jax.jit(maxima)(values)
    np.testing.assert_array_equal(largest, [3.0, 2.0, jnp.nan, -jnp.inf])
    np.testing.assert_array_equal(places, [1, 0, 0, 0])
