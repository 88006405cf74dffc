"""MLPerf Training results: a folder of logs and the description of its system as one entry.

v0.5   <submitter>/<submission>/submission.json
       <submitter>/<submission>/results/<system>/entry.json
       <submitter>/<submission>/results/<system>/<benchmark>/result_N.txt
later  <submitter>/systems/<system>.json
       <submitter>/results/<system>/<benchmark>/result_N.txt
       <submitter>/results/<system>/<benchmark>/scaling.json
"""

import dataclasses
import re
import statistics
from collections.abc import Hashable, Sequence
from typing import Any

from dawnjax.official import mlperf_rounds, naming
from dawnjax.official.mlperf_trial import TrialLog
from dawnjax.official.outcome import Refused, printable, quoted
from dawnjax.official.text import count, finite, load_object, words
from dawnjax.trials.figures import figures
from dawnjax.trials.group import MAX_SCALING_FACTOR, Entry
from dawnjax.trials.target import Target, reaches
from dawnjax.trials.trial import Trial, day_of

RESULT_FILE = re.compile(r"result_(?:[A-Za-z0-9-]{1,64}_)?\d{1,9}(?:\.txt|\.log)?", re.ASCII)
"""`result_0.txt`, `result_<id>_00.txt`."""

PERHAPS_RESULT_FILE = re.compile(r"result_[\w.-]{1,120}\.txt", re.ASCII)
"""`result_run2.txt`, `result_1_<id>_<id>.txt`: a log if it has records, by MLPerf's summarizer."""

# What `input_batch_size` of v0.5 holds, by the reference implementation that a framework's
# submissions came from. Source: each derived size against learning rates, iterations an epoch and
# the tables of "Analysis of DAWNBench, a Time-to-Accuracy ML Performance Benchmark" (Table 7).
_OF_ONE_ACCELERATOR = (("resnet", "MXNet"), ("ssd", "PyTorch"))
_TOKENS_OF_ONE_ACCELERATOR = (("transformer", "PyTorch"),)
_OF_ALL = (("resnet", "TensorFlow"), ("gnmt", "PyTorch"))

_COCO_IMAGES = (117_266, 118_287)
"""Training images of COCO 2017 with a box, and all of them."""


@dataclasses.dataclass(frozen=True)
class System:
    """The machine, from its description (`fields`, empty if unreadable) and the folders."""

    fields: dict[str, Any]
    organization: str = ""
    warnings: tuple[str, ...] = ()


def read_entry(
    source: str,
    context: str,
    logs: list[tuple[str, TrialLog]],
    system: System,
    scaling_factor: float = 1.0,
) -> Entry:
    """Make the entry of a folder of logs; `Refused` for copies and mixed benchmarks or versions.

    `scaling_factor` multiplies the score, by the folder's `scaling.json`.
    """
    _refuse_copies(logs)
    versions = sorted({log.version for _, log in logs})
    names = sorted({log.benchmark for _, log in logs})
    if len(versions) > 1 or len(names) > 1:
        what = versions if len(versions) > 1 else names
        raise Refused(f"its logs are of several kinds: {', '.join(map(quoted, what))}")
    folders = context.split("/")
    warnings, reasons = [*system.warnings], dict[str, str]()
    benchmark = names[0] or mlperf_rounds.benchmark_of(printable(folders[-1], 60))
    if not names[0]:
        warnings.append(f"the logs name no benchmark; the folder does: {quoted(benchmark)}")
    if not mlperf_rounds.is_known(benchmark):
        warnings.append(f"benchmark {quoted(benchmark)} is unknown: no target, unit or trial count")
    round_name = _round(versions[0], context, reasons)
    target = target_of(benchmark, round_name, [log for _, log in logs], warnings, reasons)
    trials = tuple(_trial(file, log) for file, log in logs)
    _note_trials(benchmark, round_name, logs, target, warnings)
    machine = _machine(versions[0], logs, system, reasons, warnings)
    batch, unit = _batch(versions[0], benchmark, logs, machine, reasons, warnings)
    reasons["epochs"] = _epochs_reason(logs)
    if "cost_per_hour_usd" not in reasons:
        reasons["cost_per_hour_usd"] = "MLPerf results have no price"
    summary = figures(trials, drops=mlperf_rounds.drops(benchmark), scaling_factor=scaling_factor)
    if scaling_factor != 1 and summary.score_seconds is not None:
        warnings.append(
            f"score {summary.score_seconds:.2f} s is {summary.unscaled_score_seconds:.2f} s x "
            f"{scaling_factor:g}, the factor of its scaling.json"
        )
    start = min(log.start_unix_seconds for _, log in logs)
    descriptions = logs[0][1].descriptions
    division = str(system.fields.get("division", "")) or descriptions.get("submission_division", "")
    return Entry(
        source=source,
        suite="mlperf_training",
        round=round_name,
        benchmark=benchmark,
        submitter=_submitter(versions[0], folders, system, descriptions),
        division=division if division in ("closed", "open") else "",
        status=_status(system, descriptions),
        date=day_of(start),
        model=mlperf_rounds.model(benchmark, round_name) if division == "closed" else "",
        target=target,
        global_batch_size=batch,
        global_batch_unit=unit,
        scaling_factor=scaling_factor,
        trials=trials,
        drops=mlperf_rounds.drops(benchmark),
        warnings=tuple(dict.fromkeys(warnings)),
        reasons=reasons,
        **machine,
    )


def _refuse_copies(logs: list[tuple[str, TrialLog]]) -> None:
    """Refuse a copy of a log: ten copies of a fast trial would make a score."""
    first: dict[Hashable, str] = {}
    for file, log in logs:
        if not log.evaluations:
            continue
        # Two trials may start at one moment on two machines, and differ in what follows.
        told = log.start_unix_seconds, log.seconds, log.seeds, log.evaluations
        earlier = first.setdefault(told, file)
        if earlier != file:
            names = (name.rsplit("/", 1)[-1] for name in (file, earlier))
            raise Refused("its log {} is a copy of {}".format(*names))


def scaling_factor(data: bytes) -> float:
    """Factor of a `scaling.json`; `Refused` if it holds none that the rules allow.

    Source: mlcommons/logging 4.1.68, result_summarizer.py (reads it) and rcp_checker.py (writes it:
    mean epochs of the reference / those of the entry, never below 1).
    """
    factor = finite(load_object(data).get("scaling_factor"))
    if factor is None:
        raise Refused("does not hold one finite number as scaling_factor")
    if not 1 <= factor <= MAX_SCALING_FACTOR:
        raise Refused(
            f"scaling_factor is {factor:g}; MLPerf's are from 1, for a score that stays, up to 1.19"
        )
    return factor


def file_order(name: str) -> tuple[Any, ...]:
    """Key that sorts `result_10.txt` after `result_9.txt`."""
    # Cut, because int() refuses numbers of more than 4,300 digits.
    base = name.rsplit("/", 1)[-1][:200]
    parts = re.split(r"([0-9]+)", base)
    return (*(int(part) if index % 2 else part for index, part in enumerate(parts)), name)


def _epochs_reason(logs: list[tuple[str, TrialLog]]) -> str:
    """Rules by which epochs were counted, and why some trials have none."""
    rules = sorted({log.epoch_rule for _, log in logs if log.epochs is not None})
    whys = dict.fromkeys(log.epoch_reason for _, log in logs if log.epochs is None)
    counted = [f"counted by rule {', '.join(rules)}"] if rules else []
    return "; ".join([*counted, *filter(None, whys)]) or "the logs do not record the epochs"


def _trial(file: str, log: TrialLog) -> Trial:
    return Trial(
        name=file,
        reached=log.reached,
        time_to_accuracy_seconds=log.seconds if log.reached else None,
        clock_seconds=log.seconds,
        epochs=log.epochs,
        epochs_to_target=log.epochs if log.reached else None,
        status=log.status,
        seed=log.seeds[0] if len(log.seeds) == 1 else None,
        evaluations=log.evaluations,
    )


def _round(version: str, context: str, reasons: dict[str, str]) -> str:
    if version in ("v0.5", "v0.6"):
        return version
    name = mlperf_rounds.round_in(context)
    if not name:
        reasons["round"] = "logs from v0.7 on do not name their round, and no folder does"
    return name


def target_of(
    benchmark: str,
    round_name: str,
    trials: Sequence[TrialLog],
    warnings: list[str],
    reasons: dict[str, str],
) -> Target:
    """Target by the rules, or by the trials' logs in v0.5 and in the open division."""
    is_v05 = trials[0].version == "v0.5"
    if not is_v05 and trials[0].descriptions.get("submission_division") != "open":
        values = [e.value for trial in trials for e in trial.evaluations]
        target = mlperf_rounds.target(benchmark, round_name, max(values, default=None))
        if target.value is None:
            reasons["target.value"] = "not one number of the rules that is known here"
        return target
    # The rules tell the metrics and their directions alone.
    own = mlperf_rounds.target(benchmark, "", None)
    if is_v05:
        own = dataclasses.replace(own, unit=mlperf_rounds.unit_in_v05(benchmark))
    logged = sorted({asked for trial in trials for asked in trial.targets})
    numbers = {name.upper(): value for name, value in logged[0]} if len(logged) == 1 else {}
    names = [own.metric if own.others else "", *(other.metric for other in own.others)]
    if numbers.keys() == set(names):
        first, *further = (numbers[name] for name in names)
        parts = zip(own.others, further, strict=True)
        others = tuple(dataclasses.replace(part, value=value) for part, value in parts)
        return dataclasses.replace(own, value=first, others=others)
    shown = " or ".join(" and ".join(f"{n} {v:g}".strip() for n, v in asked) for asked in logged)
    if is_v05:
        reasons["target.value"] = f"eval_target says {shown or 'nothing'}"
        warnings.append(f"eval_target says {shown or 'nothing'}: no target")
    else:
        how = f"logged as {shown}" if shown else "not logged"
        reasons["target.value"] = f"the open division's target is the submitter's own; {how}"
    return dataclasses.replace(own, value=None, others=())


def _note_trials(
    benchmark: str,
    round_name: str,
    logs: list[tuple[str, TrialLog]],
    target: Target,
    warnings: list[str],
) -> None:
    needed = mlperf_rounds.num_trials(benchmark, round_name)
    if needed is not None and len(logs) != needed:
        warnings.append(f"{len(logs)} logs where the rules of the round ask for {needed}")
    failed = [file for file, log in logs if not log.reached]
    if failed:
        warnings.append(f"{len(failed)} of {len(logs)} trials did not reach the target")
    for file, log in logs:
        short = file.rsplit("/", 1)[-1]
        warnings += [f"{short}: {warning}" for warning in log.warnings]
        if not log.reached or target.value is None:
            continue
        if not log.evaluations:
            warnings.append(f"{short}: ends in success without an evaluation")
        elif not any(reaches(e.value, target.value, target.direction) for e in log.evaluations):
            best, word = (max, "largest") if target.direction == "at_least" else (min, "smallest")
            warnings.append(
                f"{short}: ends in success, but no evaluation reaches {target.value:g} "
                f"(the {word} is {best(e.value for e in log.evaluations):.9g})"
            )


def _machine(
    version: str,
    logs: list[tuple[str, TrialLog]],
    system: System,
    reasons: dict[str, str],
    warnings: list[str],
) -> dict[str, Any]:
    fields = system.fields
    framework = words(fields.get("framework"), 120)
    if version == "v0.5":
        nodes = fields.get("nodes")
        node = nodes[0] if isinstance(nodes, list) and nodes and isinstance(nodes[0], dict) else {}
        cpu, accelerator = words(node.get("cpu"), 120), words(node.get("accelerator"), 120)
        name = words(fields.get("hardware"), 120)
        each, in_cluster = count(node.get("num_accelerators")), count(node.get("num_nodes")) or None
        hosts = _hosts_of_job(logs, system, in_cluster, reasons)
    else:
        cpu = words(fields.get("host_processor_model_name"), 120)
        accelerator = words(fields.get("accelerator_model_name"), 120)
        name = words(fields.get("system_name"), 120)
        name = name or logs[0][1].descriptions.get("submission_platform", "")
        each, hosts = (
            count(fields.get("accelerators_per_node")),
            count(fields.get("number_of_nodes")) or None,
        )
        if hosts is None:
            reasons["num_hosts"] = "no description of the system says it"
    if accelerator.lower() in ("na", "n/a", "none", "-", "0"):
        accelerator = ""
    hardware = accelerator or cpu
    slice_match = re.search(r"tpu-?v[23]-(\d+)$", accelerator, re.I)
    if each is None:
        total = None
        reasons["num_accelerators"] = "no description of the system says it"
    elif slice_match and int(slice_match[1]) == each:
        total = each // 2  # the name counts the cores of the whole slice, such as tpuv3-512
        warnings.append(f"the {each} accelerators of the description are cores, two a chip")
    else:
        total = None if hosts is None else each * hosts
        if each == 0:
            total = 0
        elif total is None:
            reasons["num_accelerators"] = f"{each} per host; the number of hosts is not known"
    return {
        "system": name,
        "hardware": hardware,
        "processor_class": naming.processor_class(hardware) or ("CPU" if total == 0 else ""),
        "num_accelerators": total,
        "num_hosts": hosts,
        "framework": framework,
        "framework_family": naming.framework_family(framework),
    }


def _hosts_of_job(
    logs: list[tuple[str, TrialLog]],
    system: System,
    in_cluster: int | None,
    reasons: dict[str, str],
) -> int | None:
    """Number of servers of a v0.5 job, each of which clears its caches once before training.

    The description counts the servers of the cluster, which may be more. One benchmark clears
    twice on one server.
    """
    # The median, because a single log may lack a line or repeat one.
    cleared = round(statistics.median(log.num_cache_clears for _, log in logs))
    if in_cluster is None:
        reasons["num_hosts"] = "no description of the system says it"
        if cleared > 1:
            return cleared
        return None
    if cleared > 1:
        return min(cleared, in_cluster)
    named = re.match(r"(\d+)-nodes?\b", words(system.fields.get("hardware")))
    if in_cluster == 1 or (named and int(named[1]) == in_cluster):
        return in_cluster
    reasons["num_hosts"] = (
        f"one server logs clearing its caches, and the description names {in_cluster} nodes: "
        "it does not say whether the job ran on all"
    )
    return None


def _batch(
    version: str,
    benchmark: str,
    logs: list[tuple[str, TrialLog]],
    machine: dict[str, Any],
    reasons: dict[str, str],
    warnings: list[str],
) -> tuple[int | None, str]:
    """Global batch size and its unit; None where unknown, with the reason in `reasons`."""
    if version != "v0.5":
        sizes = {log.global_batch_size for _, log in logs}
        if len(sizes) == 1 and None not in sizes:
            return sizes.pop(), "examples"
        reasons["global_batch_size"] = "the logs give none, or several"
        return None, "examples"
    sizes = sorted({size for _, log in logs for size in log.batch_sizes})
    if sizes:
        reasons["input_batch_size"] = f"logged as {', '.join(map(str, sizes))}"
    if len(sizes) != 1:
        shown = ", ".join(map(str, sizes))
        reasons["global_batch_size"] = (
            f"input_batch_size is {shown}: training and evaluation" if sizes else "not logged"
        )
        return None, "examples"
    size, kind = sizes[0], (benchmark, machine["framework_family"])
    accelerators = machine["num_accelerators"]
    if kind in _OF_ALL:
        return size, "examples"
    if kind not in _OF_ONE_ACCELERATOR + _TOKENS_OF_ONE_ACCELERATOR:
        reasons["global_batch_size"] = (
            f"input_batch_size is {size}; it is unknown whether for one processor or for all"
        )
        return None, "examples"
    if not accelerators:
        reasons["global_batch_size"] = (
            f"{size} for each accelerator; the number of accelerators is not known"
        )
        return None, "examples"
    total = size * accelerators
    if benchmark == "ssd":
        by_iterations = _batch_by_iterations(size, logs)
        if by_iterations is not None and by_iterations != total:
            total = by_iterations
            warnings.append(
                f"the job ran on {total // size} of {accelerators} accelerators: its iterations an "
                f"epoch tell a batch of {total}, {size} of each"
            )
            machine["num_accelerators"] = total // size
    unit = "tokens" if kind in _TOKENS_OF_ONE_ACCELERATOR else "examples"
    warnings.append(f"the batch of {total} {unit} is {size} of each accelerator x {total // size}")
    return total, unit


def _batch_by_iterations(size: int, logs: list[tuple[str, TrialLog]]) -> int | None:
    """The one multiple of a size at which an epoch of COCO takes the logged iterations."""
    iterations = {n for _, log in logs if (n := log.iterations_per_epoch) is not None}
    if len(iterations) != 1:
        return None
    number = iterations.pop()
    multiples = {
        multiple
        for images in _COCO_IMAGES
        for multiple in range(size, images, size)
        if -(-images // multiple) == number
    }
    return multiples.pop() if len(multiples) == 1 else None


def _submitter(
    version: str, folders: list[str], system: System, descriptions: dict[str, str]
) -> str:
    if version == "v0.5":
        # The organisation is not spelled alike in all descriptions; the folder is.
        for index, part in enumerate(folders[:-1]):
            if re.fullmatch(r"v0\.5(\.\d+)?", part):
                return printable(folders[index + 1], 120)
    named = words(system.fields.get("submitter"), 120)
    for name in (named, descriptions.get("submission_org", "")):
        if name:
            return name
    if system.organization:
        return system.organization
    if version != "v0.5" and "results" in folders[1:]:
        return printable(folders[folders.index("results", 1) - 1], 120)
    return ""


def _status(system: System, descriptions: dict[str, str]) -> str:
    status = words(system.fields.get("status"), 40) or descriptions.get("submission_status", "")
    return "onprem" if status.lower().startswith("on-prem") else status
