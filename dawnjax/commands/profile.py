"""`dawnjax profile`: where the time of a step goes, of an earlier run or a few fresh steps."""

from pathlib import Path

from absl import flags

from dawnjax.config import command_line
from dawnjax.errors import ConfigError, ExitStatus
from dawnjax.profile import host_profile, tables
from dawnjax.profile.captured import captures_of
from dawnjax.text import escaped

_USAGE = "dawnjax profile RUN_DIR | --experiment=NAME [--twin] [--FLAG=VALUE...]"
_DESCRIPTION = """Shows for each host communication, utilization and the ops that lose most time.

With RUN_DIR it reads the profile that a run left there. With --experiment it makes a few fresh
steps, as `dawnjax train` would, and profiles them (--run_dir says where to; --profile.seconds how
long). All ops are written next to each profile as CSV. --experiment=NAME --help lists the
experiment's flags.

--twin times the step against the same step without communication, as a second method beside the
trace; it compiles one more program, on a copy of the state."""


def main(argv: list[str]) -> int:
    flag_values = flags.FlagValues()
    text = "Time the step against the same one without communication; with --experiment."
    flags.DEFINE_boolean("twin", False, text, flag_values=flag_values)
    if command_line.value_in(argv, "experiment") is not None:
        rest = command_line.known(flag_values, argv)
        return _fresh(rest, bool(flag_values["twin"].value))
    paths = command_line.parse("profile", flag_values, argv, _USAGE, _DESCRIPTION)
    if len(paths) != 1:
        raise ConfigError(f"one run directory, or --experiment, is needed; {len(paths)} given")
    if flag_values["twin"].value:
        raise ConfigError("--twin takes fresh steps: give --experiment=NAME")
    return show(Path(paths[0]))


def _fresh(argv: list[str], with_twin: bool) -> int:
    from dawnjax.config.experiment_flags import parse_request

    request, positional = parse_request("profile", argv)
    if positional:
        raise ConfigError(f"{positional[0]!r}: give a run directory or --experiment, not both")
    # Imported here: wrong use is answered before JAX is loaded to compute.
    from dawnjax.capture.fresh_profile import profile_experiment

    run_dir, is_first = profile_experiment(request, with_twin)
    return show(run_dir) if is_first else ExitStatus.DONE


def show(run_dir: Path) -> int:
    profiles = [host_profile.read_profile(folder) for folder in captures_of(run_dir)]
    first, last = profiles[0].capture.steps
    print(f"profiled steps {first + 1} to {last}, which count for no run")
    if profiles[0].capture.simulates:
        print(host_profile.SIMULATED)
    print(escaped(tables.text(profiles)))
    for profile in profiles:
        host = profile.capture.process_index
        if profile.failure:
            print(escaped(f"host {host}: {profile.failure}"))
        if twin_line := profile.twin_line():
            print(escaped(twin_line))
        reason = profile.utilization_json()["reasons"].get("mfu")
        if reason:
            print(escaped(f"host {host}: model FLOP utilization is not known: {reason}"))
    straggler, no_straggler = profiles[0].straggler()
    verdict = no_straggler if straggler is None else straggler.line()
    if verdict:
        print(escaped(verdict))
    for profile in profiles:
        tables.write_csv(profile)
        print(f"all ops: {profile.folder / 'ops.csv'}")
    print(f"a timeline: xprof --logdir={run_dir / 'profile'} (XProf is a package of its own)")
    return ExitStatus.DONE
