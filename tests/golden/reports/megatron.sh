#!/usr/bin/env bash
# tiny on 8 devices of eights: data 2 x tensor 2 x pipeline 2, 1f1b of 2 chunks, micro-batch 4, ZeRO 1, sequence-parallel, recompute full, gradients overlapped.
# Written by `orrery export` from plan.yaml for Megatron-LM (flags of its main branch, August 2026).
# MEGATRON: its folder. DATA: prefix of a .bin and .idx file, with TOKENIZER_ARGS; without it tokens are made up, which
# is enough to measure. On each node: NODE_RANK=0… MASTER_ADDR=first-node ./this-file
set -euo pipefail
MEGATRON=${MEGATRON:?the folder of Megatron-LM}
export CUDA_DEVICE_MAX_CONNECTIONS=1
MODEL_ARGS=(
  --num-layers 8
  --hidden-size 32
  --ffn-hidden-size 128
  --num-attention-heads 4
  --kv-channels 8
  --seq-length 16
  --max-position-embeddings 16
  --position-embedding-type learned_absolute
  --normalization LayerNorm
  --norm-epsilon 1e-05
  --make-vocab-size-divisible-by 1
  --init-method-std 0.02
  --attention-dropout 0
  --hidden-dropout 0
)
PARALLEL_ARGS=(
  --micro-batch-size 4
  --global-batch-size 64
  --tensor-model-parallel-size 2
  --sequence-parallel
  --context-parallel-size 1
  --pipeline-model-parallel-size 2
  --num-virtual-stages-per-pipeline-rank 2
  --use-distributed-optimizer
  --overlap-grad-reduce
  --overlap-param-gather
  --recompute-granularity full
  --recompute-method uniform
  --recompute-num-layers 1
  --attention-backend auto
  --bf16
)
TRAINING_ARGS=(
  --train-iters 20
  --seed 1
  --optimizer adam
  --lr 0.001
  --min-lr 0.0001
  --lr-decay-style cosine
  --lr-warmup-iters 10
  --lr-decay-iters 20
  --weight-decay 0.1
  --adam-beta1 0.9
  --adam-beta2 0.95
  --adam-eps 1e-08
  --clip-grad 1
  --eval-interval 21
  --eval-iters 0
  --log-interval 1
  --log-throughput
)
DATA_ARGS=(--mock-data --tokenizer-type NullTokenizer --vocab-size 64)
if [[ -n ${DATA:-} ]]; then
  read -ra tokenizer <<<"${TOKENIZER_ARGS:---tokenizer-type NullTokenizer --vocab-size 64}"
  DATA_ARGS=(--data-path "$DATA" --split 100,0,0 "${tokenizer[@]}")
fi
exec torchrun --nnodes 1 --nproc-per-node 8 --node-rank "${NODE_RANK:-0}" \
  --master-addr "${MASTER_ADDR:-localhost}" --master-port "${MASTER_PORT:-29500}" "$MEGATRON/pretrain_gpt.py" \
  "${MODEL_ARGS[@]}" "${PARALLEL_ARGS[@]}" "${TRAINING_ARGS[@]}" "${DATA_ARGS[@]}" "$@"
