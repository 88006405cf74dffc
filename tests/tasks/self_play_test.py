"""Self-play against plain code: a search written out, outcomes, opponents, known networks."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from each_change import rows
from flax import nnx
from networks import PLAIN, count, recipe_of

from dawnjax.config.experiment_modules import load_experiment
from dawnjax.input_pipeline.datasets.go_games import GoGames
from dawnjax.input_pipeline.datasets.pgx_games import PgxGame
from dawnjax.tasks import game_search, opponents
from dawnjax.tasks.game_search import GameSearch
from dawnjax.tasks.generation import CALLS, FIGURES
from dawnjax.tasks.professional_moves import ProfessionalMoves
from dawnjax.tasks.self_play import SelfPlay
from dawnjax.tasks.task import Setting

pgx = pytest.importorskip("pgx", reason="needs pgx and mctx (pip install -e '.[selfplay]')")
pytestmark = pytest.mark.compiles

TIC_TAC_TOE = PgxGame(game="tic_tac_toe")
WEIGHTS = np.random.default_rng(0).normal(size=(18, 10)).astype(np.float32)


def fixed_network(observations, key, hope=0.0):
    """Logits and a value that depend on the position alone: a stand-in for a network.

    With `hope` it finds every position good for the player to move.
    """
    del key
    products = observations.reshape(len(observations), -1).astype(jnp.float32) @ WEIGHTS
    return products[:, :9], jnp.tanh(products[:, 9] + hope)


def keys_of(count, seed=0):
    return jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(seed), jnp.arange(count))


LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]


def plain_search(board, simulations, exploration, hope, as_minigo=False):
    """Visits of each move of tic-tac-toe by PUCT, one simulation after the other.

    `board` has 1 for the stones of the player to move and -1 for the other's. Minigo's N counts
    the visit under way, and its priors are those of all moves.
    """

    def outcome(board):
        """Value of an ended game for the player to move, or None."""
        if any(all(board[cell] == -1 for cell in line) for line in LINES):
            return -1.0
        return None if 0 in board else 0.0

    def node(board):
        planes = np.stack([board == 1, board == -1], -1).reshape(1, 3, 3, 2)
        logits, value = fixed_network(jnp.asarray(planes), None, hope)
        legal = board == 0
        exponents = np.where(legal, np.exp(np.asarray(logits[0], np.float64)), 0.0)
        zeros = np.zeros(9)
        total = np.exp(np.asarray(logits[0], np.float64)).sum() if as_minigo else exponents.sum()
        return {"board": board, "prior": exponents / total, "value": float(value[0]),
                "visits": zeros.copy(), "sums": zeros.copy(), "children": {}}  # fmt: skip

    def simulate(here):
        """Value of one more simulation for the player to move at a node."""
        visits = here["visits"]
        mean = (here["value"] + here["sums"]) / (1 + visits)
        counted = 1 + visits.sum() + (2 if as_minigo else 0)
        weight = exploration * here["prior"] * math.sqrt(counted) / (1 + visits)
        move = int(np.where(here["board"] == 0, mean + weight, -np.inf).argmax())
        if move in here["children"]:
            child = here["children"][move]
            value = -simulate(child) if isinstance(child, dict) else -child
        else:
            board = here["board"].copy()
            board[move] = 1
            ended = outcome(-board)
            child = here["children"][move] = node(-board) if ended is None else ended
            value = -child["value"] if isinstance(child, dict) else -child
        here["visits"][move] += 1
        here["sums"][move] += value
        return value

    root = node(board)
    for _ in range(simulations):
        simulate(root)
    return root["visits"]


# Of positions and hopes alike: tracing is most of what the cases cost.
@functools.partial(jax.jit, static_argnums=2)
def found_by_puct(states, hope, method):
    config = GameSearch(method=method, simulations=60, exploration=1.38, exploration_base=1e9)
    network = functools.partial(fixed_network, hope=hope)
    rules = TIC_TAC_TOE.rules()
    return game_search.search(config, rules, network, states, keys_of(1), explores=False)


@pytest.mark.parametrize("method", ["puct", "minigo"])
@pytest.mark.parametrize("hope", rows([0.0, 3.0], [3.0]))
@pytest.mark.parametrize("moves", [(), (0, 4), (4, 0, 8, 2, 1)])
def test_puct_visits_what_a_search_written_plainly_visits(moves, hope, method):
    rules = TIC_TAC_TOE.rules()
    state, board = rules.init(jax.random.key(0)), np.zeros(9, int)
    for move in moves:
        state, board[move] = rules.step(state, move), 1
        board = -board
    found = found_by_puct(jax.tree.map(lambda leaf: leaf[None], state), hope, method)
    visits = plain_search(board, 60, 1.38, hope, as_minigo=method == "minigo")
    np.testing.assert_allclose(found.weights[0] * 60, visits, atol=1e-3)
    assert int(found.action[0]) == visits.argmax()


def test_noise_of_minigo_falls_on_all_moves():
    """Of a prior on one move, a quarter goes to the others, by a draw that sums to 1 over all."""
    config = GameSearch(method="minigo", noise_alpha=0.5, noise_fraction=0.25)
    logits = jnp.where(jnp.arange(9) == 4, 0.0, -1e9)[None]
    probabilities = np.exp(game_search.noisy_logits(logits, jax.random.key(0), config))[0]
    noise = (probabilities - 0.75 * (np.arange(9) == 4)) / 0.25
    assert noise.sum() == pytest.approx(1, rel=1e-5) and (noise > 0).all()
    # What the rules forbid keeps its share, so that the legal moves have less than 1.
    state = TIC_TAC_TOE.rules().step(TIC_TAC_TOE.rules().init(jax.random.key(0)), 4)
    prior = np.exp(game_search.prior_of_all_moves(logits, jax.tree.map(lambda x: x[None], state)))
    assert prior.sum() < 1e-6


@pytest.mark.parametrize("method", rows(["puct", "minigo", "gumbel"], ["gumbel"]))
def test_a_game_is_searched_alike_alone_and_beside_others(method):
    rules = TIC_TAC_TOE.rules()
    config = GameSearch(method=method, simulations=8, considered=4)
    search = jax.jit(
        lambda states, keys: game_search.search(config, rules, fixed_network, states, keys)
    )
    keys = keys_of(4, seed=3)
    states = jax.vmap(rules.init)(keys)
    together = search(states, keys)
    alone = search(jax.tree.map(lambda leaf: leaf[2:3], states), keys[2:3])
    assert int(together.action[2]) == int(alone.action[0])
    np.testing.assert_allclose(together.weights[2], alone.weights[0], atol=1e-6)
    assert len({tuple(np.asarray(row)) for row in together.weights}) > 1  # each by its own key


@pytest.mark.parametrize("game", rows(["tic_tac_toe", "connect_four", "go_5x5"], ["connect_four"]))
def test_a_symmetry_of_the_board_is_the_same_game(game):
    data = PgxGame(game=game)
    rules, (cells, actions) = data.rules(), data.symmetries()
    step = jax.jit(jax.vmap(rules.step))
    which = np.arange(len(cells))
    states = jax.vmap(rules.init)(jnp.stack([jax.random.key(0)] * len(cells)))
    random = np.random.default_rng(0)
    for _ in range(5):
        planes = np.asarray(states.observation).reshape(len(cells), cells.shape[1], -1)
        legal = np.asarray(states.legal_action_mask)
        for k in which:
            np.testing.assert_array_equal(planes[k], planes[0][cells[k]])
            np.testing.assert_array_equal(legal[k], legal[0][actions[k]])
        move = random.choice(np.flatnonzero(legal[0]))
        # Action i of board k is action actions[k, i] of board 0.
        states = step(states, jnp.asarray(np.argsort(actions, axis=1)[:, move], jnp.int32))


def test_positions_have_the_outcome_of_their_game_for_the_player_to_move():
    task = SelfPlay(
        games=4, moves=6, window_generations=2, search=GameSearch(simulations=2, opening_moves=9)
    )
    experiment = dataclasses.replace(
        load_experiment("connect_four_selfplay", is_tiny=True), task=task
    )
    recipe = recipe_of(experiment, experiment.data.spec())
    state, key = recipe.initial_state(jax.random.key(1)), jax.random.key(2)
    made = state.made

    @jax.jit
    def call(made):
        after = task.make(
            "self_play", recipe.model, state.params, state.batch_stats, made, key, recipe.setting
        )
        return {**after, CALLS: made[CALLS] + 1}

    games, figures = 0.0, dict[str, float]()
    for _ in range(3):
        for _ in range(task.moves):
            made = call(made)
        figures = task.figures(jax.device_get(made[FIGURES]), recipe.setting)
        games += figures["games"]
    # The third generation has taken the place of the first.
    rows = 2 * task.moves
    window = {
        name: np.roll(np.asarray(array).reshape(rows, task.games, *array.shape[1:]), task.moves, 0)
        for name, array in made["window"].items()
    }
    stones = np.unpackbits(window["observation"], axis=2, count=18).sum(2)
    value, known = window["value"], window["has_value"]
    ended, crossed = 0, 0
    for game in range(task.games):
        starts = [*np.flatnonzero(stones[:, game] == 0), rows]
        ended += bool(starts[0])  # a game of the first generation that ended later
        assert known[: starts[0], game].all()
        for first, end in zip(starts, starts[1:], strict=False):
            span = slice(first, end)
            np.testing.assert_array_equal(stones[span, game], np.arange(end - first))
            if not known[first, game]:
                assert not known[span, game].any() and end == rows
                continue
            ended += 1
            crossed += first < task.moves < end
            assert known[span, game].all()
            # Who moves last has won or drawn; the players take turns.
            assert value[end - 1, game] in (0.0, 1.0)
            np.testing.assert_array_equal(
                value[first : end - 1, game], -value[first + 1 : end, game]
            )
    assert crossed and games >= ended >= task.games
    assert figures["outcome_known"] == pytest.approx(known.mean(), abs=1e-6)
    assert 5 <= figures["mean_moves"] <= 9
    drawn = task.drawn(made, {"index": jnp.arange(9), "epoch": jnp.zeros(9, jnp.int32)}, key,
                       recipe.setting)  # fmt: skip
    assert drawn["observation"].shape == (9, 3, 3, 2)
    np.testing.assert_allclose(drawn["policy"].sum(1), 1.0, atol=1e-6)


def after(rules, moves):
    state = rules.init(jax.random.key(0))
    for move in moves:
        state = rules.step(state, move)
    return jax.tree.map(lambda leaf: leaf[None].repeat(8, 0), state)


@pytest.mark.parametrize(
    ("kind", "moves", "wanted"),
    [
        ("wins", (0, 1, 0, 1, 0, 1), {0}),  # three in column 0, and it is to move
        ("wins_and_blocks", (0, 1, 0, 1, 0, 1), {0}),
        ("wins_and_blocks", (0, 6, 0, 6, 0), {0}),  # the other has three in column 0
        ("wins_and_blocks", (2, 2, 3, 3), None),  # nobody has three
    ],
)
def test_an_opponent_takes_a_win_and_leaves_none(kind, moves, wanted):
    rules = PgxGame(game="connect_four").rules()
    player = jax.jit(opponents.opponent(kind, rules))
    chosen = set(np.asarray(player(after(rules, moves), keys_of(8))).tolist())
    assert chosen == wanted if wanted else len(chosen) > 1


def test_a_match_is_scored_for_the_first_player():
    rules = PgxGame(game="connect_four").rules()
    keys, begins = keys_of(32), jnp.arange(32) % 2 == 0
    strong, weak = (opponents.opponent(kind, rules) for kind in ("wins_and_blocks", "random"))
    won = jax.jit(lambda: opponents.play(rules, opponents.between(strong, weak), keys, begins))()
    lost = jax.jit(lambda: opponents.play(rules, opponents.between(weak, strong), keys, begins))()
    assert set(np.unique(won)) <= {0.0, 0.5, 1.0}
    assert won.mean() > 0.8 and lost.mean() < 0.2


def test_of_two_networks_each_begins_half_of_a_match():
    # With one simulation a side plays its likeliest move, so who begins fills a line first.
    def network(order):
        logits = -30.0 * jnp.array(order)
        return lambda boards, key: (
            jnp.broadcast_to(logits, (len(boards), 9)),
            jnp.zeros(len(boards)),
        )

    first, second = network(range(9)), network(range(8, -1, -1))
    config = GameSearch(simulations=1, opening_moves=0)
    play = jax.jit(
        lambda key: opponents.points(
            config,
            TIC_TAC_TOE.rules(),
            lambda is_first: lambda *seen: jax.lax.cond(is_first, first, second, *seen),
            4,
            key,
        )
    )
    np.testing.assert_array_equal(play(jax.random.key(0)), [1.0, 1.0, 0.0, 0.0])


class KnownMoves(nnx.Module):
    """A network that plays point n on a board of n stones, shifted by some points."""

    def __init__(self, shift):
        self.shift = nnx.Variable(shift)

    def __call__(self, observations, *, train):
        del train
        # Planes 0 and 1 are the newest stones of both.
        stones = observations[..., :2].sum((1, 2, 3)) + self.shift[...]
        return 30.0 * jax.nn.one_hot(stones, 26), jnp.zeros(len(observations))


def test_moves_of_a_known_network_are_predicted():
    data = GoGames(game="go_5x5", made_up_moves=5, passes=2)
    task = ProfessionalMoves(predict_simulations=8)
    spec, examples = data.spec(), data.load("eval")
    assert spec.num_eval_examples == 10 and examples["moves"].shape == (10, 5)
    batch = {n: jnp.asarray(array) for n, array in examples.items()}
    batch |= {"index": jnp.arange(10), "mask": jnp.ones(10, bool)}
    setting = Setting(model=None, data=data, spec=spec, execution=PLAIN)
    measure = jax.jit(lambda shift: task.measure(KnownMoves(shift), batch, setting))
    for shift, share in ((0, 1.0), (6, 0.0)):
        predicted = measure(jnp.int32(shift))["professional_moves"]
        assert predicted.shape == (10,) and float(predicted.mean()) == share


def test_minigo_has_the_size_and_the_rules_of_v05():
    experiment = load_experiment("minigo_9x9")
    data = dataclasses.replace(experiment.data, made_up_moves=9)
    experiment = dataclasses.replace(experiment, data=data)
    spec = data.spec()
    experiment.validate(spec)
    assert spec.observation_shape == (9, 9, 17) and spec.num_actions == 82
    assert experiment.steps_per_epoch(spec) == 6250
    assert [(t.metric, t.value) for t in experiment.targets] == [("professional_moves", 0.4)]
    go = vars(data.rules())["_game"]  # pgx shows its settings nowhere else
    assert (go.komi, go.max_termination_steps) == (7.5, 113)
    recipe = recipe_of(experiment, spec, platform="tpu", is_plain=True)
    assert count(recipe.abstract_state.params) == 191_386
    # Trunk: 17 and 18 x 32 channels of nine taps; heads: 32 x 3 of one, 162 x 82, 81 x 64, 64.
    multiply_adds = 25**2 * (17 * 32 + 18 * 32 * 32) + 81 * 96 + 162 * 82 + 81 * 64 + 64
    assert experiment.task.evaluation_flops(recipe.setting) == 2 * multiply_adds
