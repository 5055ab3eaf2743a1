#!/usr/bin/env python3
"""Does longhaul train as transformers and torch.optim.AdamW do, and do they read what it writes?

    $(tools/judges) tests/judges/models_judge.py BINARY FOLDER SHAPE

SHAPE is a key of SHAPES. transformers creates a model of it and saves it to FOLDER. longhaul starts from
that folder and trains 20 steps in a pipeline of three uneven stages and two replicas; so does a loop of
AdamW. Then
  - losses and gradient norms of the 20 steps agree within 1e-4 (norms relative to themselves),
  - what the run wrote loads in transformers with no warning,
  - and has there the validation loss that the run reported, within 1e-5.
Each step trains the whole data set, so the order of sequences is no part of the comparison. The rate is one
at which no model here has a spike: after one, the last bits of any two programs grow apart.
Prints what was compared; exit status 1 and the first difference if there is one.
"""
import json
import logging
import pathlib
import sys
import warnings

import torch
import transformers

from tiny_run import DEVICE, fail, longhaul

transformers.utils.logging.disable_progress_bar()

STEPS, CONTEXT, BATCH = 20, 32, 28
TEXT_BYTES = 1000  # of which `data prepare` keeps 100 for validation: 28 and 3 sequences
VALIDATED = 3
RATE, WARM_UP, CLIP, DECAY = 1e-3, 4, 0.5, 0.1
LLAMA = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4,
             num_key_value_heads=2, vocab_size=256, max_position_embeddings=CONTEXT, bos_token_id=0, eos_token_id=0)
GPT2 = dict(n_embd=64, n_layer=4, n_head=4, n_positions=CONTEXT, vocab_size=256, resid_pdrop=0.0, embd_pdrop=0.0,
            attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
SHAPES = {
    "gpt2": ("gpt2", dict(GPT2)),
    "gpt2-untied": ("gpt2", dict(GPT2, tie_word_embeddings=False)),
    "llama": ("llama", dict(LLAMA, tie_word_embeddings=False)),
    "llama-tied": ("llama", dict(LLAMA, tie_word_embeddings=True, num_key_value_heads=1, head_dim=24)),
    "llama3": ("llama", dict(LLAMA, tie_word_embeddings=True, rms_norm_eps=1e-6, rope_parameters={
        "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 16})),
}

CLUSTER = """schema: longhaul/cluster/1
name: one-site
device_files: {core: core.yaml}
sites:
  - name: delft
    nodes:
      - {name: d, devices: 6xcore}
"""
JOB = f"""schema: longhaul/job/1
name: judged
model: {{from: model}}
batch: {{global: {BATCH}, micro_batch: 2}}
precision: fp32
training:
  data: data
  seed: 1
  steps: {STEPS}
  learning_rate: {{max: {RATE}, min: 0, decay: constant, warm_up: {WARM_UP}}}
  optimiser: {{beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: {DECAY}, clip: {CLIP}}}
  validation: {{every: {STEPS}, sequences: {VALIDATED}}}
"""
PLAN = f"""schema: longhaul/plan/1
inputs:
  cluster: {{file: cluster.yaml}}
  job: {{file: job.yaml}}
layers: [1, 2, 1]
pipelines: [[d/0, d/1, d/2], [d/3, d/4, d/5]]
batch:
  micro_batch: 2
  micro_batches: [{BATCH // 4}, {BATCH // 4}]
schedule: {{family: 1f1b, in_flight: [3, 2, 1]}}
coordinator: delft
"""


def model_of(shape):
    family, options = SHAPES[shape]
    torch.manual_seed(7)
    if family == "gpt2":
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(**options))
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**options))


def read_tokens(folder, part):
    """Of llm.c's shard format: a header of 256 int32, then uint16."""
    path = next((folder / "data").glob(f"{part}_*.bin"))
    return torch.frombuffer(bytearray(path.read_bytes()[1024:]), dtype=torch.uint16).to(torch.int64)


def sequences(tokens, count):
    """[count, CONTEXT + 1] at stride CONTEXT."""
    return torch.stack([tokens[i * CONTEXT:i * CONTEXT + CONTEXT + 1] for i in range(count)])


def loss_of(model, batch):
    logits = model(batch[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


def train(model, batch):
    """The losses and the norms before clipping of STEPS steps."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimiser = torch.optim.AdamW([{"params": matrices, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}],
                                  betas=(0.9, 0.95), eps=1e-8)
    steps = []
    for step in range(STEPS):
        for group in optimiser.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / WARM_UP)
        optimiser.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimiser.step()
        steps.append((loss.item(), norm.item()))
    return steps


class Complaints(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


def load(folder):
    """The model in `folder`; any warning is a failure."""
    complaints = Complaints()
    transformers.utils.logging.get_logger("transformers").addHandler(complaints)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    transformers.utils.logging.get_logger("transformers").removeHandler(complaints)
    texts = complaints.texts + [str(w.message) for w in caught]
    wrong = {key: value for key, value in info.items() if value}
    if texts or wrong:
        fail(f"transformers complains of {folder}: {texts} {wrong}")
    return model.eval()


def main():
    binary, folder, shape = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    for name, text in {"core.yaml": DEVICE, "cluster.yaml": CLUSTER, "job.yaml": JOB, "plan.yaml": PLAN}.items():
        (folder / name).write_text(text)
    text = " ".join(f"{i} squared is {i * i}, and {i % 7} days are over." for i in range(40))
    (folder / "text.txt").write_text(text[:TEXT_BYTES])
    longhaul(binary, folder, "data", "prepare", "text.txt", "-o", "data")
    training, validation = read_tokens(folder, "train"), read_tokens(folder, "val")
    if ((len(training) - 1) // CONTEXT, (len(validation) - 1) // CONTEXT) != (BATCH, VALIDATED):
        fail(f"{len(training)} and {len(validation)} tokens do not make {BATCH} and {VALIDATED} sequences")

    model = model_of(shape)
    model.save_pretrained(folder / "model")
    longhaul(binary, folder, "launch", "plan.yaml", "--local", "--name", "run")
    lines = [json.loads(line) for line in (folder / "runs/run/metrics.jsonl").read_text().splitlines()]
    ours = [(line["loss"], line["norm"]) for line in lines if "norm" in line]
    theirs = train(model.train(), sequences(training, BATCH))
    if len(ours) != STEPS:
        fail(f"the run has {len(ours)} steps")
    for step, ((loss, norm), (their_loss, their_norm)) in enumerate(zip(ours, theirs)):
        if not abs(loss - their_loss) <= 1e-4:
            fail(f"loss of step {step}: {loss} here, {their_loss} there")
        if not abs(norm - their_norm) <= 1e-4 * their_norm:
            fail(f"gradient norm of step {step}: {norm} here, {their_norm} there")
    if not (ours[-1][0] < ours[0][0] - 0.5 and any(norm > CLIP for _, norm in ours)):
        fail(f"the run learned little or was never clipped, so little was compared: {ours}")
    print(f"{shape}: losses differ by at most {max(abs(a[0] - b[0]) for a, b in zip(ours, theirs)):.1e}, "
          f"norms by {max(abs(a[1] / b[1] - 1) for a, b in zip(ours, theirs)):.1e} of themselves")

    longhaul(binary, folder, "model", "export", "runs/run", "--to", "hugging-face", "--out", "out")
    reported = next(line["validation_loss"] for line in lines if "validation_loss" in line)
    with torch.no_grad():
        loss = loss_of(load(folder / "out"), sequences(validation, VALIDATED)).item()
    if not abs(loss - reported) <= 1e-5:
        fail(f"validation loss of the result: {reported} here, {loss} there")
    print(f"{shape}: validation loss {reported:.6f} here, {loss:.6f} there, read without a warning")


if __name__ == "__main__":
    main()
