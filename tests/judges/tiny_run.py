"""A model, a text and a plan that train in a second, for judges that look at a run from outside."""
import pathlib
import subprocess
import sys

CONTEXT = 16

DEVICE = """schema: longhaul/device/1
kind: core
title: a core of this machine
memory: 1 GiB
reserved: 0 GiB
peak: {fp32: 10 GFLOP/s}
efficiency: 0.5
memory_bandwidth: 10 GB/s
memory_efficiency: 0.75
overhead: 50 us
origin: assumed
source: invented
"""
CLUSTER = """schema: longhaul/cluster/1
name: two-sites
device_files: {core: core.yaml}
network:
  links:
    - {between: [delft, new york], latency: 1 ms, bandwidth: 500 Mbit/s}
sites:
  - name: delft
    nodes:
      - {name: d, devices: core}
  - name: new york
    nodes:
      - {name: n, devices: core}
"""
JOB = """schema: longhaul/job/1
name: tiny
model: {{family: gpt2, layers: 2, width: 32, heads: 2, context: 16, vocabulary: 256, tied_embedding: true}}
batch: {{global: 8, micro_batch: 1}}
precision: fp32
training:
  data: data
  seed: 1
  steps: {steps}
  learning_rate: {{max: 3e-3, min: 0, decay: constant, warm_up: 2}}
  optimiser: {{beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.1, clip: 1.0}}
  validation: {{every: 4, sequences: 16}}
  checkpoints: {{every: 4, keep: 9}}
"""
PLAN = """schema: longhaul/plan/1
inputs:
  cluster: {file: cluster.yaml}
  job: {file: job.yaml}
layers: [1, 1]
pipelines: [[d/0, n/0]]
batch:
  micro_batch: 1
  micro_batches: [8]
schedule: {family: 1f1b, in_flight: [2, 1]}
coordinator: delft
"""


def fail(text):
    print("FAILED:", text)
    sys.exit(1)


def longhaul(binary, folder, *arguments):
    """What it prints to stdout."""
    result = subprocess.run([binary, *arguments], cwd=folder, capture_output=True, text=True)
    if result.returncode != 0:
        fail(f"longhaul {' '.join(arguments)} ended with {result.returncode}:\n{result.stdout}{result.stderr}")
    return result.stdout


def prepare(binary, folder, steps):
    """Writes plan.yaml and all that it names."""
    folder = pathlib.Path(folder)
    job = JOB.format(steps=steps)
    for name, text in {"core.yaml": DEVICE, "cluster.yaml": CLUSTER, "job.yaml": job, "plan.yaml": PLAN}.items():
        (folder / name).write_text(text)
    (folder / "text.txt").write_text("".join(f"Line {i} has {i * 7 % 97} letters.\n" for i in range(300)))
    longhaul(binary, folder, "data", "prepare", "text.txt", "-o", "data")
