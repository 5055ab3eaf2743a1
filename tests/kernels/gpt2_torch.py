#!/usr/bin/env python3
"""Trains a GPT-2 in plain PyTorch (1.12 or newer) on weights and tokens that a test has written.

    python3 tests/kernels/gpt2_torch.py FOLDER

FOLDER/task.txt, words on lines:
    model LAYERS WIDTH HEADS CONTEXT VOCABULARY
    train STEPS WARM_UP RATE_MAX RATE_MIN BETA1 BETA2 EPSILON WEIGHT_DECAY CLIP
    tensor NAME EXTENT...         in the order of weights.bin; no lm_head.weight: it is wte.weight
    tokens ID...                  a line a step: SEQUENCES x (CONTEXT + 1)
    ignored SEQUENCE POSITION     from there on the sequence has no targets, at every step
FOLDER/weights.bin: fp32, little-endian, nothing between the tensors.

Prints `step LOSS NORM` a step, in hexadecimal floats: mean loss over the targets and the global norm
before clipping.
"""
import array
import math
import sys

import torch
import torch.nn.functional as F


def read_task(folder):
    task = {"tensor": [], "tokens": []}
    with open(folder + "/task.txt") as lines:
        for line in lines:
            key, *words = line.split()
            if key in ("tensor", "tokens"):
                task[key].append(words)
            else:
                task[key] = words
    return task


def read_weights(folder, tensors):
    values = array.array("f")
    with open(folder + "/weights.bin", "rb") as file:
        values.frombytes(file.read())
    if sys.byteorder == "big":
        values.byteswap()
    weights, at = {}, 0
    for name, *shape in tensors:
        shape = [int(extent) for extent in shape]
        size = math.prod(shape)
        part = values[at:at + size].tolist()
        weights[name] = torch.tensor(part, dtype=torch.float32).reshape(shape).requires_grad_()
        at += size
    assert at == len(values), "the file has exactly the tensors"
    return weights


def loss_of(p, tokens, targets, layers, heads):
    batch, length = tokens.shape
    width = p["wte.weight"].shape[1]
    future = torch.ones(length, length, dtype=torch.bool).triu(1)

    def norm(x, name):
        return F.layer_norm(x, (width,), p[name + ".weight"], p[name + ".bias"], 1e-5)

    def linear(x, name):
        return x @ p[name + ".weight"] + p[name + ".bias"]

    x = p["wte.weight"][tokens] + p["wpe.weight"][:length]
    for i in range(layers):
        h = f"h.{i}."
        q, k, v = (t.reshape(batch, length, heads, width // heads).transpose(1, 2)
                   for t in linear(norm(x, h + "ln_1"), h + "attn.c_attn").split(width, dim=2))
        scores = q @ k.transpose(2, 3) / math.sqrt(width // heads)
        a = scores.masked_fill(future, -math.inf).softmax(dim=3) @ v
        x = x + linear(a.transpose(1, 2).reshape(batch, length, width), h + "attn.c_proj")
        inner = F.gelu(linear(norm(x, h + "ln_2"), h + "mlp.c_fc"), approximate="tanh")
        x = x + linear(inner, h + "mlp.c_proj")
    head = p.get("lm_head.weight", p["wte.weight"])
    logits = norm(x, "ln_f") @ head.T
    return F.cross_entropy(logits.reshape(-1, logits.shape[2]), targets.reshape(-1),
                           ignore_index=-1)


def main(folder):
    task = read_task(folder)
    layers, _, heads, context, _ = (int(word) for word in task["model"])
    steps, warm_up = (int(word) for word in task["train"][:2])
    rate_max, rate_min, beta1, beta2, epsilon, decay, clip = (
        float(word) for word in task["train"][2:])
    weights = read_weights(folder, task["tensor"])
    optimiser = torch.optim.AdamW(
        [{"params": [t for t in weights.values() if t.dim() >= 2], "weight_decay": decay},
         {"params": [t for t in weights.values() if t.dim() < 2], "weight_decay": 0.0}],
        lr=rate_max, betas=(beta1, beta2), eps=epsilon)

    def factor(step):
        if step < warm_up:
            return (step + 1) / warm_up
        wave = (1 + math.cos(math.pi * (step - warm_up) / (steps - warm_up))) / 2
        return (rate_min + (rate_max - rate_min) * wave) / rate_max

    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, factor)
    sequence, position = (int(word) for word in task["ignored"])
    for step in range(steps):
        ids = torch.tensor([int(word) for word in task["tokens"][step]]).reshape(-1, context + 1)
        targets = ids[:, 1:].clone()
        targets[sequence, position:] = -1
        optimiser.zero_grad()
        loss = loss_of(weights, ids[:, :-1], targets, layers, heads)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(weights.values(), clip)
        optimiser.step()
        schedule.step()
        print("step", loss.item().hex(), norm.item().hex())


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1])
