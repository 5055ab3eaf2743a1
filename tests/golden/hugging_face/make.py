#!/usr/bin/env python3
"""Makes the folders beside it: tiny models as transformers writes them (made with 5.24.0 and torch
2.13.0, see tests/judges/requirements.txt).

    $(tools/judges) tests/golden/hugging_face/make.py

    gpt2           GPT2LMHeadModel, tied, float32, config in the spelling of transformers 5
    gpt2-old       the same weights under keys without `transformer.`, with the mask buffers of old
                   files, and a config in the spelling of transformers 4
    llama          LlamaForCausalLM, untied, grouped keys and values, llama3 scaling, bfloat16, in
                   several shards
    llama-old      tied, float32, a config in the spelling of transformers 4 without head_dim
    gpt2.bin       the gpt2 as llm.c's train_gpt2.py writes it: version 3, padded vocabulary
    gpt2-bf16.bin  the same, version 5
Each folder has expected.txt: `tokens T...`, then `logits POSITION V...` of the first and the last
position, computed by transformers in float32.
"""
import json
import os
import shutil

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
GONE = object()
TOKENS = [3, 1, 4, 1, 5, 9, 2, 6]


def fresh(name):
    path = os.path.join(HERE, name)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    return path


def shaken(model):
    """Norms and biases too: ones and zeros would hide that they are mixed up."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float32)
            parameter.add_((0.3 * noise).to(parameter.dtype))
    return model.eval()


def expect(path):
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    with torch.no_grad():
        logits = model(torch.tensor([TOKENS])).logits[0]
    with open(os.path.join(path, "expected.txt"), "w") as out:
        print("tokens", *TOKENS, file=out)
        for position in (0, len(TOKENS) - 1):
            print("logits", position, *("%.9g" % v for v in logits[position]), file=out)


def edit_config(path, **changes):
    name = os.path.join(path, "config.json")
    with open(name) as file:
        config = json.load(file)
    for key, value in changes.items():
        if value is GONE:
            config.pop(key, None)
        else:
            config[key] = value
    with open(name, "w") as file:
        json.dump(config, file, indent=2, sort_keys=True)
        file.write("\n")


def gpt2():
    torch.manual_seed(1)
    config = GPT2Config(n_layer=2, n_embd=8, n_head=2, n_positions=8, vocab_size=11,
                        bos_token_id=10, eos_token_id=10, layer_norm_epsilon=1e-5)
    path = fresh("gpt2")
    model = shaken(GPT2LMHeadModel(config))
    model.save_pretrained(path)
    expect(path)

    old = fresh("gpt2-old")
    shutil.copy(os.path.join(path, "config.json"), old)
    shutil.copy(os.path.join(path, "expected.txt"), old)
    tensors = {key.removeprefix("transformer."): value
               for key, value in load_file(os.path.join(path, "model.safetensors")).items()}
    for layer in range(2):
        tensors[f"h.{layer}.attn.bias"] = torch.ones(8, 8).tril().view(1, 1, 8, 8)
        tensors[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(tensors, os.path.join(old, "model.safetensors"), {"format": "pt"})
    edit_config(old, dtype=GONE, torch_dtype="float32", n_ctx=8, transformers_version="4.40.0",
                architectures=["GPT2LMHeadModel"])
    for name, version, dtype in (("gpt2.bin", 3, torch.float32), ("gpt2-bf16.bin", 5, torch.bfloat16)):
        write_llmc(os.path.join(HERE, name), model, version, dtype)


def write_llmc(path, model, version, dtype):
    """As llm.c/train_gpt2.py does it, where matrices are nn.Linear's [out, in]."""
    config = model.config
    own = dict(model.named_parameters())
    padded = -(-config.vocab_size // 128) * 128
    header = np.zeros(256, dtype="<i4")
    header[:8] = [20240326, version, config.n_positions, config.vocab_size, config.n_layer,
                  config.n_head, config.n_embd, padded]
    wte = own["transformer.wte.weight"].detach()
    tensors = [torch.cat([wte, torch.zeros(padded - config.vocab_size, config.n_embd)]),
               own["transformer.wpe.weight"].detach()]
    for name in ("ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias",
                 "attn.c_proj.weight", "attn.c_proj.bias", "ln_2.weight", "ln_2.bias",
                 "mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight", "mlp.c_proj.bias"):
        for layer in range(config.n_layer):
            tensor = own[f"transformer.h.{layer}.{name}"].detach()
            tensors.append(tensor.t() if tensor.dim() == 2 else tensor)
    tensors += [own["transformer.ln_f.weight"].detach(), own["transformer.ln_f.bias"].detach()]
    with open(path, "wb") as out:
        out.write(header.tobytes())
        for tensor in tensors:
            tensor = tensor.contiguous().to(dtype)
            out.write(tensor.view(torch.int16 if dtype == torch.bfloat16 else torch.int32)
                      .numpy().tobytes())


def llama():
    torch.manual_seed(2)
    shape = dict(num_hidden_layers=2, hidden_size=8, num_attention_heads=4, num_key_value_heads=2,
                 intermediate_size=12, vocab_size=11, bos_token_id=9, eos_token_id=10)
    rope = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8}
    config = LlamaConfig(head_dim=4, rms_norm_eps=1e-5, max_position_embeddings=16,
                         rope_parameters=rope, **shape)
    path = fresh("llama")
    model = shaken(LlamaForCausalLM(config).to(torch.bfloat16))
    model.save_pretrained(path, max_shard_size=1200)
    expect(path)

    config = LlamaConfig(rms_norm_eps=1e-6, max_position_embeddings=8, tie_word_embeddings=True,
                         rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, **shape)
    path = fresh("llama-old")
    model = shaken(LlamaForCausalLM(config))
    model.save_pretrained(path)
    expect(path)
    edit_config(path, dtype=GONE, torch_dtype="float32", rope_parameters=GONE, rope_theta=10000.0,
                rope_scaling=None, transformers_version="4.40.0", head_dim=GONE)

gpt2()
llama()
