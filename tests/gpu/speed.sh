# shellcheck shell=bash disable=SC2154  # what is not set here, scripts/gpu-check sets
# The part of scripts/gpu-check that trains beside PyTorch and llm.c (--speed): its plans, llm.c's trainer, the run, and the
# proofs that need no GPU. Sourced by it, for its functions.

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
  python3 "$root/tests/gpu/speed.py" job "$1" "$3" "$pack/simulated.json" >"$pack/data/$2.json"
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

# -- there: the run ----------------------------------------------------------------------------------------------------------

# The page is written after every step, so that what ends the machine takes only what had not run.
speed_step() {
  local name=$1
  shift
  "$@"
  speed_code=0
  python3 "$pack/data/speed.py" page "$out" "$pack" || speed_code=$?
  echo "gpu-check: $name: $SECONDS s since the start" >&2
}

torch_step() {  # MODEL SECONDS MODES
  # A compiler's cache that no earlier run has filled, and ends with the run.
  LD_LIBRARY_PATH='' TORCHINDUCTOR_CACHE_DIR=$work/inductor TRITON_CACHE_DIR=$work/triton step "torch-$1" "$2" \
    python3 "$pack/data/torch_training.py" "$pack/data/speed-$1.json" "$pack/data/speed.bin" --steps 30 \
    --seconds "$(($2 < most_seconds - SECONDS ? $2 - 5 : most_seconds - SECONDS - 5))" --modes "$3" --out "$out/torch-$1.json"
}

llmc_step() {
  if [[ ! -x $pack/bin/train_gpt2cu ]]; then return 0; fi
  # It wants to validate at the first step and the last (one batch), and finds no tokenizer to sample by.
  step llmc 45 "$pack/bin/train_gpt2cu" -i "$pack/data/speed.bin" -j "$pack/data/speed.bin" -e d12 -b 32 -t 1024 -d 32768 \
    -r 0 -x 40 -v 100000 -m 1 -s 0 -h 0 -l 0.0006 -u 20 -c 0.1
}

run_speed() {
  local speed_code=0
  begin_run
  if [[ -n $after && $after != "$out" && -d $after/cache ]]; then
    mkdir -p "$out/cache"
    cp -r "$after/cache/." "$out/cache/"
  fi
  step peak 30 "$pack/bin/gpu_bench" --peak
  if grep -q '^peak 6 ' "$out/steps"; then cat "$out/peak.err" >&2; exit 6; fi
  all_cores
  speed_step "GPT-2 124M" train_step speed-gpt2-124m 1 45
  speed_step "GPT-2 1.5B" train_step speed-gpt2-1558m 1 100
  speed_step "TinyLlama" train_step speed-tinyllama-1.1b 1 75
  # The same with attention's faster backward, on the first's tuned products: short, since what repeats comes first and
  # PyTorch's last model gets what is left. 18 steps: 9 to become warm in, 9 to be measured.
  speed_step "GPT-2 124M, --no-repeat" train_step speed-gpt2-124m 1 25 no-repeat --no-repeat --steps 18
  speed_step "GPT-2 1.5B, --no-repeat" train_step speed-gpt2-1558m 1 45 no-repeat --no-repeat --steps 18
  speed_step "TinyLlama, --no-repeat" train_step speed-tinyllama-1.1b 1 40 no-repeat --no-repeat --steps 18
  speed_step "llm.c" llmc_step
  speed_step "GPT-2 124M by PyTorch" torch_step gpt2-124m 90 whole,reduce-overhead
  speed_step "TinyLlama by PyTorch" torch_step tinyllama-1.1b 120 blocks,whole
  speed_step "GPT-2 1.5B by PyTorch" torch_step gpt2-1558m 240 blocks,whole
  cat "$out/page.txt" >&2
  cat "$out/results.json"
  exit "$speed_code"
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
    (use_pack "" && mpiexec -n 1 orrery-worker --plan "$work/plan.yaml" --run "$work/run" --overwrite --no-checkpoint --steps 6 --threads 1 \
      >/dev/null)
    "$python" "$pack/data/torch_training.py" "$pack/data/tiny-$family.json" "$pack/data/tokens.bin" --device cpu --steps 6 \
      --out "$work/torch.json"
    echo -n "gpu-check: tiny $family: "
    if ! python3 "$pack/data/speed.py" agree "$work/run/metrics.jsonl" "$work/torch.json"; then
      echo "gpu-check: PyTorch's side does not train what Orrery trains" >&2
      exit 5
    fi
  done
  rm -rf "$work"
}

# The halves that run elsewhere, here: in order to their end without a GPU.
prove_without_gpu() {
  local code options folder
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  for options in "" --speed; do
    code=0
    # shellcheck disable=SC2086  # no option is none
    "$0" $options --out "$folder" >"$folder/said" 2>&1 || code=$?
    if ((code != 6)) || ! grep -q "no driver\|no GPU" "$folder/said"; then
      cat "$folder/said" >&2
      echo "gpu-check: without a GPU, gpu-check $options ends with $code, wanted 6 and a word on it" >&2
      exit 5
    fi
    echo "gpu-check: gpu-check $options: exit 6, as it should; it said: $(grep -m1 "no driver\|no GPU" "$folder/said")"
  done
  rm -rf "$folder"
}
