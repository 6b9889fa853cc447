#!/usr/bin/python3
"""Generates the golden numbers that serial training is compared with: a tiny GPT trained by PyTorch.

Needed only to make them anew (Debian: python3-torch 1.13); the tests read the files beside this script. The arithmetic
is written out so that it can be compared line by line with models/layers/expand.cpp. See README.md for what each file holds.
"""
import json
import math
import os
import struct

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
LAYERS, HIDDEN, HEADS, VOCAB, POSITIONS = 2, 32, 4, 64, 32
BATCH, SEQUENCE, STEPS = 8, 16, 20
BETAS, EPSILON, DECAY = (0.9, 0.95), 1e-8, 0.1
NORM_EPSILON = 1e-5
RUNS = {
    "cosine_clipped": {"learning_rate": 3e-3, "warmup_steps": 5, "minimum": 3e-4, "clip_norm": 1.0},
    "constant": {"learning_rate": 1e-3, "warmup_steps": 0, "minimum": None, "clip_norm": 0.0},
}


def tokens():
    """A stream with something to learn: most tokens follow from the one before, some are noise."""
    state, previous, stream = 12345, 0, []
    for _ in range(STEPS * BATCH * SEQUENCE + SEQUENCE + 1):
        state = (state * 1103515245 + 12345) % 2**31
        draw = state >> 8
        previous = draw % VOCAB if draw % 5 == 0 else (previous * 5 + 7 + draw % 3) % VOCAB
        stream.append(previous)
    return stream


def initial_weights():
    """Hugging Face's GPT-2 names and Conv1D orientation (in, out). Nothing is left at 0 or 1, so that a swapped or
    forgotten tensor shows."""
    torch.manual_seed(20240520)
    normal = lambda *shape, stddev=0.02, mean=0.0: torch.randn(*shape) * stddev + mean
    c, residual = HIDDEN, 0.08 / math.sqrt(2 * LAYERS)
    w = {"transformer.wte.weight": normal(VOCAB, c, stddev=0.1),
         "transformer.wpe.weight": normal(POSITIONS, c, stddev=0.05)}
    for i in range(LAYERS):
        h = f"transformer.h.{i}."
        for norm in ("ln_1", "ln_2"):
            w[h + norm + ".weight"] = normal(c, stddev=0.1, mean=1.0)
            w[h + norm + ".bias"] = normal(c)
        for name, rows, columns, stddev in (("attn.c_attn", c, 3 * c, 0.08), ("attn.c_proj", c, c, residual),
                                            ("mlp.c_fc", c, 4 * c, 0.08), ("mlp.c_proj", 4 * c, c, residual)):
            w[h + name + ".weight"] = normal(rows, columns, stddev=stddev)
            w[h + name + ".bias"] = normal(columns)
    w["transformer.ln_f.weight"] = normal(c, stddev=0.1, mean=1.0)
    w["transformer.ln_f.bias"] = normal(c)
    return w


def write_safetensors(path, tensors):
    header, offset, data = {}, 0, b""
    for name, tensor in tensors.items():
        raw = struct.pack(f"<{tensor.numel()}f", *tensor.float().flatten().tolist())
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [offset, offset + len(raw)]}
        offset += len(raw)
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def write_tokens(path, stream):
    """llm.c's .bin: 256 int32 of header (magic, version, count), then uint16."""
    with open(path, "wb") as file:
        file.write(struct.pack("<256i", 20240520, 1, len(stream), *[0] * 253))
        file.write(struct.pack(f"<{len(stream)}H", *stream))


def layer_norm(x, weight, bias):
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + NORM_EPSILON) * weight + bias


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def attention(x, w, h):
    b, t, c = x.shape
    q, k, v = (x @ w[h + "attn.c_attn.weight"] + w[h + "attn.c_attn.bias"]).split(c, dim=2)
    heads = lambda y: y.view(b, t, HEADS, c // HEADS).transpose(1, 2)
    scores = heads(q) @ heads(k).transpose(-2, -1) / math.sqrt(c // HEADS)
    mask = torch.tril(torch.ones(t, t, dtype=torch.bool))
    p = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
    y = (p @ heads(v)).transpose(1, 2).reshape(b, t, c)
    return y @ w[h + "attn.c_proj.weight"] + w[h + "attn.c_proj.bias"]


def loss_of(w, ids, targets):
    x = w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][: ids.shape[1]]
    for i in range(LAYERS):
        h = f"transformer.h.{i}."
        x = x + attention(layer_norm(x, w[h + "ln_1.weight"], w[h + "ln_1.bias"]), w, h)
        y = gelu(layer_norm(x, w[h + "ln_2.weight"], w[h + "ln_2.bias"]) @ w[h + "mlp.c_fc.weight"]
                 + w[h + "mlp.c_fc.bias"])
        x = x + y @ w[h + "mlp.c_proj.weight"] + w[h + "mlp.c_proj.bias"]
    x = layer_norm(x, w["transformer.ln_f.weight"], w["transformer.ln_f.bias"])
    logits = x @ w["transformer.wte.weight"].T  # the head is tied to the token table
    return torch.nn.functional.cross_entropy(logits.view(-1, VOCAB), targets.view(-1))


def learning_rate(run, step):
    """Linear warm-up that reaches the full rate at its last step, then half a cosine down to `minimum`."""
    full, warmup, minimum = run["learning_rate"], run["warmup_steps"], run["minimum"]
    if step < warmup:
        return full * (step + 1) / warmup
    if minimum is None:
        return full
    done = (step - warmup) / (STEPS - warmup)
    return minimum + 0.5 * (1 + math.cos(math.pi * done)) * (full - minimum)


def train(run, start, stream, dtype):
    w = {name: tensor.clone().to(dtype).requires_grad_() for name, tensor in start.items()}
    matrices = [t for t in w.values() if t.dim() == 2]
    vectors = [t for t in w.values() if t.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": DECAY}, {"params": vectors, "weight_decay": 0.0}],
                                  lr=run["learning_rate"], betas=BETAS, eps=EPSILON, foreach=False)
    rows, gradients = [], {}
    for step in range(STEPS):
        first = step * BATCH * SEQUENCE
        window = torch.tensor(stream[first : first + BATCH * SEQUENCE + 1])
        loss = loss_of(w, window[:-1].view(BATCH, SEQUENCE), window[1:].view(BATCH, SEQUENCE))
        optimizer.zero_grad()
        loss.backward()
        gradients[step] = {name: t.grad.clone() for name, t in w.items()}
        limit = run["clip_norm"] if run["clip_norm"] > 0 else float("inf")
        norm = torch.nn.utils.clip_grad_norm_(list(w.values()), limit)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(run, step)
        rows.append({"step": step + 1, "loss": loss.item(), "gradient_norm": norm.item(),
                     "learning_rate": learning_rate(run, step)})
        optimizer.step()
    norms = {name: t.detach().double().norm().item() for name, t in w.items()}
    return rows, norms, gradients, w


def main():
    torch.set_num_threads(1)
    start, stream = initial_weights(), tokens()
    write_safetensors(os.path.join(HERE, "initial.safetensors"), start)
    write_tokens(os.path.join(HERE, "tokens.bin"), stream)
    golden = {
        "torch": torch.__version__,
        "model": {"layers": LAYERS, "hidden": HIDDEN, "heads": HEADS, "ffn_hidden": 4 * HIDDEN, "vocab": VOCAB,
                  "max_sequence": POSITIONS, "norm_epsilon": NORM_EPSILON},
        "batch": BATCH, "sequence": SEQUENCE, "steps": STEPS,
        "optimizer": {"beta1": BETAS[0], "beta2": BETAS[1], "epsilon": EPSILON, "weight_decay": DECAY},
        "runs": {},
    }
    for name, run in RUNS.items():
        entry = dict(run)
        for label, dtype in (("float32", torch.float32), ("float64", torch.float64)):
            rows, norms, gradients, w = train(run, start, stream, dtype)
            entry[label] = {"steps": rows, "final_norms": norms}
            if name == "cosine_clipped" and label == "float64":
                write_safetensors(os.path.join(HERE, "gradient_step_1.safetensors"), gradients[0])
                write_safetensors(os.path.join(HERE, "gradient_step_20.safetensors"), gradients[STEPS - 1])
        pairs = zip(entry["float32"]["steps"], entry["float64"]["steps"])
        entry["largest_relative_loss_difference"] = max(abs(a["loss"] / b["loss"] - 1) for a, b in pairs)
        golden["runs"][name] = entry
        print(name, entry["largest_relative_loss_difference"],
              [(round(r["loss"], 4), round(r["gradient_norm"], 3)) for r in entry["float32"]["steps"]])
    with open(os.path.join(HERE, "golden.json"), "w") as file:
        json.dump(golden, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
