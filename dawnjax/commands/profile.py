"""`dawnjax profile`: where the time of a step goes, of an earlier run or a few fresh steps."""

from pathlib import Path

from absl import flags

from dawnjax.config import command_line
from dawnjax.errors import ConfigError, ExitStatus
from dawnjax.profile import host_profile, tables
from dawnjax.profile.windows import windows_of
from dawnjax.text import escaped

_USAGE = "dawnjax profile RUN_DIR [--window=NAME] | --experiment=NAME [--twin] [--FLAG=VALUE...]"
_DESCRIPTION = """Shows for each host communication, utilization and the ops that lose most time.

With RUN_DIR it reads a profile that a run left there: the one after the run, or the last window
inside it, or the one that --window names. With --experiment it makes a few fresh steps, as `dawnjax
train` would, and profiles them (--run_dir says where to; --profile.seconds how long). All ops
are written next to each profile as CSV. --experiment=NAME --help lists the experiment's flags.

--twin times the step against the same step without communication, as a second method beside the
trace; it compiles one more program, on a copy of the state."""


def main(argv: list[str]) -> int:
    flag_values = flags.FlagValues()
    text = "Time the step against the same one without communication; with --experiment."
    flags.DEFINE_boolean("twin", False, text, flag_values=flag_values)
    if command_line.value_in(argv, "experiment") is not None:
        rest = command_line.known(flag_values, argv)
        return _fresh(rest, bool(flag_values["twin"].value))
    text = "The window to show, such as steps_20_24; empty takes the last or after_run."
    flags.DEFINE_string("window", "", text, flag_values=flag_values)
    paths = command_line.parse("profile", flag_values, argv, _USAGE, _DESCRIPTION)
    if len(paths) != 1:
        raise ConfigError(f"one run directory, or --experiment, is needed; {len(paths)} given")
    if flag_values["twin"].value:
        raise ConfigError("--twin takes fresh steps: give --experiment=NAME")
    return show(Path(paths[0]), str(flag_values["window"].value))


def _fresh(argv: list[str], with_twin: bool) -> int:
    from dawnjax.config.experiment_flags import parse_request

    request, positional = parse_request("profile", argv)
    if positional:
        raise ConfigError(f"{positional[0]!r}: give a run directory or --experiment, not both")
    # Imported here: wrong use is answered before JAX is loaded to compute.
    from dawnjax.capture.fresh_profile import profile_experiment

    run_dir, is_first = profile_experiment(request, with_twin)
    return show(run_dir) if is_first else ExitStatus.DONE


def show(run_dir: Path, window: str = "") -> int:
    """Show and write the profile of each process, of `window` or, if empty, the last."""
    windows = windows_of(run_dir)
    window = window or list(windows)[-1]
    if window not in windows:
        raise ConfigError(f"{run_dir} has no window {window!r}; it has {', '.join(windows)}")
    profiles = [host_profile.read_profile(folder) for folder in windows[window]]
    line = _window_line(window, profiles[0], [name for name in windows if name != window])
    print(escaped(line))
    hosts = {folder.parent for folders in windows.values() for folder in folders}
    for folder in sorted(hosts - {profile.folder.parent for profile in profiles}):
        print(f"{folder.name} has no profile of this window")
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
    print(f"a timeline: xprof --logdir={profiles[0].folder} (XProf is a package of its own)")
    return ExitStatus.DONE


def _window_line(window: str, profile: host_profile.HostProfile, others: list[str]) -> str:
    first, last = profile.capture.steps
    where = "inside the run" if profile.capture.in_run else "none of the run's"
    line = f"window {window}: steps {first + 1} to {last}, {where}"
    if others:
        line += f"; not shown: {', '.join(others)} (--window=NAME shows one)"
    return line
