#!/usr/bin/env python3
"""Whether transformers reads what `longhaul model` writes, without a warning, as the same model.

    $(tools/judges) tests/judges/hugging_face.py LONGHAUL FOLDER [MODEL...]

LONGHAUL is the binary, FOLDER an empty folder to work in. Each golden model gets a tokenizer, goes
through `model export` (whole, in shards, by way of `model import`) and through llm.c's format and
back; config, tokenizer, types and logits must be those of the source, and nothing may be warned of.
Each MODEL is a folder that longhaul has written, which must load and compute finite logits. Prints a
line a check; the exit status is 1 where one fails.
"""
import logging
import os
import shutil
import subprocess
import sys
import warnings

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "hugging_face")
TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])


class Listener(logging.Handler):
    """Remembers what is logged as a warning or worse."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.heard = []

    def emit(self, record):
        self.heard.append(record.getMessage())


LISTENER = Listener()
transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.get_logger().addHandler(LISTENER)
transformers.utils.logging.set_verbosity_warning()
warnings.simplefilter("error")


def load(folder, ours=True, **options):
    LISTENER.heard.clear()
    model = AutoModelForCausalLM.from_pretrained(folder, **options)
    if LISTENER.heard and ours:  # what others have written may have buffers of old versions
        raise AssertionError("warned: " + "; ".join(LISTENER.heard))
    return model


def logits_of(folder, ours=True):
    with torch.no_grad():
        return load(folder, ours, dtype=torch.float32)(TOKENS).logits


def config_of(folder):
    config = AutoConfig.from_pretrained(folder).to_dict()
    for name in ("_name_or_path", "transformers_version", "n_ctx"):
        config.pop(name, None)
    return config


def with_tokenizer(source, folder):
    shutil.copytree(source, folder)
    words = {word: i for i, word in enumerate("abcdefghij")} | {"<end>": 10}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>",
                            chat_template="{{ messages }}").save_pretrained(folder)
    return folder


class Judge:
    def __init__(self, longhaul, folder):
        self.longhaul, self.folder, self.failed = longhaul, folder, False

    def model(self, *arguments):
        done = subprocess.run([self.longhaul, "model", *arguments], capture_output=True, text=True)
        if done.returncode != 0:
            raise AssertionError(done.stderr)

    def check(self, name, test):
        try:
            test()
            print(f"ok      {name}")
        except Exception as error:  # whatever it is, it fails this check alone
            self.failed = True
            print(f"FAILED  {name}: {type(error).__name__}: {error}")

    def path(self, *parts):
        return os.path.join(self.folder, "-".join(parts))

    def same(self, source, copy, tokenizer=True):
        assert torch.equal(logits_of(source, False), logits_of(copy)), "other logits"
        assert config_of(source) == config_of(copy), f"{config_of(source)}\n{config_of(copy)}"
        assert load(copy).dtype == load(source, False).dtype, f"{load(copy).dtype}"
        if tokenizer:
            ours, theirs = (AutoTokenizer.from_pretrained(at) for at in (copy, source))
            assert ours("a c <end>").input_ids == theirs("a c <end>").input_ids == [0, 2, 10]
            assert ours.eos_token_id == 10 and ours.chat_template == theirs.chat_template

    def export(self, source, copy, *options):
        self.model("export", source, "--to", "hugging-face", "--out", copy, *options)

    def judge_golden(self, name):
        source = with_tokenizer(os.path.join(GOLDEN, name), self.path(name))

        def whole():
            self.export(source, self.path(name, "whole"))
            self.same(source, self.path(name, "whole"))

        def shards():
            self.export(source, self.path(name, "shards"), "--shard-size", "1 kB")
            assert os.path.exists(self.path(name, "shards") + "/model.safetensors.index.json")
            self.same(source, self.path(name, "shards"))

        def imported():
            self.model("import", source, "--out", self.path(name, "checkpoint"))
            self.export(self.path(name, "checkpoint"), self.path(name, "again"))
            self.same(source, self.path(name, "again"))

        def without_config():
            self.model("import", source, "--out", self.path(name, "bare"))
            shutil.rmtree(self.path(name, "bare") + "/model-files")
            self.export(self.path(name, "bare"), self.path(name, "made"))
            assert torch.equal(logits_of(source, False), logits_of(self.path(name, "made")))

        for test in (whole, shards, imported, without_config):
            self.check(f"{name}: {test.__name__}", test)

    def judge_llmc(self, name, source):
        def export():
            self.export(os.path.join(GOLDEN, name), self.path(name, "folder"))
            ours, theirs = logits_of(self.path(name, "folder")), logits_of(source, False)
            if "bf16" in name:  # eight bits of each weight are kept
                assert torch.allclose(ours, theirs, rtol=0.1, atol=0.1), ours - theirs
            else:
                assert torch.equal(ours, theirs)

        self.check(f"{name}: export", export)

    def judge_model(self, folder):
        self.check(folder, lambda: self.finite(folder))

    def finite(self, folder):
        assert torch.isfinite(logits_of(folder)).all()


def main():
    judge = Judge(sys.argv[1], sys.argv[2])
    os.makedirs(sys.argv[2], exist_ok=True)
    for name in ("gpt2", "gpt2-old", "llama", "llama-old"):
        judge.judge_golden(name)
    for name in ("gpt2.bin", "gpt2-bf16.bin"):
        judge.judge_llmc(name, judge.path("gpt2"))
    for folder in sys.argv[3:]:
        judge.judge_model(folder)
    sys.exit(1 if judge.failed else 0)


main()
