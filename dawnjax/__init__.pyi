from dawnjax.api import load_losses as load_losses
from dawnjax.api import load_run as load_run
from dawnjax.api import run as run

__version__: str
program_start: float
runs_before: int
