"""Programs that the runs of a test share: the first of them traces and compiles each."""

from typing import Any

import pytest

from dawnjax import session, train


@pytest.fixture
def kept_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs in this process of one recipe on the same devices compile their programs once.

    For a test that cuts a run off and resumes it, or trains several seeds. The log says of a
    program that was kept what it says of one from the cache: `warm`.
    """
    recipes: list[tuple[Any, Any]] = []
    compiled: dict[Any, tuple[Any, list[str]]] = {}
    make, stages, generation = session.make_recipe, train.compile_stages, train.compile_generation

    def make_once(*arguments: Any, **named: Any) -> Any:
        for kept, recipe in recipes:
            if kept == (arguments, named):
                return recipe
        recipes.append(((arguments, named), make(*arguments, **named)))
        return recipes[-1][1]

    def once(key: Any, compile_programs: Any, record: Any) -> Any:
        if key not in compiled:
            names: list[str] = []

            def note(name: str, seconds: float, state: str) -> None:
                names.append(name)
                record(name, seconds, state)

            compiled[key] = compile_programs(note), names
        else:
            for name in compiled[key][1]:
                record(name, 0.0, "warm")
        return compiled[key][0]

    def stages_once(of: Any, options: Any, record: Any) -> Any:
        # Recipes are the same objects where they are equal.
        key = (*map(id, of), options.steps_per_call, options.data_placement)
        return once(key, lambda note: stages(of, options, note), record)

    monkeypatch.setattr(session, "make_recipe", make_once)
    monkeypatch.setattr(train, "compile_stages", stages_once)
    monkeypatch.setattr(
        train,
        "compile_generation",
        lambda of, record: once(id(of), lambda note: generation(of, note), record),
    )
