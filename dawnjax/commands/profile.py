"""`dawnjax profile`: where the time of a step goes, of an earlier run or a few fresh steps."""

import functools
from pathlib import Path

from absl import flags

from dawnjax import records
from dawnjax.config import command_line
from dawnjax.errors import ConfigError, ExitStatus
from dawnjax.profile import figures, host_profile, tables
from dawnjax.profile.windows import windows_of
from dawnjax.runs.directory import RunDirectory
from dawnjax.text import escaped

_USAGE = (
    "dawnjax profile RUN_DIR [--window=NAME] [--figures=false] [--perfetto=FILE] | "
    "RUN_DIR --again [--FLAG=VALUE...] | --experiment=NAME [--FLAG=VALUE...]"
)
_DESCRIPTION = """Shows for each host communication, utilization and the ops that lose most time.

With RUN_DIR it reads a profile that a run left there: the one after the run, or the last window
inside it, or the one that --window names. With --again it restores the run's newest checkpoint and
profiles further steps as a window of their own, such as when the first profile was disturbed; the
run's log and result stay as they are. With --experiment it makes a few fresh steps, as `dawnjax
train` would, and profiles them (--run_dir says where to; --profile.seconds how long). CSV and SVG
are written next to each profile. --again --help and --experiment=NAME --help list their flags."""

_OPTIONS_AGAIN = (
    "mesh", "weight_update_sharding", "steps_per_call", "data_placement", "checkpoint",
    "compile_cache_dir", "processes", "profile",
)  # fmt: skip
"""The run options of steps that a profile makes again."""


def main(argv: list[str]) -> int:
    figure_flags = [
        text for text in argv if text.lstrip("-").partition("=")[0] in ("figures", "nofigures")
    ]
    rest = [text for text in argv if text not in figure_flags]
    flag_values = flags.FlagValues()
    text = functools.partial(flags.DEFINE_string, flag_values=flag_values)
    figures_help = "Write SVG figures next to each profile."
    flags.DEFINE_boolean("figures", True, figures_help, flag_values=flag_values)
    again_help = "Profile further steps from the run's newest checkpoint."
    flags.DEFINE_boolean("again", False, again_help, flag_values=flag_values)
    text(
        "window", "", "The window to show, such as steps_20_24; empty takes the last or after_run."
    )
    text("perfetto", "", "A file (.json.gz) for one timeline of all hosts, their clocks aligned.")
    if "--again" in rest:
        rest.remove("--again")
        command_line.parse("profile", flag_values, figure_flags, _USAGE, _DESCRIPTION)
        return _again(rest, bool(flag_values["figures"].value))
    if any(text.lstrip("-").partition("=")[0] == "experiment" for text in rest):
        command_line.parse("profile", flag_values, figure_flags, _USAGE, _DESCRIPTION)
        return _fresh(rest, bool(flag_values["figures"].value))
    paths = command_line.parse("profile", flag_values, argv, _USAGE, _DESCRIPTION)
    if len(paths) != 1:
        raise ConfigError(f"one run directory, or --experiment, is needed; {len(paths)} given")
    with_figures, window = (flag_values[name].value for name in ("figures", "window"))
    if flag_values["perfetto"].value:
        return write_timeline(Path(paths[0]), str(window), str(flag_values["perfetto"].value))
    return show(Path(paths[0]), bool(with_figures), str(window))


def _fresh(argv: list[str], with_figures: bool) -> int:
    from dawnjax.config.experiment_flags import parse_request

    request, positional = parse_request("profile", argv)
    if positional:
        raise ConfigError(f"{positional[0]!r}: give a run directory or --experiment, not both")
    # Imported here: wrong use is answered before JAX is loaded to compute.
    from dawnjax.capture.fresh_profile import profile_experiment

    run_dir, is_first = profile_experiment(request)
    return show(run_dir, with_figures) if is_first else ExitStatus.DONE


def _again(argv: list[str], with_figures: bool) -> int:
    from dawnjax.checkpointed.earlier_run import add_run_flags, read_run
    from dawnjax.config.flag_tree import FlagTree
    from dawnjax.config.run_options import RunOptions

    flag_values = flags.FlagValues()
    add_run_flags(flag_values)
    options = FlagTree(RunOptions, RunOptions(), argv, only=_OPTIONS_AGAIN)
    options.define(flag_values)
    paths = command_line.parse("profile", flag_values, argv, _USAGE, _DESCRIPTION)
    if len(paths) != 1:
        raise ConfigError(f"--again takes one run directory, and {len(paths)} were given")
    data_dir, file = (str(flag_values[name].value) for name in ("data_dir", "experiment"))
    run, chosen = read_run(Path(paths[0]), data_dir, file), options.value(flag_values)
    chosen.validate()
    # Imported here: wrong use is answered before JAX is loaded to compute.
    from dawnjax.capture.fresh_profile import profile_again

    run_dir, is_first = profile_again(run, chosen)
    if not is_first:
        return ExitStatus.DONE
    newest = [name for name in windows_of(run_dir) if name.startswith("again_")][-1]
    return show(run_dir, with_figures, newest)


def show(run_dir: Path, with_figures: bool, window: str = "") -> int:
    """Show and write the profile of each process, of `window` or, if empty, the last."""
    RunDirectory(run_dir).refuse_links()
    window, windows = _chosen(run_dir, window)
    profiles = [host_profile.read_profile(folder) for folder in windows[window]]
    line = _window_line(window, profiles[0], [name for name in windows if name != window])
    print(escaped(line))
    hosts = {folder.parent for folders in windows.values() for folder in folders}
    for folder in sorted(hosts - {profile.folder.parent for profile in profiles}):
        print(f"{folder.name} has no profile of this window")
    if profiles[0].simulation:
        print(profiles[0].simulation)
    print(escaped(tables.text(profiles)))
    for profile in profiles:
        host = profile.capture["process_index"]
        if profile.failure:
            print(escaped(f"host {host}: {profile.failure}"))
        if profile.disagreement:
            print(escaped(profile.disagreement))
        reason = profile.utilization_json()["reasons"].get("mfu")
        if reason:
            print(escaped(f"host {host}: model FLOP utilization is not known: {reason}"))
    straggler, no_straggler = host_profile.straggler_of(profiles)
    verdict = no_straggler if straggler is None else straggler.line()
    if verdict:
        print(escaped(verdict))
    written = []
    for profile in profiles:
        written += tables.write_csv(profile, profile.folder)
        if with_figures:
            written += figures.write_figures(profile, profile.folder)
    print(f"{len(written)} files under {run_dir / 'profile'}")
    print(f"traces: {profiles[0].folder / 'plugins'}; one timeline of all hosts for Perfetto:")
    print(f"  dawnjax profile {run_dir} --perfetto=timeline.json.gz")
    return ExitStatus.DONE


def _chosen(run_dir: Path, window: str) -> tuple[str, dict[str, list[Path]]]:
    windows = windows_of(run_dir)
    window = window or list(windows)[-1]
    if window not in windows:
        raise ConfigError(f"{run_dir} has no window {window!r}; it has {', '.join(windows)}")
    return window, windows


def write_timeline(run_dir: Path, window: str, file: str) -> int:
    """Write one timeline of all hosts, of `window` or the last, and say how to open it."""
    from dawnjax.profile import timeline

    window, windows = _chosen(run_dir, window)
    merged = timeline.merged(windows[window])
    path = records.path_of(file)
    timeline.write(merged, path)
    moves = zip(merged.offsets, merged.spread_microseconds, strict=True)
    for host, (offset, spread) in enumerate(moves):
        how = "by the start of the window" if spread is None else f"+- {spread:.0f} us"
        if host:
            print(f"host {host} was moved by {offset:.0f} us ({how}) onto the clock of host 0")
    print(f"{path}: window {window}, {len(merged.events):,} events")
    print("open it at https://ui.perfetto.dev (Open trace file); nothing is sent anywhere")
    print("XProf shows each host's own trace: pip install xprof")
    print(f"  xprof --logdir={windows[window][0]}")
    return ExitStatus.DONE


def _window_line(window: str, profile: host_profile.HostProfile, others: list[str]) -> str:
    first, last = profile.capture["steps"]
    where = "inside the run" if profile.capture.get("in_run") else "none of the run's"
    line = f"window {window}: steps {first + 1} to {last}, {where}"
    if others:
        line += f"; not shown: {', '.join(others)} (--window=NAME shows one)"
    return line
