"""`dawnjax plan`: time and cost of an experiment on hardware that is not here."""

import concurrent.futures
import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

from dawnjax import records
from dawnjax.config import command_line
from dawnjax.config.experiment_flags import Request, parse_request
from dawnjax.errors import ConfigError, ExitStatus, RunError
from dawnjax.plan import compiled, planned
from dawnjax.plan.planned import Planned
from dawnjax.plan.predict import DOES_NOT_FIT

if TYPE_CHECKING:
    from dawnjax.config.experiment import Experiment
    from dawnjax.plan.epochs import Epochs
    from dawnjax.plan.predict import Prediction
    from dawnjax.plan.systems import System
    from dawnjax.results.entries import Entry

SCHEMA_VERSION = 1

USAGE = (
    "dawnjax plan EXPERIMENT --on=SYSTEM:SIZE,... [--batches=N,...] [--scaling] [--FLAG=VALUE...]"
)

DESCRIPTION = """
Compiles an experiment's train and evaluation programs for systems that are not here, and predicts
the step, the time to accuracy and the cost on each, with an interval. No device and no data are
needed, but what compiles for them is: pip install -e '.[plan]'.

A size counts JAX devices, or gives a TPU's torus in chips: v3:8, v5e:16x16, h100:64. Flags of the
experiment change it, such as --global_batch_size=1024. `--validate` alone shows predictions beside
official results that were left out of the fit.

  dawnjax plan imagenet_resnet50_mlperf --on=v3:32,v5e:16x16,v6e:8x8,h100:64
  dawnjax plan imagenet_resnet50_mlperf --on=v5e:64 --batches=4096,8192,16384 --scaling
"""

SIZES = (8, 16, 32, 64, 128, 256, 512)
"""Devices of a scaling table."""

COMPILERS_AT_ONCE = 2
"""Each takes 1 to 2 GB."""


def main(argv: list[str]) -> int:
    values = _own_flags()
    if any(re.match(r"--?validate(=|$)", argument) for argument in argv):
        return _validate(argv, values)
    argv = command_line.with_experiment_flag(argv)
    own = set(values)
    request, positional = parse_request(
        "plan", argv, only=("mesh", "weight_update_sharding"), more=values, description=DESCRIPTION
    )
    if positional:
        raise ConfigError(f"unexpected argument {positional[0]!r}: {USAGE}")
    task = request.experiment.task
    if task.makes_examples:
        raise ConfigError(
            f"task={task.TAG} makes its examples, and a plan does not predict how long that takes; "
            "train a few epochs instead"
        )
    experiment_argv = _without(argv, own)
    names = _listed(values["on"].value)
    if not names:
        raise ConfigError("--on is missing: the systems, such as --on=v3:8,v5e:16x16,h100:8")
    systems, rows = _systems_of(names)
    if not systems:
        raise ConfigError(rows[0].reason)
    if values["scaling"].value:
        systems = _sizes_of(systems)
    batches = [_whole("batches", text) for text in _listed(values["batches"].value)]
    batches = batches or [request.experiment.global_batch_size]
    prices = _prices(_listed(values["price_per_device_hour_usd"].value))
    counted = _given_epochs(
        values["epochs"].value, values["epochs_from"].value, request.experiment.name
    )
    # Once: the flags of the jobs differ in nothing that the data depend on.
    data = compiled.identity_of_data(request.experiment.data)
    jobs = [
        (system, batch) for system in {t.name: t for t in systems}.values() for batch in batches
    ]

    def row(job: tuple["System", int]) -> Planned:
        system, batch = job
        flags_of_batch = [*experiment_argv, f"--global_batch_size={batch}"]
        try:
            prediction = _predict(request, flags_of_batch, data, system, batch, prices, counted)
        # One system without a plan must not cost the rows of the others.
        except (RunError, ConfigError) as error:
            reason = str(error)
            # Only a program that was compiled can be too large, so that the mesh is right.
            if reason.startswith(DOES_NOT_FIT) and (why := _straddling(request, system, batch)):
                reason = f"{reason}. {why}"
            return Planned(system.name, system.num_devices, batch, None, reason)
        return Planned(system.name, system.num_devices, batch, prediction)

    # XLA compiles outside Python's lock, so threads are enough.
    with concurrent.futures.ThreadPoolExecutor(COMPILERS_AT_ONCE) as pool:
        rows = sorted([*pool.map(row, jobs), *rows], key=planned.order)
    told = {
        "schema_version": SCHEMA_VERSION,
        "experiment": request.experiment.name,
        "overrides": request.overrides,
        "rows": [planned.to_json(row) for row in rows],
    }
    out = str(values["out"].value or "")
    if out:
        records.write_json(Path(out).expanduser(), told, indent=1)
    print(records.json_text(told, indent=1) if values["json"].value else planned.text(rows))
    return ExitStatus.DONE if any(row.prediction for row in rows) else ExitStatus.FAILED


def _systems_of(names: Sequence[str]) -> tuple[list["System"], list[Planned]]:
    from dawnjax.plan.systems import parse_system

    systems, rows = [], []
    for name in names:
        try:
            systems.append(parse_system(name))
        except ConfigError as error:
            rows.append(Planned(name, 0, 0, None, str(error)))
    return systems, rows


def _own_flags() -> flags.FlagValues:
    values = flags.FlagValues()
    flags.DEFINE_string("on", "", "The systems and sizes, with commas.", flag_values=values)
    flags.DEFINE_string("batches", "", "Global batches to plan, with commas.", flag_values=values)
    flags.DEFINE_boolean(
        "scaling", False, "Plan each system at 8 to 512 devices too.", flag_values=values
    )
    flags.DEFINE_float(
        "epochs", None, "Epochs to the target, where you know them.", flag_values=values
    )
    flags.DEFINE_string(
        "epochs_from", "", "Runs that say how many epochs reach the target.", flag_values=values
    )
    flags.DEFINE_string(
        "price_per_device_hour_usd", "", "SYSTEM:USD of one device, with commas.",
        flag_values=values,
    )  # fmt: skip
    flags.DEFINE_string("out", "", "A file for the plan as JSON.", flag_values=values)
    flags.DEFINE_boolean("json", False, "Print one JSON object instead.", flag_values=values)
    flags.DEFINE_boolean(
        "validate", False, "Show predictions beside official results.", flag_values=values
    )
    return values


def _without(argv: Sequence[str], own: set[str]) -> list[str]:
    left, skips = [], False
    for argument in argv:
        if skips:
            skips = False
            continue
        name, equals, _ = argument.lstrip("-").partition("=")
        if argument.startswith("-") and name.removeprefix("no") in own | {"scaling", "json"}:
            skips = not equals and name.removeprefix("no") not in ("scaling", "json")
            continue
        left.append(argument)
    return left


def _listed(text: Any) -> list[str]:
    return [part.strip() for part in str(text or "").split(",") if part.strip()]


def _whole(flag: str, text: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,8}", text, re.ASCII):
        raise ConfigError(f"--{flag}: {text!r} is no whole number above 0")
    return int(text)


def _prices(texts: Sequence[str]) -> dict[str, float]:
    from dawnjax.plan.systems import accelerators

    prices = {}
    for text in texts:
        name, _, price = text.partition(":")
        if name not in accelerators() or not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", price, re.ASCII):
            raise ConfigError(
                f"--price_per_device_hour_usd={text} must be SYSTEM:USD, such as v5e:1.2; systems "
                f"are {', '.join(accelerators())}"
            )
        prices[name] = float(price)
    return prices


def _sizes_of(systems: Sequence["System"]) -> list["System"]:
    more = []
    for system in systems:
        for size in SIZES:
            try:
                more.append(system.of_size(size))
            except ConfigError:
                continue  # no such size, such as half a host
    return [*systems, *more]


def _official_epochs(experiment: "Experiment", batch: int) -> "Epochs":
    from dawnjax.plan import validation

    target = experiment.targets[0].value if experiment.targets else math.nan
    return validation.estimated_epochs(experiment.name, batch, target)


def _given_epochs(number: Any, path: Any, experiment: str) -> "Callable[[int], Epochs] | None":
    """Epochs by batch as the user gave them: a number, or runs that took some."""
    from dawnjax.plan.epochs import Epochs

    if number is not None:
        if not 0 < float(number) < 1e6 or path:
            raise ConfigError("--epochs must be a number above 0, and goes without --epochs_from")
        given = Epochs(mean=float(number), spread=0.0, basis="given by --epochs, taken as exact")
        return lambda batch: given
    if not path:
        return None
    return epochs_of_runs(str(path), experiment)


def epochs_of_runs(path: str, experiment: str) -> "Callable[[int], Epochs]":
    from dawnjax.analysis import leaderboard, loading
    from dawnjax.plan import epochs, validation

    entries = list(loading.load_with_runs(Path(path).expanduser())[0])
    ours = [entry for entry in entries if (entry.suite, entry.benchmark) == ("dawnjax", experiment)]
    if not ours:
        names = ", ".join(sorted({entry.benchmark for entry in entries}))
        raise ConfigError(f"--epochs_from={path}: there is no run of {experiment}, but of {names}")
    if len(targets := leaderboard.targets(ours)) > 1:
        words = " and ".join(map(leaderboard.target_words, targets))
        raise ConfigError(f"--epochs_from={path}: runs to different targets, {words}; give one's")
    by_batch: dict[int | None, list[Entry]] = {}
    for entry in ours:
        by_batch.setdefault(entry.global_batch_size, []).append(entry)
    for size, entries in by_batch.items():
        if len({entry.identity for entry in entries}) > 1:
            raise ConfigError(
                f"--epochs_from={path}: runs of different experiments (identities) at batch "
                f"{size or 'unknown'}; give those of one"
            )
    known = {
        size: epochs_of
        for size, entries in by_batch.items()
        if (epochs_of := [t.epochs for e in entries for t in e.trials if t.reached and t.epochs])
    }
    if not known:
        raise ConfigError(
            f"--epochs_from={path}: no trial there says after how many epochs it reached"
        )

    def at(batch: int) -> "Epochs":
        # Runs of another batch than the nearest say less, and theirs is another experiment.
        sizes = [size for size in known if size]
        size = min(sizes, key=lambda size: abs(math.log(size / batch))) if sizes else None
        counts, trials = known[size], sum(len(entry.trials) for entry in by_batch[size])
        basis = f"mean of {len(counts)} of {trials} trials in {path} that reached "
        basis += " or ".join(map(leaderboard.target_words, targets))
        mean, spread = math.fsum(counts) / len(counts), epochs.spread_of_trials(counts)
        return validation.at_batch(mean, spread, [size] if size else [], batch, basis)

    return at


def _predict(
    request: Request,
    argv: list[str],
    data: str,
    system: "System",
    batch: int,
    prices: dict[str, float],
    counted: "Callable[[int], Epochs] | None",
) -> "Prediction":
    from dawnjax.plan import caveats, predict, validation
    from dawnjax.plan import prices as price_list

    programs = compiled.compiled(argv, compiled.identity_of(argv, data), system)
    experiment = request.experiment
    epochs = counted(batch) if counted else _official_epochs(experiment, batch)
    usd_per_hour, note = price_list.system_price(system, prices)
    prediction = predict.predict(
        programs,
        system,
        validation.fitted_efficiency(system.accelerator.name),
        experiment.evaluation,
        epochs,
        usd_per_hour,
        note,
    )
    more = caveats.caveats(experiment, request.overrides, epochs)
    if straddling := _straddling(request, system, batch):
        more.append(straddling)
    return dataclasses.replace(prediction, notes=(*prediction.notes, *more))


def _straddling(request: Request, system: "System", batch: int) -> str:
    from dawnjax.plan.caveats import straddling_groups

    shards = request.options.mesh.batch_shards(system.num_devices)
    return straddling_groups(request.experiment.batch_norm_group_size, batch, shards)


def _validate(argv: list[str], values: flags.FlagValues) -> int:
    """Print official results beside predictions that did not use their system."""
    command_line.parse("plan", values, argv, USAGE, DESCRIPTION)
    given = [name for name in values if values[name].present and name not in ("validate", "json")]
    if given:
        raise ConfigError(f"--validate plans nothing: leave out --{given[0]}")
    from dawnjax.plan import validation

    checks = validation.checks()
    if values["json"].value:
        rows = [
            dataclasses.asdict(check) | {"error": check.error, "holds": check.holds}
            for check in checks
        ]
        print(records.json_text({"schema_version": SCHEMA_VERSION, "rows": rows}, indent=1))
        return ExitStatus.DONE
    print(planned.validation_text(checks))
    return ExitStatus.DONE
