"""`dawnjax plan`: time and cost of an experiment on hardware that you do not have."""

import concurrent.futures
import contextlib
import dataclasses
import functools
import itertools
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from absl import flags

from dawnjax import records
from dawnjax.commands.answer import Answer
from dawnjax.commands.told_plan import Row, ToldPlan
from dawnjax.config import command_line
from dawnjax.config.experiment_flags import Request, parse_request
from dawnjax.errors import ConfigError, ExitStatus, RunError
from dawnjax.page import words
from dawnjax.plan import planned
from dawnjax.plan.compiling import compiled
from dawnjax.plan.planned import Planned
from dawnjax.text import escaped

if TYPE_CHECKING:
    from dawnjax.plan.compiling.compiled import Programs
    from dawnjax.plan.epochs.epochs import Epochs
    from dawnjax.plan.hardware.systems import System
    from dawnjax.plan.steps.efficiency import Efficiency
    from dawnjax.plan.steps.predict import Prediction

Given = TypeVar("Given")
Made = TypeVar("Made")

Counted = Callable[[int, int], "Epochs"]
"""Epochs at a global batch, given the examples of an epoch."""

USAGE = "dawnjax plan EXPERIMENT --on=SYSTEM:SIZE,... [--batches=N,...] [--FLAG=VALUE...]"

DESCRIPTION = """
Compiles an experiment's train and evaluation programs for systems that you do not have, and
predicts step time, time to accuracy and cost on each, with an interval. It needs no device and no
data, only the compilers: pip install "dawnjax[plan]".

A size counts JAX devices, or gives a TPU's torus in chips: v3:8, v5e:16x16, h100:64. Flags of the
experiment change it, such as --global_batch_size=1024.
`--memory` shows whether a step fits, by how much, and what fills the memory. For self-play, a plan
shows only the memory of each program. `--search=mesh` compares all meshes of a decoder of the Llama
family, without compiling.

  dawnjax plan imagenet_resnet50_mlperf --on=v3:32,v5e:16x16,v6e:8x8,h100:64
  dawnjax plan imagenet_resnet50_mlperf --on=v5e:64 --batches=4096,8192,16384
  dawnjax plan c4_llama31_8b --on=v6e:256 --batches=256,1024 --search=mesh
"""


@dataclasses.dataclass(frozen=True)
class _Job:
    """A system and batch to plan, with its flags and the `identity` of its programs."""

    system: "System"
    batch: int
    argv: list[str]
    request: Request
    identity: str


@dataclasses.dataclass(frozen=True)
class _Asked:
    """What the flags ask for: `argv` has those of the experiment, `lost` the unknown systems."""

    request: Request
    argv: Sequence[str]
    systems: Sequence["System"]
    batches: Sequence[int]
    lost: Sequence[Planned]
    values: flags.FlagValues


RESULT = ToldPlan


def main(argv: list[str]) -> Answer:
    # Compilers are asked in processes of their own; here JAX needs no device.
    os.environ["JAX_PLATFORMS"] = "cpu"
    values = _own_flags()
    named = command_line.with_experiment_flag(argv)
    of_experiment = command_line.known(_own_flags(), named)
    request, positional = parse_request(
        "plan", named, only=compiled.OPTIONS, more=values, description=DESCRIPTION
    )
    if positional:
        raise ConfigError(f"unexpected argument {positional[0]!r}: {USAGE}")
    request.options.validate()
    rows, text, advised = _rows(request, of_experiment, values)
    lines = [text, "", *advised] if advised else [text]
    lost = [f"{row['system']}: {row['reason']}" for row in rows if row.get("reason")]
    result = ToldPlan(
        experiment=request.experiment.name,
        overrides=request.overrides,
        rows=records.convert(records.plain(rows), tuple[Row, ...], others=True),
        advice=tuple(advised),
    )
    has_failed = len(lost) == len(rows)
    return Answer(
        result=result,
        text="\n".join(lines),
        status=ExitStatus.FAILED if has_failed else ExitStatus.DONE,
        reasons=lost if has_failed else (),
    )


class _Rows(NamedTuple):
    """Rows as JSON, each with a `reason` where it has no plan; all of them as text; advice."""

    rows: list[dict[str, Any]]
    text: str
    advice: list[str]


def _rows(request: Request, argv: Sequence[str], values: flags.FlagValues) -> _Rows:
    """Plans that the flags ask for; `argv` has those of the experiment."""
    names = values["on"].value
    if not names:
        raise ConfigError("--on is missing: give systems, such as --on=v3:8,v5e:16x16,h100:8")
    systems, lost = _systems_of(names)
    if not systems:
        raise ConfigError(lost[0].reason)
    systems = list({t.name: t for t in systems}.values())
    batches = [_whole("batches", text) for text in values["batches"].value or ()]
    batches = list(dict.fromkeys(batches)) or [request.experiment.global_batch_size]
    if values["memory"].value and values["search"].value:
        raise ConfigError("give --memory or --search, not both")
    asked = _Asked(request, argv, systems, batches, lost, values)
    if values["memory"].value or request.experiment.task.makes_examples:
        return _memory(asked)
    return _search(asked) if values["search"].value else _predicted(asked)


def _predicted(asked: _Asked) -> _Rows:
    """Times and costs on each system, from programs compiled for it."""
    request, argv, values = asked.request, asked.argv, asked.values
    prices = _prices(values["price_per_device_hour_usd"].value or ())
    counted = _given_epochs(values["epochs"].value, values["epochs_from"].value, request)
    # Once: the flags of the jobs differ in nothing that the data depend on.
    spec = _fitting_spec(request)
    rows, jobs = list(asked.lost), []
    for batch in asked.batches:
        flags_of_batch, of_batch = _with_batch(argv, batch)
        identity = compiled.identity_of(of_batch, spec)
        jobs += [_Job(t, batch, flags_of_batch, of_batch, identity) for t in asked.systems]
    rows += _planned(request, spec, jobs, prices, counted)
    rows.sort(key=planned.order)
    return _Rows([planned.to_json(row) for row in rows], planned.text(rows), _advice(rows))


def _advice(rows: Sequence[Planned]) -> list[str]:
    from dawnjax.plan.advice import advice, options

    return advice(options(row.prediction for row in rows if row.prediction))


def _with_lost(
    rows: Iterable[dict[str, Any]], text: str, lost: Sequence[Planned], advised: Sequence[str] = ()
) -> _Rows:
    reasons = [f"{row.system}: {row.reason}" for row in lost]
    lines = [text, *reasons] if text else reasons
    return _Rows([*rows, *map(planned.to_json, lost)], "\n".join(lines), list(advised))


def _memory(asked: _Asked) -> _Rows:
    from dawnjax.plan.compiling import memory

    request, experiment = asked.request, asked.request.experiment
    makes = experiment.task.makes_examples
    why = "a plan does not predict the time of making examples"
    _refuse_times(asked.values, why if makes else "--memory predicts neither time nor cost")
    spec = _fitting_spec(request)

    def rows(system: "System") -> list[memory.Row]:
        def of(batch: int) -> memory.Memory:
            flags_of_batch, of_batch = _with_batch(asked.argv, batch)
            _refuse(of_batch, system, spec)
            watch = functools.partial(_said, request, system, batch)
            return memory.of_experiment(flags_of_batch, system, watch)

        # Stages have batches of their own.
        unit = 0 if makes or experiment.stages.boundary_epochs else _unit(request, system)
        return memory.rows(system, asked.batches, of, unit, spec.num_train_examples)

    found = list(itertools.chain(*_side_by_side(rows, asked.systems)))
    found = [dataclasses.replace(row, reason=_with_search(row.reason, request)) for row in found]
    return _with_lost(map(memory.to_json, found), memory.text(found), asked.lost)


def _fitting_spec(request: Request) -> Any:
    """Shapes and counts of the data; ConfigError where the mesh does not fit the model."""
    from dawnjax.session import refuse_mesh

    spec, _ = compiled.spec_of(request.experiment.data)
    refuse_mesh(request.experiment.model, spec, request.options.mesh)
    return spec


def _with_batch(argv: Sequence[str], batch: int) -> tuple[list[str], Request]:
    """Flags of the experiment with a global batch, and what they ask for."""
    flags_of_batch = [*argv, f"--global_batch_size={batch}"]
    return flags_of_batch, parse_request("plan", flags_of_batch)[0]


def _refuse(request: Request, system: "System", spec: Any) -> None:
    """Refuse a mesh or batch that does not fit the data or the devices, before a compiler "
    "starts."""
    from dawnjax.config.own_files import own_code

    experiment, mesh = request.experiment, request.options.mesh
    with own_code("the experiment"):
        experiment.validate(spec)
    mesh.sizes(system.num_devices)
    shards = mesh.batch_shards(system.num_devices)
    for span in experiment.spans(spec):
        rows = experiment.in_stage(span.index).global_batch_size
        if rows % shards:
            raise ConfigError(f"global_batch_size={rows} is not a multiple of {shards} devices")


@contextlib.contextmanager
def _said(request: Request, system: "System", batch: int) -> Iterator[None]:
    """Report on standard error what is compiled, and how long that took."""
    what = escaped(f"{request.experiment.name} for {system.name} batch {batch:,}")
    started = time.monotonic()
    print(f"compiling {what}", file=sys.stderr, flush=True)
    yield
    print(f"compiled {what} in {words.duration(time.monotonic() - started)}", file=sys.stderr)


def _side_by_side(make: Callable[[Given], Made], given: Iterable[Given]) -> list[Made]:
    """Results of `make` by two threads: XLA compiles in processes of 0.8 to 3 GB."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return list(pool.map(make, given))


def _unit(request: Request, system: "System") -> int:
    """Divisor of all batches: each device has an equal part of a batch, and whole groups.

    Groups that straddle devices exchange activations, which take several times the memory.
    """
    experiment = request.experiment
    shards = request.options.mesh.batch_shards(system.num_devices)
    return shards * math.lcm(experiment.accumulation_steps, experiment.batch_norm_group_size or 1)


def _with_search(reason: str, request: Request) -> str:
    """A reason, with the remedy if a decoder's batch has fewer rows than there are devices."""
    from dawnjax.plan.decoders import step

    if "is not a multiple of" in reason:
        spec, _ = compiled.spec_of(request.experiment.data)
        if not step.why_unfit(request.experiment, spec):
            return f"{reason}: --search=mesh finds meshes for smaller batches"
    return reason


def _refuse_times(values: flags.FlagValues, why: str) -> None:
    for name in ("epochs", "epochs_from", "price_per_device_hour_usd", "search"):
        if values[name].present:
            raise ConfigError(f"{why}: leave out --{name}")


def _search(asked: _Asked) -> _Rows:
    from dawnjax.machine.mesh_shape import MeshShape
    from dawnjax.plan.advice import advice, options
    from dawnjax.plan.decoders import arrangements

    request, values = asked.request, asked.values
    experiment = request.experiment
    if request.options.mesh != MeshShape():
        raise ConfigError("--search=mesh chooses the mesh: leave out the flags of --mesh")
    if request.options.weight_update_sharding:
        raise ConfigError(
            "--search=mesh splits the state by its meshes: leave out --weight_update_sharding"
        )
    if "model.remat" in request.overrides:
        raise ConfigError("--search=mesh chooses model.remat: leave out --model.remat")
    spec, _ = compiled.spec_of(experiment.data)
    prices = _prices(values["price_per_device_hour_usd"].value or ())
    counted = _given_epochs(values["epochs"].value, values["epochs_from"].value, request)
    found: list[arrangements.Found] = []
    lost = list(asked.lost)
    for system in asked.systems:
        try:
            place = (system, asked.batches)
            rows, reasons = arrangements.search(experiment, spec, *place, counted, prices)
        # One system that nothing fits must not cost the rows of the others.
        except (RunError, ConfigError) as error:
            rows, reasons = [], [str(error)]
        found += rows
        lost += [Planned(system.name, system.num_devices, 0, None, text) for text in reasons]
    text = arrangements.text(found) if found else ""
    surely = options(row for row in found if arrangements.fits(row) == "yes")
    advised = advice(surely)
    priced = dict.fromkeys(option.system for option in options(found))
    unsure = [name for name in priced if name not in {option.system for option in surely}]
    if unsure and len(priced) > 1:
        names = ", ".join(unsure)
        advised.append(
            f"not compared: {names}, because no mesh is certain to fit; --memory compiles one"
        )
    return _with_lost(map(arrangements.to_json, found), text, lost, advised)


def _planned(
    request: Request,
    spec: Any,
    jobs: Sequence[_Job],
    prices: dict[str, float],
    counted: Counted,
) -> list[Planned]:
    def row(job: _Job) -> Planned:
        system, batch = job.system, job.batch
        try:
            _refuse(job.request, system, spec)
            watch = functools.partial(_said, request, system, batch)
            prediction = _predict(request, job, prices, counted, watch)
        # One system without a plan must not cost the rows of the others.
        except (RunError, ConfigError) as error:
            reason = _with_search(str(error), request)
            return Planned(system.name, system.num_devices, batch, None, reason)
        return Planned(system.name, system.num_devices, batch, prediction)

    return _side_by_side(row, jobs)


def _systems_of(names: Sequence[str]) -> tuple[list["System"], list[Planned]]:
    from dawnjax.plan.hardware.systems import parse_system

    systems, rows = [], []
    for name in names:
        try:
            systems.append(parse_system(name))
        except ConfigError as error:
            rows.append(Planned(name, 0, 0, None, str(error)))
    return systems, rows


def _own_flags() -> flags.FlagValues:
    values = flags.FlagValues()
    text = functools.partial(flags.DEFINE_string, flag_values=values)
    texts = functools.partial(flags.DEFINE_list, flag_values=values)
    switch = functools.partial(flags.DEFINE_boolean, flag_values=values)
    texts("on", [], "The systems and sizes, separated by commas.")
    texts("batches", [], "Global batches to plan, separated by commas.")
    switch("memory", False, "Show what fills a device's memory.")
    meshes = "Compare all meshes, without compiling."
    flags.DEFINE_enum("search", None, ["mesh"], meshes, flag_values=values)
    known = "Epochs to the target, if you know them."
    flags.DEFINE_float("epochs", None, known, flag_values=values)
    text("epochs_from", "", "Runs from which to take the epochs to the target.")
    texts("price_per_device_hour_usd", [], "Price of one device, SYSTEM:USD, separated by commas.")
    return values


def _whole(flag: str, text: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,8}", text, re.ASCII):
        raise ConfigError(f"--{flag}: {text!r} is not a whole number above 0")
    return int(text)


def _prices(texts: Sequence[str]) -> dict[str, float]:
    from dawnjax.plan.hardware.systems import accelerators

    prices = {}
    for text in texts:
        name, _, price = text.partition(":")
        is_price = re.fullmatch(r"\d{1,9}(\.\d{1,9})?", price, re.ASCII)
        # Costs are compared by their ratio, and 0 has none.
        if name not in accelerators() or not is_price or not float(price):
            raise ConfigError(
                f"--price_per_device_hour_usd={text} must be SYSTEM:USD, such as v5e:1.2, and "
                f"above 0; systems are {', '.join(accelerators())}"
            )
        prices[name] = float(price)
    return prices


def _given_epochs(number: Any, path: Any, request: Request) -> Counted:
    """Epochs by batch and examples per epoch: the user's, or the known ones."""
    from dawnjax.config.experiment_modules import experiment_names, load_experiment
    from dawnjax.plan.epochs import sources

    if number is not None and path:
        raise ConfigError("give --epochs or --epochs_from, not both")
    experiment = request.experiment
    if number is not None:
        given = sources.given(float(number))
        return lambda batch, train_examples: given
    if path:
        return sources.of_runs(str(path), experiment)
    if request.experiment_file:
        base = load_experiment(str(request.experiment_file))
    else:
        has_base = experiment.name in experiment_names()  # a tiny variant has none
        base = load_experiment(experiment.name) if has_base else None
    return functools.partial(sources.known, experiment, base)


def _predict(
    request: Request,
    job: _Job,
    prices: dict[str, float],
    counted: Counted,
    watch: compiled.Watch,
) -> "Prediction":
    from dawnjax.plan.epochs import caveats
    from dawnjax.plan.steps import predict
    from dawnjax.plan.steps.fitted import fitted_efficiency

    system, experiment = job.system, request.experiment
    programs = compiled.compiled(job.argv, job.identity, system, watch)
    epochs = counted(job.batch, programs.train_examples)
    efficiency = fitted_efficiency(system.accelerator.name)
    efficiency = _of_decoders(request, job, programs, efficiency)
    prediction = predict.predict(
        programs,
        system,
        efficiency,
        experiment.evaluation,
        epochs,
        system.price(prices),
        has_budget=experiment.has_length,
    )
    more = caveats.caveats(experiment, epochs)
    return dataclasses.replace(prediction, notes=(*prediction.notes, *more))


def _of_decoders(
    request: Request, job: _Job, programs: "Programs", efficiency: "Efficiency"
) -> "Efficiency":
    """Efficiency by published decoder steps, if the experiment is such a decoder."""
    from dawnjax.plan.decoders import step as decoder_step
    from dawnjax.plan.steps import predict

    spec, _ = compiled.spec_of(request.experiment.data)
    if decoder_step.why_unfit(request.experiment, spec):
        return efficiency
    parts = predict.step_parts(programs.stages[-1].train, job.system, efficiency)
    mesh, seconds = request.options.mesh, sum(parts.values())
    place = (mesh, job.system, job.batch)
    return decoder_step.scaled(efficiency, request.experiment, spec, *place, seconds)
