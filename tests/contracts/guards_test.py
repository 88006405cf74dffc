"""Rules of imports, and of what a room may know."""

import ast
import collections
import functools
import graphlib
import itertools
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dawnjax.tasks.metric import KNOWN_METRICS

TOP = Path(__file__).resolve().parents[2]


@functools.cache
def files() -> dict[str, Path]:
    """The file of each module of the package, by the module's name.

    Without the templates of users' files, which are no code of the package's.
    """
    paths = [
        Path(folder, name)
        for folder, _, names in os.walk(TOP / "dawnjax", followlinks=True)
        for name in names
        if name.endswith(".py") and not folder.endswith("/config/templates")
    ]
    names = [".".join(path.relative_to(TOP).with_suffix("").parts) for path in paths]
    return {name.removesuffix(".__init__"): path for name, path in zip(names, paths, strict=True)}


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    """All nodes of a file's syntax tree."""
    return list(ast.walk(ast.parse(path.read_text())))


@functools.cache
def imports(path: Path) -> dict[str, int]:
    """The names that a file imports, those inside functions too, and the line of each."""
    lines = {}
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: import it as dawnjax.MODULE"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        lines |= {name: node.lineno for name in names if name not in lines}
    return lines


Edge = tuple[str, str]
"""Who imports, and what."""


@functools.cache
def module_imports() -> dict[Edge, str]:
    """Which module imports which, and where: `dawnjax/train.py:16`."""
    places = {}
    for module, path in files().items():
        for name, line in imports(path).items():
            imported = name if name in files() else name.rpartition(".")[0]
            if imported in files() and imported != module:
                places[module, imported] = f"{path.relative_to(TOP)}:{line}"
    return places


def room(module: str) -> str:
    """The folder that a module is in; a module that lies flat in `dawnjax/` stands for itself."""
    folder = files()[module].parent.relative_to(TOP)
    return module if folder == Path("dawnjax") else ".".join(folder.parts)


def is_in(module: str, folder: str) -> bool:
    """Says whether a module lies in a folder or in a room of it."""
    return f"{room(module)}.".startswith(f"{folder}.")


def edges(place: Callable[[str], str]) -> dict[str, dict[str, str]]:
    """What each place imports, and a line that does; `place` maps a module to a file or room."""
    found: dict[str, dict[str, str]] = collections.defaultdict(dict)
    for (module, imported), line in sorted(module_imports().items()):
        if place(module) != place(imported):
            found[place(module)].setdefault(place(imported), f"{line} imports {imported}")
    return found


@pytest.mark.parametrize("place", [str, room], ids=["files", "rooms"])
def test_imports_make_no_circle(place):
    found = edges(place)
    try:
        graphlib.TopologicalSorter(found).prepare()
    except graphlib.CycleError as error:
        circle = error.args[1][::-1]
        lines = [found[start][end] for start, end in itertools.pairwise(circle)]
        raise AssertionError("imports make a circle:\n" + "\n".join(lines)) from None


def test_imports_point_one_way():
    for module, imported in module_imports():
        where = module_imports()[module, imported]
        # Limits of fields are declared beside the fields; their module knows nothing of either.
        for folder in ("dawnjax.models", "dawnjax.input_pipeline"):
            if is_in(module, folder):
                base = ("dawnjax", "dawnjax.errors", "dawnjax.limits", "dawnjax.records")
                allowed = is_in(imported, folder) or imported in base
                assert allowed, f"{where} imports {imported}"
        if room(module) in ("dawnjax.limits", "dawnjax.records"):
            is_own = room(imported) == room(module)
            assert is_own or imported == "dawnjax.errors", f"{where} imports {imported}"
        # The run code finds experiments by name; only the module that does so knows the package.
        if room(imported) == "dawnjax.experiments":
            knows = room(module) == "dawnjax.experiments" or module.endswith(".experiment_modules")
            assert knows, f"{where} imports {imported}"
        # Recipes import as a user's file does, by the door that nothing else of the package takes.
        if room(module) == "dawnjax.experiments" or imported == "dawnjax.own":
            is_recipe = room(module) == "dawnjax.experiments"
            takes = imported == "dawnjax.own" or room(imported) == "dawnjax.experiments"
            assert is_recipe and takes, f"{where} imports {imported}"


def test_blocks_do_not_choose_by_platform():
    layers = {"activations", "arithmetic", "batch_norm", "convolution", "cross_entropy", "pooling"}
    layers |= {"decoder", "fused_attention", "layer_norm", "transformer"}
    for module, path in files().items():
        if room(module) == "dawnjax.models":
            reads = any(
                isinstance(node, ast.Attribute) and node.attr == "platform" for node in nodes(path)
            )
            assert not reads or path.stem in layers, path


REST_ON: dict[str, set[str]] = {
    "dawnjax.page": {"dawnjax.errors", "dawnjax.text"},
    "dawnjax.runs": {"dawnjax", "dawnjax.records", "dawnjax.errors", "dawnjax.text"},
    "dawnjax.profile": {
        *("dawnjax", "dawnjax.errors", "dawnjax.text", "dawnjax.machine.hardware"),
        *("dawnjax.page", "dawnjax.records"),
    },
}
"""Rooms that read files alone, with the rooms and modules that they import beside themselves."""


def test_rooms_that_read_files_know_nothing_of_a_run():
    for (module, imported), where in module_imports().items():
        allowed = {*REST_ON.get(room(module), {imported}), room(module)}
        assert {imported, room(imported)} & allowed, f"{where} imports {imported}"


def test_rooms_rest_on_errors_and_limits_alone():
    """The run, flat in `dawnjax`, stands on the rooms; commands and its own rooms stand on it."""
    base = {"dawnjax", "dawnjax.records", "dawnjax.errors", "dawnjax.limits", "dawnjax.text"}
    for module, imported in module_imports():
        of_the_run = ("dawnjax.capture", "dawnjax.checkpointed")
        stands_on_all = ("dawnjax.commands", "dawnjax.experiments", *of_the_run)
        is_room = room(module) not in (module, *stands_on_all)
        # A study and a race run their trials by the door that a notebook takes.
        is_door = room(module) in ("dawnjax.study", "dawnjax.race") and imported == "dawnjax.api"
        # A plan compiles the programs of a run, in a process of its own.
        is_door |= module == "dawnjax.plan.compiling.worker"
        if is_room and room(imported) == imported and not is_door:  # flat
            assert imported in base, f"{module} imports {imported}"


def test_no_code_asks_for_a_kind_of_data_or_task():
    """Classes that a task alone knows are named in tasks, models and input pipeline alone."""
    kinds = {"TextSpec", "DatasetSpec", "ParallelText", "Transformer", "Classification"}
    kinds |= {"Translation", "ArraysSpec", "is_text", "is_translation"}
    for module, path in files().items():
        if any(is_in(module, f"dawnjax.{name}") for name in ("tasks", "models", "input_pipeline")):
            continue
        for node in nodes(path):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                named = {getattr(item, "id", "") for item in ast.walk(node.args[1])}
                assert not named & kinds, f"{path}:{node.lineno} asks for {named & kinds}"
            if isinstance(node, ast.Name):
                assert node.id not in ("is_text", "is_translation"), f"{path}:{node.lineno}"


def test_no_code_knows_a_metric_by_its_name():
    """Units, titles and ranges of metrics are declared in tasks; official names have a table."""
    names = {name.lower() for name in KNOWN_METRICS} | {"accuracy", "bleu"}
    allowed = {
        ("dawnjax.config.experiment", "top_1_accuracy"),  # the default of a target
        ("dawnjax.trials.labels", "bleu"),  # a unit of official entries
        ("dawnjax.input_pipeline.datasets.coco", "bbox"),  # a field of TensorFlow Datasets' coco
    }
    folders = ("tasks", "official", "experiments")
    for module, path in files().items():
        if room(module).removeprefix("dawnjax.") in folders:
            continue
        for node in nodes(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                is_name = node.value.lower().strip("_ ") in names
                assert not is_name or (module, node.value.lower()) in allowed, (
                    f"{path}:{node.lineno}"
                )


PROC = "a file of the kernel"
OURS = "a file of this package"
IN_PLACE = "a new folder's files, which may be larger than memory; the folder is renamed whole"
PAST_RECORDS = {
    ("dawnjax.__main__", "open"): "/dev/null, in place of a pipe whose reader is gone",
    ("dawnjax.checkpoints.location", "rename"): "a trial of what Orbax does to commit a save",
    ("dawnjax.checkpoints.location", "write_bytes"): "an empty object of a bucket",
    ("dawnjax.checkpoints.saved", "read_bytes"): "an object of a bucket",
    ("dawnjax.commands.new", "read_text"): OURS,
    ("dawnjax.input_pipeline.reading.archives", "open"): "an archive from a stream, or its member",
    ("dawnjax.input_pipeline.reading.columns", "open"): IN_PLACE,
    ("dawnjax.machine.hosts", "read_text"): PROC,
    ("dawnjax.machine.load", "read_text"): PROC,
    ("dawnjax.machine.measured_peaks", "read_text"): PROC,
    ("dawnjax.models.pure_model", "replace"): "a layer's parameter, no file",
    ("dawnjax.own", "read_text"): OURS,
    ("dawnjax.other_logs.log_lines", "open"): "copied into other programs, where we are not",
    ("dawnjax.page.html", "read_text"): OURS,
    ("dawnjax.plan.compiling.assigned", "read_text"): "of this process's compiler, in a new folder",
    ("dawnjax.plan.compiling.compiled", "read_bytes"): OURS,
    ("dawnjax.plan.compiling.memory", "write_bytes"): "a function for a worker, in a new folder",
    ("dawnjax.plan.compiling.worker", "read_bytes"): "the function that is asked about",
    ("dawnjax.race.handover", "load"): "the judge's own array, mapped",
    ("dawnjax.race.handover", "save"): "into memory",
    ("dawnjax.race.sandbox", "open"): "a folder of a process, held; files of the installation",
    ("dawnjax.race.sandbox", "copyfile"): "plain files of dead processes, to a new folder",
    ("dawnjax.runs.clock", "read_text"): PROC,
    ("dawnjax.runs.log", "read_bytes"): "the log, which this process has locked",
    ("dawnjax.runs.log", "read_text"): "the log, which this process has locked",
    ("dawnjax.machine.compilation", "touch"): "an empty mark with a drawn name in JAX's cache",
    ("dawnjax.official.compliance_process", "open"): "a log, as MLPerf's checker opens it",
    ("dawnjax.official.mlperf_log", "JSONDecoder"): "a line may go on after its JSON",
}
"""Calls that read or write a file beside `records`, each with its reason."""


def past_records(call: ast.Call) -> str:
    """The name of a call that decodes JSON, reads or writes a file; empty for any other."""
    function = call.func
    name = getattr(function, "attr", None) or getattr(function, "id", "")
    owner = getattr(getattr(function, "value", None), "id", "")
    texts = [ast.unparse(value) for value in (*call.args, *(k.value for k in call.keywords))]
    writes = {"write_text", "write_bytes", "touch", "mkstemp", "NamedTemporaryFile", "rename"}
    writes |= {"chmod", "fchmod", "tofile", "savetxt", "symlink_to"}
    reads = {"read_text", "read_bytes", "fromfile", "open_memmap", "genfromtxt"}
    if name in writes | reads or (name in ("load", "loads", "JSONDecoder") and owner == "json"):
        return name
    if owner == "np" and name in ("load", "save", "savez"):
        return name
    if owner == "shutil" and name.startswith("copy"):
        return name  # follows a link where it writes
    if name == "replace" and (owner == "os" or (len(texts) == 1 and not call.keywords)):
        return name  # Path.replace takes one argument, str.replace two, dataclasses' keywords
    return name if name == "open" else ""


def test_records_are_the_one_way_in_and_out_of_a_file():
    used = set()
    for module, path in files().items():
        if room(module) == "dawnjax.records":
            continue
        for node in nodes(path):
            if isinstance(node, ast.Call) and (name := past_records(node)):
                assert (module, name) in PAST_RECORDS, f"{path}:{node.lineno} calls {name}"
                used.add((module, name))
    assert used == PAST_RECORDS.keys(), PAST_RECORDS.keys() - used


def test_a_home_that_is_not_known_is_one_function_s_business():
    """`Path.expanduser` raises RuntimeError for `~nobody`, and in a container without a home."""
    expands = re.compile(r"\.expanduser\(|Path\.home\(")
    found = {name for name, path in files().items() if expands.search(path.read_text())}
    assert found == {"dawnjax.records.paths"}


def test_flax_stays_in_models():
    users = [
        module
        for module, path in files().items()
        if room(module) != "dawnjax.models"
        and any(name.split(".")[0] == "flax" for name in imports(path))
    ]
    assert not users


def test_no_file_imports_the_folders_under_their_second_name():
    others = [path for folder in ("tests", "benchmarks") for path in (TOP / folder).rglob("*.py")]
    for path in [*files().values(), *others]:
        for name in imports(path):
            assert name.split(".")[0] not in ("models", "input_pipeline", "experiments"), (
                path,
                name,
            )
