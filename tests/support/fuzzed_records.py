"""Records that the package reads: an honest file of each, its reader and its refusal.

Of records that one reader decodes by their types, one stands for all. Other data, official files
and users' files have campaigns of their own.
"""

import dataclasses
import gzip
import json
import shutil
import warnings
from pathlib import Path

import coco_sources
import hostile_files
import numpy as np
import small_text
import traces
from fuzzed import Record, in_lines, of
from made_entries import entry_of
from made_logs import METRICS
from made_runs import write_run

from dawnjax.analysis import loading
from dawnjax.checkpointed import earlier_run
from dawnjax.checkpointed.published_weights import PublishedWeights
from dawnjax.commands import check
from dawnjax.config.config_json import to_json
from dawnjax.config.experiment_modules import load_experiment
from dawnjax.errors import ConfigError, RunError
from dawnjax.input_pipeline.reading import archives, coco_source, npy_files, sgf
from dawnjax.input_pipeline.reading.dataset import DataError
from dawnjax.input_pipeline.reading.tokenizer_file import TokenizerFile
from dawnjax.input_pipeline.reading.vocabulary import SMALLEST_SIZE, Vocabulary, train_vocabulary
from dawnjax.machine import hardware, measured_peaks, prices
from dawnjax.models.configs.published_llama import Published
from dawnjax.official import export_dawnbench, exported_run, importer
from dawnjax.profile import captured, host_profile, trace
from dawnjax.runs.log import SCHEMA_VERSION
from dawnjax.study import changes
from dawnjax.study.design import Arm, Look, Study, StudyFolder
from dawnjax.study.reading import read_study
from dawnjax.study.sides import Side, read_side
from dawnjax.trials import ours
from dawnjax.trials.group import write_entries
from dawnjax.trials.origin import Origin

# Studies, races and results.


def study(path: Path) -> bytes:
    axes = ("num_epochs=1,2", "optimizer.base_learning_rate=log(0.01,1)")
    made = Study(experiment="digits", kind="grid", axes=axes, seeds=10, looks=2)
    arms = (Arm("a", ("--num_epochs=1",)), Arm("b", ("--num_epochs=2",), 2))
    origins = {"a": Origin("identity", ("steps_per_call=2",))}
    StudyFolder(path.parent).write(made, arms, [Look(5, 0.01)], origins)
    return path.read_bytes()


def entries(path: Path) -> bytes:
    made = entry_of([10.0, 12.5, None], total=20.0, warnings=("odd",), config={"num_epochs": 2.0})
    write_entries(path, [made])
    return path.read_bytes()


def loaded(path: Path) -> object:
    found, _ = loading.load_with_runs(path)
    in_lines(found.problems)
    return list(found), found.records()


def log(path: Path) -> bytes:
    """Events of a run's log as a list, of which `as_lines` makes the log."""
    write_run(path.parent, seconds=10.0, price=36.0, interrupted=True, losses=(2.5, 2.0))
    return b"[" + path.read_bytes().replace(b"\n", b",")[:-1] + b"]"


def as_lines(path: Path, content: bytes) -> None:
    try:
        events = json.loads(content)
        content = b"".join(json.dumps(event).encode() + b"\n" for event in events)
    except (ValueError, RecursionError, TypeError):
        pass
    path.write_bytes(content)


def run(path: Path) -> object:
    checked(path)
    return exported_run.read_run(path.parent), ours.read_run(path.parent)


def checked(path: Path) -> None:
    faults, notes = check.check_run(path.parent)
    in_lines([*faults, *notes])


def experiment(path: Path) -> bytes:
    made = load_experiment("synthetic_image")
    spec = made.data.spec()
    return json.dumps(
        {
            "experiment": to_json(made),
            "schema_version": SCHEMA_VERSION,
            "run_id": "r",
            "seed": 0,
            "identity": made.identity(spec),
            "identity_fields": made.identity_fields(spec),
            "overrides": {},
            "source": None,
            "settings": {"numbers": {}, "others": {}},
        }
    ).encode()


MEASUREMENT = {
    "data": {"name": "CIFAR-10", "benchmark": "CIFAR-10", "evidence": ""},
    "device": {"used": 1, "kind": "cpu", "processor": "a CPU"},
    "versions": {"jax": "0.10.2", "flax": "0.12.0", "dawnjax": "0.1.0"},
    "latency_seconds": {"mean": 0.002, "p50": 0.002, "p99": None},
    "cost_of_10000_usd": 0.01,
    "price_per_hour_usd": 3.6,
    "quality": {"top_1_accuracy": 0.945},
    "reached": True,
    "metrics": [metric.to_json() for metric in METRICS],
    "experiment": "cifar10_resnet18",
    "model": "resnet",
    "compute_dtype": "float32",
    "examples": 1000,
    "timed": "from the host and back",
    "date": "2026-01-02",
}


def measurement(path: Path) -> object:
    out = path.parent / "out"
    try:
        [file] = export_dawnbench.export([path], out, author="A")
        told = json.loads(file.read_text())
        assert min(told["latency"], told.get("cost", 0), told.get("costPerHour", 0)) >= 0, told
        return told
    finally:
        shutil.rmtree(out, ignore_errors=True)


# Profiles.

PROGRAM = Path(__file__).with_name("fuzzed_program.hlo").read_bytes()


def program(path: Path) -> bytes:
    (path.parent / captured.CAPTURE_FILE).write_bytes(of(traces.CAPTURE)(path))
    return PROGRAM


def packed(path: Path, content: bytes) -> None:
    path.write_bytes(gzip.compress(content, 1, mtime=0))


def ops(path: Path) -> bytes:
    write_run(path.parents[3])
    return b"name,scope,seconds\nfusion.1,stem,0.25\ndot.7,,0.5\nfusion.2,stem,1e-3\n"


def op_changes(path: Path) -> object:
    run = path.parents[3]
    side = read_side(str(run))

    def profiled(directory: Path) -> Side:
        hosts = ({"utilization": {"window": path.parent.name}},)
        [trial] = side.entry.trials
        trial = dataclasses.replace(trial, hosts=hosts, directory=directory)
        return dataclasses.replace(side, entry=dataclasses.replace(side.entry, trials=(trial,)))

    other = path.parents[4] / "other"
    if not other.exists():
        shutil.copytree(run, other)
        table = other / path.relative_to(run)
        table.write_bytes(b"name,scope,seconds\nfusion.1,stem,0.125\n")
    return changes.op_changes(profiled(run), profiled(other))


PEAKS = hardware.MeasuredPeaks(1e12, 1e11, spread=0.05, other_work=0.01)


def kept_peaks(path: Path) -> object:
    kept = measured_peaks.read_kept(path)
    for peaks in kept.values():
        assert min(peaks.flops_per_second, peaks.bytes_per_second) >= 1, peaks
    return kept


# Tables, archives and weights.

PRICES = b"""\
name,usd_per_hour,unit,date,source,day_of,terms,seller,device,accelerators,network_gb_per_second
p5.48xlarge,55.04,host,2026-11-09,a page,list,on demand,Amazon,H100 SXM5,8,400
"""


def imported(path: Path) -> object:
    found = importer.import_results([path])
    in_lines([*found.rejections, *found.other_files])
    return found.entries


LOG = hostile_files.START + hostile_files.EVALUATION % (75, 100) + hostile_files.STOP


HEADER = {
    "__metadata__": {"format": "np"},
    "params/0/kernel": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "params/0/bias": {"dtype": "BF16", "shape": [3], "data_offsets": [24, 30]},
    "batch_stats/count": {"dtype": "I32", "shape": [], "data_offsets": [30, 34]},
}


def tensors(path: Path, header: bytes) -> None:
    header += b" " * (-len(header) % 8)
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(34))


def weights(path: Path) -> object:
    read = PublishedWeights(path.parent)
    with warnings.catch_warnings(action="ignore"):  # of the library
        for name, tensor in read.tensors.items():
            read.part(Published(name), name, [range(size) for size in tensor.shape])
    return read.state


# Data.


def npy(path: Path) -> bytes:
    np.save(path.with_suffix(".npy"), np.arange(12, dtype=np.int32).reshape(3, 4))
    return path.read_bytes()


GAME = b"(;GM[1]FF[4]SZ[9]KM[7.5]\nC[a \\] (b)];B[aa]C[x];W[ia] ; B[ai];W[bb])\n"
BEGIN = {"id": 0, "content": "<|begin|>", "special": True, "normalized": False}
BEGIN |= {"single_word": False, "lstrip": False, "rstrip": False}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
TOKENIZER = {
    "version": "1.0",
    "added_tokens": [BEGIN],
    "pre_tokenizer": BYTE_LEVEL,
    "decoder": BYTE_LEVEL,
    "model": {
        "type": "BPE",
        "vocab": {"<|begin|>": 0, "a": 1, "b": 2, "ab": 3},
        "merges": [["a", "b"]],
    },
}


def tokens(path: Path) -> object:
    made = TokenizerFile(path.read_bytes(), str(path))
    made.separator("<|begin|>")
    return made.bytes_of_token(), made.decode(made.encode("abba")), list(made.encoded(["ab"]))


def pieces(path: Path) -> object:
    made = Vocabulary(path.read_bytes(), str(path))
    return made.decode(np.array([made.encode(["eine Frau"])[0]], np.int32))


def archive(path: Path) -> object:
    return [(member.name, len(member.read())) for member in archives.members(path)]


RECORDS: dict[str, Record] = {
    "study": Record("study.json", study, lambda path: read_study(path.parent), RunError),
    "entries": Record("a.jsonl", entries, loaded, (ConfigError, RunError)),
    "log": Record("run/log.jsonl", log, run, (ConfigError, RunError), as_lines, above=1),
    "experiment": Record(
        "run/experiment.json",
        experiment,
        lambda path: earlier_run.read_run(path.parent),
        (ConfigError, RunError),
        above=1,
    ),
    "measurement": Record("a.json", of(MEASUREMENT), measurement, (ConfigError, RunError)),
    "program": Record(
        captured.PROGRAM_FILE,
        program,
        lambda path: host_profile.read_profile(path.parent).program,
        ConfigError,
        packed,
        above=1,
    ),
    "trace of a GPU": Record(
        "host.xplane.pb",
        lambda path: traces.gpu_trace(path.parent).read_bytes(),
        trace.read_trace,
        RunError,
    ),
    "table of ops": Record("run/profile/process_00000/after/ops.csv", ops, op_changes, RunError),
    "peaks": Record("peaks.json", of({"cpu": PEAKS}), kept_peaks),
    "prices": Record("prices.csv", of(PRICES), prices.read_prices, ConfigError),
    "archive of results": Record(
        "a.tgz", of(hostile_files.log_archive(LOG)), imported, (ConfigError, RunError)
    ),
    "weights": Record("model.safetensors", of(HEADER), weights, ConfigError, tensors, above=1),
    "tar of data": Record(
        "a.tar", of(hostile_files.tar(("a/1.png", b"x" * 20), ("b", b""))), archive, DataError
    ),
    "zip of data": Record(
        "a.zip", of(hostile_files.zip_of(("a/1.png", b"x" * 20), ("b", b""))), archive, DataError
    ),
    "annotations": Record(
        "a.json",
        of(coco_sources.body()),
        lambda path: coco_source.listed([(str(path), path.read_bytes())], with_masks=True),
        DataError,
    ),
    "array": Record("a.npy", npy, npy_files.map_array, DataError),
    "game": Record("a.sgf", of(GAME), lambda path: sgf.read_moves(path, 9, 162), DataError),
    "tokenizer": Record("tokenizer.json", of(TOKENIZER), tokens, DataError),
    "vocabulary": Record(
        "vocabulary.model",
        lambda _: train_vocabulary(small_text.WORDS * 9, SMALLEST_SIZE),
        pieces,
        DataError,
    ),
}
