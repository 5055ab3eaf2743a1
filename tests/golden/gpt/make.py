#!/usr/bin/env python3
"""Makes tied.txt and untied.txt: a tiny GPT-2 in PyTorch, float64. Needs torch (made with 2.13.0).

    python3 tests/golden/gpt/make.py          # writes beside itself

Weights and tokens come from core/rng.h, ported below, so the test needs no weight file.
Lines of the output, one tensor a line:
    loss VALUE                    mean loss over the target tokens at the start
    gradient NAME VALUE...        of that loss, row-major, Hugging Face layout
    norm VALUE                    global 2-norm of those gradients
    losses VALUE...               of 20 AdamW steps on the same batch, clipped at norm 1
"""
import math
import os

import torch
import torch.nn.functional as F

MASK = (1 << 64) - 1
V, T, C, H, L, B = 13, 8, 12, 3, 2, 3


class Rng:
    """core/rng.h: xoshiro256**, seeded through splitmix64 from FNV-1a of the name."""

    def __init__(self, name, seed):
        state = 0xCBF29CE484222325
        for byte in name.encode():
            state = ((state ^ byte) * 0x100000001B3) & MASK
        state ^= (seed * 0x9E3779B97F4A7C15) & MASK
        self.s = []
        for _ in range(4):
            state = (state + 0x9E3779B97F4A7C15) & MASK
            z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
            z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
            self.s.append(z ^ (z >> 31))

    @staticmethod
    def rotl(x, k):
        return ((x << k) | (x >> (64 - k))) & MASK

    def next(self):
        s = self.s
        result = (self.rotl((s[1] * 5) & MASK, 7) * 9) & MASK
        t = (s[1] << 17) & MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = self.rotl(s[3], 45)
        return result

    def uniform(self):
        return (self.next() >> 11) * 2.0**-53


def parameters(tied):
    shapes = {"wte.weight": (V, C), "wpe.weight": (T, C)}
    for i in range(L):
        for name, shape in {
            "ln_1": (C,), "attn.c_attn": (C, 3 * C), "attn.c_proj": (C, C),
            "ln_2": (C,), "mlp.c_fc": (C, 4 * C), "mlp.c_proj": (4 * C, C),
        }.items():
            shapes[f"h.{i}.{name}.weight"] = shape
            shapes[f"h.{i}.{name}.bias"] = shape[-1:]
    shapes["ln_f.weight"] = shapes["ln_f.bias"] = (C,)
    if not tied:
        shapes["lm_head.weight"] = (V, C)
    result = {}
    for name, shape in shapes.items():
        rng = Rng(name, 7)
        values = [0.4 * rng.uniform() - 0.2 for _ in range(math.prod(shape))]
        tensor = torch.tensor(values, dtype=torch.float32).double().reshape(shape)
        if ".ln_" in "." + name and name.endswith("weight"):
            tensor = (tensor.float() + 1).double()
        result[name] = tensor.requires_grad_()
    return result


def batch():
    rng = Rng("tokens", 7)
    ids = [int(rng.uniform() * V) for _ in range(B * (T + 1))]
    ids = torch.tensor(ids).reshape(B, T + 1)
    targets = ids[:, 1:].clone()
    targets[2, 3:] = -1
    return ids[:, :-1], targets


def loss_of(p, tokens, targets):
    x = p["wte.weight"][tokens] + p["wpe.weight"]

    def norm(x, name):
        return F.layer_norm(x, (C,), p[name + ".weight"], p[name + ".bias"], 1e-5)

    def linear(x, name):
        return x @ p[name + ".weight"] + p[name + ".bias"]

    for i in range(L):
        h = f"h.{i}."
        q, k, v = (t.reshape(B, T, H, C // H).transpose(1, 2)
                   for t in linear(norm(x, h + "ln_1"), h + "attn.c_attn").split(C, dim=2))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + linear(a.transpose(1, 2).reshape(B, T, C), h + "attn.c_proj")
        inner = F.gelu(linear(norm(x, h + "ln_2"), h + "mlp.c_fc"), approximate="tanh")
        x = x + linear(inner, h + "mlp.c_proj")
    logits = norm(x, "ln_f") @ p.get("lm_head.weight", p["wte.weight"]).T
    return F.cross_entropy(logits.reshape(-1, V), targets.reshape(-1), ignore_index=-1)


def text(tensor):
    return " ".join(f"{v:.9g}" for v in tensor.reshape(-1).tolist())


def make(tied, path):
    p = parameters(tied)
    tokens, targets = batch()
    optimizer = torch.optim.AdamW(
        [{"params": [t for t in p.values() if t.dim() >= 2], "weight_decay": 0.1},
         {"params": [t for t in p.values() if t.dim() < 2], "weight_decay": 0.0}],
        lr=0.01, betas=(0.9, 0.95), eps=1e-8)
    lines, losses = [], []
    for step in range(20):
        optimizer.zero_grad()
        loss = loss_of(p, tokens, targets)
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            lines.append(f"loss {loss.item():.9g}")
            lines += [f"gradient {name} {text(t.grad)}" for name, t in p.items()]
        norm = torch.nn.utils.clip_grad_norm_(p.values(), 1.0)
        if step == 0:
            lines.append(f"norm {norm.item():.9g}")
        optimizer.step()
    lines.append("losses " + " ".join(f"{v:.9g}" for v in losses))
    with open(path, "w") as out:
        out.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    folder = os.path.dirname(os.path.abspath(__file__))
    make(True, os.path.join(folder, "tied.txt"))
    make(False, os.path.join(folder, "untied.txt"))
