"""GNMT: its size, its products, packing, search, and the coverage penalty."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from networks import PLAIN, count

from dawnjax.models.configs.gnmt import GNMT
from dawnjax.models.gnmt import Cache
from dawnjax.profile.model_flops import product_flops
from dawnjax.tasks.decoding import beam_search, greedy_search

pytestmark = pytest.mark.compiles

SMALL = GNMT(num_layers=3, width=8, dropout_rate=0.3)
VOCABULARY, END = 11, 1


def build(config=SMALL, vocabulary=VOCABULARY):
    return config.build(vocabulary_size=vocabulary, execution=PLAIN, rngs=nnx.Rngs(2))


def loud():
    """A module whose layers differ enough that translations do not all repeat one token."""
    module = build()
    for _, param in nnx.iter_graph(module):
        if isinstance(param, nnx.Param):
            param[...] = param[...] * 30
    module.classifier_bias[...] = jnp.zeros(VOCABULARY)
    return module


def test_the_published_size_has_the_counted_parameters():
    module = nnx.eval_shape(lambda: build(GNMT(), 32_320))
    layer = 4 * 1024 * (1024 + 1024 + 1)  # input, state, bias
    wide = 4 * 1024 * (2048 + 1024 + 1)
    encoder = 2 * layer + wide + 2 * layer
    decoder = layer + 3 * wide + 2 * 1024**2 + 2 * 1024 + 1
    words = 32_320 * 1024 + 32_320 * (1024 + 1)
    assert count(nnx.state(module, nnx.Param)) == encoder + decoder + words == 160_634_433


def test_parameters_start_within_their_bounds():
    module = build(GNMT(num_layers=2, width=16, initial_bound=0.2, embedding_bound=1.0), 100)
    embedding, length = module.embedding[...], module.attention.length[...]
    assert 0.99 < np.abs(embedding).max() <= 1.0
    assert float(length) == pytest.approx(1 / 4)
    for path, param in nnx.iter_graph(module):
        if isinstance(param, nnx.Param) and param[...].size > 500 and path != ("embedding",):
            assert 0.19 < np.abs(param[...]).max() <= 0.2


def test_multiply_adds_are_those_of_the_program():
    module = build()
    graph, params = nnx.split(module)
    source, target = jnp.ones((1, 5), jnp.int32), jnp.ones((1, 7), jnp.int32)
    jaxpr = jax.make_jaxpr(
        lambda params: (m := nnx.merge(graph, params)).logits(m(source, source, target, target))
    )(params).jaxpr
    # The scores are sums and no products for XLA: 5 x 7 of 8 channels.
    counted = SMALL.multiply_adds(np.array([5]), np.array([7]), VOCABULARY)
    assert product_flops(jaxpr) + 2 * 5 * 7 * 8 == 2 * counted


def test_pairs_in_one_row_give_what_they_give_alone():
    module, random = loud(), np.random.default_rng(0)
    source, target = random.integers(2, VOCABULARY, (1, 8)), random.integers(2, VOCABULARY, (1, 7))
    source_segments = jnp.array([[1, 1, 1, 2, 2, 2, 0, 0]])
    target_segments = jnp.array([[1, 1, 1, 2, 2, 2, 0]])
    forward = jax.jit(lambda *arrays: module(*arrays))
    packed = forward(source, source_segments, target, target_segments)
    for number in (1, 2):
        sees, writes = source_segments[0] == number, target_segments[0] == number
        ones = jnp.ones((1, 3), int)
        alone = forward(source[:, sees], ones, target[:, writes], ones)
        np.testing.assert_allclose(packed[:, writes], alone, atol=1e-5)


def search(module, source, limits, num_beams=None, **penalties):
    cache = module.start_cache(source, (source > 0).astype(int), num_beams or 1, 9)
    arguments = {"max_length": 9, "end": END, "alpha": 0.6} | penalties
    if num_beams is None:
        return greedy_search(module.decode_next, cache, limits, **arguments)
    return beam_search(module.decode_next, cache, limits, num_beams=num_beams, **arguments)


def test_a_search_scores_what_the_whole_decoder_does():
    module = loud()
    source = jnp.array([[3, 4, 5, 6, 0], [7, 2, 0, 0, 0], [9, 10, 8, 2, 3]])
    limits = jnp.array([9, 4, 7])
    for decoded in (search(module, source, limits), search(module, source, limits, 4)):
        tokens = decoded.tokens
        real = (tokens != 0).astype(int)
        inputs = jnp.pad(tokens[:, :-1], ((0, 0), (1, 0)))
        hidden = module(source, (source > 0).astype(int), inputs, real)
        logs = jax.nn.log_softmax(module.logits(hidden))
        logs = jnp.take_along_axis(logs, tokens[..., None], -1)[..., 0]
        lengths = real.sum(1)
        wanted = (logs * real).sum(1) / ((5 + lengths) / 6) ** 0.6
        np.testing.assert_allclose(decoded.scores, wanted, atol=1e-4)
        assert len({tuple(row) for row in np.array(tokens).tolist()}) == 3


def test_coverage_is_the_published_one():
    visible = jnp.array([[True, True, True, False]])
    seen = jnp.array([[0.5, 2.0, 0.1, 0.0], [1.0, 1.0, 1.0, 0.0]])
    cache = Cache(visible, visible, visible, [], seen)
    # log(0.5) + log(1) + log(0.1); a source that was seen whole costs nothing.
    np.testing.assert_allclose(cache.coverage(), [[-2.995732, 0.0]], atol=1e-6)


def test_a_coverage_penalty_lowers_scores_by_its_factor():
    module = loud()
    source, limits = jnp.array([[3, 4, 5, 6, 2]]), jnp.array([6])
    plain, penalized = (search(module, source, limits, 1, beta=beta) for beta in (0.0, 0.5))
    np.testing.assert_array_equal(plain.tokens, penalized.tokens)  # one beam has no choice
    hidden_tokens = plain.tokens[:, : int((plain.tokens != 0).sum())]
    cache = module.start_cache(source, jnp.ones_like(source), 1, 9)
    for position, token in enumerate([0, *hidden_tokens[0, :-1].tolist()]):
        _, cache = module.decode_next(cache, jnp.array([[token]]), jnp.array(position))
    lowered = 0.5 * cache.coverage()[0, 0]
    assert lowered < -1e-3
    np.testing.assert_allclose(penalized.scores[0] - plain.scores[0], lowered, atol=1e-4)
