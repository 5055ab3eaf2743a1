# Megatron-LM's arguments for plan.yaml. launch.sh reads this file.
# Data parallelism has no flag: it is the world size by the stages, 6 / 3 = 2. Data,
# tokenizer (vocabulary 1000; Megatron pads it), optimiser and steps are yours to add. Rank order
# is Megatron's default: do not add --use-tp-pp-dp-mapping.
MEGATRON_ARGS=(
  --tensor-model-parallel-size 1
  --pipeline-model-parallel-size 3
  # Experimental in Megatron; check with your version.
  # One without it takes --decoder-first-pipeline-num-layers 3 --decoder-last-pipeline-num-layers 2.
  --pipeline-model-parallel-layout 'Et*3|t*3|t*2L'
  --micro-batch-size 2
  --global-batch-size 24
  --num-layers 8
  --hidden-size 256
  --ffn-hidden-size 512
  --num-attention-heads 8
  --kv-channels 32
  --group-query-attention --num-query-groups 2
  --seq-length 128 --max-position-embeddings 128
  --normalization RMSNorm --swiglu --disable-bias-linear
  --position-embedding-type rope
  --untie-embeddings-and-output-weights
  --attention-dropout 0 --hidden-dropout 0
  --bf16
)
