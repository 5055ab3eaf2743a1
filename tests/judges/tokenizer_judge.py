#!/usr/bin/env python3
"""Compares longhaul's tokenizers with Hugging Face's library, id by id.

    $(tools/judges) tests/judges/tokenizer_judge.py [LONGHAUL FOLDER] [--megabytes 10] [--seed 1]
    $(tools/judges) tests/judges/tokenizer_judge.py --goldens   # writes tests/golden/tokenizers

Makes text of many kinds by a seed (this project's files, the demo's Bible where it is, words and
characters of all of Unicode, emoji, white space, control characters, numbers, text that was broken
in the middle of characters and read with replacement characters), trains tokenizers on a part of
it with the library itself, and lets both encode it: the library's `encode_batch` without special
tokens, and `longhaul data prepare` from JSON lines. Broken UTF-8 itself cannot be given to the
library; for longhaul's own promise there, decoding what was encoded, see data_tokenizer_test.cc.

Exit status: 0 all ids are equal, 1 not.
"""
import argparse
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers import trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
END = "<|endoftext|>"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def characters(random_, count, low=0, high=0x110000):
    """Code points that were assigned in Python's version of Unicode, in runs of one place."""
    out = []
    while len(out) < count:
        start = random_.randrange(low, high)
        for code in range(start, min(start + random_.randrange(1, 12), 0x110000)):
            if not 0xD800 <= code < 0xE000 and unicodedata.category(chr(code)) not in ("Cn", "Co"):
                out.append(chr(code))
    return "".join(out)


def documents(seed, size):
    """Texts of `size` bytes together, none too long for one line."""
    r = random.Random(seed)
    texts = [path.read_text(errors="replace") for folder in ("core", "kernels", "docs", "tests/golden")
             for path in sorted((ROOT / folder).rglob("*"))
             if path.suffix in (".cc", ".h", ".md", ".yaml", ".py", ".csv", ".json")]
    bible = ROOT / "build/demo/bible.txt"
    if bible.exists():
        texts.append(bible.read_text())
    spaces = " \t\n\r\v\f\u00a0\u1680\u2003\u2028\u2029\u202f\u205f\u3000\u0085\u180e\u200b\ufeff"
    emoji = ["🙂", "👩\u200d👩\u200d👧", "🇳🇿", "👍🏽", "❤\ufe0f", "1\ufe0f\u20e3", "🏴\U000e0067\U000e0062\U000e007f"]
    contractions = ["'s", "'T", "'rE", "'VE", "'m", "'lL", "'D", "'ſ", "'x", "''s", "’s", "'"]

    def prose():
        text = r.choice(texts)
        start = r.randrange(max(1, len(text)))
        return text[start:start + r.randrange(20, 3000)]

    def scripts():
        blocks = [(0x20, 0x250), (0x370, 0x600), (0x600, 0x900), (0x900, 0x1200), (0x1780, 0x2000),
                  (0x2000, 0x2c00), (0x3040, 0x3400), (0x4e00, 0x9fff), (0xac00, 0xd7a4),
                  (0xf900, 0x10000), (0x10000, 0x11000), (0x1d400, 0x1f000), (0x1f300, 0x1fb00),
                  (0x20000, 0x2a000), (0, 0x110000)]
        return " ".join(characters(r, r.randrange(1, 9), *r.choice(blocks))
                        for _ in range(r.randrange(1, 60)))

    def odd():
        parts = []
        for _ in range(r.randrange(1, 80)):
            parts.append(r.choice([
                lambda: r.choice(contractions), lambda: r.choice(emoji),
                lambda: "".join(r.choice(spaces) for _ in range(r.randrange(1, 7))),
                lambda: " " * r.randrange(1, 40), lambda: "\n" * r.randrange(1, 5),
                lambda: str(r.randrange(10 ** r.randrange(1, 15))),
                lambda: r.choice(["½", "²³", "Ⅷ", "٣٤٥٦", "१२३", "㉈", "𝟘𝟙𝟚𝟛"]),
                lambda: "".join(chr(r.randrange(0x20)) for _ in range(r.randrange(1, 4))),
                lambda: "".join(r.choice("!?.,;:-_/\\#$%&*()[]{}<>|~^`\"@+=") for _ in range(r.randrange(1, 9))),
                lambda: "".join(r.choice("aàeéoö") + r.choice(["", "\u0301", "\u0323\u0307", "\u0307\u0323"])
                                for _ in range(r.randrange(1, 9))),
                lambda: "".join(r.choice("ᄀᄂ가각ᅡᅵᆨᆼ") for _ in range(r.randrange(1, 6))),
                lambda: r.choice([END, "<|endoftext", "<|pad|>", "<|pad|>x", " <|pad|> "]),
                lambda: r.choice(["the", "The", "THE", "naïve", "日本語", "한국어", "Ελληνικά", "ǅ", "ŉ", "ﬆ"]),
            ])())
        return "".join(parts)

    def broken():
        raw = bytearray(prose().encode() + scripts().encode())
        for _ in range(r.randrange(1, 20)):
            raw[r.randrange(len(raw))] = r.randrange(256)
        return bytes(raw).decode(errors="replace")

    def long_runs():
        return (r.choice(["a", "ab", "日", " ", "\n", "-", "7", "\u0301", "🙂", "é "]) *
                r.randrange(1000, 20000))[:20000]

    kinds = [prose] * 12 + [scripts] * 6 + [odd] * 6 + [broken] * 3
    out, total = [], 0
    while total < size:
        text = long_runs() if r.random() < 0.003 else r.choice(kinds)()
        total += len(text.encode())
        out.append(text)
    return out


def gpt2():
    """From OpenAI's two tables; None where tools/setup could not fetch them."""
    tables = ROOT / "build/gpt2"
    if not (tables / "encoder.json").exists():
        return None
    vocabulary = json.loads((tables / "encoder.json").read_text())
    lines = (tables / "vocab.bpe").read_text().split("\n")[1:]
    tokenizer = Tokenizer(models.BPE(vocabulary, [tuple(line.split()) for line in lines if line]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([END])
    return tokenizer


def trained(texts, size, pre_tokenizer, normalizer=None):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, special_tokens=[END], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.add_special_tokens(["<|pad|>"])
    # Not special: looked for behind the normaliser.
    tokenizer.add_tokens([AddedToken("  ", normalized=True), AddedToken("the\u0301", normalized=True)])
    return tokenizer


def split(expression, behavior="isolated", invert=False):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(expression), behavior, invert),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def tokenizers(texts, size):
    digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                      pre_tokenizers.ByteLevel(add_prefix_space=False)])
    # As DeepSeek's: three expressions, each inside the pieces of the one before.
    three = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"),
        pre_tokenizers.Split(Regex("[一-龥\u3040-ゟ゠-ヿ]+"), "isolated"),
        pre_tokenizers.Split(Regex(r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
                                   r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
                                   r"|\s*[\r\n]+|\s+(?!\S)|\s+"), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return {
        "gpt2": gpt2(),
        "llama3": trained(texts, size, split(LLAMA3)),
        "qwen2": trained(texts, size, split(QWEN2), normalizers.NFC()),
        "gpt4o": trained(texts, size, split(GPT4O, "removed", True)),
        "digits": trained(texts, size, digits),
        "three": trained(texts, size, three),
        "prefix": trained(texts, size, pre_tokenizers.ByteLevel(add_prefix_space=True)),
    }


def variants(name, text):
    """The file as the library writes it (merges as pairs), and as other versions wrote it."""
    yield name, text
    document = json.loads(text)
    if name == "llama3":
        document["model"]["ignore_merges"] = True
        yield name + ", ignore_merges", json.dumps(document)
        document["model"]["ignore_merges"] = False
        # As Llama 3's own: all ways to make a token, not only the one that was learned.
        vocabulary = document["model"]["vocab"]
        document["model"]["merges"] = [
            [token[:cut], token[cut:]] for token, _ in sorted(vocabulary.items(), key=lambda i: i[1])
            for cut in range(1, len(token)) if token[:cut] in vocabulary and token[cut:] in vocabulary]
        yield name + ", all merges", json.dumps(document)
    if name == "gpt2":
        document["model"]["merges"] = [
            merge if isinstance(merge, str) else " ".join(merge) for merge in document["model"]["merges"]]
        yield name + ", merges as texts", json.dumps(document)


def ids_of(folder):
    """Ids of the training part, which is all of it."""
    ids = []
    for path in sorted(folder.glob("train_*.bin")):
        raw = path.read_bytes()
        magic, _, count = struct.unpack("<3i", raw[:12])
        ids += struct.unpack(f"<{count}{'H' if magic == 20240520 else 'I'}", raw[1024:])
    return ids


def compare(name, text, lines, texts, binary, work):
    (work / "tokenizer.json").write_text(text)
    theirs = Tokenizer.from_file(str(work / "tokenizer.json"))
    end = theirs.token_to_id(END)
    out = work / name
    subprocess.run([binary, "data", "prepare", lines, "--validation", "0", "-o", out, "--tokenizer",
                    work / "tokenizer.json", "--shard-tokens", "1000003"],
                   check=True, capture_output=True)
    ours = ids_of(out)
    at = 0
    for number, encoding in enumerate(theirs.encode_batch(texts, add_special_tokens=False)):
        wanted = [end] + encoding.ids if texts[number] else []
        if ours[at:at + len(wanted)] != wanted:
            got = ours[at:at + len(wanted)]
            first = next((i for i, pair in enumerate(zip(wanted, got)) if pair[0] != pair[1]), len(got))
            print(f"{name}: document {number} differs at token {first}: "
                  f"{wanted[first:first + 8]} ({theirs.decode(wanted[max(0, first - 3):first + 8], skip_special_tokens=False)!r}), "
                  f"longhaul {got[first:first + 8]}")
            return False
        at += len(wanted)
    if at != len(ours):
        print(f"{name}: {len(ours) - at} tokens too many")
        return False
    print(f"{name}: {at} ids are equal")
    return True


def write_goldens():
    """Small ones: tokenizers of a thousand tokens, and the ids of a few kilobytes."""
    folder = ROOT / "tests/golden/tokenizers"
    folder.mkdir(parents=True, exist_ok=True)
    texts = documents(7, 300_000)
    cases = documents(8, 6_000)
    for name, tokenizer in tokenizers(texts, 700).items():
        if name == "gpt2":
            continue
        (folder / f"{name}.json").write_text(tokenizer.to_str() + "\n")
        loaded = Tokenizer.from_file(str(folder / f"{name}.json"))
        ids = [loaded.encode(text, add_special_tokens=False).ids for text in cases]
        (folder / f"{name}.ids.json").write_text(
            "[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in ids) + "\n]\n")
    (folder / "texts.json").write_text(
        "[\n" + ",\n".join(json.dumps(text) for text in cases) + "\n]\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("binary", nargs="?", default=ROOT / "build/release/tools/longhaul")
    parser.add_argument("folder", nargs="?", help="an empty one, to work in")
    parser.add_argument("--only", default="")
    parser.add_argument("--goldens", action="store_true")
    arguments = parser.parse_args()
    if arguments.goldens:
        write_goldens()
        return 0
    texts = documents(arguments.seed, int(arguments.megabytes * 1e6))
    good = True
    with tempfile.TemporaryDirectory(dir=arguments.folder) as scratch:
        work = pathlib.Path(scratch)
        lines = work / "text.jsonl"
        lines.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        for name, tokenizer in tokenizers(texts[::4], 8000).items():
            if tokenizer is None:
                print("gpt2: skipped, its tables are not in build/gpt2")
                continue
            for variant, text in variants(name, tokenizer.to_str()):
                if arguments.only in variant:
                    good = compare(variant, text, lines, texts, arguments.binary, work) and good
    return 0 if good else 1


sys.exit(main())
