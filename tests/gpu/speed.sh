# shellcheck shell=bash disable=SC2154  # what is not set here, scripts/gpu-check sets
# What scripts/gpu-check packs for training beside PyTorch and llm.c (--speed): plans and llm.c's trainer; and the proofs
# that need no GPU. Sourced by it, for its functions.

# -- here: into the pack -----------------------------------------------------------------------------------------------------

training_part() {  # STEPS TOKENS: as torch_training.py trains
  cat <<PART
training:
  steps: $1
  seed: 1234
  data: $pack/data/$2
  optimizer: {name: adamw, learning_rate: 6e-4, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.1}
  learning_rate_schedule: {warmup_steps: 20}
  clip_norm: 1.0
PART
}

# What --speed trains, for both sides: one micro-batch, as large as leaves PyTorch, which keeps more, some room.
speed_job() {  # MODEL BATCH SEQUENCE STEPS
  make_plan "speed-$1" --gpus 1 <<JOB
model: $1
cluster: hgx-h200
stack: orrery-cuda
batch: $2
sequence: $3
precision: bf16
plan: {data: 1, tensor: 1, pipeline: 1, micro_batch: $2, recompute: none}
$(training_part "$4" speed.bin)
JOB
  torch_job "$1" "speed-$1" "$root/models/catalog/$1.yaml"
}

tiny_job() {  # FAMILY: the same for losses on a CPU
  make_plan "tiny-$1" <<JOB
model: $root/tests/gpu/golden-$1.yaml
cluster: localhost-1
batch: 4
sequence: 32
precision: fp32
plan: {data: 1, tensor: 1, pipeline: 1, micro_batch: 4}
$(training_part 24 tokens.bin)
JOB
  torch_job "$1" "tiny-$1" "$root/tests/gpu/golden-$1.yaml"
}

torch_job() {  # NAME PLAN MODEL_FILE
  sed "s#@PACK@#$pack#g" "$pack/plans/$2.yaml" >"$pack/plan.yaml"
  "$root/build/bin/orrery" simulate "$pack/plan.yaml" --json >"$pack/simulated.json"
  python3 "$root/tests/gpu/inputs.py" job "$1" "$3" "$pack/simulated.json" >"$pack/data/$2.json"
  rm "$pack/plan.yaml" "$pack/simulated.json"
}

# llm.c (github.com/karpathy/llm.c) from the checkout $1, as it is: without cuDNN, for one GPU, bf16. CUDA 13 gave cudaMemAdvise
# another signature, which the header made here still takes; what it asks of NVML is for logs that are not asked for.
make_llmc() {
  local made=$pack/train_gpt2cu compatible=$pack/compatible.h
  if [[ ! -f $1/train_gpt2.cu ]]; then echo "gpu-check: $1 has no train_gpt2.cu of llm.c" >&2; exit 2; fi
  cat >"$compatible" <<'HEADER'
#include <cuda_runtime.h>
inline cudaError_t cudaMemAdvise(const void* memory, size_t bytes, cudaMemoryAdvise advice, int device) {
  cudaMemLocation place{};
  place.type = device < 0 ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice;
  place.id = device < 0 ? 0 : device;
  return cudaMemAdvise(memory, bytes, advice, place);
}
HEADER
  if ! (cd "$1" && nvcc --use_fast_math -std=c++17 -O3 -gencode "arch=compute_90,code=[sm_90,compute_90]" -include "$compatible" \
    -DENABLE_BF16 train_gpt2.cu -lcublas -lcublasLt -Xlinker -z -Xlinker lazy \
    -Xlinker --unresolved-symbols=ignore-in-object-files -o "$made") >"$pack/llmc.log" 2>&1; then
    tail -20 "$pack/llmc.log" >&2
    echo "gpu-check: llm.c does not compile here; the pack is made without it" >&2
    rm -f "$made"
  fi
  rm -f "$compatible" "$pack/llmc.log"
}

# -- here: proofs ------------------------------------------------------------------------------------------------------------

# PyTorch's side beside Orrery's on the CPU: the same initial weights, tokens and mathematics give the same losses.
prove_reference() {
  local python='' one family
  for one in python3 /usr/bin/python3; do
    if "$one" -c 'import torch' 2>/dev/null; then python=$one; fi
  done
  if [[ -z $python ]]; then echo "gpu-check: no PyTorch here: its side is not compared"; return; fi
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  unpack "$work/pack"
  for family in gpt llama; do
    sed "s#@PACK@#$pack#g" "$pack/plans/tiny-$family.yaml" >"$work/plan.yaml"
    LD_LIBRARY_PATH=$pack/lib "$pack/bin/orrery-worker" --plan "$work/plan.yaml" --run "$work/run" --overwrite \
      --no-checkpoint --steps 6 --threads 1 --transport threads >/dev/null
    "$python" "$pack/check/torch_training.py" "$pack/data/tiny-$family.json" "$pack/data/tokens.bin" --device cpu \
      --steps 6 --out "$work/torch.json"
    echo -n "gpu-check: tiny $family: "
    if ! python3 "$pack/check/inputs.py" agree "$work/run/metrics.jsonl" "$work/torch.json"; then
      echo "gpu-check: PyTorch's side does not train what Orrery trains" >&2
      exit 5
    fi
  done
  rm -rf "$work"
}

# The halves that run elsewhere, here: without a GPU each says so; and where one seems to be there but no program finds
# it, all steps are gone through and the page says what each of them said.
prove_without_gpu() {
  local code options folder
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  for options in "" --speed; do
    # shellcheck disable=SC2086  # no option is none
    ends_with 6 "no driver\|no GPU" "$0" $options --out "$folder"
  done
  unpack "$folder/pack"
  mv "$pack/bin/test_gpu" "$pack/bin/test_gpu.real"
  cat >"$pack/bin/test_gpu" <<'LIAR'
#!/bin/sh
"$0.real" "$@"
code=$?
case "$*" in *list_tests*) exit 0 ;; *) exit $code ;; esac
LIAR
  chmod +x "$pack/bin/test_gpu"
  for options in "" --speed; do
    # shellcheck disable=SC2086  # no option is none
    ends_with 5 "train-[^:]*: .*exit 6" python3 "$pack/check/check.py" $options "$pack" "$folder/out"
    if ! python3 "$pack/check/judge.py" --unpack "$folder/out" "$folder/unpacked$options"; then exit 5; fi
    echo "gpu-check: $(wc -l <"$folder/out/results.jsonl") steps," \
      "$(find "$folder/unpacked$options" -type f | wc -l) files in results.tar.gz"
  done
  rm -rf "$folder"
}

# Expects exit code $1 and the text $2 from the rest.
ends_with() {
  local code=0 want=$1 text=$2
  shift 2
  "$@" >"$folder/said" 2>&1 || code=$?
  if ((code != want)) || ! grep -q "$text" "$folder/said"; then
    cat "$folder/said" >&2
    echo "gpu-check: without a GPU, $* ends with $code, wanted $want and \"$text\"" >&2
    exit 5
  fi
  echo "gpu-check: $*: exit $want, as it should; it said: $(grep -m1 "$text" "$folder/said")"
}
