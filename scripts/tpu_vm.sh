#!/usr/bin/env bash
# Cloud TPU VMs from scratch to a finished run: create, install on all workers, train, collect, delete.
#
#   PROJECT=... ZONE=us-central2-b TYPE=v4-16 BUCKET=gs://... scripts/tpu_vm.sh create
#   scripts/tpu_vm.sh install
#   scripts/tpu_vm.sh train cifar10_record --data.data_dir='$HOME/data/cifar10'
#   scripts/tpu_vm.sh collect results
#   scripts/tpu_vm.sh delete
set -euo pipefail

NAME="${NAME:-dawnjax}"
: "${PROJECT:?the Google Cloud project}" "${ZONE:?a zone that has the TPU type}"
: "${TYPE:?the TPU type, such as v4-16 or v5litepod-16}" "${BUCKET:?a bucket for checkpoints, gs://...}"
RUN="${RUN:-run-0}"
PYTHON="${PYTHON:-3.12}"
SOURCE="${SOURCE:-dawnjax}"  # what pip installs: a release, a wheel's address, git+https://...

tpu() { gcloud compute tpus tpu-vm "$1" "$NAME" --project="$PROJECT" --zone="$ZONE" "${@:2}"; }
everywhere() { tpu ssh --worker=all --command="$1"; }

case "${1:-}" in
  create)
    # The images of v2 to v5p; VERSION says another, such as v2-alpha-tpuv6e for v6e.
    tpu create --accelerator-type="$TYPE" --version="${VERSION:-tpu-ubuntu2204-base}"
    ;;
  install)
    # Images have Python 3.10; uv brings its own.
    everywhere "command -v tmux >/dev/null || sudo apt-get install --yes tmux
      curl -LsSf https://astral.sh/uv/install.sh | sh &&
      ~/.local/bin/uv venv --python $PYTHON ~/dawnjax &&
      ~/.local/bin/uv pip install --python ~/dawnjax/bin/python '$SOURCE[tpu,gcs]'"
    ;;
  train)
    experiment="${2:?an experiment, such as cifar10_record}"
    # tmux outlives the connection. All workers run the same command; process 0 writes the run.
    everywhere "tmux new-session -d -s dawnjax \"~/dawnjax/bin/dawnjax train $experiment \
      --run_dir=\$HOME/runs/$RUN --checkpoint.directory=$BUCKET/$RUN/checkpoints ${*:3} \
      > ~/$RUN.txt 2>&1\""
    ;;
  watch) tpu ssh --worker=0 --command="tail -n 20 -f ~/$RUN.txt" ;;
  stop)
    # A SIGTERM on one worker: all save after the same step and end with status 5.
    tpu ssh --worker=0 --command="pkill -TERM -f 'dawnjax train'"
    ;;
  collect)
    tpu scp --worker=0 --recurse "$NAME:runs/$RUN" "${2:?a folder here}" ;;
  delete) tpu delete --quiet ;;
  *)
    sed -n '2,9p' "$0" >&2
    exit 2
    ;;
esac
