"""Write what this release writes, for later ones: `python tests/compatibility/write.py`.

The files of a release are never written again.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import dawnjax

HERE = Path(__file__).parent
SMALL = (
    *("--data.num_train_examples=96", "--data.num_eval_examples=40", "--num_epochs=2"),
    *("--global_batch_size=16", "--batch_norm_group_size=4", "--tensorboard=false"),
    *("--model.stage_sizes=1", "--model.stage_widths=16"),
)


def main() -> None:
    out = HERE / dawnjax.__version__
    out.mkdir()
    with tempfile.TemporaryDirectory() as folder:
        images = np.random.default_rng(0).integers(0, 256, (8, 8, 8, 3)).astype(np.uint8)
        labels = np.arange(8) % 2
        source = Path(folder, "images.npz")
        np.savez(source, train_x=images, train_y=labels, test_x=images[::-1] // 2, test_y=labels)
        run("prepare", "--dataset=images", "--name=few", f"--from={source}", f"--out={out}/few")
        study = Path(folder, "study")
        run("study", "--experiment=synthetic_image", *SMALL, "--seeds=2", f"--out={study}")
        # Not their checkpoints, whose form is Orbax's, nor what is made from the log.
        keep_out = shutil.ignore_patterns("checkpoints", "tensorboard", "profile", "*.lock")
        shutil.copytree(study, out / "study", ignore=keep_out)


def run(*words: str) -> None:
    done = subprocess.run([sys.executable, "-m", "dawnjax", *words])
    if done.returncode:
        sys.exit(done.returncode)


if __name__ == "__main__":
    main()
