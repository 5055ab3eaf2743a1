#!/usr/bin/env bash
# plan.yaml under megatron: 6 processes, one a device. On every node, NODE being its name in the
# cluster file:
#
#   bash launch.sh NODE pretrain_gpt.py [ITS DATA, TOKENIZER AND OPTIMISER ARGUMENTS]
#
# Rank r is stage r / 2 of pipeline r % 2; ranks.json lists them all.
set -euo pipefail
if (($# < 2)); then
  echo 'usage: bash launch.sh NODE pretrain_gpt.py [ITS DATA, TOKENIZER AND OPTIMISER ARGUMENTS]' >&2
  exit 2
fi
node=$1
shift
export MASTER_ADDR=${MASTER_ADDR:-'delft-1'}  # where rank 0 is; every node must reach it
export MASTER_PORT=${MASTER_PORT:-29500}
export CUDA_DEVICE_ORDER=PCI_BUS_ID  # device 0 is the one that nvidia-smi calls 0
source "$(dirname "$0")/megatron.sh"
command=("$1" "${MEGATRON_ARGS[@]}" "${@:2}")

agents=()
trap 'kill "${agents[@]}" 2>/dev/null' INT TERM
agent() {  # NODE_RANK DEVICES PROCESSES: ranks that follow one another on this node
  CUDA_VISIBLE_DEVICES=$2 torchrun --nnodes=6 --node_rank="$1" --nproc_per_node="$3" \
    --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" "${command[@]}" &
  agents+=($!)
}
case $node in
  'delft-1')
    agent 0 0 1  # rank 0
    agent 2 1 1  # rank 2
    ;;
  'big')
    agent 1 0 1  # rank 1
    agent 3 1 1  # rank 3
    agent 5 2 1  # rank 5
    ;;
  'delft-2')
    agent 4 0 1  # rank 4
    ;;
  *)
    echo "launch.sh: the plan has no node $node; it has" 'delft-1, big, delft-2' >&2
    exit 2
    ;;
esac
status=0
for agent in "${agents[@]}"; do wait "$agent" || status=$?; done
exit $status
