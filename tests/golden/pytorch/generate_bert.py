#!/usr/bin/python3
"""Generates the golden numbers of a tiny BERT (post-norm, token types, exact GELU; masked-language and next-sentence heads)
trained by PyTorch in float64, with the names and orientations of Hugging Face's BertForPreTraining. See README.md;
optimizer as in generate.py, its stream of tokens too.

The masked data is made here as exec/data/masked_data.h says, from the same counters (Philox 4x32-10), written anew: the losses
agree only where both make the same sequences.
"""
import json
import math
import os

import torch
from torch.nn import functional as F

import generate as gpt

HERE = os.path.dirname(os.path.abspath(__file__))
LAYERS, HIDDEN, HEADS, WIDTH = 2, 32, 4, 128
WORDS, VOCAB = 64, 67
CLS, SEP, MASK = 64, 65, 66
POSITIONS, BATCH, SEQUENCE, STEPS, PREDICTIONS, SEED = 32, 8, 16, 20, 2, 1  # 15 % of 16, to the nearest
NORM_EPSILON = 1e-12
RUN = gpt.RUNS["cosine_clipped"]
HALF, FULL = 2**32 - 1, 2**64 - 1


def philox(counter, key):
    counter, key = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(b >> 32) ^ counter[1] ^ key[0], b & HALF, (a >> 32) ^ counter[3] ^ key[1], a & HALF]
        key = [(key[0] + 0x9E3779B9) & HALF, (key[1] + 0xBB67AE85) & HALF]
    return counter


def stream_of(name):
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x100000001B3 & FULL
    return value


def draw(name, index):
    stream = stream_of("masked." + name)
    return philox((index & HALF, index >> 32, stream & HALF, stream >> 32), (SEED & HALF, SEED >> 32))


def uniform(name, index):
    r = draw(name, index)
    return ((r[0] >> 5) * 2**26 + (r[1] >> 6)) / 2**53


def below(bound, name, index):
    r = draw(name, index)
    return ((r[0] << 32 | r[1]) * bound) >> 64


def masked_sequence(stream, number):
    """Tokens, token types, places, targets, and whether the second segment is from elsewhere."""
    text = SEQUENCE - 3
    at = lambda first, count: [stream[(first + i) % len(stream)] for i in range(count)]
    begin = number * text % len(stream)
    split = 1 + below(text - 1, "split", number)
    words, elsewhere = at(begin, text), uniform("next", number) >= 0.5
    if elsewhere:
        words[split:] = at(begin + split + 1 + below(len(stream) - 1, "elsewhere", number), text - split)
    tokens = [CLS, *words[:split], SEP, *words[split:], SEP]
    types = [0] * (split + 2) + [1] * (SEQUENCE - split - 2)
    candidates = [t for t in range(SEQUENCE) if tokens[t] not in (CLS, SEP)]
    places = sorted(sorted(candidates, key=lambda t: uniform("order", number * SEQUENCE + t))[:PREDICTIONS])
    targets = [tokens[t] for t in places]
    for t in places:
        fate = uniform("fate", number * SEQUENCE + t)
        if fate < 0.8:
            tokens[t] = MASK
        elif fate < 0.9:
            tokens[t] = below(WORDS, "word", number * SEQUENCE + t)
    return tokens, types, places, targets, int(elsewhere)


def initial_weights():
    torch.manual_seed(20181011)
    normal = lambda *shape, stddev=0.08, mean=0.0: torch.randn(*shape) * stddev + mean
    w = {}

    def dense(name, out, columns, stddev=0.08):
        w[name + ".weight"] = normal(out, columns, stddev=stddev)
        w[name + ".bias"] = normal(out, stddev=0.02)

    def norm(name):
        w[name + ".weight"] = normal(HIDDEN, stddev=0.1, mean=1.0)
        w[name + ".bias"] = normal(HIDDEN, stddev=0.02)

    e = "bert.embeddings."
    w[e + "word_embeddings.weight"] = normal(VOCAB, HIDDEN, stddev=0.1)
    w[e + "position_embeddings.weight"] = normal(POSITIONS, HIDDEN, stddev=0.05)
    w[e + "token_type_embeddings.weight"] = normal(2, HIDDEN, stddev=0.05)
    norm(e + "LayerNorm")
    for i in range(LAYERS):
        h = f"bert.encoder.layer.{i}."
        for name in ("query", "key", "value"):
            dense(h + "attention.self." + name, HIDDEN, HIDDEN, 0.2)
        dense(h + "attention.output.dense", HIDDEN, HIDDEN)
        norm(h + "attention.output.LayerNorm")
        dense(h + "intermediate.dense", WIDTH, HIDDEN)
        dense(h + "output.dense", HIDDEN, WIDTH)
        norm(h + "output.LayerNorm")
    dense("bert.pooler.dense", HIDDEN, HIDDEN)
    dense("cls.predictions.transform.dense", HIDDEN, HIDDEN)
    norm("cls.predictions.transform.LayerNorm")
    w["cls.predictions.bias"] = normal(VOCAB, stddev=0.02)
    dense("cls.seq_relationship", 2, HIDDEN, 0.2)
    return w


def loss_of(w, batch):
    tokens, types, places, targets, elsewhere = batch
    linear = lambda x, name: F.linear(x, w[name + ".weight"], w[name + ".bias"])
    norm = lambda x, name: F.layer_norm(x, (HIDDEN,), w[name + ".weight"], w[name + ".bias"], NORM_EPSILON)
    e = "bert.embeddings."
    table = w[e + "word_embeddings.weight"]
    x = F.embedding(tokens, table) + w[e + "position_embeddings.weight"][:SEQUENCE]
    x = norm(x + F.embedding(types, w[e + "token_type_embeddings.weight"]), e + "LayerNorm")
    heads = lambda y: y.view(BATCH, SEQUENCE, HEADS, HIDDEN // HEADS).transpose(1, 2)
    for i in range(LAYERS):
        h = f"bert.encoder.layer.{i}."
        q, k, v = (heads(linear(x, h + "attention.self." + name)) for name in ("query", "key", "value"))
        p = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(HIDDEN // HEADS), dim=-1)
        a = (p @ v).transpose(1, 2).reshape(BATCH, SEQUENCE, HIDDEN)
        x = norm(x + linear(a, h + "attention.output.dense"), h + "attention.output.LayerNorm")
        x = norm(x + linear(F.gelu(linear(x, h + "intermediate.dense")), h + "output.dense"), h + "output.LayerNorm")
    chosen = x[torch.arange(BATCH)[:, None], places].view(-1, HIDDEN)
    t = norm(F.gelu(linear(chosen, "cls.predictions.transform.dense")), "cls.predictions.transform.LayerNorm")
    words = F.cross_entropy(F.linear(t, table, w["cls.predictions.bias"]), targets.view(-1))
    pooled = torch.tanh(linear(x[:, 0], "bert.pooler.dense"))
    return words + F.cross_entropy(linear(pooled, "cls.seq_relationship"), elsewhere)


def main():
    torch.set_num_threads(1)
    start, stream = initial_weights(), gpt.tokens()
    gpt.write_safetensors(os.path.join(HERE, "bert_initial.safetensors"), start)
    w = {name: tensor.double().requires_grad_() for name, tensor in start.items()}
    matrices = [t for t in w.values() if t.dim() == 2]
    vectors = [t for t in w.values() if t.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": gpt.DECAY},
                                   {"params": vectors, "weight_decay": 0.0}],
                                  lr=RUN["learning_rate"], betas=gpt.BETAS, eps=gpt.EPSILON, foreach=False)
    rows = []
    for step in range(STEPS):
        sequences = [masked_sequence(stream, step * BATCH + g) for g in range(BATCH)]
        loss = loss_of(w, [torch.tensor(column) for column in zip(*sequences)])
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            gpt.write_safetensors(os.path.join(HERE, "bert_gradient_step_1.safetensors"),
                                  {name: t.grad for name, t in w.items()})
        norm = torch.nn.utils.clip_grad_norm_(list(w.values()), RUN["clip_norm"])
        for group in optimizer.param_groups:
            group["lr"] = gpt.learning_rate(RUN, step)
        rows.append({"step": step + 1, "loss": loss.item(), "gradient_norm": norm.item(),
                     "learning_rate": gpt.learning_rate(RUN, step)})
        optimizer.step()
    norms = {name: t.detach().norm().item() for name, t in w.items()}
    with open(os.path.join(HERE, "bert_golden.json"), "w") as file:
        first = [dict(zip(("tokens", "token_types", "places", "targets", "elsewhere"), masked_sequence(stream, g)))
                 for g in range(BATCH)]
        json.dump({"torch": torch.__version__, "first_batch": first, "steps": rows, "final_norms": norms}, file, indent=1)
        file.write("\n")
    print([(round(r["loss"], 4), round(r["gradient_norm"], 3)) for r in rows])


if __name__ == "__main__":
    main()
