#!/usr/bin/python3
"""Writes vocab.txt and encoded.json: what BERT's tokenizer makes of some texts, in lower case and as they are.

The rules of google-research/bert's tokenization.py (Devlin et al. 2019), written anew over Python's own Unicode tables,
where exec/data/wordpiece.cpp has tables of its own.
"""
import json
import os
import unicodedata

HERE = os.path.dirname(os.path.abspath(__file__))
WORDS = ("the a play ##er ##s ##ing un ##aff ##able want ##ed runn , . ! ? - ' \" ( ) [ ] $ % 2 3 ##2 ##3 cafe naive "
         "strasse uber ##ger fianc ##e re ##sume angstrom istanbul zoe αβγ ##δ привет ##ик 中 文 字 か ##く ᄀ ##ᅡ ##ᆨ ᄒ "
         "##ᅡᆫ । ॥ the##se The Cafe É").split()
SINGLE = [chr(c) for c in range(ord("a"), ord("z") + 1)]
VOCAB = list(dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *SINGLE, *("##" + c for c in SINGLE)]))
TEXTS = [
    "The players wanted unaffable running, the cafe!", "", "   \t\n ", "Café CAFÉ naïve Über Ångström İstanbul Zoë ZOË",
    "straße Straße STRASSE", "don't stop-2323 (now)? $5% [x]", "中文字 mixed中text かく かが", "각 가 한국", "привет Привет ПРИВЕТик й Ё",
    "αβγδ ΑΒΓΔ ΆΈ ς Σ", "zero\u200bwidth soft\u00adhyphen nb\u00a0sp ideo\u3000sp line\u2028sep", "a\u0000b\ufffdc \u0007bell \u0085nel",
    "tail ing 🙂 emoji ½ ² ﬁ Ǆ ǆ ǅ", "१२ । ॥ “quoted” ‘single’ — dash … ¿que? ¡ya!", "x" * 100 + " " + "x" * 101,
    "##ing the##se", "[MASK] [CLS]", "Ğ ğ Ǻ ạ ậ Ệ ṩ Ẋ ᾳ ῼ Å K ᵯ", "\u0301 e\u0301 E\u0301\u0323 \u0b94 \u0bca \u0344",
    "؟ عربي ״עברית״ ไทย", "\u0ccc \u1b3c \ufb1e marks that stand beside letters", "𝐀 𐐀 𐐨 𐞀 𞤀",
]


def basic(text, lower):
    cleaned = ""
    for c in text:
        if c in "\t\n\r" or unicodedata.category(c) == "Zs":
            cleaned += " "
        elif c in "\0\ufffd" or unicodedata.category(c) in ("Cc", "Cf", "Co"):
            continue
        elif any(a <= ord(c) <= b for a, b in ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
                                               (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F))):
            cleaned += f" {c} "
        else:
            cleaned += c
    for word in cleaned.split(" "):
        if lower:
            word = "".join(d for c in word for d in unicodedata.normalize("NFD", c.lower())
                           if unicodedata.category(d) != "Mn")
        piece = ""
        for c in word:
            ascii_mark = 33 <= ord(c) < 127 and not c.isalnum()
            if ascii_mark or unicodedata.category(c).startswith("P"):
                yield from filter(None, (piece, c))
                piece = ""
            else:
                piece += c
        if piece:
            yield piece


def pieces(word):
    if len(word) > 100:
        return ["[UNK]"]
    out, start = [], 0
    while start < len(word):
        end = len(word)
        while end > start and ("##" if start else "") + word[start:end] not in VOCAB:
            end -= 1
        if end == start:
            return ["[UNK]"]
        out.append(("##" if start else "") + word[start:end])
        start = end
    return out


def main():
    with open(os.path.join(HERE, "vocab.txt"), "w", encoding="utf-8") as file:
        file.write("\n".join(VOCAB) + "\n")
    encode = lambda text, lower: [VOCAB.index(p) for word in basic(text, lower) for p in pieces(word)]
    with open(os.path.join(HERE, "encoded.json"), "w") as file:
        json.dump([{"text": t, "lower": encode(t, True), "as_it_is": encode(t, False)} for t in TEXTS], file, indent=0)
        file.write("\n")


if __name__ == "__main__":
    main()
