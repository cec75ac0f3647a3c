"""Holds our tokenizer against PyPI `tokenizers` on random strings, both built from one GGUF file's vocabulary.

tests/e2e_chat_templates_test.py runs it on the default model. By hand, on others:
    pip install tokenizers gguf
    ninja -C build tokenize_dump
    python3 engine/text/testing/compare_with_tokenizers.py build/tests/tokenize_dump MODEL.gguf [--strings 6000] [--seed 1]

The exit status is 0 if all ids and all decoded texts are equal. Characters that Python's Unicode tables don't know are
left out: the two sides' tables may be of different age.
"""
import argparse
import json
import random
import subprocess
import sys
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence, Split

CONTROL, USER_DEFINED = 3, 4

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")


def splits(*patterns):
    return Sequence([Split(Regex(p), "isolated") for p in patterns] + [ByteLevel(add_prefix_space=False, use_regex=False)])


PRE_TOKENIZERS = {
    "gpt-2": ByteLevel(add_prefix_space=False),
    "smollm": Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]),
    "llama-bpe": splits(LLAMA3),
    "qwen2": splits(LLAMA3.replace("{1,3}", "")),
    "deepseek-v3": splits(
        r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"""
        r""" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""),
}


def reference(fields):
    tokens, types = fields("tokens"), fields("token_type")
    merges = [tuple(merge.split(" ")) for merge in fields("merges")]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges,
                                     ignore_merges=fields("pre") == "llama-bpe"))
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[fields("pre")]
    tokenizer.decoder = decoders.ByteLevel()
    special = [t for t, kind in zip(tokens, types) if kind == CONTROL]
    user_defined = [t for t, kind in zip(tokens, types) if kind == USER_DEFINED]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in user_defined])
    return tokenizer, special + user_defined


class RandomStrings:
    """Strings that mix what tokenizers stumble over."""

    def __init__(self, seed, names):
        self.random = random.Random(seed)
        known = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
        self.known = known
        self.low = [c for c in known if ord(c) < 0x3000]
        self.spaces = [c for c in known if unicodedata.category(c)[0] == "Z"] + list("\t\n\r\v\f\x1c\x1f\x85\u180e\u200b")
        self.numbers = [c for c in known if unicodedata.category(c)[0] == "N"]
        self.names = names or ["<none>"]
        self.words = "The quick brown fox jumps over lazy dogs; don't, they'll say, tokenization isn't straightforward.".split()
        self.kinds = [self.name, self.name_in_part, self.word, self.word, self.cjk, self.emoji,
                      lambda: self.some([" "], 9), lambda: self.some("0123456789", 9), lambda: self.some(self.numbers, 3),
                      lambda: self.some([chr(c) for c in range(32)], 4), lambda: self.some(self.spaces, 4),
                      lambda: self.some(["\n", "\r\n", "\r", " \n", "\t"], 4), lambda: self.some(self.low, 8),
                      lambda: self.some(self.known, 8), lambda: self.some("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", 5),
                      lambda: self.some("aeiouxyzABC", 30), lambda: self.some(["'s", "'T", "'re", "'LL", "’s", "'ſ"], 1)]

    def some(self, choices, most):
        return "".join(self.random.choice(choices) for _ in range(self.random.randint(1, most)))

    def name(self):
        return self.some(self.names, 2)

    def name_in_part(self):
        name = self.random.choice(self.names)
        cut = self.random.randint(0, len(name))
        return self.random.choice([name[:cut], name[cut:], name[:cut] + self.name()])

    def word(self):
        return self.random.choice(["", " ", "  "]) + self.random.choice(self.words)

    def cjk(self):
        low, high = self.random.choice([(0x4E00, 0x9FFF), (0x3040, 0x30FF), (0xAC00, 0xD7A3)])
        return "".join(chr(self.random.randint(low, high)) for _ in range(self.random.randint(1, 6)))

    def emoji(self):
        return self.random.choice(["😀", "👩\u200d👩\u200d👧", "🇫🇷", "👍🏽", "❤\ufe0f"])

    def string(self):
        return "".join(self.random.choice(self.kinds)() for _ in range(self.random.randint(1, 30)))


def compare(dump, model, tokenizer, strings, plain):
    tokenizer.encode_special_tokens = plain
    answer = subprocess.run([dump, model] + ["--plain"] * plain, input="".join(json.dumps(s) + "\n" for s in strings),
                            capture_output=True, text=True, encoding="utf-8", check=True).stdout
    ours = [json.loads(line) for line in answer.split("\n")[:-1]]
    assert len(ours) == len(strings)
    tokens = different = 0
    for string, our in zip(strings, ours):
        ids = tokenizer.encode(string, add_special_tokens=False).ids
        tokens += len(ids)
        if our["ids"] != ids or our["text"] != tokenizer.decode(ids, skip_special_tokens=False):
            different += 1
            print(f"different: {string!r}\n  theirs {ids}\n  ours   {our}", file=sys.stderr)
    print(f"{'plain' if plain else 'parse'}: {len(strings)} strings, {tokens} tokens, {different} different")
    return different


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dump")
    parser.add_argument("model")
    parser.add_argument("--strings", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    from gguf import GGUFReader  # pylint: disable=import-outside-toplevel
    reader = GGUFReader(args.model)
    tokenizer, names = reference(lambda key: reader.fields["tokenizer.ggml." + key].contents())
    source = RandomStrings(args.seed, names)
    strings = [source.string() for _ in range(args.strings)]
    sys.exit(sum(compare(args.dump, args.model, tokenizer, strings, plain) for plain in (False, True)) != 0)


if __name__ == "__main__":
    main()
