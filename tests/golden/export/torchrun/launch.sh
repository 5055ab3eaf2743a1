#!/usr/bin/env bash
# even.yaml under torchrun: 6 processes, one a device. On every node, NODE being its name in the
# cluster file:
#
#   bash launch.sh NODE SCRIPT [ARGUMENTS]
#
# Rank r is stage r / 3 of pipeline r % 3; ranks.json lists them all.
set -euo pipefail
if (($# < 2)); then
  echo 'usage: bash launch.sh NODE SCRIPT [ARGUMENTS]' >&2
  exit 2
fi
node=$1
shift
export MASTER_ADDR=${MASTER_ADDR:-'delft-1'}  # where rank 0 is; every node must reach it
export MASTER_PORT=${MASTER_PORT:-29500}
export CUDA_DEVICE_ORDER=PCI_BUS_ID  # device 0 is the one that nvidia-smi calls 0
# What the script needs to know of the plan.
export LONGHAUL_STAGES=2 LONGHAUL_PIPELINES=3 LONGHAUL_SCHEDULE=1f1b
export LONGHAUL_MICRO_BATCH=2 LONGHAUL_MICRO_BATCHES=4 LONGHAUL_GLOBAL_BATCH=24
command=("$@")

# The torchruns have different numbers of processes. Their ranks follow one another as long as
# TORCH_ELASTIC_WORKER_IDENTICAL is not set; check with your version.
unset TORCH_ELASTIC_WORKER_IDENTICAL

agents=()
trap 'kill "${agents[@]}" 2>/dev/null' INT TERM
agent() {  # NODE_RANK DEVICES PROCESSES: ranks that follow one another on this node
  CUDA_VISIBLE_DEVICES=$2 torchrun --nnodes=3 --node_rank="$1" --nproc_per_node="$3" \
    --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" "${command[@]}" &
  agents+=($!)
}
case $node in
  'delft-1')
    agent 0 0,1 2  # ranks 0 to 1
    ;;
  'delft-2')
    agent 1 0 1  # rank 2
    ;;
  'big')
    agent 2 0,1,2 3  # ranks 3 to 5
    ;;
  *)
    echo "launch.sh: the plan has no node $node; it has" 'delft-1, delft-2, big' >&2
    exit 2
    ;;
esac
status=0
for agent in "${agents[@]}"; do wait "$agent" || status=$?; done
exit $status
