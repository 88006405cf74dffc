"""The accelerator's benchmarks, tried at tiny sizes: both sides, checks, and what is written."""

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from quick_compilation import QUICK

from benchmarks import (
    compared,
    harness,
    language_model_peer,
    pytorch_settings,
    record,
)
from dawnjax.config.run_options import MeshShape
from dawnjax.machine.mesh import make_mesh
from dawnjax.models.execution import Execution
from dawnjax.models.pure_model import pure_model
from dawnjax.optim.optimizers import relative_schedule
from dawnjax.train_step import make_recipe

TOP = Path(__file__).resolve().parents[2]
HAS_TORCH = importlib.util.find_spec("torch") is not None


def run_benchmark(tmp_path: Path, *argv: str) -> subprocess.CompletedProcess:
    """Runs a benchmark on one CPU device, quickly compiled, with results in `tmp_path`."""
    variables = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": QUICK, "NPROC": "2"}
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *argv],
        cwd=TOP,
        env={**os.environ, **variables, harness.RESULTS_VARIABLE: str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.processes
@pytest.mark.parity
@pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed")
@pytest.mark.parametrize(
    "model, tolerance",
    [("resnet50", 0.002), ("transformer_big", 0.002), ("multi30k_transformer_bfloat16", 0.02)],
)
def test_steps_of_both_sides_have_the_same_losses(model, tolerance, tmp_path):
    done = run_benchmark(
        tmp_path,
        *("steps", f"--model={model}", "--tiny", "--variants=base"),
        *("--settings=eager", "--rounds=2", "--steps=1"),
    )
    assert done.returncode == 0, done.stderr
    written = json.loads((tmp_path / f"steps_{model}_cpu_tiny.json").read_text())
    assert written["is_tiny"]
    base = written["variants"]["base"]
    against = base["against_pytorch"]
    assert against["check"] == "losses of the first steps"
    assert against["largest_difference"] < against["tolerance"] == tolerance
    assert len(against["first"]) == len(against["second"]) == len(base["rounds"]) == 2
    assert base["share_of_limit"] is None and base["mfu"] is None
    assert written["pytorch"]["fastest"] == "eager" == written["pytorch"]["settings"]


@pytest.mark.processes
def test_variants_that_are_not_ready_in_time_are_told(tmp_path):
    done = run_benchmark(
        tmp_path,
        *("steps", "--model=resnet50", "--tiny", "--without_pytorch"),
        *("--variants=space_to_depth,no_triton_gemm", "--rounds=1", "--steps=1", "--limit=0.2"),
    )
    assert done.returncode == 1
    assert done.stdout.count("no answer in 1 s") == 2  # the least limit
    assert done.stderr.strip().endswith("no variant ran")


PEER = """
print("|  run     |  epoch  |  train_acc  |  val_acc  |  tta_val_acc  |  time_seconds  |")
for run, accuracy, seconds in (("warmup", 0.1, 9.9), (0, 0.4, 0.25), (1, 0.5, 0.35)):
    print(f"|     {run}  |      1  |     0.9000  |   0.8000  |               |        0.1000  |")
    print(f"|          |   eval  |     0.9000  |   0.8000  |  {accuracy:.4f}  |  {seconds:.4f}  |")
"""


@pytest.mark.processes
def test_record_mode_against_a_peers_script(tmp_path):
    peer = tmp_path / "peer.py"
    peer.write_text(PEER)
    done = run_benchmark(
        tmp_path,
        *("record", "--tiny", "--trials=2", f"--peer={peer}", "--name=found", "--"),
        *("--model.group_widths=8,12", f"--compile_cache_dir={tmp_path / 'cache'}"),
    )
    assert done.returncode == 0, done.stderr
    written = json.loads((tmp_path / "found.json").read_text())
    first, second = written["dawnjax"]
    assert [part["seeds"][0]["seed"] for part in (first, second)] == [0, 1]
    # The second process reads the program back instead of compiling it.
    assert (first["compile_cache"], second["compile_cache"]) == ("cold", "warm")
    assert written["peers"]["peer"]["runs"] == [
        {"top_1_accuracy": 0.4, "time_seconds": 0.25},
        {"top_1_accuracy": 0.5, "time_seconds": 0.35},
    ]
    both = compared.beside_peer(written["dawnjax"], written["peers"]["peer"])
    assert both is not None
    our_seconds = [part["seeds"][0]["time_seconds"] for part in (first, second)]
    assert both[0].value == pytest.approx(np.mean(our_seconds) / 0.3)
    our_accuracies = [part["seeds"][0]["metrics"]["top_1_accuracy"] for part in (first, second)]
    assert both[1].value == pytest.approx(np.mean(our_accuracies) - 0.45)
    assert "range of 2: " in done.stdout


def test_a_peer_that_fails_is_told_with_its_words(tmp_path):
    script = tmp_path / "broken.py"
    script.write_text("raise SystemExit('no GPU here')")
    arguments = record.argparse.Namespace(data="", peer_seconds=30)
    answer = record.run_peer(script, arguments)
    assert (answer["runs"], answer["failed"]) == ([], "no GPU here")


MODDED_NANOGPT = """
import os, time, numpy
folder = os.environ["DATA_PATH"] + "/data/fineweb10B/"
assert os.environ["WORLD_SIZE"] == "1" and os.environ["RANK"] == os.environ["LOCAL_RANK"] == "0"
for name in ("train_000001", "train_000002", "val_000000"):
    header = numpy.fromfile(f"{folder}fineweb_{name}.bin", "<i4", 256)
    tokens = numpy.fromfile(f"{folder}fineweb_{name}.bin", "<u2", offset=1024)
    assert header[:2].tolist() == [20240520, 1] and header[2] == len(tokens)
    assert 0.001 < (tokens == 50256).mean() < 0.003 and tokens.max() == 50256
print("Compiling model and warming up kernels (~7 minutes on first execution)")
for step in range(1000):
    if step % 25 == 0:
        print(f"step:{step}/1000 val_loss:10.8 train_time:{250 * step}ms step_avg:250.00ms")
    print(f"step:{step + 1}/1000 train_time:{250 * (step + 1) + step % 3}ms step_avg:250.00ms")
time.sleep(1000)
"""


@pytest.mark.processes
def test_the_language_model_beside_a_peers_steps(tmp_path):
    peer = tmp_path / "train_gpt.py"
    peer.write_text(MODDED_NANOGPT)
    command = ["language_model_peer", f"--peer={peer}", "--tiny", "--rounds=2", "--steps=50"]
    done = run_benchmark(tmp_path, *command, "--peer_tokens=256")
    assert done.returncode == 0, done.stderr
    written = json.loads((tmp_path / "gpt2_peer_cpu_tiny.json").read_text())
    assert written["peer"]["seconds_a_step"] == pytest.approx([0.25] * 3, abs=1e-3)
    assert "ours / its: " in done.stdout and "range of 2: " in done.stdout
    assert (written["tokens_a_step"], written["dawnjax"]["units_a_step"]) == (256, 256)
    assert len(written["dawnjax_seconds_a_step"]) == 2
    assert "configurations differ in" in written["differences"]
    assert written["differences"] in done.stdout
    peer.write_text("raise SystemExit('no GPU here')")
    assert "no GPU here" in language_model_peer.run_peer(peer, 50, 30)["failed"]


@pytest.mark.processes
@pytest.mark.parity
@pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed")
def test_the_first_step_of_both_sides_cold_and_warm(tmp_path):
    done = run_benchmark(tmp_path, "first_step", "--tiny", "--rounds=1")
    assert done.returncode == 0, done.stderr
    written = json.loads((tmp_path / "first_step_cpu_tiny.json").read_text())
    for side in written["rounds"][0]:
        assert side["warm"]["first_step_seconds"] < side["cold"]["first_step_seconds"]


@pytest.mark.processes
def test_parts_share_their_time_and_go_on_after_one_that_failed(tmp_path):
    python = tmp_path / "python"
    python.write_text(
        "#!/bin/sh\n"
        'case "$*" in\n'
        "  -c*) echo cpu ;;\n"
        "  *resnet50*) echo {} > $DAWNJAX_BENCHMARK_RESULTS/new.json ;;\n"
        "  *amoebanet_d*) exit 7 ;;\n"
        "  *transformer_big*) sleep 100 ;;\n"
        "esac\n"
    )
    python.chmod(0o755)
    out = tmp_path / "out"
    out.mkdir()
    (out / "old.json").touch()
    os.utime(out / "old.json", (0, 0))

    def said_of(parts: str, *flags: str) -> list[str]:
        done = subprocess.run(
            ["bash", "benchmarks/gpu.sh", parts, *flags, "--tiny", f"--out={out}"],
            cwd=TOP,
            env={**os.environ, "PYTHON": str(python)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 1
        return done.stdout.strip().splitlines()

    said = said_of("amoebanet_d,resnet50,transformer_big,gpt2_small", "--seconds=8")
    assert said[:2] == ["amoebanet_d: failed, with exit status 7", "resnet50: ran"]
    assert said[2].startswith("transformer_big: ended after its ")
    assert said[3:] == ["gpt2_small: ran", f"results in {out}:", f"{out}/new.json"]
    said = said_of("all", "--seconds=0")
    assert said[0] == "record: no time" and "start_up: no time" in said
    assert said[-1] == f"results in {out}:"


@pytest.mark.processes
def test_every_part_of_the_script_names_commands_that_exist():
    script = TOP / "benchmarks" / "gpu.sh"
    done = subprocess.run(["bash", str(script), "plan"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stderr.splitlines() if line.startswith("+ ")]
    assert len(lines) >= 12
    for words in lines:
        package, name = words[3], words[4]
        folder = "dawnjax/commands" if package == "dawnjax" else "benchmarks"
        assert (TOP / folder / f"{name}.py").is_file(), words
    refused = subprocess.run(["bash", str(script), "nothing"], capture_output=True, text=True)
    assert refused.returncode == 2


def test_there_is_no_ratio_where_a_trial_did_not_reach():
    def trial(reached, seconds):
        return {
            "reached": reached,
            "time_to_accuracy_seconds": seconds if reached else None,
            "total_seconds_to_accuracy": 2 * seconds if reached else None,
            "train_seconds": seconds,
            "epochs": 4.0,
        }

    pytorch = [trial(True, 2.0), trial(True, 4.0)]
    ratios = compared.trial_ratios([trial(True, 1.0), trial(True, 2.0)], pytorch)
    ours, theirs, ratio = ratios["time to accuracy, s"]
    assert (ours, theirs, ratio.value) == (1.5, 3.0, pytest.approx(0.5))
    assert (ratio.ends, ratio.low, ratio.high) == ("range of 2", 0.25, 1.0)
    assert ratios["train seconds an epoch"][1] == 0.75
    assert not compared.trial_ratios([trial(True, 1.0), trial(False, 9.0)], pytorch)


@pytest.mark.compiles
@pytest.mark.parity
def test_both_sides_of_recommendation_have_one_network_and_metric():
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
    from benchmarks import pytorch_recommendation as theirs
    from dawnjax.input_pipeline.datasets.synthetic_ratings import SyntheticRatings
    from dawnjax.tasks.recommendation import measures, ranks_of_first

    experiment = dataclasses.replace(theirs.EXPERIMENT, data=SyntheticRatings())
    spec, random = experiment.data.spec(), np.random.default_rng(0)
    trainer = theirs.Trainer(experiment, pytorch_settings.SETTINGS["eager"])
    execution = Execution(platform="cpu", compute_dtype="float32", batch_norm_group_size=0)
    model = pure_model(
        lambda rngs: experiment.model.build(
            num_users=spec.num_users, num_items=spec.num_items, execution=execution, rngs=rngs
        )
    )
    params, _ = model.init(jax.random.key(0))
    params = jax.tree.map(lambda leaf: random.normal(0, 0.4, leaf.shape).astype("float32"), params)
    both = [params[name]["kernel"] for name in ("user_layer", "item_layer")]
    layers = [{"kernel": np.concatenate(both), "bias": params["user_layer"]["bias"]}]
    layers += [params["layers"][name] for name in params["layers"]]
    named = {f"{name}.weight": params[name] for name in params if name[:3] in ("gmf", "mlp")}
    for name, layer in [
        *((f"layers.{n}", la) for n, la in enumerate(layers)),
        ("last", params["last"]),
    ]:
        named |= {f"{name}.weight": layer["kernel"].T, f"{name}.bias": layer["bias"]}
    trainer.model.load_state_dict({name: torch.tensor(array) for name, array in named.items()})
    held_out = experiment.data.load("eval")
    users, items = (torch.from_numpy(held_out[name].astype("int64")) for name in held_out)
    ours, _ = model.apply(params, {}, held_out["user"], np.maximum(held_out["items"], 0))
    with torch.inference_mode():
        logits = trainer.model(users, items.clamp(min=0)).numpy()
    np.testing.assert_allclose(ours, logits, atol=2e-5)
    hits = measures(ranks_of_first(ours, held_out["items"]))["hit_rate_at_10"]
    assert trainer.evaluate(users, items) == {"hit_rate_at_10": pytest.approx(float(hits.mean()))}


@pytest.mark.compiles
@pytest.mark.parity
def test_both_sides_of_gnmt_have_one_loss_and_one_search():
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("sacrebleu", reason="needs sacreBLEU (pip install 'dawnjax[text]')")
    from benchmarks import pytorch_gnmt as theirs
    from dawnjax.input_pipeline.datasets.synthetic_text import SyntheticText
    from dawnjax.models.gnmt import GNMT
    from dawnjax.tasks.decoding import greedy_search
    from dawnjax.tasks.translation import decoder_inputs

    data = SyntheticText(num_train_examples=3)
    model = GNMT(num_layers=3, width=8, dropout_rate=0.0, initial_bound=1.5)
    task = dataclasses.replace(theirs.EXPERIMENT.task, label_smoothing=0.1)
    experiment = dataclasses.replace(theirs.EXPERIMENT, data=data, model=model, task=task)
    spec, arrays = data.spec(), data.load("train")
    execution = Execution(platform="cpu", compute_dtype="float32", batch_norm_group_size=0)
    made = pure_model(
        lambda rngs: model.build(
            vocabulary_size=spec.vocabulary_size, execution=execution, rngs=rngs
        )
    )
    params, _ = made.init(jax.random.key(0))
    module = made.bind(params, {})
    segments = jax.numpy.asarray(arrays["target_segments"], "int32")
    targets = jax.numpy.asarray(arrays["target"], "int32")
    sources = arrays["source"].astype("int32"), arrays["source_segments"].astype("int32")
    hidden = module(*sources, decoder_inputs(targets, segments), segments)
    total, count = module.loss_and_count(hidden, targets, segments > 0, 0.1)
    trainer = theirs.Trainer(experiment, pytorch_settings.SETTINGS["eager"])
    trainer.average.load_state_dict(_as_pytorch(params, torch))
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


@pytest.mark.compiles
@pytest.mark.parity
def test_both_sides_of_gnmt_draw_their_parameters_alike():
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("sacrebleu", reason="needs sacreBLEU (pip install 'dawnjax[text]')")
    from benchmarks import pytorch_gnmt as theirs

    model = dataclasses.replace(theirs.EXPERIMENT.model, num_layers=3, width=32)
    experiment, vocabulary_size = dataclasses.replace(theirs.EXPERIMENT, model=model), 500
    execution = Execution(platform="cpu", compute_dtype="float32", batch_norm_group_size=0)
    made = pure_model(
        lambda rngs: model.build(vocabulary_size=vocabulary_size, execution=execution, rngs=rngs)
    )
    ours = _as_pytorch(made.init(jax.random.key(0))[0], torch)
    drawn = theirs.GNMT(experiment, vocabulary_size).state_dict()
    assert set(ours) == set(drawn)
    for name, array in drawn.items():
        bound = float(array.abs().max())
        assert bound == pytest.approx(float(ours[name].abs().max()), rel=0.15), name


@pytest.mark.compiles
@pytest.mark.parity
def test_both_sides_of_gnmt_take_the_same_steps():
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("sacrebleu", reason="needs sacreBLEU (pip install 'dawnjax[text]')")
    from benchmarks import pytorch_gnmt as theirs
    from dawnjax.input_pipeline.datasets.synthetic_text import SyntheticText
    from dawnjax.models.gnmt import GNMT

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
    trainer = theirs.Trainer(experiment, pytorch_settings.SETTINGS["eager"])
    trainer.reset(0)
    for model in (trainer.model, trainer.average):
        model.load_state_dict(_as_pytorch(state.params, torch))
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
        wanted = _as_pytorch(params, torch)
        assert set(wanted) == set(model.state_dict())
        for name, array in model.state_dict().items():
            np.testing.assert_allclose(array.numpy(), wanted[name].numpy(), atol=2e-5, err_msg=name)


def _as_pytorch(params: Any, torch: Any) -> dict[str, Any]:
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
    return {name: torch.tensor(np.array(array)) for name, array in named.items()}


@pytest.mark.compiles
@pytest.mark.parity
def test_both_sides_of_squad_have_one_network_and_metric():
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
    from benchmarks import pytorch_squad as theirs
    from dawnjax.input_pipeline.datasets.synthetic_questions import SyntheticQuestions
    from dawnjax.models.spans import Tokens
    from dawnjax.tasks.span_answering import best_spans

    experiment = dataclasses.replace(theirs.EXPERIMENT, data=SyntheticQuestions())
    spec, random = experiment.data.spec(), np.random.default_rng(0)
    trainer = theirs.Trainer(experiment, pytorch_settings.SETTINGS["eager"])
    execution = Execution(platform="cpu", compute_dtype="float32", batch_norm_group_size=0)
    model = pure_model(
        lambda rngs: experiment.model.build(
            vocabulary_size=spec.vocabulary_size, execution=execution, rngs=rngs
        )
    )
    params, _ = model.init(jax.random.key(0))
    params = jax.tree.map(lambda leaf: random.normal(0, 0.3, leaf.shape).astype("float32"), params)
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
    trainer.model.load_state_dict({name: torch.tensor(array) for name, array in named.items()})
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


@pytest.mark.compiles
@pytest.mark.parity
def test_both_sides_of_the_language_model_are_one_network():
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
    from benchmarks import pytorch_language_model as theirs
    from dawnjax.input_pipeline.datasets.synthetic_tokens import SyntheticTokens

    data = SyntheticTokens(num_train_tokens=4 * 32)
    experiment = dataclasses.replace(
        theirs.EXPERIMENT,
        data=data,
        model=dataclasses.replace(theirs.EXPERIMENT.model, num_layers=3, width=16),
    )
    spec, rows = data.spec(), data.load("train")["tokens"][np.arange(4)].astype(np.int32)
    rows[0, 7] = spec.separator  # a document that begins within a row
    execution = Execution(platform="cpu", compute_dtype="float32", batch_norm_group_size=0)
    arguments = experiment.task.model_arguments(spec)
    model = pure_model(
        lambda rngs: experiment.model.build(**arguments, execution=execution, rngs=rngs)
    )
    params, _ = model.init(jax.random.key(0))
    # What begins at zero shows nothing.
    random = np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: leaf + 0.1 * random.normal(size=leaf.shape), params)
    module = model.bind(params, {})
    setting: Any = types.SimpleNamespace(execution=execution)
    losses, count = experiment.task.loss(module, {"tokens": jax.numpy.asarray(rows)}, None, setting)
    leaves = jax.tree_util.tree_leaves_with_path(params)
    arrays = {"/".join(str(entry.key) for entry in path): np.asarray(a) for path, a in leaves}
    network = theirs.Network(experiment, spec)
    state = {name: torch.tensor(array) for name, array in theirs.renamed(arrays).items()}
    network.load_state_dict(state)
    with torch.inference_mode():
        theirs_sum = network(torch.tensor(rows, dtype=torch.int64)).sum()
    assert float(losses) / count == pytest.approx(float(theirs_sum) / count, rel=2e-6)
