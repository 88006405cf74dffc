"""Wikipedia's bytes by a small network in many steps: 2 layers of width 96, 1000 steps of 4 rows.

    dawnjax train --experiment=wikipedia_narrow.py --data.data_dir=data/squad_text

The recipe of `wikipedia_bytes_small` with half the layers, three quarters of the width, half the
batch and 1000 steps in place of 400: 295,205 parameters. A byte sees 16 before it, in 2 heads. The
values of both layers have a table of bytes added. Muon has twice the rate, less momentum and 3
iterations. Sizes, rates and length were searched on the seeds 100 to 102.
"""

import dataclasses

from dawnjax.config.experiment import MuonAdam
from dawnjax.config.techniques import Technique
from dawnjax.experiments import wikipedia_bytes_small
from dawnjax.models.language_model import LanguageModel
from dawnjax.tasks.language_modelling import LanguageModelling

EXPERIMENT = dataclasses.replace(
    wikipedia_bytes_small.EXPERIMENT,
    name="wikipedia_narrow",
    task=LanguageModelling(window=17),
    model=LanguageModel(
        num_layers=2, width=96, num_heads=2, value_embeddings=1, masks_documents=False
    ),
    optimizer=MuonAdam(
        base_learning_rate=0.02, momentum=0.85, iterations=3, adam_learning_rate=1e-2
    ),
    max_steps=1000,
    global_batch_size=4,
    observations=(),
)

TECHNIQUES = (
    Technique("two_layers", ("--model.num_layers=4",)),
    Technique("narrow_width", ("--model.width=128",)),
    Technique("small_batch", ("--global_batch_size=8", "--max_steps=500")),
    Technique("short_window", ("--task.window=0",)),
    Technique("value_embeddings", ("--model.value_embeddings=0",)),
    Technique("low_momentum", ("--optimizer.momentum=0.95",)),
    Technique("fewer_iterations", ("--optimizer.iterations=5",)),
    Technique("high_rate", ("--optimizer.base_learning_rate=0.01",)),
    Technique("no_document_masks", ("--model.masks_documents=true",)),
)
