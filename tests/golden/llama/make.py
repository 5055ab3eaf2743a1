#!/usr/bin/env python3
"""Makes the files beside it: tiny transformers.LlamaForCausalLM, their losses and gradients.

    $(tools/judges) tests/golden/llama/make.py      # made with transformers 5.24.0, torch 2.13.0

Weights and tokens come from core/rng.h (ported in ../gpt/make.py), so the test needs no weight file.
Computed in float64, but for the norms and rotary angles, which transformers keeps in fp32.
Lines of the output, one tensor a line:
    frequencies VALUE...          of the rotary pairs
    loss VALUE                    mean loss over the target tokens at the start
    gradient NAME VALUE...        of that loss, row-major, Hugging Face layout
    norm VALUE                    global 2-norm of those gradients
    losses VALUE...               of 20 AdamW steps on the same batch, clipped at norm 1
"""
import importlib.util
import math
import os

import torch
import torch.nn.functional as F
import transformers

FOLDER = os.path.dirname(os.path.abspath(__file__))
SPEC = importlib.util.spec_from_file_location("gpt", os.path.join(FOLDER, "../gpt/make.py"))
GPT = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(GPT)
V, T, B = 13, 16, 2

SHAPE = {"vocab_size": V, "num_hidden_layers": 2, "intermediate_size": 20,
         "max_position_embeddings": T, "hidden_act": "silu"}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 100.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
CASES = {
    # Four query heads share two key heads; together they are as wide as the stream.
    "tied": {"hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2,
             "tie_word_embeddings": True, "rms_norm_eps": 1e-6,
             "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
    # Heads wider than the stream, one key head for four, frequencies below, in and above the band.
    "scaled": {"hidden_size": 12, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 8,
               "tie_word_embeddings": False, "rms_norm_eps": 1e-2, "rope_parameters": LLAMA3},
}


def batch():
    rng = GPT.Rng("tokens", 7)
    ids = torch.tensor([int(rng.uniform() * V) for _ in range(B * (T + 1))]).reshape(B, T + 1)
    targets = ids[:, 1:].clone()
    targets[1, 9:] = -1
    return ids[:, :-1], targets


def model_of(case):
    config = transformers.LlamaConfig(**SHAPE, **case, attn_implementation="sdpa")
    model = transformers.LlamaForCausalLM(config).double()
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            rng = GPT.Rng(name, 7)
            values = [0.8 * rng.uniform() - 0.4 for _ in range(math.prod(tensor.shape))]
            fp32 = torch.tensor(values, dtype=torch.float32).reshape(tensor.shape)
            tensor.copy_((fp32 + 1 if "norm" in name else fp32).double())
    return model


def text(tensor):
    return " ".join(f"{v:.9g}" for v in tensor.reshape(-1).tolist())


def make(case, path):
    model = model_of(case)
    tokens, targets = batch()
    parameters = dict(model.named_parameters())
    optimizer = torch.optim.AdamW(
        [{"params": [t for t in parameters.values() if t.dim() >= 2], "weight_decay": 0.1},
         {"params": [t for t in parameters.values() if t.dim() < 2], "weight_decay": 0.0}],
        lr=0.01, betas=(0.9, 0.95), eps=1e-8)
    lines, losses = [f"frequencies {text(model.model.rotary_emb.inv_freq)}"], []
    for step in range(20):
        optimizer.zero_grad()
        logits = model(tokens).logits
        loss = F.cross_entropy(logits.reshape(-1, V), targets.reshape(-1), ignore_index=-1)
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            lines.append(f"loss {loss.item():.9g}")
            lines += [f"gradient {name} {text(t.grad)}" for name, t in parameters.items()]
        norm = torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0)
        if step == 0:
            lines.append(f"norm {norm.item():.9g}")
        optimizer.step()
    lines.append("losses " + " ".join(f"{v:.9g}" for v in losses))
    with open(path, "w") as out:
        out.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    for name, case in CASES.items():
        make(case, os.path.join(FOLDER, name + ".txt"))
