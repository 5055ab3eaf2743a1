"""A training step of a GPT-2 or Llama shape in plain PyTorch on the CPU, in each setting that is said
to be fast. The peer of tools/bench compute, which runs it:

    compute_torch.py FAMILY LAYERS WIDTH HEADS KV_HEADS INNER CONTEXT VOCABULARY SEQUENCES THREADS
                     STEPS SETTING...

A SETTING is PRECISION-MODE. Precision: fp32; autocast (bf16 under torch.autocast); pure (weights, sums and
AdamW's moments bf16); medium (fp32 whose products oneDNN may round to bf16). Mode: eager or compile.
Prints a line a setting: its name, CPU seconds of all threads and wall seconds of a step (medians after one
step to warm up), and the last loss; or its name, "failed" and why.
"""

import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self, llama, width, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.sizes = [width, kv_heads * self.size, kv_heads * self.size]
        self.qkv = nn.Linear(width, sum(self.sizes), bias=not llama)
        self.out = nn.Linear(width, width, bias=not llama)

    def forward(self, x, rotation):
        sequences, context, width = x.shape
        q, k, v = (
            part.view(sequences, context, -1, self.size).transpose(1, 2)
            for part in self.qkv(x).split(self.sizes, dim=2)
        )
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)
        if self.kv_heads != self.heads:
            k = k.repeat_interleave(self.heads // self.kv_heads, dim=1)
            v = v.repeat_interleave(self.heads // self.kv_heads, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(sequences, context, width))


def rotate(x, rotation):
    cosine, sine = (part.to(x.dtype) for part in rotation)
    low, high = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-high, low), dim=-1) * sine


class Gpt2Mlp(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class LlamaMlp(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    def __init__(self, llama, width, heads, kv_heads, inner):
        super().__init__()
        norm = nn.RMSNorm if llama else nn.LayerNorm
        self.norm1, self.norm2 = norm(width, eps=1e-5), norm(width, eps=1e-5)
        self.attention = Attention(llama, width, heads, kv_heads)
        self.mlp = LlamaMlp(width, inner) if llama else Gpt2Mlp(width, inner)

    def forward(self, x, rotation):
        x = x + self.attention(self.norm1(x), rotation)
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    """With a tied head."""

    def __init__(self, llama, layers, width, heads, kv_heads, inner, context, vocabulary):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = None if llama else nn.Embedding(context, width)
        self.layers = nn.ModuleList(Layer(llama, width, heads, kv_heads, inner) for _ in range(layers))
        self.norm = (nn.RMSNorm if llama else nn.LayerNorm)(width, eps=1e-5)
        self.rotation = None
        if llama:
            size = width // heads
            angles = torch.outer(torch.arange(context), 10000.0 ** (-torch.arange(0, size, 2) / size))
            angles = torch.cat((angles, angles), dim=1)
            self.rotation = (angles.cos(), angles.sin())
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.02)

    def forward(self, tokens, targets):
        x = self.tokens(tokens)
        if self.positions is not None:
            x = x + self.positions.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x, self.rotation)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def measure(setting, family, sizes, sequences, steps):
    precision, mode = setting.split("-")
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("medium" if precision == "medium" else "highest")
    model = Model(family == "llama", *sizes)
    if precision == "pure":
        model = model.to(torch.bfloat16)
    context, vocabulary = sizes[-2:]
    run = torch.compile(model) if mode == "compile" else model
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    tokens = torch.randint(vocabulary, (sequences, context + 1))
    cpu, wall = [], []
    for _ in range(steps + 1):
        cpu_start, wall_start = time.process_time(), time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "autocast"):
            loss = run(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        cpu.append(time.process_time() - cpu_start)
        wall.append(time.perf_counter() - wall_start)
    return statistics.median(cpu[1:]), statistics.median(wall[1:]), loss.item()


def main():
    family = sys.argv[1]
    *sizes, sequences, threads, steps = map(int, sys.argv[2:12])
    torch.set_num_threads(threads)
    for setting in sys.argv[12:]:
        try:
            cpu, wall, loss = measure(setting, family, sizes, sequences, steps)
            print(f"{setting} {cpu:.6f} {wall:.6f} {loss:.6f}", flush=True)
        except Exception as error:  # a setting may need a compiler that is not here
            print(f"{setting} failed {type(error).__name__}: {str(error)[:200]!r}", flush=True)


main()
