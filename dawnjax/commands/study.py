"""`dawnjax study`: many trials of an experiment, and their statistics."""

import dataclasses
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from absl import flags

from dawnjax import records
from dawnjax.commands.answer import Answer
from dawnjax.commands.told_study import Noise, ToldStudy, told_study
from dawnjax.config import command_line, own_files
from dawnjax.config.experiment_modules import is_file, load_experiment, load_techniques
from dawnjax.config.flag_tree import FlagTree
from dawnjax.errors import ConfigError, ExitStatus
from dawnjax.limits import check_fields
from dawnjax.other_logs import flags as column_flags
from dawnjax.page import words
from dawnjax.study import at_budget, noise, side_by_side
from dawnjax.study.design import (
    Arm,
    Look,
    Study,
    StudyFolder,
    StudyRecord,
    TrialPlan,
    arms_of,
    trials_of,
)
from dawnjax.study.figures import figures
from dawnjax.study.reading import is_over, trials_over
from dawnjax.study.search import optuna, run_search
from dawnjax.study.sides import place_of, read_side
from dawnjax.study.text import estimate_of, line_of, next_commands, text_of
from dawnjax.study.trials import OVER, Ran, TrialRunner, origins_of, run_all, run_trial, set_up
from dawnjax.study.verdicts import Looks, looks_made
from dawnjax.trials.origin import Origin

USAGE = """dawnjax study EXPERIMENT|FILE.py --out=FOLDER [--seeds=N] [--FLAG=VALUE...]
       dawnjax study --noise PATH... [--at=BUDGET] [--metric=NAME]"""

DESCRIPTION = """
Runs many trials of an experiment, and compares each arm with the first. Each trial is an ordinary
run with its own directory and clock in FOLDER/trials/ARM/seed_N. The trials run in this process, in
blocks that hold each arm once, in random order. The first trial of a recipe compiles; later trials
read its programs from the cache, and have no total time. No time to accuracy includes compilation.

The same command resumes an interrupted study. A trial that failed, diverged or missed its target
counts, and is not run again. All other flags, such as --max_steps=100, go to every trial.

With --noise a study of seeds ends with the narrowest margin that 3, 5, 10 and 20 trials of each
side can detect. --noise PATH prints the same for existing trials or another program's logs.

  dawnjax study --experiment=digits --seeds=20 --out=studies/digits
  dawnjax study --experiment=digits --axis=global_batch_size=32,64 --out=studies/batch
  dawnjax study --experiment=cifar10_record --kind=lesion --out=studies/lesion
  dawnjax study --experiment=wikipedia_bytes_small --kind=ladder --axis=model.width=32,48,64 \
    --change=model.unet_skips=false --out=studies/ladder
  dawnjax study --experiment=digits --axis="optimizer.base_learning_rate=log(0.01,1)" \
    --search=asha --trials=32 --out=studies/search
"""


RESULT = ToldStudy

_NOISE = "Print the narrowest margin that 3, 5, 10 and 20 trials can detect."


def main(argv: list[str]) -> Answer:
    try:
        return _study(argv)
    except KeyboardInterrupt:
        resume = shlex.join(["dawnjax", "study", *argv])
        print(f"dawnjax study: interrupted; resume with: {resume}", file=sys.stderr)
        status = ExitStatus.INTERRUPTED
        return Answer(status=status, reasons=["interrupted"], next=[resume])


def _study(argv: list[str]) -> Answer:
    if "--noise" in argv and not any(it.startswith(("--out", "-out")) for it in argv):
        return _noise_of(argv)
    asked = _parse(argv)
    study, folder = asked.study, StudyFolder(asked.out)
    earlier = folder.read_same(study)
    arms = arms_of(study, load_techniques(study.experiment), load_experiment(study.experiment))
    if earlier and not study.search:
        arms = folder.same_arms(earlier, arms)
    trials = trials_of(study, arms)
    Looks(study)
    for field in ("search", "looks"):
        is_alone = asked.slots == 1 and asked.trial is None
        if getattr(study, field) != getattr(Study(), field) and not is_alone:
            raise ConfigError(f"{field}= needs trials that run one after the other, in one process")
    if asked.trial is not None and not 0 <= asked.trial < len(trials):
        raise ConfigError(f"--trial={asked.trial}: the study has trials 0 to {len(trials) - 1}")
    looks = earlier["looks_made"] if earlier else []
    origins = earlier["origins"] if earlier else {}
    # A wrong flag of the last arm is found before the first has trained.
    set_up_seconds = set_up(study, trials[0], asked.out)
    here = origins_of(study, arms, trials, asked.out)
    if study.search:
        optuna()  # says what to install
        return _search(asked, folder, earlier, set_up_seconds)
    for arm, origin in origins.items():
        if difference := here[arm].difference(origin):
            raise ConfigError(f"{folder.file}: arm {arm!r} began with other settings: {difference}")
    over = trials_over(trials, asked.out, here)
    folder.write(study, arms, looks, here)
    if asked.trial is not None:
        flags = (*study.flags, *asked.process_flags)
        study = dataclasses.replace(study, flags=flags)
        status = run_trial(study, trials[asked.trial], asked.out, set_up_seconds)
        # A scheduler would repeat a trial that spent its budget or diverged, which is a result.
        status = ExitStatus.DONE if status in OVER else status
        return Answer(status=status, reasons=() if not status else ["the trial is not over"])
    if asked.slots > 1:
        _run_side_by_side(asked, [trial for trial in trials if trial not in over])
    with folder.locked():
        return _run(
            asked,
            arms,
            len(trials),
            lambda tell: run_all(
                study, arms, trials, TrialRunner(study, asked.out, here, tell, set_up_seconds)
            ),
            lambda: _made_looks(folder, study, arms, looks, here),
        )


def _noise_of(argv: list[str]) -> Answer:
    """Noise of existing trials."""
    values = flags.FlagValues()
    flags.DEFINE_bool("noise", False, _NOISE, flag_values=values)
    budget = "Quality at this budget, such as steps=1000"
    flags.DEFINE_multi_string("at", [], budget, flag_values=values)
    column_flags.define(values)
    paths = command_line.parse("study", values, argv, USAGE, DESCRIPTION)
    if not paths:
        raise ConfigError(f"--noise measures existing trials, or new ones in --out; {USAGE}")
    columns, budgets = column_flags.columns(values), at_budget.parse(values["at"].value or ())
    column_flags.refuse_unused(columns, [place_of(path) for path in paths])
    found = noise.noises([read_side(it, columns) for it in paths], budgets, columns.metric)
    text = "\n\n".join("\n".join(it.lines()) for it in found)
    return Answer(result=ToldStudy(noise=_told_noise(found)), text=text)


def _told_noise(found: Sequence[noise.NoiseOf]) -> tuple[Noise, ...]:
    return records.convert([it.to_json() for it in found], tuple[Noise, ...])


def _run_side_by_side(asked: "_Asked", left: list[TrialPlan]) -> None:
    print(
        f"{len(left)} trials, {asked.slots} at a time: they share the machine, so single runs "
        "would be faster",
        file=sys.stderr,
    )
    side_by_side.run(
        asked.trial_argv, left, asked.slots, lambda line: print(line, file=sys.stderr, flush=True)
    )


@dataclasses.dataclass(frozen=True)
class _Asked:
    study: Study
    out: Path
    trial: int | None
    process_flags: tuple[str, ...]  # of one host of a trial, and so not the study's
    prints_noise: bool
    slots: int
    trial_argv: list[str]


def _parse(argv: list[str]) -> _Asked:
    named = argv[0] if argv and not argv[0].startswith("-") and is_file(argv[0]) else ""
    if named and (of_file := _study_of_file(named)):
        base, given = of_file, argv[1:]
    else:
        base, given = Study(), (argv := command_line.with_experiment_flag(argv))
    tree = FlagTree(Study, base, given)
    values = flags.FlagValues()
    tree.define(values)
    flags.DEFINE_string("out", "", "The study's folder.", flag_values=values)
    form = "FIELD=VALUE,VALUE, or with --search FIELD=log(0.01,1)"
    flags.DEFINE_multi_string("axis", [], form, flag_values=values)
    place = "Run only the trial with this number in the order."
    flags.DEFINE_integer("trial", None, place, flag_values=values)
    _define_of_all_trials(values)
    of_trials = command_line.parse("study", values, given, USAGE, DESCRIPTION, known_only=True)
    for argument in of_trials:
        if not argument.startswith("--") or "=" not in argument:
            raise ConfigError(f"{argument!r} is not a flag; write --name=value")
    process_flags = ()
    if values["trial"].present:
        process_flags = tuple(a for a in of_trials if a.startswith("--processes."))
        of_trials = [argument for argument in of_trials if argument not in process_flags]
    study: Study = tree.value(values)
    axes = tuple(values["axis"].value or ())
    kind = study.kind
    if kind == "seeds" and not values["kind"].present:
        kind = "search" if study.search else "grid" if axes else kind
    study = dataclasses.replace(
        study, kind=kind, axes=(*study.axes, *axes), flags=(*study.flags, *of_trials)
    )
    check_fields(study)
    if values["noise"].value and study.kind != "seeds":
        raise ConfigError("--noise measures one recipe: it needs --kind=seeds")
    if not study.experiment:
        raise ConfigError("--experiment is missing; `dawnjax list` shows the experiments")
    out = str(values["out"].value)
    if not out:
        raise ConfigError("--out is missing: the folder for the study's trials and result")
    not_of_one_trial = flags.FlagValues()
    _define_of_all_trials(not_of_one_trial)
    return _Asked(
        study=study,
        out=Path(out),
        trial=values["trial"].value,
        process_flags=process_flags,
        prints_noise=bool(values["noise"].value),
        slots=int(values["side_by_side"].value or 1),
        trial_argv=command_line.known(not_of_one_trial, argv),
    )


def _define_of_all_trials(values: flags.FlagValues) -> None:
    """Flags of the whole study, absent from a single trial's command line."""
    beside = "Number of concurrent trials, each on a GPU, a TPU chip or a part of the cores."
    flags.DEFINE_integer("side_by_side", 1, beside, 1, flag_values=values)
    flags.DEFINE_boolean("noise", False, _NOISE, flag_values=values)


def _study_of_file(name: str) -> Study | None:
    """Study that a file defines; None if it defines an experiment to study."""
    module = own_files.module_of_file(Path(name))
    study = getattr(module, "STUDY", None)
    if study is None and hasattr(module, "EXPERIMENT"):
        return None
    if not isinstance(study, Study):
        raise ConfigError(f"{name} defines neither STUDY = Study(...) nor EXPERIMENT")
    return study


def _search(
    asked: _Asked, folder: StudyFolder, earlier: StudyRecord | None, set_up_seconds: float
) -> Answer:
    """Run a search: its arms join the study one by one, as they are drawn."""
    recorded = list(earlier["arms"]) if earlier else []
    origins = dict(earlier["origins"]) if earlier else {}
    arms: list[Arm] = []

    def admits(arm: Arm) -> bool:
        place = len(arms)
        try:
            trial = TrialPlan(0, arm, asked.study.first_seed, chooses=True)
            here = origins_of(asked.study, [arm], [trial], asked.out)[arm.name]
        except ConfigError as error:
            if recorded[place : place + 1] == [arm]:
                raise
            print(f"not drawn, because it cannot be trained: {error}", file=sys.stderr)
            return False
        if place < len(recorded) and recorded[place] != arm:
            raise ConfigError(
                f"{folder.file}: recipe {place + 1} was {recorded[place].name}; this version of "
                f"Optuna draws {arm.name}: choose another --out"
            )
        if difference := here.difference(origins.setdefault(arm.name, here)):
            raise ConfigError(
                f"{folder.file}: arm {arm.name!r} began with other settings: {difference}"
            )
        arms.append(arm)
        if place >= len(recorded):
            folder.write(asked.study, tuple(arms), (), origins)
        return True

    def ran(tell: Callable[[str], None]) -> Iterator[Ran]:
        runner = TrialRunner(asked.study, asked.out, origins, tell, set_up_seconds)
        return run_search(asked.study, runner.run, admits)

    with folder.locked():
        return _run(asked, arms, asked.study.trials + asked.study.seeds, ran, list)


def _made_looks(
    folder: StudyFolder,
    study: Study,
    arms: tuple[Arm, ...],
    earlier: Sequence[Look],
    origins: dict[str, Origin],
) -> list[Look]:
    """Record the looks of a finished study."""
    made = looks_made(earlier, Looks(study)) if len(arms) > 1 else []
    folder.write(study, arms, made, origins)
    return made


def _run(
    asked: _Asked,
    arms: Sequence[Arm],
    total: int,
    ran_by: Callable[[Callable[[str], None]], Iterator[Ran]],
    looked: Callable[[], Sequence[Look]],
) -> Answer:
    """Run trials, with a line and a new result after each.

    Args:
      arms: They grow while a search draws.
      ran_by: Runs the trials, and calls its argument with the name of each that begins.
      looked: Looks at the trials once they have ended.
    """
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    started, begun, done, estimate, runs = time.monotonic(), 0, 0, "", {}
    failures: list[str] = []
    file = asked.out / "result.json"
    with console.status("starting") as status:

        def left(ended: int) -> str:
            """Time for the remaining trials, at the pace of this command's trials."""
            if not ended or done == total:
                return ""
            seconds = (time.monotonic() - started) / ended * (total - done)
            return f", about {words.about(round(seconds))} left"

        def tell(name: str) -> None:
            nonlocal begun
            begun += 1
            status.update(f"{done} of {total} trials over{left(begun - 1)}{estimate}: {name}")

        for done, (trial, run, why) in enumerate(ran_by(tell), 1):
            if why:
                failures.append(f"{trial.arm.name}, seed {trial.seed}: {why}")
            if run is not None and is_over(run):
                runs[trial] = run
            line = line_of(total, done, trial, run, why) + left(begun)
            console.print(line, markup=False, soft_wrap=True)
            found = figures(asked.study, arms, runs, asked.out)
            estimate = next((estimate_of(row) for row in found.arms if row.arm == trial.arm), "")
            # After each trial: a study that is killed keeps a result of the trials so far.
            records.write_json(file, found.to_json(), durable=True)
    found = figures(asked.study, arms, runs, asked.out, looked())
    records.write_json(file, found.to_json(), durable=True)
    following, text = next_commands(found, asked.out), text_of(found)
    told = told_study(found, asked.out)
    if asked.prints_noise:
        noises = noise.noises(found.sides)
        text += "".join("\n\n" + "\n".join(it.lines()) for it in noises)
        told = dataclasses.replace(told, noise=_told_noise(noises))
    return Answer(
        result=told,
        text="\n".join([text, f"result: {file}", *(f"next: {it}" for it in following)]),
        status=ExitStatus.FAILED if failures else ExitStatus.DONE,
        reasons=failures,
        next=following,
    )
