#!/usr/bin/python3
"""Generates what the tokenizer is compared with: a small byte-level vocabulary in GPT-2's files, and texts with their
pieces and tokens, by the regular expression of GPT-2 in the library that GPT-2 uses (Debian: python3-regex).

Needed only to make the files anew; the tests read them. The merging is the definition, without any shortcut.
"""
import collections
import json
import os
import random

import regex

HERE = os.path.dirname(os.path.abspath(__file__))
SPLIT = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
MERGES = 400
CORPUS = """The orrery turns, and the planets turn with it: Mercury, Venus, the Earth, Mars. It doesn't rest; it won't stop.
They've said we're late, I'm sure he'd know, you'll see. In 1704 George Graham built one; by 2024 nobody does.
    def forward(self, x):
        return self.head(self.norm(x))  # 3.14159 and 1,000,000
Größe, naïve, déjà vu, ça va, Привет мир, Ελλάδα, 日本語の文章, 한국어, مرحبا, हिन्दी 🙂🚀 ½ ² Ⅷ ٣
""" * 3

TEXTS = [
    "", " ", "  ", "\n", "\n\n", " \n", "a", " a", "  a", "   a  b   ", "Hello, world!", "Hello,  world !", "don't can't",
    "we're they've I'm you'll he'd it's", "IT'S DON'T", "'s 't 're", "''s", "s's'", "'sun", "o'clock", "1234567", " 12 345", "3.14", "x2y3",
    "a\nb", "a\n\nb", "a \n b", "\ta\t\tb\t", "line\r\nline\r\n", "tab\tand  two spaces\n\n   end   ",
    "snake_case = {\"key\": [1, 2]}  # comment", "Größe naïve ça", "Привет, мир!", "日本語の文章です。", "한국어 텍스트", "مرحبا بالعالم",
    "हिन्दी", "e\u0301 combining", "🙂", " 🙂🚀 two", "👩‍👩‍👧‍👦 family", "½ ² Ⅷ ٣ ೩", "a\u00a0b\u3000c\u2028d", "a\u180eb \u180e c", "\u200bzero width",
    "\x00\x01\x1f control\x7f", "\x1c\x1d fs gs", "\x85next", "price: $1,000.00!!! ...", "a" * 40, " " * 17 + "x", "<|endoftext|>", "ﬁ ligature Ǆ",
    "\U0001d54f math \U000e0001 tag",
]


def characters():
    """GPT-2's printable character for each byte."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in shown]
    return {b: chr(b) for b in shown} | {b: chr(256 + i) for i, b in enumerate(hidden)}


def pairs(word):
    return list(zip(word, word[1:]))


def joined(word, pair):
    out, i = [], 0
    while i < len(word):
        if word[i:i + 2] == list(pair):
            out.append(pair[0] + pair[1])
            i += 2
        else:
            out.append(word[i])
            i += 1
    return out


def learn(words):
    merges = []
    for _ in range(MERGES):
        count = collections.Counter()
        for word, often in words:
            for pair in pairs(word):
                count[pair] += often
        if not count:
            break
        best = min(count, key=lambda pair: (-count[pair], pair))
        merges.append(best)
        words = [(joined(word, best), often) for word, often in words]
    return merges


def encode(text, shown, ranks, ids):
    out = []
    for piece in SPLIT.findall(text):
        word = [shown[b] for b in piece.encode()]
        while True:
            known = [pair for pair in pairs(word) if pair in ranks]
            if not known:
                break
            word = joined(word, min(known, key=ranks.get))
        out += [ids[part] for part in word]
    return out


def main():
    shown = characters()
    often = collections.Counter(SPLIT.findall(CORPUS))
    words = [([shown[b] for b in piece.encode()], n) for piece, n in sorted(often.items())]
    merges = learn(words)
    symbols = sorted(shown.values()) + [a + b for a, b in merges] + ["<|endoftext|>"]
    ids = {symbol: i for i, symbol in enumerate(dict.fromkeys(symbols))}
    with open(os.path.join(HERE, "vocab.json"), "w") as file:
        json.dump(ids, file)
    with open(os.path.join(HERE, "merges.txt"), "w") as file:
        file.write("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))
    draw = random.Random(2019)
    alphabet = "ab 'st1290\n\t.,é日🙂 \u00a0"
    texts = TEXTS + ["".join(draw.choice(alphabet) for _ in range(draw.randrange(1, 60))) for _ in range(60)]
    ranks = {pair: i for i, pair in enumerate(merges)}
    with open(os.path.join(HERE, "encoded.json"), "w") as file:
        json.dump([{"text": t, "pieces": SPLIT.findall(t), "ids": encode(t, shown, ranks, ids)} for t in texts], file,
                  indent=0)
        file.write("\n")


if __name__ == "__main__":
    main()
