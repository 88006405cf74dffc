#!/usr/bin/env bash
# Everything that needs an accelerator, in parts of under ten minutes each:
#
#   bash benchmarks/gpu.sh PART[,PART]... [--cifar10=SOURCE] [--multi30k=FOLDER]
#                               [--peer=SCRIPT]... [--peer_tokens=N] [--out=DIR] [--trials=N]
#                               [--first_seed=N] [--seconds=N] [--keep=DIR] [--tiny]
#
# PART is one of
#   record             cifar10_record in record mode, 100 seeds, and the peers' scripts; one peer a
#                      call, or more --seconds: each searched kernels for 200 s on an H200
#   record_net         train steps of cifar10_record: every variant
#   speedrun           the same with cifar10_speedrun
#   resnet50           train steps: every variant, against PyTorch
#   amoebanet_d        train steps: every variant
#   transformer_big    train steps: every variant, against PyTorch
#   gpt2_small         the same of a language model, with Muon on both sides
#   cifar10_resnet18   ten seeds to the target
#   cifar10_wide_resnet34
#   cifar10_record     ten seeds to the target: time to accuracy, by the ordinary loop
#   multi30k           seeds of multi30k_transformer, to BLEU 37
#   digits             five seeds, with the profile of each run's own trace
#   profile_resnet50   a few of its steps, traced: busy time, roofline and every kernel
#   profile_amoebanet_d, profile_record_net, profile_gpt2_small
#   start_up           the first step of ResNet-50 from the command, cold and warm, against PyTorch
#   minigo             games a second of self-play, 256 to 4,096 side by side, and utilization
#   determinism        the same seed twice, and killed and resumed, with --deterministic and without
#   gpt2_peer          steps of gpt2_small against a train_gpt.py of modded-nanogpt (--peer), which
#                      takes --peer_tokens a step
#   all                all of these
#   plan               prints what each part would run, and runs nothing
#
# Several parts run one after the other and share --seconds out: a part ends when its share is over,
# the next one goes on after a part that failed, and a table at the end says what became of each.
# All get the same arguments, so `record`, `speedrun` and `gpt2_peer`, whose peers differ, want calls
# of their own.
#
# SOURCE is what `dawnjax prepare --dataset=cifar10 --from` takes, FOLDER has train.{en,de}.gz and
# test_2016_flickr.{en,de}.gz. Every result is a file in DIR (benchmarks/results if not given),
# written anew with each figure, so what was measured before a time limit stays; --first_seed goes
# on with other seeds, in a file of its own, and --keep keeps the seeds' run directories. --tiny
# tries a part on any machine within a minute or two, on made-up data, and says nothing about speed.
set -euo pipefail
cd "$(dirname "$0")/.."
part=${1:?"which part? see the head of benchmarks/gpu.sh"}
shift
cifar10='' multi30k='' out=benchmarks/results trials='' first='' seconds=540 keep='' tiny='' peers=()
peer_tokens=() passed=()
for argument in "$@"; do
  [[ $argument = --seconds=* ]] || passed+=("$argument")
  case $argument in
    --cifar10=*) cifar10=${argument#*=} ;;
    --multi30k=*) multi30k=${argument#*=} ;;
    --peer=*) peers+=("$argument") ;;
    --peer_tokens=*) peer_tokens=("$argument") ;;
    --out=*) out=${argument#*=} ;;
    --trials=*) trials=${argument#*=} ;;
    --first_seed=*) first=${argument#*=} ;;
    --seconds=*) seconds=${argument#*=} ;;
    --keep=*) keep=${argument#*=} ;;
    --tiny) tiny=--tiny ;;
    *) echo "gpu.sh: unknown argument $argument" >&2; exit 2 ;;
  esac
done
export DAWNJAX_BENCHMARK_RESULTS=$out PYTHONUNBUFFERED=1
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

run() { echo "+ $*" >&2; [ "$part" = plan ] || "$@"; }

prepare_cifar10() {  # gives the directory in $data
  data=$work/cifar10
  [ -n "$tiny" ] && return
  [ -n "$cifar10" ] || [ "$part" = plan ] || { echo "gpu.sh: $part needs --cifar10" >&2; exit 2; }
  run "$python" -m dawnjax prepare --dataset=cifar10 --from="${cifar10:-SOURCE}" --out="$data"
}

device() { "$python" -c 'import jax; print(jax.devices()[0].device_kind.lower().replace(" ", "_"))'; }

seeds() {  # an experiment and its flags
  local experiment=$1
  shift
  run "$python" -m benchmarks seeds --experiment="$experiment" --trials="${trials:-10}" \
    --first_seed="${first:-0}" --seconds="$seconds" \
    --name="seeds_${experiment}_$kind${first:+_from_$first}" ${keep:+"--keep=$keep"} -- \
    --tensorboard=false --profile.after_run=false $tiny "$@"
}

run_part() {
  case $1 in
    record | speedrun)
      prepare_cifar10
      local ours=(--data="$data")
      [ -n "$tiny" ] && ours=(--tiny)
      run "$python" -m benchmarks record --experiment="cifar10_$1" "${ours[@]}" \
        --trials="${trials:-100}" --name="$1_cifar10_$kind" --our_seconds="$((seconds / 5))" \
        --peer_seconds="$((seconds * 3 / (5 * (${#peers[@]} > 1 ? ${#peers[@]} : 1))))" \
        ${peers[@]+"${peers[@]}"}
      ;;
    record_net | resnet50 | amoebanet_d | transformer_big | gpt2_small)
      local how=(--seconds="$seconds")
      [ -n "$tiny" ] && how+=(--tiny --settings=eager --variants=base --rounds=1 --steps=2)
      run "$python" -m benchmarks steps --model="$1" "${how[@]}"
      ;;
    cifar10_resnet18 | cifar10_wide_resnet34 | cifar10_record)
      prepare_cifar10
      if [ -n "$tiny" ]; then seeds "$1"; else seeds "$1" --data.data_dir="$data"; fi
      ;;
    multi30k)
      local text=${multi30k:-FOLDER}
      [ -n "$multi30k" ] || [ "$part" = plan ] || { echo "gpu.sh: multi30k needs --multi30k" >&2; exit 2; }
      run "$python" -m dawnjax prepare --dataset=parallel_text \
        --train_source="$text/train.en.gz" --train_target="$text/train.de.gz" \
        --eval_source="$text/test_2016_flickr.en.gz" --eval_target="$text/test_2016_flickr.de.gz" \
        --vocabulary_size=8000 --row_length=64 --out="$work/multi30k"
      local small=()
      if [ -n "$tiny" ]; then  # the real text, a small model, and the end after one evaluation
        small=(--model.num_layers=1 --model.width=32 --model.hidden_width=32 --model.num_heads=2
               --num_epochs=0.5 --schedule.warmup_epochs=0.1 --evaluation.first_epoch=0)
      fi
      tiny='' seeds multi30k_transformer --data.data_dir="$work/multi30k" --targets.0.value=37 \
        ${small[@]+"${small[@]}"}
      ;;
    digits)
      for seed in $(seq "${trials:-5}"); do
        run "$python" -m dawnjax train --experiment=digits --seed="$seed" \
          --run_dir="$work/digits_$seed" --tensorboard=false || [ $? -eq 3 ]  # not reached
        [ "$part" = plan ] || cp "$work/digits_$seed/result.json" "$out/digits_${kind}_$seed.json"
      done
      run "$python" -m dawnjax profile "$work/digits_1"
      ;;
    profile_*)
      # The trace of command buffers names no operations.
      [[ $kind = cpu* ]] || export XLA_FLAGS="--xla_gpu_enable_command_buffer= ${XLA_FLAGS:-}"
      local step=()
      mapfile -t step < <("$python" -m benchmarks.step_settings "${1#profile_}" $tiny)
      run "$python" -m dawnjax profile "${step[@]}" --run_dir="$out/$1_$kind" --tensorboard=false
      ;;
    start_up)
      run "$python" -m benchmarks first_step --rounds="${trials:-3}" \
        --seconds="$seconds" $tiny
      ;;
    minigo)
      run "$python" -m benchmarks self_play --seconds="$seconds" $tiny
      ;;
    determinism)
      run "$python" -m benchmarks determinism --name="determinism_$kind" ${tiny:+--steps=4}
      ;;
    gpt2_peer)
      run "$python" -m benchmarks language_model_peer ${peers[@]+"${peers[@]}"} \
        ${peer_tokens[@]+"${peer_tokens[@]}"} --seconds="$seconds" $tiny
      ;;
  esac
}

run_parts() {  # some parts, each in a process of its own, within --seconds for all
  local begun end=$((SECONDS + seconds)) least=60 told=() failed=0 left share status
  [ -z "$tiny" ] || least=1
  begun=$(mktemp -p "$work")
  while [ $# -gt 0 ]; do
    left=$((end - SECONDS))
    share=$((left / $#))
    [ "$share" -ge "$least" ] || share=$((left < least ? left : least))
    if [ "$share" -lt "$least" ]; then
      told+=("$1: no time") failed=1
    else
      status=0
      # An interrupt lets each program end what it started, and leaves the device free.
      timeout --signal=INT --kill-after=20 "$share" bash benchmarks/gpu.sh "$1" \
        ${passed[@]+"${passed[@]}"} --seconds=$((share * 9 / 10)) || status=$?
      case $status in
        0) told+=("$1: ran") ;;
        124 | 137) told+=("$1: ended after its $share s; what it had measured is kept") failed=1 ;;
        *) told+=("$1: failed, with exit status $status") failed=1 ;;
      esac
    fi
    shift
  done
  printf '%s\n' '' "${told[@]}" "results in $out:"
  find "$out" -name '*.json' -newer "$begun" | sort
  return "$failed"
}

mkdir -p "$out"
parts=(record speedrun record_net resnet50 amoebanet_d transformer_big gpt2_small cifar10_resnet18 cifar10_wide_resnet34
  cifar10_record multi30k digits profile_resnet50 profile_amoebanet_d
  profile_record_net profile_gpt2_small start_up minigo determinism gpt2_peer)
asked=("${parts[@]}")
[[ $part = all || $part = plan ]] || IFS=, read -ra asked <<<"$part"
for one in "${asked[@]}"; do
  if [[ " ${parts[*]} " != *" $one "* ]]; then
    echo "gpu.sh: no part $one; there are ${parts[*]}, all and plan" >&2
    exit 2
  fi
done
if [ "$part" = plan ]; then
  kind=DEVICE
  for one in "${parts[@]}"; do
    echo "$one:"
    run_part "$one"
  done
elif [ ${#asked[@]} -gt 1 ]; then
  run_parts "${asked[@]}"
else
  kind=$(device)${tiny:+_tiny}
  run_part "$part"
fi
