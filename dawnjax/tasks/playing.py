"""Self-play: a network learns a board game from games that it plays against itself.

Games play side by side, each move found by a search with the network; a finished game begins anew.
Each position goes into a window of the last generations with the search's policy and, once its game
has ended, the outcome. Training draws from the window.

Source: Silver et al. 2017, "Mastering the game of Go without human knowledge"; mlcommons/training
v0.5, `reinforcement/tensorflow/minigo`, for gating and the loss.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from etils import epy

from dawnjax.errors import ConfigError
from dawnjax.limits import Fraction, Limit, NonNegative, OneOrMore
from dawnjax.tasks import game_search, opponents
from dawnjax.tasks.game_search import GameSearch, from_tree, game_keys, to_tree
from dawnjax.tasks.generation import CALLS, FIGURES, GeneratingTask
from dawnjax.tasks.task import Arrays, Moment, Setting, forward_flops

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

    from dawnjax.machine import mesh as device_mesh
    from dawnjax.models import pure_model
    from dawnjax.profile import model_flops

# Purposes of random numbers beside those of every task.
_START, _MOVE, _DRAW, _GATE = range(16, 20)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Playing(GeneratingTask):
    """A game of two players, learnt by playing against oneself; what scores it is a subclass's.

    A generation makes games x moves positions. Games that its end interrupts go on in the next.

    Attributes:
      games: Games played at once.
      moves: Moves of each game in a generation.
      window_generations: Number of the newest generations from which training draws positions,
        uniformly.
      search: Search of a move in self-play, and in gating without Dirichlet noise.
      value_weight: Weight of the value's squared error beside the policy's cross-entropy.
      symmetries: Train on a random symmetry of each position.
      gating_games: Games of the match that decides whether the newest parameters play; with 0 they
        always play.
      gating_score: Score of that match needed to play.
    """

    example_unit: ClassVar[str] = "positions"

    games: OneOrMore[int] = 64
    moves: OneOrMore[int] = 48
    window_generations: OneOrMore[int] = 8
    search: GameSearch = GameSearch()
    value_weight: NonNegative[float] = 1.0
    symmetries: bool = True
    gating_games: Annotated[int, Limit(lambda n: n >= 0 and n % 2 == 0, "be even")] = 0
    gating_score: Fraction = 0.55

    # What there is to make, and whether it fits.

    def calls(self) -> tuple[tuple[str, int], ...]:
        """A match, where there is gating, and a call for each move of all games."""
        gating = (("gating", 1),) if self.gating_games else ()
        return (*gating, ("self_play", self.moves))

    @property
    def made_positions(self) -> int:
        return self.games * self.moves

    def validate(self, model: Any, spec: Any) -> None:
        game_search.require_mctx()
        if not hasattr(spec, "num_actions"):
            raise ConfigError(f"task={self.TAG} plays games: choose data=pgx")

    def refuse_setting(self, experiment: Any, setting: Setting) -> None:
        batch, spec = experiment.global_batch_size, setting.spec
        if spec.num_train_examples % batch:
            raise ConfigError(
                f"data.examples_per_generation={spec.num_train_examples} must be a multiple of "
                f"global_batch_size={batch}: a step draws from one generation's window"
            )
        if self.made_positions < batch:
            raise ConfigError(
                f"task.games={self.games} x task.moves={self.moves} make {self.made_positions} "
                f"positions, and the first generation must hold a batch of {batch}"
            )
        if self.gating_games and experiment.initialize_from:
            raise ConfigError(
                f"task.gating_games={self.gating_games} keeps the best parameters, which "
                "initialize_from does not set; give 0"
            )
        if self.gating_games:
            opponents.refuse_one_game(self.search)
        shards = 1 if setting.mesh is None else device_mesh.batch_shards(setting.mesh)
        if self.games % shards:
            raise ConfigError(
                f"task.games={self.games} does not divide among {shards} devices; take a multiple, "
                f"such as {-(-self.games // shards) * shards}"
            )

    def _empty_window(self, setting: Setting) -> Arrays:
        spec, rows = setting.spec, self.window_generations * self.made_positions
        # Eight cells of a plane to a byte: a window may hold millions of positions.
        observation_bytes = -(-math.prod(spec.observation_shape) // 8)
        return {
            "observation": jnp.zeros((rows, observation_bytes), jnp.uint8),
            "policy": jnp.zeros((rows, spec.num_actions), jnp.float32),
            "value": jnp.zeros(rows, jnp.float32),
            "has_value": jnp.zeros(rows, jnp.bool_),
            "mover": jnp.zeros(rows, jnp.int8),
        }

    def model_arguments(self, spec: Any) -> dict[str, Any]:
        return {"observation_shape": spec.observation_shape, "num_actions": spec.num_actions}

    # Making positions.

    def start(
        self, params: pure_model.Tree, batch_stats: pure_model.Tree, setting: Setting
    ) -> pure_model.Tree:
        rules = setting.data.rules()
        keys = game_keys(jax.random.key(_START), self.games)
        # Of each game under way: the moves of the run before its first.
        began = jnp.zeros(self.games, jnp.int32)
        best = {"params": params, "batch_stats": batch_stats} if self.gating_games else {}
        games = to_tree(jax.vmap(rules.init)(keys))
        return {
            "games": games,
            "began": began,
            "window": self._empty_window(setting),
            "best": best,
            FIGURES: _no_figures(bool(self.gating_games)),
        }

    def make(
        self,
        phase: str,
        model: pure_model.PureModel,
        params: pure_model.Tree,
        batch_stats: pure_model.Tree,
        made: pure_model.Tree,
        root_key: jax.Array,
        setting: Setting,
    ) -> pure_model.Tree:
        call = made[CALLS]
        if phase == "gating":
            key = jax.random.fold_in(jax.random.fold_in(root_key, _GATE), call)
            return self._gated(model, params, batch_stats, made, key, setting)
        best = made["best"] or {"params": params, "batch_stats": batch_stats}
        module = model.bind(best["params"], best["batch_stats"])
        key = jax.random.fold_in(jax.random.fold_in(root_key, _MOVE), call)
        first = self.calls_of_generation - self.moves
        generation, move = call // self.calls_of_generation, call % self.calls_of_generation - first
        return self._played(module, made, generation, move, key, setting)

    def _played(
        self,
        module: Any,
        made: pure_model.Tree,
        generation: jax.Array,
        move: jax.Array,
        key: jax.Array,
        setting: Setting,
    ) -> pure_model.Tree:
        rules, window, figures = setting.data.rules(), made["window"], made[FIGURES]
        like = jax.eval_shape(jax.vmap(rules.init), game_keys(key, self.games))
        states = from_tree(made["games"], like)

        evaluate = functools.partial(self.evaluator, setting=setting)

        def one_move(module: Any, states: Any, index: jax.Array, data: jax.Array) -> Any:
            keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.wrap_key_data(data), index)
            found = game_search.search(self.search, rules, evaluate(module), states, keys)
            after = jax.vmap(rules.step)(states, found.action)
            ended = opponents.has_ended(after)
            # A purpose far from the few numbers by which a search splits a key.
            fresh_keys = jax.vmap(jax.random.fold_in, (0, None))(keys, 2**30)
            fresh = jax.vmap(rules.init)(fresh_keys)
            following = jax.tree.map(
                lambda new, old: jnp.where(ended.reshape(-1, *[1] * (new.ndim - 1)), new, old),
                fresh,
                after,
            )
            return found, after.rewards, ended, after._step_count, following

        data = jax.random.key_data(key)
        index = jnp.arange(self.games)
        found, rewards, ended, lengths, following = game_search.over_games(
            one_move, setting, module, (states, index), data
        )

        # The window holds the positions of the last moves in rows, one move after the other.
        moves_in_window = self.window_generations * self.moves
        moves_before = generation * self.moves + move
        here = moves_before % moves_in_window

        def written(name: str, rows: jax.Array) -> jax.Array:
            return jax.lax.dynamic_update_slice_in_dim(window[name], rows, here * self.games, 0)

        seen = states.observation
        packed = jnp.packbits(seen.reshape(len(seen), -1), axis=-1)
        window = {
            "observation": written("observation", packed),
            "policy": written("policy", found.weights),
            "value": written("value", jnp.zeros(self.games)),
            "has_value": written("has_value", jnp.zeros(self.games, jnp.bool_)),
            "mover": written("mover", states.current_player.astype(jnp.int8)),
        }
        # A game that ends gives the outcome to all its positions, those of earlier generations too.
        moves_ago = (here - jnp.arange(moves_in_window)[:, None]) % moves_in_window
        of_ended = ended & (moves_before - moves_ago >= made["began"])
        mover = window["mover"].reshape(of_ended.shape).astype(jnp.int32)
        outcome = jnp.take_along_axis(rewards.T, mover, axis=0)
        for name, values in (("value", outcome), ("has_value", of_ended)):
            old = window[name].reshape(of_ended.shape)
            window[name] = jnp.where(of_ended, values, old).reshape(-1)

        counts = {
            "games": ended.sum(dtype=jnp.int32),
            "moves_of_games": jnp.where(ended, lengths, 0).sum(dtype=jnp.int32),
            "draws": (ended & (rewards[:, 0] == 0)).sum(dtype=jnp.int32),
        }
        before = {name: jnp.where(move == 0, 0, figures[name]) for name in counts}
        counts = jax.tree.map(jnp.add, counts, before)
        of_window = {
            "positions_in_window": jnp.minimum(moves_before + 1, moves_in_window) * self.games,
            "positions_with_outcome": window["has_value"].sum(dtype=jnp.int32),
        }
        return {
            **made,
            "games": to_tree(following),
            "began": jnp.where(ended, moves_before + 1, made["began"]),
            "window": window,
            FIGURES: {**figures, **counts, **of_window},
        }

    def evaluator(self, module: Any, setting: Setting) -> game_search.Evaluate:
        """Network as a search calls it."""
        tables = setting.data.symmetries() if self.search.symmetries else None
        return game_search.evaluator(module, tables)

    def _gated(
        self,
        model: pure_model.PureModel,
        params: pure_model.Tree,
        batch_stats: pure_model.Tree,
        made: pure_model.Tree,
        key: jax.Array,
        setting: Setting,
    ) -> pure_model.Tree:
        """`made` with the newest parameters as the best, if they win the match."""
        best = made["best"]
        newest = {"params": params, "batch_stats": batch_stats}

        def evaluator(is_newest: jax.Array) -> game_search.Evaluate:
            mover = jax.tree.map(lambda a, b: jnp.where(is_newest, a, b), newest, best)
            return self.evaluator(model.bind(**mover), setting)

        rules, games = setting.data.rules(), self.gating_games
        score = opponents.points(self.search, rules, evaluator, games, key).mean()
        is_better = score >= self.gating_score
        best = jax.tree.map(lambda new, old: jnp.where(is_better, new, old), newest, best)
        figures = {**made[FIGURES], "gating_score": score, "is_new": is_better.astype(jnp.int32)}
        return {**made, "best": best, FIGURES: figures}

    def figures(self, counts: Mapping[str, Any], setting: Setting) -> dict[str, float]:
        """Counts of a generation; `simulations` are evaluations of positions in the searches."""
        values = {name: float(count) for name, count in counts.items()}
        moves = values.pop("moves_of_games")
        # Positions whose game has not ended train the policy alone.
        known = values.pop("positions_with_outcome") / values.pop("positions_in_window")
        return {
            **values,
            "mean_moves": round(moves / values["games"], 4) if values["games"] else 0.0,
            "positions": float(self.made_positions),
            "outcome_known": round(known, 6),
            "simulations": float(self.made_positions * self.search.simulations),
        }

    # Learning from them.

    def drawn(
        self, made: pure_model.Tree, batch: Arrays, root_key: jax.Array, setting: Setting
    ) -> Arrays:
        generations = made[CALLS] // self.calls_of_generation
        filled = jnp.minimum(generations, self.window_generations) * self.made_positions
        cells, actions = map(jnp.asarray, setting.data.symmetries())
        base = jax.random.fold_in(root_key, _DRAW)
        window = made["window"]

        def draw(index: jax.Array, epoch: jax.Array) -> Arrays:
            key = jax.random.fold_in(jax.random.fold_in(base, epoch), index)
            row_key, symmetry_key = jax.random.split(key)
            row = jax.random.randint(row_key, (), 0, jnp.maximum(filled, 1))
            example = {name: rows[row] for name, rows in window.items()}
            shape = setting.spec.observation_shape
            bits = jnp.unpackbits(example["observation"], count=math.prod(shape))
            example["observation"] = bits.astype(jnp.bool_).reshape(shape)
            if self.symmetries and len(cells) > 1:
                which = jax.random.randint(symmetry_key, (), 0, len(cells))
                board = example["observation"].reshape(-1, shape[-1])
                example["observation"] = board[cells[which]].reshape(shape)
                example["policy"] = example["policy"][actions[which]]
            return example

        return {**batch, **jax.vmap(draw)(batch["index"], batch["epoch"])}

    def loss(
        self, module: Any, batch: Arrays, moment: Moment, setting: Setting
    ) -> tuple[jax.Array, int]:
        """Cross-entropy of each position's policy, and the squared error of its value."""
        logits, values = module(batch["observation"], **pure_model.mode_arguments(module, True))
        policy = -(batch["policy"] * jax.nn.log_softmax(logits)).sum(-1)
        value = jnp.where(batch["has_value"], jnp.square(values - batch["value"]), 0.0)
        return policy + self.value_weight * value, len(values)

    def train_flops_per_example(self, setting: Setting) -> float:
        return model_flops.TRAINING_FACTOR * self.evaluation_flops(setting)

    def generation_flops(self, setting: Setting) -> float:
        evaluations = self.made_positions * (self.search.simulations + 1)
        return evaluations * self.evaluation_flops(setting)

    def evaluation_flops(self, setting: Setting) -> float:

        def forward(module: Any, arrays: Arrays) -> Any:
            return module(arrays["observation"], **pure_model.mode_arguments(module, True))

        shapes = {"observation": (setting.spec.observation_shape, jnp.bool_)}
        return forward_flops(self, setting, shapes, forward)


def _no_figures(has_gating: bool) -> Arrays:
    of_window = ("positions_in_window", "positions_with_outcome")
    names = ("games", "moves_of_games", "draws", *of_window)
    counts = {name: jnp.int32(0) for name in names}
    gating = {"gating_score": jnp.float32(0), "is_new": jnp.int32(0)} if has_gating else {}
    return {**counts, **gating}
