"""`dawnjax evaluate`: a run's checkpoint on its evaluation split, or on another labelled set."""

import dataclasses
import datetime
import json
from pathlib import Path
from typing import Any

from absl import flags

from dawnjax.config import command_line
from dawnjax.config.config_json import to_json
from dawnjax.config.experiment_flags import FlagTree
from dawnjax.config.run_options import RunOptions
from dawnjax.earlier_run import EarlierRun, read_run, restore
from dawnjax.errors import ConfigError, ExitStatus, RunError
from dawnjax.input_pipeline.dataset import DatasetSpec, TextSpec
from dawnjax.runs.directory import names_a_file, write_json

SCHEMA_VERSION = 1

_USAGE = """dawnjax evaluate RUN_DIR [--FLAG=VALUE...]
       dawnjax evaluate RUN_DIR --data=PATH
       dawnjax evaluate RUN_DIR --data.source=FILE --data.target=FILE
       dawnjax evaluate RUN_DIR --evaluation.decoding.num_beams=4"""
_DESCRIPTION = """
Restores the newest checkpoint that verifies and measures the whole evaluation split. Prints one
line of JSON: the step and the metrics.

With another labelled set it measures that, shows the drop against the run's own evaluation, and
writes RUN_DIR/evaluations/NAME-step<STEP>.json; the run's own result is not touched. A classifier
takes a prepared directory, a TFDS directory, class folders PATH/<class>/*, an .npz of images and
labels, or NAME_data.npy beside NAME_labels.npy; classes are matched by name. A translator takes two
files of text, plain or .gz, and reads them with its own vocabulary; it may search with another
beam than the run did, which is then in the file's name.
"""
_OPTIONS = ("mesh", "data_placement", "processes", "checkpoint", "compile_cache_dir")
"""The run options that an evaluation has."""

_NUM_BEAMS = "evaluation.decoding.num_beams"
_LENGTH_PENALTY = "evaluation.decoding.length_penalty"


@dataclasses.dataclass(frozen=True)
class OtherSet:
    """Another labelled set than the run's own, as the run's programs take it.

    Attributes:
      name: What it is called.
      kind: What it was read from, in words.
      spec: The run's specification with this set as the split to evaluate.
      examples: Its arrays.
      fingerprint: Hash of its content.
      references: Of text, the sentences to compare with; None for images.
      notes: What a reader of the numbers should know.
    """

    name: str
    kind: str
    spec: Any
    examples: dict[str, Any]
    fingerprint: str
    references: tuple[str, ...] | None
    notes: tuple[str, ...]


def main(argv: list[str]) -> int:
    """Runs the command; gives its exit status."""
    flag_values = flags.FlagValues()
    for name, text in (
        ("data_dir", "Where the run's own data lie, if not where the run had them."),
        ("data", "Another labelled set of images."),
        ("data.source", "Another set to translate: a file of sentences."),
        ("data.target", "The file of their reference translations."),
        ("name", "What the other set is called; without it, as its file or folder."),
    ):
        flags.DEFINE_string(name, "", text, flag_values=flag_values)
    flags.DEFINE_integer(
        _NUM_BEAMS,
        None,
        "Hypotheses kept, if not as in the run; 1 is greedy.",
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        _LENGTH_PENALTY, None, "Exponent of a beam's length penalty.", flag_values=flag_values
    )
    options = FlagTree(RunOptions, RunOptions(), argv, only=_OPTIONS)
    options.define(flag_values)
    paths = command_line.parse("evaluate", flag_values, argv, _USAGE, _DESCRIPTION)
    if len(paths) != 1:
        raise ConfigError(f"one run directory is needed, {len(paths)} given")
    given = {name: str(flag_values[name].value) for name in ("data", "data.source", "data.target")}
    run = read_run(Path(paths[0]), str(flag_values["data_dir"].value))
    searched = _searched(run, flag_values[_NUM_BEAMS].value, flag_values[_LENGTH_PENALTY].value)
    other = _other_set(searched, given, str(flag_values["name"].value))
    as_in_run = searched.experiment == run.experiment
    return _evaluate(searched, other, options.value(flag_values), as_in_run)


def _searched(run: EarlierRun, num_beams: Any, length_penalty: Any) -> EarlierRun:
    """Gives the run with another search for translations, where one is asked for."""
    given = {"num_beams": num_beams, "length_penalty": length_penalty}
    given = {name: value for name, value in given.items() if value is not None}
    evaluation = run.experiment.evaluation
    decoding = dataclasses.replace(evaluation.decoding, **given)
    evaluation = dataclasses.replace(evaluation, decoding=decoding)
    experiment = dataclasses.replace(run.experiment, evaluation=evaluation)
    experiment.validate(run.spec)
    if length_penalty is not None and decoding.num_beams == 1:
        raise ConfigError(
            f"--{_LENGTH_PENALTY} is for beam search, and this is greedy: give --{_NUM_BEAMS} too"
        )
    return dataclasses.replace(run, experiment=experiment)


def _other_set(run: EarlierRun, given: dict[str, str], name: str) -> OtherSet | None:
    """Reads the other set, if one is asked for."""
    is_text = isinstance(run.spec, TextSpec)
    wrong = [flag for flag, value in given.items() if value and is_text == (flag == "data")]
    if wrong:
        takes = "--data.source and --data.target" if is_text else "--data"
        raise ConfigError(f"--{wrong[0]}: {run.experiment.name} takes another set by {takes}")
    if is_text and bool(given["data.source"]) != bool(given["data.target"]):
        raise ConfigError("--data.source and --data.target go together")
    path = Path(given["data.source"] or given["data"]).expanduser()
    if path == Path():
        if name:
            raise ConfigError("--name is for another set, given by --data")
        return None
    name = name or path.name.split(".")[0]
    if not names_a_file(name):
        raise ConfigError(
            f"--name={name!r} must be up to 80 letters, digits, '_', '.' and '-', and begin with a "
            "letter or digit: it names a file"
        )
    if is_text:
        return _other_text(run, name, path, Path(given["data.target"]).expanduser())
    return _other_images(run, name, path)


def _other_images(run: EarlierRun, name: str, path: Path) -> OtherSet:
    from dawnjax.input_pipeline import labelled_images

    spec, data = run.spec, run.experiment.data
    assert isinstance(spec, DatasetSpec)
    found = labelled_images.read(path, spec.image_shape, resized=data.TAG == "imagenet")
    classes = data.classes()  # pyright: ignore[reportAttributeAccessIssue] - images have classes
    labels = labelled_images.labels_of_run(path, found, classes)
    notes = []
    if found.classes is None:
        notes.append("the set has no names of classes: its labels are taken to be the run's")
    absent = len(classes) - len(set(labels.tolist()))
    if absent:
        notes.append(f"{absent} of the run's {len(classes)} classes do not occur in the set")
    return OtherSet(
        name=name,
        kind=found.kind,
        spec=dataclasses.replace(spec, num_eval_examples=len(labels)),
        examples={"image": found.images, "label": labels},
        fingerprint=found.fingerprint,
        references=None,
        notes=tuple(notes),
    )


def _other_text(run: EarlierRun, name: str, source: Path, target: Path) -> OtherSet:
    from dawnjax.input_pipeline.parallel_text import ParallelText
    from dawnjax.input_pipeline.parallel_text_sources import read_test_set

    data = run.experiment.data
    assert isinstance(run.spec, TextSpec) and isinstance(data, ParallelText)
    found = read_test_set(source, target, data.vocabulary())
    return OtherSet(
        name=name,
        kind="two files of text",
        spec=dataclasses.replace(
            run.spec,
            num_eval_examples=len(found.references),
            eval_source_length=found.arrays["source"].shape[1],
            eval_target_length=found.arrays["target"].shape[1],
        ),
        examples=found.arrays,
        fingerprint=found.fingerprint,
        references=found.references,
        notes=(),
    )


def _evaluate(run: EarlierRun, other: OtherSet | None, options: RunOptions, as_in_run: bool) -> int:
    # Imported here: wrong use is answered before JAX is loaded to compute.
    import jax

    from dawnjax.cluster import processes
    from dawnjax.evaluation import EvaluationFeed, evaluate, reaches
    from dawnjax.feed import input_shapes
    from dawnjax.machine import compilation
    from dawnjax.machine.mesh import all_devices, make_mesh
    from dawnjax.programs import compile_evaluation
    from dawnjax.train import calls_in_flight
    from dawnjax.train_step import platform_of

    experiment = run.experiment
    compilation.configure(options.compile_cache_dir)
    processes.join(options.processes)
    mesh = make_mesh(options.mesh, all_devices())
    compilation.share_between_processes()
    recipe, restored = restore(run, mesh, options, "evaluate")

    def measure(recipe: Any, examples: Any) -> dict[str, Any]:
        shapes = input_shapes(recipe.experiment, recipe.spec, options, mesh)
        programs = compile_evaluation(recipe, shapes, lambda *_: None)
        feed = EvaluationFeed(shapes, mesh, examples)
        in_flight = calls_in_flight(platform_of(mesh), 1)
        return evaluate(recipe, programs, restored.state, feed, in_flight)

    if other is None:
        metrics = measure(recipe, experiment.data.load("eval"))
        if jax.process_index() == 0:
            row = {
                "step": restored.step,
                "examples": run.spec.num_eval_examples,
                **metrics,
                "reached": reaches(experiment.targets, metrics) if as_in_run else None,
            }
            if not as_in_run:
                row["decoding"] = to_json(experiment.evaluation.decoding)
                row["reached_reason"] = "the target is for the run's own decoding"
            print(json.dumps(row))
        return ExitStatus.DONE

    if processes.same_text(other.fingerprint) != other.fingerprint:
        raise RunError(f"{other.name} is not the same on all hosts")
    changed: dict[str, Any] = {"spec": other.spec}
    if other.references is not None:
        changed["references"] = other.references
    # What process 0 has: only it writes results, and all must measure alike.
    recorded = _recorded(run, restored.step) if as_in_run else None
    own = json.loads(processes.same_text(json.dumps(recorded)))
    own_source = "recorded by the run" if own else "measured now"
    own = own or measure(recipe, experiment.data.load("eval"))
    metrics = measure(dataclasses.replace(recipe, **changed), other.examples)
    if jax.process_index() == 0:
        record = _record(run, other, restored.step, own, own_source, metrics)
        record["devices"] = {
            "kind": mesh.devices.flat[0].device_kind,
            "platform": platform_of(mesh),
            "num_devices": mesh.devices.size,
        }
        file = run.directory.path / "evaluations" / _file_name(run, other, restored.step, as_in_run)
        write_json(file, record)
        print(_shown(record))
        print(f"written: {file}")
    return ExitStatus.DONE


def _file_name(run: EarlierRun, other: OtherSet, step: int, as_in_run: bool) -> str:
    decoding = run.experiment.evaluation.decoding
    how = f"-beams{decoding.num_beams}-penalty{decoding.length_penalty:g}"
    return f"{other.name}-step{step}{'' if as_in_run else how}.json"


def _recorded(run: EarlierRun, step: int) -> dict[str, Any] | None:
    """Gives the metrics that the run recorded at a step, or None where it was not evaluated."""
    try:
        rows = json.loads(run.directory.result_file.read_text())["evaluations"]
        found = [row for row in rows if row["step"] == step]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    names = ("top_1_accuracy", "top_5_accuracy", "bleu", "bleu_signature", "loss")
    return {name: found[-1][name] for name in names if name in found[-1]} if found else None


def _record(
    run: EarlierRun,
    other: OtherSet,
    step: int,
    own: dict[str, Any],
    own_source: str,
    metrics: dict[str, Any],
) -> dict[str, Any]:
    from dawnjax.analysis.generalization import drops
    from dawnjax.runs import versions

    experiment, spec = run.experiment, run.spec
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": run.record["run_id"],
        "experiment": experiment.name,
        "identity": run.record["identity"],
        "seed": run.record["seed"],
        "step": step,
        "epoch": experiment.epoch_of_step(step, spec),
        "weights": experiment.evaluation.weights,
        "compute_dtype": experiment.compute_dtype,
        "decoding": to_json(experiment.evaluation.decoding) if isinstance(spec, TextSpec) else None,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "versions": versions.installed(),
        "own": {
            "name": _own_name(run),
            "examples": spec.num_eval_examples,
            "fingerprint": spec.fingerprint,
            "source": own_source,
            "metrics": own,
        },
        "other": {
            "name": other.name,
            "kind": other.kind,
            "examples": other.spec.num_eval_examples,
            "fingerprint": other.fingerprint,
            "metrics": metrics,
        },
        "drop": drops(own, spec.num_eval_examples, metrics, other.spec.num_eval_examples),
        "notes": list(other.notes),
    }


def _own_name(run: EarlierRun) -> str:
    data = run.experiment.data
    return f"{getattr(data, 'corpus', data.TAG)}, own evaluation split"


def _shown(record: dict[str, Any]) -> str:
    """Gives the comparison as lines for a person."""
    names = [name for name in record["own"]["metrics"] if name != "bleu_signature"]
    lines = [
        f"{record['experiment']}, seed {record['seed']}, step {record['step']} "
        f"(epoch {record['epoch']:.2f}), {record['weights']} weights"
    ]
    if record["decoding"] is not None:
        decoding = record["decoding"]
        beams = decoding["num_beams"]
        how = f"{beams} beams, length penalty {decoding['length_penalty']:g}"
        lines[0] += ", greedy search" if beams == 1 else f", {how}"
    rows = [("set", "examples", *names)]
    for side in (record["own"], record["other"]):
        cells = (_cell(name, side["metrics"].get(name)) for name in names)
        rows.append((side["name"], f"{side['examples']:,}", *cells))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        first = row[0].ljust(widths[0])
        rest = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        lines.append("  ".join([first, *rest]))
    for name, drop in record["drop"].items():
        interval = drop["interval_95"]
        spread = (
            drop["reason"]
            if interval is None
            else f"95 % interval {_cell(name, interval[0])} to {_cell(name, interval[1])}"
        )
        lines.append(f"drop of {name}: {_cell(name, drop['value'])} ({spread})")
    return "\n".join(lines + [f"note: {note}" for note in record["notes"]])


def _cell(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if name == "bleu" else f"{value:.4f}"
