"""One typed flag for each leaf field of an experiment and of the run options.

`--optimizer.base_learning_rate=0.2` sets that field; `--optimizer=muon` chooses another variant,
whose own fields become the flags. Parsing therefore has two phases: the experiment and the variants
are read first, then the flags that they have.
"""

import copy
import dataclasses
import functools
import importlib
import importlib.util
import inspect
import math
import pkgutil
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import flags

from dawnjax.config import command_line, own_files
from dawnjax.config.choices import CHOICES, choice_of
from dawnjax.config.config_json import to_json
from dawnjax.config.experiment import Experiment
from dawnjax.config.run_options import RunOptions
from dawnjax.config.techniques import Technique
from dawnjax.errors import ConfigError
from dawnjax.limits import check_fields, check_value
from dawnjax.runs.directory import flatten, names_a_file
from dawnjax.text import without_secrets

_FIXED = ("name", "observations", "target_note", "mlperf_benchmark", "initial_state")
"""Fields of an experiment that say what it is and cannot be overridden. What they say of a recipe
and a target ends where those are."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """What a command line asks for.

    Attributes:
      experiment: The experiment with its overrides.
      overrides: The flags that were given, with their values as JSON. Where a file's experiment has
        a built-in one's name, also the fields in which the two differ.
      seed: The trial's seed.
      options: How to run it.
      experiment_file: The file that defines the experiment; None of a built-in one.
    """

    experiment: Experiment
    overrides: dict[str, Any]
    seed: int
    options: RunOptions
    experiment_file: Path | None = None


def experiment_names() -> list[str]:
    """The names of the built-in experiments, sorted."""
    package = importlib.import_module("dawnjax.experiments")
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__))


def load_experiment(name: str, *, is_tiny: bool = False) -> Experiment:
    """Loads an experiment by its name, or from a Python file that defines `EXPERIMENT`.

    Args:
      name: Name or path.
      is_tiny: Whether to give its variant `TINY`, which takes two steps.

    Raises:
      ConfigError: There is none of that name (with the nearest), or the file does not define one.
    """
    module = _module_of(name)
    constant = "TINY" if is_tiny else "EXPERIMENT"
    experiment = getattr(module, constant, None)
    if not isinstance(experiment, Experiment):
        if is_tiny:
            raise ConfigError(f"{name} has no tiny variant: its module defines no {constant}")
        raise ConfigError(f"{name} does not define {constant} = Experiment(...)")
    if not is_file(name):
        return experiment
    own_files.check_classes(experiment)
    _refuse_other_values(name, experiment)
    if not names_a_file(experiment.name):
        raise ConfigError(
            f"{name}: name={experiment.name!r} must be up to 80 letters, digits, '_', '.' and '-', "
            "and begin with a letter or digit: it names run directories"
        )
    # A file may make its experiment from a built-in one, and what was said of that one with it.
    return _with_own_claims(experiment, [load_experiment(other) for other in experiment_names()])


def load_techniques(name: str) -> tuple[Technique, ...]:
    """Loads the techniques that an experiment's module declares; none where it declares none.

    Args:
      name: Name or path of the experiment.

    Raises:
      ConfigError: There is none of that name, or what it declares are no techniques.
    """
    techniques = getattr(_module_of(name), "TECHNIQUES", ())
    if not isinstance(techniques, tuple) or not all(isinstance(t, Technique) for t in techniques):
        raise ConfigError(f"{name}: TECHNIQUES must be a tuple of Technique(name, without)")
    return techniques


def _module_of(name: str) -> types.ModuleType:
    """The module of an experiment, by its name or path."""
    if is_file(name):
        return own_files.module_of_file(Path(name))
    if name in experiment_names():
        return importlib.import_module(f"dawnjax.experiments.{name}")
    near = command_line.closest(name, experiment_names())
    hint = f"did you mean {near!r}?" if near else f"known: {', '.join(experiment_names())}"
    raise ConfigError(
        f"no experiment {name!r}; {hint} (or give a path to a .py file that defines EXPERIMENT)"
    )


_LEAF_TYPES = (
    "a field is a bool, int, float, str, Literal, a tuple of one of these, such as "
    "tuple[int, ...], or a dataclass"
)


def _refuse_other_values(file: str, experiment: Experiment) -> None:
    """Refuses a field that no log could hold, such as a function.

    Raises:
      ConfigError: Names the file, the field and the type.
    """
    try:
        fields = flatten(to_json(experiment))
    except (TypeError, NameError) as error:  # an annotation that is none
        raise ConfigError(f"{file}: a field of EXPERIMENT: {error}; {_LEAF_TYPES}") from None
    for name, value in fields.items():
        values = value if isinstance(value, list) else [value]
        for item in values:
            allowed = bool | int | float | str | None
            if name in _FIXED and name != "observations":
                allowed = str
            if not isinstance(item, allowed):
                kind = type(item).__name__
                raise ConfigError(f"{file}: {name} holds a value of type {kind}; {_LEAF_TYPES}")


def classes_of_file(name: str) -> dict[str, list[type]]:
    """The classes that the experiments of a file chose, by field.

    Raises:
      ConfigError: The file cannot be executed, or defines no experiment.
    """
    module = own_files.module_of_file(Path(name))
    experiments = [getattr(module, constant, None) for constant in ("EXPERIMENT", "TINY")]
    experiments = [item for item in experiments if isinstance(item, Experiment)]
    if not experiments:
        raise ConfigError(f"{name} does not define EXPERIMENT = Experiment(...)")
    return own_files.classes_of(*experiments)


def is_file(name: str) -> bool:
    """Says whether the name of an experiment is a path to a file."""
    return name.endswith(".py") or "/" in name


def _with_own_claims(experiment: Experiment, others: Sequence[Experiment]) -> Experiment:
    """Drops from a changed experiment what was said of the one it was made from.

    Observations were made with one recipe; how a target was chosen is said of it and of its data.
    """

    def targets(one: Experiment) -> Any:
        return one.targets, one.data.TAG, getattr(one.data, "kept_classes", ())

    recipe = experiment.recipe_fields()
    sources = [other for other in others if other.observations == experiment.observations]
    if sources and all(other.recipe_fields() != recipe for other in sources):
        experiment = dataclasses.replace(experiment, observations=())
    sources = [other for other in others if other.target_note == experiment.target_note]
    if sources and all(targets(other) != targets(experiment) for other in sources):
        experiment = dataclasses.replace(experiment, target_note="")
    return experiment


def _differences(experiment: Experiment, *, is_tiny: bool) -> dict[str, Any]:
    """Finds the fields in which a file's experiment differs from the built-in one of its name."""
    name = experiment.name.removesuffix("_tiny") if is_tiny else experiment.name
    if name not in experiment_names():
        return {}
    built_in = flatten(load_experiment(name, is_tiny=is_tiny).recipe_fields())
    fields = flatten(experiment.recipe_fields())
    return {
        field.removesuffix(".tag"): fields.get(field)
        for field in sorted(fields.keys() | built_in.keys())
        if fields.get(field) != built_in.get(field)
    }


def parse_request(
    command: str,
    argv: list[str],
    *,
    only: tuple[str, ...] | None = None,
    more: flags.FlagValues | None = None,
    description: str | None = None,
) -> tuple[Request, list[str]]:
    """Reads a command line that runs an experiment.

    Args:
      command: The command's name.
      argv: Arguments without the program's and the command's names.
      only: The run options that the command has; None for all.
      more: Flags of the command's own; their values are set in it.
      description: What the command does, for its help; None for that of training.

    Returns:
      The request, and the positional arguments.

    Raises:
      command_line.HelpRequested: `--help`; its argument is the text.
      ConfigError: A wrong name, type or value.
    """
    _refuse_several_seeds(argv)
    name = value_in(argv, "experiment")
    flag_values = flags.FlagValues() if more is None else more
    flags.DEFINE_string(
        "experiment",
        None,
        "The experiment: a name that `dawnjax list` shows, or a path to a .py file.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "seed",
        0,
        "The trial's seed: initial parameters, order, augmentation.",
        lower_bound=0,
        upper_bound=2**31 - 1,
        flag_values=flag_values,
    )
    flags.DEFINE_boolean(
        "tiny",
        False,
        "Take the experiment's tiny variant: two steps on made-up data, to try a machine.",
        flag_values=flag_values,
    )
    options = FlagTree(RunOptions, RunOptions(), argv, only=only)
    options.define(flag_values)
    recipe, experiment, is_tiny = None, None, False
    if name is not None:
        if name in experiment_names():
            _refuse_early(argv, flag_values)
        is_tiny = _is_set(argv, "tiny")
        experiment = load_experiment(name, is_tiny=is_tiny)
        try:
            recipe = FlagTree(Experiment, experiment, argv)
            recipe.define(flag_values)
        except (TypeError, AttributeError, flags.Error) as error:
            text = " ".join(str(error).split())
            raise ConfigError(f"{name}: a field of EXPERIMENT has the wrong type: {text}") from None
    fields = "" if name else "\n\n--experiment=NAME --help shows the experiment's own flags too."
    usage = f"dawnjax {command} --experiment=NAME [--FLAG=VALUE...]"
    positional = command_line.parse(
        command, flag_values, argv, usage, (description or _DESCRIPTION) + fields
    )
    if recipe is None or experiment is None or name is None:
        raise ConfigError(f"--experiment is missing; known: {', '.join(experiment_names())}")
    changed: Experiment = recipe.value(flag_values)
    if not is_tiny:  # what a tiny variant says of its target speaks of its two steps
        changed = _with_own_claims(changed, [experiment])
    overrides = _differences(changed, is_tiny=is_tiny) if is_file(name) else {}
    overrides |= {
        flag: to_json(flag_values[flag].value)
        for flag in recipe.flag_names()
        if flag_values[flag].present
    }
    run_options = options.value(flag_values)
    check_fields(changed)
    check_fields(run_options)
    request = Request(
        experiment=changed,
        overrides=without_secrets(overrides),
        seed=typing.cast(int, flag_values["seed"].value),
        options=run_options,
        experiment_file=Path(name) if is_file(name) else None,
    )
    return request, positional


def request_of(
    experiment: str | Experiment, *, seed: int, run_dir: str, options: RunOptions | None
) -> Request:
    """A request that Python makes, without a command line.

    Args:
      experiment: Name, path of a file, or the experiment.
      seed: The trial's seed.
      run_dir: Directory of the run.
      options: How to run it; the defaults if None.

    Raises:
      ConfigError: There is no such experiment, or a value is impossible.
    """
    name = experiment if isinstance(experiment, str) else experiment.name
    if isinstance(experiment, str):
        value = load_experiment(experiment)
    else:
        others = [load_experiment(other) for other in experiment_names()]
        value = _with_own_claims(experiment, others)
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**31:
        raise ConfigError(f"seed={seed!r} must be a whole number from 0 to 2**31 - 1")
    run_options = dataclasses.replace(options or RunOptions(), run_dir=run_dir)
    check_fields(value)
    check_fields(run_options)
    return Request(
        experiment=value,
        overrides=without_secrets(_differences(value, is_tiny=value.name.endswith("_tiny"))),
        seed=seed,
        options=run_options,
        experiment_file=Path(name) if isinstance(experiment, str) and is_file(name) else None,
    )


def _refuse_several_seeds(argv: Sequence[str]) -> None:
    """Says what trains several seeds, where `--seed=1,2,3` asks for them."""
    seed = value_in(argv, "seed")
    if seed is not None and re.fullmatch(r"\d+([,:]\d+)+", seed):
        raise ConfigError(f"--seed={seed}: a run has one seed; `dawnjax study` trains many")


def _refuse_early(argv: Sequence[str], defined: flags.FlagValues) -> None:
    """Refuses flags that no built-in experiment takes, before one is loaded, and JAX with it.

    The fields of models, tasks and datasets are not looked at: their classes need JAX.

    Args:
      argv: The command line.
      defined: Flags that are defined besides the experiment's; their values are not set.

    Raises:
      ConfigError: The same as when the whole command line is read.
    """
    names = [*defined, *_plain_names(Experiment)]
    fields = {field.name for field in dataclasses.fields(Experiment)}
    for argument in argv:
        if argument in ("--", "--help", "-h"):
            return
        name, separator, _ = argument.lstrip("-").partition("=")
        if not argument.startswith("-") or not separator:
            continue
        hints = _hints_of(name, [Experiment]) or _hints_of(name, [RunOptions])
        errors = [_error_of(name, argument, hint) for hint in hints]
        if errors and all(errors):
            raise typing.cast(ConfigError, errors[0])
        if name in defined:
            command_line.parse("", copy.deepcopy(defined), [argument], "", "")
            continue
        near = command_line.closest(name, names, cutoff=0.85)
        # A match of the last part alone may be worse than that of a flag not yet known.
        is_whole = near is not None and near.count(".") == name.count(".")
        if name.partition(".")[0] not in fields and is_whole:
            raise ConfigError(f"unknown flag --{name}; did you mean --{near}?")


def _plain_names(cls: type, prefix: str = "") -> list[str]:
    """The flags of a config that are the same in every experiment."""
    names = []
    for name, hint in typing.get_type_hints(cls, include_extras=True).items():
        variants = _variants(hint)
        if len(variants) == 1:
            names += _plain_names(variants[0], f"{prefix}{name}.")
        elif name not in (*_FIXED, "targets"):
            names.append(prefix + name)
    return names


def _hints_of(name: str, classes: Sequence[type]) -> list[Any]:
    """The types, with their limits, of a flag's field in each class; none if one lacks it."""
    first, _, rest = name.partition(".")
    known = [typing.get_type_hints(cls, include_extras=True) for cls in classes]
    if not all(first in fields for fields in known):
        return []
    hints = [fields[first] for fields in known]
    if rest:
        return _hints_of(rest, [variant for hint in hints for variant in _variants(hint)])
    return [hint for hint in hints if not _variants(hint) and choice_of(hint) is None]


def _error_of(flag: str, argument: str, hint: Any) -> ConfigError | None:
    """What is wrong with a flag for a field of a type; None if nothing is."""
    values = flags.FlagValues()
    plain = typing.get_args(hint)[0] if hasattr(hint, "__metadata__") else hint
    try:
        _define_leaf(flag, plain, dataclasses.MISSING, "", values)
        command_line.parse("train", values, [argument], "", "")
        value: Any = values[flag].value
        _refuse_unusable_number(flag, value)
        check_value(flag, tuple(value) if isinstance(value, list) else value, hint)
    except ConfigError as error:
        return error
    return None


def _refuse_unusable_number(flag: str, value: Any) -> None:
    for number in value if isinstance(value, tuple | list) else [value]:
        if isinstance(number, float) and not math.isfinite(number):
            raise ConfigError(f"--{flag}={number} must be a finite number")
        if isinstance(number, int) and abs(number) >= 2**63:
            raise ConfigError(f"--{flag} must lie below 2**63")


_DESCRIPTION = (
    "Trains one trial of an experiment to its target quality and reports how long it took."
)


class FlagTree:
    """A config whose leaves become flags, and which is made again from their values."""

    def __init__(
        self,
        cls: type,
        default: Any,
        argv: list[str],
        prefix: str = "",
        only: tuple[str, ...] | None = None,
    ):
        """Reads the class's fields.

        Args:
          cls: A dataclass.
          default: An instance, or None where a variant was chosen that the experiment has not; its
            fields then have the class's defaults, and those without one must be given.
          argv: The command line, for the variants that it chooses.
          prefix: What the flags' names begin with.
          only: The fields that become flags; the others keep their default. None takes all.
        """
        self._cls, self._prefix = cls, prefix
        self._leaves: dict[str, tuple[str, Any, Any, str]] = {}
        self._children: dict[str, Any] = {}
        self._tags: dict[str, tuple[str, list[str], str]] = {}
        self._fixed: dict[str, Any] = {}
        helps = attribute_docs(cls)
        hints = typing.get_type_hints(cls)
        marked = typing.get_type_hints(cls, include_extras=True)
        for name in (field.name for field in dataclasses.fields(cls)):
            hint = hints[name]
            if (cls is Experiment and name in _FIXED) or (only is not None and name not in only):
                self._fixed[name] = getattr(default, name)
                continue
            value = getattr(default, name) if default is not None else _class_default(cls, name)
            flag = prefix + name
            variants, choice = _variants(hint), choice_of(marked[name])
            if choice is not None or len(variants) > 1:
                loaders: dict[str, Callable[[], type]] = {
                    variant.TAG: functools.partial(typing.cast, type, variant)
                    for variant in variants
                }
                if choice is not None:
                    loaders = {
                        tag: functools.partial(choice.load, tag) for tag in CHOICES[choice.field]
                    }
                chosen = self._choose(flag, name, loaders, value, argv)
                kept = value if type(value) is chosen else None
                self._children[name] = FlagTree(chosen, kept, argv, flag + ".")
            elif variants:
                if value is not None and type(value) is not variants[0]:
                    raise ConfigError(
                        f"{flag} must be a {variants[0].__name__}, not a {type(value).__name__}"
                    )
                self._children[name] = FlagTree(variants[0], value, argv, flag + ".")
            elif typing.get_origin(hint) is tuple and dataclasses.is_dataclass(_item(hint)):
                self._children[name] = [
                    FlagTree(_item(hint), item, argv, f"{flag}.{index}.")
                    for index, item in enumerate(value)
                ]
            else:
                self._leaves[name] = (flag, hint, value, helps.get(name, ""))

    def _choose(
        self,
        flag: str,
        name: str,
        loaders: dict[str, Callable[[], type]],
        value: Any,
        argv: list[str],
    ) -> type:
        """The class that the command line names, or that of the experiment's value."""
        current = str(getattr(value, "TAG", None))
        if value is not None and value is not dataclasses.MISSING:
            _refuse_ambiguous(flag, type(value), loaders)
            loaders = {**loaders, current: lambda: type(value)}
        tag = value_in(argv, flag) or current
        if tag not in loaders:
            raise ConfigError(f"--{flag}={tag} is unknown; choose one of {', '.join(loaders)}")
        self._tags[name] = (flag, list(loaders), current)
        return loaders[tag]()

    def define(self, flag_values: flags.FlagValues) -> None:
        """Defines a flag for each leaf and each choice."""
        for flag, tags, current in self._tags.values():
            flags.DEFINE_enum(
                flag, current, tags, "The variant; its fields follow.", flag_values=flag_values
            )
        for flag, hint, default, doc in self._leaves.values():
            _define_leaf(flag, hint, default, doc, flag_values)
        for child in self._all_children():
            child.define(flag_values)

    def flag_names(self) -> list[str]:
        """The names of all flags below."""
        names = [flag for flag, *_ in self._tags.values()]
        names += [flag for flag, *_ in self._leaves.values()]
        return names + [name for child in self._all_children() for name in child.flag_names()]

    def value(self, flag_values: flags.FlagValues) -> Any:
        """Builds the config from the values of the flags."""
        fields = dict(self._fixed)
        for name, (flag, hint, default, _) in self._leaves.items():
            value: Any = flag_values[flag].value
            if value is None and default is dataclasses.MISSING:
                raise ConfigError(f"--{flag} is missing: {self._cls.TAG} has no default for it")
            _refuse_unusable_number(flag, value)
            is_tuple = typing.get_origin(hint) is tuple
            fields[name] = tuple(typing.cast(Any, value)) if is_tuple else value
        for name, child in self._children.items():
            is_list = isinstance(child, list)
            fields[name] = (
                tuple(item.value(flag_values) for item in child)
                if is_list
                else child.value(flag_values)
            )
        try:
            return self._cls(**fields)
        except (ValueError, TypeError) as error:  # a config that checks its own fields
            raise ConfigError(f"{self._prefix}{error}") from None

    def _all_children(self) -> list["FlagTree"]:
        children = []
        for child in self._children.values():
            children += child if isinstance(child, list) else [child]
        return children


class _TupleParser(flags.ArgumentParser):
    """Reads `1,2,3` as a tuple of one type."""

    def __init__(self, item: type):
        self._item = item
        self.syntactic_help = f"{item.__name__}s separated by commas"

    def parse(self, argument: Any) -> tuple:
        if not isinstance(argument, str):
            return tuple(argument)
        try:
            return tuple(self._item(part) for part in argument.split(",") if part.strip())
        except ValueError:
            raise ValueError(f"expected {self.syntactic_help}") from None

    def flag_type(self) -> str:
        return f"{self._item.__name__},..."


class _TupleSerializer(flags.ArgumentSerializer):
    def serialize(self, value: Any) -> str:
        return ",".join(map(str, value))


def _define_leaf(flag: str, hint: Any, default: Any, doc: str, values: flags.FlagValues) -> None:
    default = None if default is dataclasses.MISSING else default
    optional = [arg for arg in typing.get_args(hint) if arg is not type(None)]
    if typing.get_origin(hint) in (typing.Union, types.UnionType) and len(optional) == 1:
        hint = optional[0]
    if typing.get_origin(hint) is typing.Literal:
        flags.DEFINE_enum(flag, default, list(typing.get_args(hint)), doc, flag_values=values)
    elif typing.get_origin(hint) is tuple:
        parser = _TupleParser(_item(hint))
        flags.DEFINE(parser, flag, default, doc, values, _TupleSerializer())
    else:
        known = {
            bool: flags.DEFINE_boolean,
            int: flags.DEFINE_integer,
            float: flags.DEFINE_float,
            str: flags.DEFINE_string,
        }
        define = known.get(hint) if isinstance(hint, type) else None
        if define is None:
            shown = getattr(hint, "__name__", hint)
            raise ConfigError(f"{flag} has the type {shown}; {_LEAF_TYPES}")
        define(flag, default, doc, flag_values=values)


def _variants(hint: Any) -> list[type]:
    """The dataclasses that a field may hold: several for a choice, none for a leaf."""
    if dataclasses.is_dataclass(hint):
        return [typing.cast(type, hint)]
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        arguments = typing.get_args(hint)
        return [typing.cast(type, arg) for arg in arguments if dataclasses.is_dataclass(arg)]
    return []


def _refuse_ambiguous(flag: str, cls: type, loaders: Mapping[str, Callable[[], type]]) -> None:
    """Refuses a class of an experiment's own file that could be taken for another.

    Raises:
      ConfigError: It has no tag of its own, or one that another class has.
    """
    tag = cls.__dict__.get("TAG")
    is_shipped = tag is not None and tag in loaders and loaders[tag]() is cls
    if not is_shipped and (not dataclasses.is_dataclass(cls) or tag is None or tag in loaders):
        raise ConfigError(
            f"{flag} is a {cls.__name__}, a class of the experiment's own: make it a dataclass "
            'with a TAG = "..." of its own'
        )


def _item(hint: Any) -> Any:
    return typing.get_args(hint)[0]


def _class_default(cls: type, name: str) -> Any:
    field = next(field for field in dataclasses.fields(cls) if field.name == name)
    return field.default


def value_in(argv: Sequence[str], name: str) -> str | None:
    """Finds the last value of `--name=value` or `--name value` on a command line."""
    value = None
    for index, argument in enumerate(argv):
        if argument == "--":
            break
        text = argument.lstrip("-") if argument.startswith("-") else ""
        if text.startswith(name + "="):
            value = text[len(name) + 1 :]
        elif text == name and index + 1 < len(argv):
            value = argv[index + 1]
    return value


def _is_set(argv: list[str], name: str) -> bool:
    """Says whether a command line sets a boolean flag, as absl reads it."""
    is_set = False
    for argument in argv:
        if argument == "--":
            break
        text = argument.lstrip("-") if argument.startswith("-") else ""
        if text in (name, f"no{name}"):
            is_set = text == name
        elif text.startswith(name + "="):
            is_set = text[len(name) + 1 :].lower() in ("true", "t", "1")
    return is_set


def attribute_docs(cls: type) -> dict[str, str]:
    """Reads each field's text from the `Attributes:` section of a class."""
    lines = inspect.cleandoc(cls.__doc__ or "").splitlines()
    docs: dict[str, str] = {}
    name, inside = "", False
    for line in lines:
        if line and not line.startswith(" "):
            inside = line == "Attributes:"
        elif inside and (match := re.match(r"  (\w+): (.*)", line)):
            name = match[1]
            docs[name] = match[2]
        elif inside and name and line.strip():
            docs[name] += " " + line.strip()
    return docs
