"""Bounded fields of a stranger's record: a sum, a ratio or a loop over them stays finite."""

from typing import Annotated

from msgspec import Meta

Text = Annotated[str, Meta(max_length=1000)]
Count = Annotated[int, Meta(ge=1, le=10**6)]
Place = Annotated[int, Meta(ge=0, le=10**5)]
Step = Annotated[int, Meta(ge=0, lt=2**31)]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
StepSeconds = Annotated[float, Meta(ge=1e-9, le=1e9)]
Amount = Annotated[float, Meta(ge=0, le=1e30)]
Rate = Annotated[float, Meta(ge=1, le=1e30)]
