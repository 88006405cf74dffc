"""`dawnjax profile`: where a step's time goes, in an earlier run or a few fresh steps."""

import dataclasses
import re
from pathlib import Path

from absl import flags

from dawnjax import records
from dawnjax.commands.answer import Answer
from dawnjax.config import command_line
from dawnjax.errors import ConfigError
from dawnjax.page.words import shared
from dawnjax.profile import host_profile, tables
from dawnjax.profile.captured import captures_of
from dawnjax.profile.host_profile import HostProfile
from dawnjax.text import escaped

_USAGE = "dawnjax profile RUN_DIR | EXPERIMENT | --experiment=NAME [--twin] [--FLAG=VALUE...]"
_DESCRIPTION = """Shows for each host communication, utilization and the ops that lose most time.

With RUN_DIR it reads the run's profile. With an experiment it trains a few fresh steps, as `dawnjax
train` would, and profiles them (--run_dir chooses the folder, --profile.seconds the length). A CSV
file beside each profile has all ops. --experiment=NAME --help lists the experiment's flags.

--twin also measures communication by timing the step against the same step without communication,
which takes one more program and a copy of the state."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Op:
    """An op that loses much time.

    Attributes:
      layer: Where the program made it; empty if unknown.
      line: The line of code likewise.
      lost_seconds_per_step: Time beyond the least that its FLOPs and bytes need.
    """

    op: str
    layer: str
    line: str
    seconds_per_step: float
    lost_seconds_per_step: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Utilization:
    """Where the time of a step went, and fractions of each peak; null with a reason.

    Attributes:
      window: Folder of the capture.
      parts_seconds: Seconds of each part of a traced step; they sum to the step.
      parts_fraction: The same as fractions of it.
      attributed_fraction: Fraction of the step with a known cause.
      busy_fraction: Fraction in which the device ran an op.
      mfu: Model FLOPs over the peak's.
      hfu: Executed FLOPs over the peak's.
      reasons: Why a field is null, by its name.
    """

    window: str
    step_seconds: float
    mfu: float | None
    hfu: float | None
    memory_bandwidth_fraction: float | None
    busy_fraction: float | None
    attributed_fraction: float | None
    tensor_core_fraction: float | None
    model_flops_per_step: float | None
    executed_flops_per_step: float
    peak_flops_per_second: float | None
    peak_source: str | None
    reasons: dict[str, str]
    traced_step_seconds: float | None = None
    parts_seconds: dict[str, float] | None = None
    parts_fraction: dict[str, float] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Communication:
    """Collectives of a host's devices, as fractions of a step; null with a reason.

    Attributes:
      fraction: Time with a collective in flight.
      exposed_fraction: The part of it that no computation hid.
      exposed_skew_fraction: The exposed part spent waiting for the slowest device.
      reasons: Why a field is null, by its name.
    """

    seconds_per_step: float | None
    exposed_seconds_per_step: float | None
    fraction: float | None
    exposed_fraction: float | None
    skew_fraction: float | None
    exposed_skew_fraction: float | None
    bytes_per_step: float | None
    reasons: dict[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Host:
    """One process.

    Attributes:
      largest_losses: The ten ops that lose most time.
      ops_file: All ops as CSV.
      failure: Why the trace cannot be read; empty if it can.
    """

    process_index: int
    utilization: Utilization
    communication: Communication
    largest_losses: tuple[Op, ...]
    ops_file: str
    failure: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """Where the time of the profiled steps went, by host.

    Attributes:
      first_step: First of the profiled steps, which belong to no run.
      straggler: The host that the others waited for; null without one.
      straggler_reason: Why none is known; empty if none is meant.
    """

    run_dir: str
    first_step: int
    last_step: int
    hosts: tuple[Host, ...]
    straggler: int | None
    straggler_reason: str


RESULT = Result


def main(argv: list[str]) -> Answer:
    flag_values = flags.FlagValues()
    text = "Time fresh steps against the same steps without communication."
    flags.DEFINE_boolean("twin", False, text, flag_values=flag_values)
    # A word that is no path is an experiment's name.
    if argv and re.fullmatch(r"\w+|.*\.py", argv[0]) and not Path(argv[0]).is_dir():
        argv = command_line.with_experiment_flag(argv)
    if command_line.value_in(argv, "experiment") is not None:
        rest = command_line.known(flag_values, argv)
        return _fresh(rest, bool(flag_values["twin"].value))
    paths = command_line.parse("profile", flag_values, argv, _USAGE, _DESCRIPTION)
    path = command_line.one(paths, "run directory or experiment")
    if flag_values["twin"].value:
        raise ConfigError("--twin needs fresh steps: name an experiment instead of the run")
    return show(Path(path))


def _fresh(argv: list[str], with_twin: bool) -> Answer:
    from dawnjax.config.experiment_flags import parse_request

    request, positional = parse_request("profile", argv)
    if positional:
        raise ConfigError(f"{positional[0]!r}: give a run directory or --experiment, not both")
    # Imported here: wrong use is answered before JAX is loaded to compute.
    from dawnjax.capture.fresh_profile import profile_experiment

    run_dir, is_first = profile_experiment(request, with_twin)
    return show(run_dir) if is_first else Answer()


def show(run_dir: Path) -> Answer:
    profiles = [host_profile.read_profile(folder) for folder in captures_of(run_dir)]
    first, last = profiles[0].capture.steps
    lines = [f"profiled steps {first + 1} to {last}, which belong to no run"]
    if profiles[0].capture.simulates:
        lines.append(host_profile.SIMULATED)
    lines.append(escaped(tables.text(profiles)))
    straggler, no_straggler = profiles[0].straggler()
    verdict = no_straggler if straggler is None else straggler.line()
    lines += [escaped(line) for line in [*_remarks(profiles), verdict] if line]
    for profile in profiles:
        tables.write_csv(profile)
    files = [str(profile.folder / "ops.csv") for profile in profiles]
    lines += [f"all ops: {file}" for file in files]
    timeline = f"xprof --logdir={run_dir / 'profile'}"
    lines.append(f"a timeline: {timeline} (XProf is a separate package)")
    result = Result(
        run_dir=str(run_dir),
        first_step=first + 1,
        last_step=last,
        hosts=tuple(map(_host, profiles, files)),
        straggler=straggler and straggler.process_index,
        straggler_reason=no_straggler,
    )
    return Answer(result=result, text="\n".join(lines))


def _remarks(profiles: list[HostProfile]) -> list[str]:
    """Notes that the tables lack; a note on several hosts appears once."""
    said = []
    for profile in profiles:
        why = profile.utilization_json()["reasons"].get("mfu")
        for line in (profile.failure, why and f"model FLOP utilization is not known: {why}"):
            said += [(profile.capture.process_index, line)] if line else []
    lines = [f"host {tables.in_one_cell(hosts)}: {line}" for hosts, line in shared(said)]
    return [*lines, *(profile.twin_line() for profile in profiles)]


def _host(profile: HostProfile, file: str) -> Host:
    return Host(
        process_index=profile.capture.process_index,
        utilization=records.convert(profile.utilization_json(), Utilization, others=True),
        communication=records.convert(profile.communication_json(), Communication, others=True),
        largest_losses=records.convert(tables.loss_json(profile.ops), tuple[Op, ...]),
        ops_file=file,
        failure=profile.failure,
    )
