#!/usr/bin/env python3
"""Speed of Hugging Face's tokenizers, for tools/bench data: seconds of one encode_batch.

    python tokenizer_speed.py TOKENIZER.json TEXT RUNS

TEXT is cut into documents of about 10 kB at line breaks. One thread, the fastest of RUNS.
"""
import os
import sys
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
import tokenizers  # noqa: E402  (the library reads the variables when it is loaded)

path, text, runs = sys.argv[1], open(sys.argv[2], encoding="utf-8").read(), int(sys.argv[3])
documents, start = [], 0
while start < len(text):
    end = text.find("\n", start + 10_000) + 1 or len(text)
    documents.append(text[start:end])
    start = end
tokenizer = tokenizers.Tokenizer.from_file(path)
best, tokens = float("inf"), 0
for _ in range(runs):
    begin = time.process_time()
    tokens = sum(len(one.ids) for one in tokenizer.encode_batch(documents, add_special_tokens=False))
    best = min(best, time.process_time() - begin)
print(best, tokens, tokenizers.__version__)
