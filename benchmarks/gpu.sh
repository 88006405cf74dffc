#!/usr/bin/env bash
# The CIFAR-10 experiments on one accelerator, ten seeds each: bash benchmarks/gpu.sh CIFAR10_SOURCE
#
# CIFAR10_SOURCE is what `dawnjax prepare --from` takes. Results lie in benchmarks/results/. One
# part stays under ten minutes on a current data-centre GPU; PARTS=record or PARTS=resnet18 runs one.
set -euo pipefail
cd "$(dirname "$0")/.."
source=$1
data=$(mktemp -d)/cifar10
python3 -m dawnjax prepare --dataset=cifar10 --from="$source" --out="$data"
device=$(python3 -c 'import jax; print(jax.devices()[0].device_kind.lower().replace(" ", "_"))')
for part in ${PARTS:-record resnet18}; do
  python3 -m benchmarks seeds --experiment="cifar10_$part" --trials="${TRIALS:-10}" \
    --name="seeds_cifar10_${part}_${device}" -- --data.data_dir="$data" --tensorboard=false
done
