"""Both sides of a benchmark are one network with one loss, in PyTorch and in JAX."""

import dataclasses
import types
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import pytest

from benchmarks import pytorch_settings
from dawnjax.config.run_options import MeshShape
from dawnjax.machine.mesh import make_mesh
from dawnjax.models.execution import Execution
from dawnjax.models.pure_model import PureModel, pure_model
from dawnjax.optim.optimizers import relative_schedule
from dawnjax.train_step import make_recipe

pytestmark = [pytest.mark.compiles, pytest.mark.parity]

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")

EXECUTION = Execution(platform="cpu", compute_dtype="float32", batch_norm_group_size=0)


def built(model: Any, **arguments: Any) -> PureModel:
    return pure_model(lambda rngs: model.build(**arguments, execution=EXECUTION, rngs=rngs))


def drawn(model: PureModel, deviation: float) -> Any:
    """Parameters of which none is at its beginning."""
    params, _ = model.init(jax.random.key(0))
    random = np.random.default_rng(0)
    return jax.tree.map(
        lambda leaf: random.normal(0, deviation, leaf.shape).astype("float32"), params
    )


def trainer_of(theirs: Any, experiment: Any) -> Any:
    return theirs.Trainer(experiment, pytorch_settings.SETTINGS["eager"])


def load(module: Any, named: Mapping[str, Any]) -> None:
    tensors = {name: torch.tensor(np.array(array, np.float32)) for name, array in named.items()}
    module.load_state_dict(tensors)


def test_both_sides_of_recommendation_have_one_network_and_metric():
    from benchmarks import pytorch_recommendation as theirs
    from dawnjax.input_pipeline.datasets.synthetic import SyntheticRatings
    from dawnjax.tasks.recommendation import measures, ranks_of_first

    experiment = dataclasses.replace(theirs.EXPERIMENT, data=SyntheticRatings())
    spec, trainer = experiment.data.spec(), trainer_of(theirs, experiment)
    model = built(experiment.model, num_users=spec.num_users, num_items=spec.num_items)
    params = drawn(model, 0.4)
    both = [params[name]["kernel"] for name in ("user_layer", "item_layer")]
    layers = [{"kernel": np.concatenate(both), "bias": params["user_layer"]["bias"]}]
    layers += [params["layers"][name] for name in params["layers"]]
    named = {f"{name}.weight": params[name] for name in params if name[:3] in ("gmf", "mlp")}
    for name, layer in [
        *((f"layers.{n}", la) for n, la in enumerate(layers)),
        ("last", params["last"]),
    ]:
        named |= {f"{name}.weight": layer["kernel"].T, f"{name}.bias": layer["bias"]}
    load(trainer.model, named)
    held_out = experiment.data.load("eval")
    users, items = (torch.from_numpy(held_out[name].astype("int64")) for name in held_out)
    ours, _ = model.apply(params, {}, held_out["user"], np.maximum(held_out["items"], 0))
    with torch.inference_mode():
        logits = trainer.model(users, items.clamp(min=0)).numpy()
    np.testing.assert_allclose(ours, logits, atol=2e-5)
    hits = measures(ranks_of_first(ours, held_out["items"]))["hit_rate_at_10"]
    assert trainer.evaluate(users, items) == {"hit_rate_at_10": pytest.approx(float(hits.mean()))}


def test_both_sides_of_gnmt_have_one_loss_and_one_search():
    pytest.importorskip("sacrebleu", reason="needs sacreBLEU (pip install -e '.[text]')")
    from benchmarks import pytorch_gnmt as theirs
    from dawnjax.input_pipeline.datasets.synthetic import SyntheticText
    from dawnjax.models.configs.gnmt import GNMT
    from dawnjax.tasks.decoding import greedy_search
    from dawnjax.tasks.translation import decoder_inputs

    data = SyntheticText(num_train_examples=3)
    model = GNMT(num_layers=3, width=8, dropout_rate=0.0, initial_bound=1.5)
    task = dataclasses.replace(theirs.EXPERIMENT.task, label_smoothing=0.1)
    experiment = dataclasses.replace(theirs.EXPERIMENT, data=data, model=model, task=task)
    spec, arrays = data.spec(), data.load("train")
    made = built(model, vocabulary_size=spec.vocabulary_size)
    params, _ = made.init(jax.random.key(0))
    module = made.bind(params, {})
    segments = jax.numpy.asarray(arrays["target_segments"], "int32")
    targets = jax.numpy.asarray(arrays["target"], "int32")
    sources = arrays["source"].astype("int32"), arrays["source_segments"].astype("int32")
    hidden = module(*sources, decoder_inputs(targets, segments), segments)
    total, count = module.loss_and_count(hidden, targets, segments > 0, 0.1)
    trainer = trainer_of(theirs, experiment)
    load(trainer.average, _as_pytorch(params))
    # Pairs out of their rows, padded one by one.
    pairs = theirs.read_pairs(experiment)
    padded = [theirs.padded(list(side)) for side in zip(*pairs, strict=True)]
    with torch.inference_mode():
        assert float(trainer.average(*padded)) == pytest.approx(float(total / count), abs=1e-5)
    source = padded[0].numpy().astype("int32")
    real = (source > 0).astype("int32")
    cache = module.start_cache(source, real, 1, 12)
    search = {"max_length": source.shape[1] + 4, "end": spec.end}
    ours = greedy_search(module.decode_next, cache, real.sum(1) + 4, **search).tokens
    with torch.inference_mode():
        written = trainer.average.translate(padded[0], 4, spec.end).numpy()
    np.testing.assert_array_equal(np.array(ours)[:, : written.shape[1]], written)
    assert len(np.unique(written, axis=0)) > 3


def test_both_sides_of_gnmt_take_the_same_steps():
    pytest.importorskip("sacrebleu", reason="needs sacreBLEU (pip install -e '.[text]')")
    from benchmarks import pytorch_gnmt as theirs
    from dawnjax.input_pipeline.datasets.synthetic import SyntheticText
    from dawnjax.models.configs.gnmt import GNMT

    num_rows, pairs_a_row, num_steps = 4, 3, 4
    experiment = dataclasses.replace(
        theirs.EXPERIMENT,
        data=SyntheticText(num_train_examples=num_rows * num_steps, pairs_per_row=pairs_a_row),
        model=GNMT(num_layers=3, width=8, dropout_rate=0.0, initial_bound=1.5),
        schedule=dataclasses.replace(theirs.EXPERIMENT.schedule, warmup_epochs=0.5),
        global_batch_size=num_rows,
        num_epochs=1,
        compute_dtype="float32",
    )
    recipe = make_recipe(
        experiment, experiment.data.spec(), make_mesh(MeshShape(), jax.devices("cpu")[:1])
    )
    state, step = recipe.initial_state(jax.random.key(0)), jax.jit(recipe.train_step)
    trainer = trainer_of(theirs, experiment)
    trainer.reset(0)
    for model in (trainer.model, trainer.average):
        load(model, _as_pytorch(state.params))
    arrays, pairs = experiment.data.load("train"), theirs.read_pairs(experiment)
    rates = np.asarray(relative_schedule(experiment, trainer.spec)(np.arange(num_steps)))
    for number in range(num_steps):
        rows = np.arange(num_rows) + number * num_rows
        batch = {name: array[rows] for name, array in arrays.items()} | {"index": rows}
        state, loss = step(state, batch, jax.random.key(0))
        held = pairs[rows[0] * pairs_a_row : (rows[-1] + 1) * pairs_a_row]
        source, target = (theirs.padded(list(side)) for side in zip(*held, strict=True))
        their_loss = float(trainer.train((source, target), float(rates[number])))
        assert their_loss == pytest.approx(float(loss), abs=1e-5)
    # The rate is 5e-3, so after four steps a parameter has moved by up to 0.01.
    for params, model in ((state.params, trainer.model), (state.ema_params, trainer.average)):
        wanted = _as_pytorch(params)
        assert set(wanted) == set(model.state_dict())
        for name, array in model.state_dict().items():
            np.testing.assert_allclose(array.numpy(), wanted[name], atol=2e-5, err_msg=name)


def _as_pytorch(params: Any) -> dict[str, Any]:
    """GNMT's parameters under PyTorch's names; the second bias of a layer is 0."""
    layers = {f"encoder_{side}": params["encoder_first"][side] for side in ("forward", "backward")}
    encoder = [params["encoder_second"], *params["encoder"].values()]
    decoder = [params["decoder_first"], *params["decoder"].values()]
    for name, stack in (("encoder", encoder), ("decoder", decoder)):
        layers |= {f"{name}.{number}": layer for number, layer in enumerate(stack)}
    named = {"embedding.weight": params["embedding"], "classifier.weight": params["classifier"]}
    named["classifier.bias"] = params["classifier_bias"]
    attention = params["attention"]
    for kind in ("query", "key"):
        named[f"{kind}.weight"] = attention[f"{kind}_kernel"].T
    named |= {"query.bias": attention["bias"], "direction": attention["direction"]}
    named["length"] = attention["length"]
    for name, layer in layers.items():
        named[f"{name}.weight_ih_l0"] = layer["input_kernel"].T
        named[f"{name}.weight_hh_l0"] = layer["state_kernel"].T
        named[f"{name}.bias_ih_l0"] = layer["bias"]
        named[f"{name}.bias_hh_l0"] = layer["bias"] * 0
    return {name: np.array(array) for name, array in named.items()}


def test_both_sides_of_squad_have_one_network_and_metric():
    from benchmarks import pytorch_squad as theirs
    from dawnjax.input_pipeline.datasets.synthetic import SyntheticQuestions
    from dawnjax.models.spans import Tokens
    from dawnjax.tasks.span_answering import best_spans

    experiment = dataclasses.replace(theirs.EXPERIMENT, data=SyntheticQuestions())
    spec, trainer = experiment.data.spec(), trainer_of(theirs, experiment)
    model = built(experiment.model, vocabulary_size=spec.vocabulary_size)
    params = drawn(model, 0.3)
    embedding, similarity = params["embedding"], params["similarity"]
    characters = embedding["characters"]
    named = {
        "words.weight": embedding["words"],
        "characters.weight": characters["embedding"],
        **{
            f"of_{n}.weight": similarity[f"{n}_kernel"].T
            for n in ("passage", "question", "product")
        },
    }
    dense = {"convolution": characters["convolution"]}
    dense |= {n: params[n] for n in ("start_score", "end_score")}
    for kind in ("transforms", "gates"):
        dense |= {f"{kind}.{n}": layer for n, layer in params["highway"][kind].items()}
    for name, layer in dense.items():
        named[f"{name}.weight"] = layer["kernel"].T
        if "bias" in layer:
            named[f"{name}.bias"] = layer["bias"]
    layers = {n: params[n] for n in ("contextual", "last_token")}
    layers |= {f"modelling.{n}": layer for n, layer in params["modelling"].items()}
    for name, layer in layers.items():
        for number, direction in enumerate(("forward", "backward")):
            place, lstm = f"{name}.directions.{number}", layer[direction]
            named[f"{place}.weight_ih_l0"] = lstm["input_kernel"].T
            named[f"{place}.weight_hh_l0"] = lstm["state_kernel"].T
            named[f"{place}.bias_ih_l0"] = lstm["bias"]
            named[f"{place}.bias_hh_l0"] = np.zeros_like(lstm["bias"])
    load(trainer.model, named)
    arrays = {n: np.asarray(a)[:40] for n, a in experiment.data.load("eval").items()}
    on_device = {name: jax.numpy.asarray(array) for name, array in arrays.items()}
    sides = [Tokens(on_device[n], on_device[f"{n}_characters"]) for n in ("context", "question")]
    ours, _ = model.apply(params, {}, *sides)
    inputs = [torch.from_numpy(arrays[name].astype("int64")) for name in theirs.INPUTS]
    with torch.inference_mode():
        scores = trainer.model.eval()(*inputs)
    for mine, other in zip(ours, scores, strict=True):
        np.testing.assert_allclose(mine, other.numpy(), atol=1e-4)
    found = theirs.best_spans(scores[0], scores[1], 3)
    assert found.tolist() == np.asarray(best_spans(ours[0], ours[1], 3)).tolist()


def test_both_sides_of_detection_have_one_network_loss_and_search():
    from benchmarks import pytorch_cells as theirs
    from dawnjax.input_pipeline.datasets.synthetic import SyntheticObjects
    from dawnjax.models import boxes
    from dawnjax.tasks import multibox
    from dawnjax.tasks.detection import detections

    data = SyntheticObjects(num_train_examples=8, num_eval_examples=8, objects_an_image=6)
    experiment = dataclasses.replace(theirs.EXPERIMENT, data=data)
    spec, random, model = data.spec(), np.random.default_rng(0), experiment.model
    trainer = trainer_of(theirs, experiment)
    pure = built(model, image_shape=spec.image_shape, num_classes=3)
    params, _ = pure.init(jax.random.key(0))
    params = jax.tree.map(lambda leaf: leaf + random.normal(0, 0.05, leaf.shape), params)
    named = {}
    for stage, layers in params["stages"].items():
        for number, layer in layers["convolutions"].items():
            place, norm = f"stages.{stage}.{3 * int(number)}", layers["norms"][number]
            named[f"{place}.weight"] = layer["kernel"].transpose(3, 2, 0, 1)
            place = f"stages.{stage}.{3 * int(number) + 1}"
            named |= {f"{place}.weight": norm["scale"], f"{place}.bias": norm["bias"]}
    for head in ("boxes", "classes"):
        for number, layer in params["heads"][head].items():
            named[f"{head}.{number}.weight"] = layer["kernel"].transpose(3, 2, 0, 1)
            named[f"{head}.{number}.bias"] = layer["bias"]
    load(trainer.model, named)
    train = {name: np.asarray(array) for name, array in data.load("train").items()}
    images = trainer.normalized(torch.from_numpy(train["image"]))
    (codes, logits), _ = pure.apply(params, {}, images.permute(0, 2, 3, 1).numpy())
    centred = jax.numpy.asarray(model.default_boxes(spec.image_shape))
    matched = jax.vmap(lambda b, c: multibox.match(boxes.to_corners(centred), b, c, 0.5))(
        jax.numpy.asarray(train["boxes"]), jax.numpy.asarray(train["classes"])
    )
    targets = boxes.encode(matched.corners, centred, multibox.CODE_WEIGHTS)
    sums, positives = multibox.image_losses(codes, logits, targets, matched.classes, 3)
    theirs_of = [torch.from_numpy(train[name]) for name in ("boxes", "classes")]
    loss = trainer.loss(images, theirs_of[0], theirs_of[1].long())
    np.testing.assert_allclose((sums / positives).mean(), loss.item(), rtol=1e-4)
    found = trainer.found(torch.from_numpy(train["image"])).numpy()
    corners = boxes.decode(codes, centred, multibox.CODE_WEIGHTS)
    scores = jax.nn.softmax(logits)[..., 1:]
    ours = jax.vmap(lambda *image: detections(experiment.task.search, *image))(corners, scores)
    assert (found[..., 4] > 0).sum() > 20
    np.testing.assert_allclose(ours, found, atol=2e-4)


def test_both_sides_of_the_language_model_are_one_network():
    from benchmarks import pytorch_language_model as theirs
    from dawnjax.input_pipeline.datasets.synthetic import SyntheticTokens

    data = SyntheticTokens(num_train_tokens=4 * 32)
    experiment = dataclasses.replace(
        theirs.EXPERIMENT,
        data=data,
        model=dataclasses.replace(theirs.EXPERIMENT.model, num_layers=3, width=16),
    )
    spec, rows = data.spec(), data.load("train")["tokens"][np.arange(4)].astype(np.int32)
    rows[0, 7] = spec.separator  # a document that begins within a row
    model = built(experiment.model, **experiment.task.model_arguments(spec))
    params, _ = model.init(jax.random.key(0))
    # What begins at zero shows nothing.
    random = np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: leaf + 0.1 * random.normal(size=leaf.shape), params)
    module = model.bind(params, {})
    setting: Any = types.SimpleNamespace(execution=EXECUTION, spec=spec)
    losses, count = experiment.task.loss(module, {"tokens": jax.numpy.asarray(rows)}, None, setting)
    leaves = jax.tree_util.tree_leaves_with_path(params)
    arrays = {"/".join(str(entry.key) for entry in path): np.asarray(a) for path, a in leaves}
    network = theirs.Network(experiment, spec)
    load(network, theirs.renamed(arrays))
    with torch.inference_mode():
        theirs_sum = network(torch.tensor(rows, dtype=torch.int64)).sum()
    assert float(losses) / count == pytest.approx(float(theirs_sum) / count, rel=2e-6)
