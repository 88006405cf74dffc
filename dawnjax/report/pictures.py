"""The section of pictures that runs drew of their answers."""

from collections.abc import Sequence

from dawnjax.page.section import Picture, Section
from dawnjax.report.inputs import MOST_WITH_PICTURES, RunPictures


def pictures_section(drawn: Sequence[RunPictures]) -> Section | None:
    """A few pictures of one run of each experiment; None where no answers were drawn."""
    if not drawn:
        return None
    return Section(
        name="pictures",
        title="Pictures of answers",
        lead=(
            "The first examples of the evaluation split with their answers, drawn by dawnjax "
            "infer --draw: found objects in colour, with class and score, true boxes in white. "
            f"One run of each experiment is shown, for at most {MOST_WITH_PICTURES} experiments.",
        ),
        pictures=tuple(
            Picture(
                content=picture.content,
                text=f"{run.experiment}, run {run.name}, step {picture.step:,}: example "
                f"{picture.example}",
            )
            for run, pictures in drawn
            for picture in pictures
        ),
    )
