#!/usr/bin/env python3
"""Does longhaul continue a text as transformers does, draw from the same tokens, and judge a model alike?

    $(tools/judges) tests/judges/generate_judge.py BINARY FOLDER SHAPE

SHAPE is a key of SHAPES, of which transformers creates a model and saves it to FOLDER; or `trained`, a model
that longhaul trains for 12 steps and that transformers loads from its export. Then
  - greedy tokens equal those of transformers.generate, up to the end of the context,
  - of the first token, what temperature, top-k and top-p leave is what transformers' filters leave,
  - `eval` has the loss that torch computes on the same windows, within 1e-5.
Prints what was compared; exit status 1 and the first difference if there is one.
"""
import json
import math
import pathlib
import sys

import torch
import transformers

import tiny_run
from tiny_run import fail, longhaul

CONTEXT = 48
SHAPES = {
    "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_embd=48, n_layer=3, n_head=4, n_positions=CONTEXT, vocab_size=256, initializer_range=0.2,
        bos_token_id=None, eos_token_id=None)),
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(
        hidden_size=48, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=256, max_position_embeddings=CONTEXT, initializer_range=0.2, bos_token_id=None, eos_token_id=None)),
}
FILTERS = [  # temperature, top-k, top-p
    (1.0, 5, 1.0),
    (1.0, 0, 0.5),
    (0.6, 0, 0.9),
    (1.3, 20, 0.7),
]
SAMPLES = 600


def ours(binary, folder, prompt, *options):
    return json.loads(longhaul(binary, folder, "generate", "model", "--tokenizer", "bytes", "--prompt", prompt, "--json", *options))


def check_greedy(binary, folder, model):
    count, context = 0, model.config.max_position_embeddings
    for prompt in ("a", "In the begin", "x" * (context - 3), "\u00e9\u00e8 ok"):
        tokens = torch.tensor([list(prompt.encode())])
        more = context - tokens.shape[1]
        theirs = model.generate(tokens, attention_mask=torch.ones_like(tokens), do_sample=False, max_new_tokens=more,
                                min_new_tokens=more, pad_token_id=0)[0].tolist()
        got = ours(binary, folder, prompt, "--tokens", str(more))["tokens"]
        if got != theirs:
            at = next(i for i, pair in enumerate(zip(got, theirs)) if pair[0] != pair[1])
            fail(f"`{prompt}`: token {at} is {got[at]} here, {theirs[at]} there")
        count += more
    return count


def check_filters(binary, folder, model):
    prompt = "Once"
    tokens = torch.tensor([list(prompt.encode())])
    logits = model(tokens).logits[:, -1]
    for temperature, top_k, top_p in FILTERS:
        filters = transformers.LogitsProcessorList([transformers.TemperatureLogitsWarper(temperature)])
        if top_k > 0:
            filters.append(transformers.TopKLogitsWarper(top_k))
        if top_p < 1:
            filters.append(transformers.TopPLogitsWarper(top_p))
        probabilities = torch.softmax(filters(tokens, logits)[0], dim=-1)
        document = ours(binary, folder, prompt, "--tokens", "1", "--samples", str(SAMPLES), "--temperature", str(temperature),
                        "--top-k", str(top_k), "--top-p", str(top_p))
        counts = [0] * 256
        for sample in document["samples"]:
            counts[sample["tokens"][-1]] += 1
        for token in range(256):
            p = probabilities[token].item()
            # A count is off by more than 5 standard deviations once in a million draws or so.
            if abs(counts[token] - SAMPLES * p) > 5 * math.sqrt(SAMPLES * p * (1 - p)) + (1 if p > 0 else 0):
                fail(f"{temperature}, {top_k}, {top_p}: token {token} was drawn {counts[token]} times of {SAMPLES}, "
                     f"its probability is {p}")


def check_eval(binary, folder, model):
    context = model.config.max_position_embeddings
    text = "".join(f"{i} squared is {i * i}. " for i in range(200))
    (folder / "judged.txt").write_text(text)
    longhaul(binary, folder, "data", "prepare", "judged.txt", "-o", "judged")
    got = json.loads(longhaul(binary, folder, "eval", "model", "--data", "judged", "--json"))
    shard = next((folder / "judged").glob("val_*.bin")).read_bytes()[1024:]
    tokens = torch.frombuffer(bytearray(shard), dtype=torch.uint16).to(torch.int64)
    count = (len(tokens) - 1) // context
    windows = torch.stack([tokens[i * context:i * context + context + 1] for i in range(count)])
    loss = torch.nn.functional.cross_entropy(model(windows[:, :-1]).logits.flatten(0, 1).double(), windows[:, 1:].flatten()).item()
    if got["sequences"] != count or abs(got["loss"] - loss) > 1e-5:
        fail(f"eval: {got['loss']} on {got['sequences']} sequences here, {loss} on {count} there")
    if abs(got["bits_per_byte"] - loss / math.log(2)) > 1e-5:
        fail(f"eval: {got['bits_per_byte']} bits a byte")
    return abs(got["loss"] - loss)


def trained(binary, folder):
    tiny_run.prepare(binary, folder, steps=12)
    longhaul(binary, folder, "launch", "plan.yaml", "--local", "--name", "run")
    longhaul(binary, folder, "model", "export", "runs/run", "--to", "hugging-face", "--out", "model")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None
    return model


def main():
    binary, folder, shape = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(7)
    with torch.no_grad():
        if shape == "trained":
            model = trained(binary, folder)
        else:
            model = SHAPES[shape]().eval()
            model.save_pretrained(folder / "model")
        count = check_greedy(binary, folder, model)
        check_filters(binary, folder, model)
        difference = check_eval(binary, folder, model)
    print(f"{shape}: {count} greedy tokens are equal, {len(FILTERS)} sets of filters leave the same, eval differs by {difference:.1e}")


main()
