"""Entries of a race for tests, without training."""

from pathlib import Path

from dawnjax.race import submit, tracks
from dawnjax.race.entry import Entry


def write_recipe(
    folder: Path, name: str = "mine", *, track: str = "digits", changes: str = "", more: str = ""
) -> Path:
    """Write a recipe of `digits`.

    Args:
      changes: Arguments of `dataclasses.replace`, such as `num_epochs=9` or `model=own.ResNet()`.
      more: Text at the end of the file, before the experiment.
    """
    text = tracks.recipe_text(tracks.read_track(track))
    text = text.replace('    name="digits",', f'    name="{name}",\n    {changes}')
    text = text.replace("from dawnjax.own", "from dawnjax import own\nfrom dawnjax.own", 1)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(text.replace("\nEXPERIMENT", f"\n{more}\nEXPERIMENT"))
    return folder / f"{name}.py"


def write_entry(
    folder: Path, name: str = "mine", *, track: str = "digits", **recipe: str
) -> tuple[Path, Entry]:
    """Submit a recipe to `folder/entries/NAME`."""
    out = folder / "entries" / name
    file = write_recipe(folder / "recipes", name, track=track, **recipe)
    return out, submit.submit(file, track=track, out=out)
