#!/usr/bin/python3
"""Generates the golden numbers of two tiny models with multi-head latent attention trained by PyTorch in float64, with
the names and orientations of DeepSeek's own files. See README.md; data and optimizer as in generate.py.

Attention is written out as in modeling_deepseek.py and DeepSeek-V3's inference/model.py: heads of [nope | rope]
columns, a rotation of neighbouring pairs as complex numbers, values narrower than keys, no padding. `v3`: a narrow
vector for queries too, and the mixture `deepseek` of generate_moe.py behind a dense layer. `lite`: queries of the token
at once, as DeepSeek-V2-Lite has them, and dense layers alone. `further`: `v3` with the module that predicts a token
further (DeepSeek-V3's report, section 2.2, equations 21 to 25), whose last position of a sequence predicts nothing.
"""
import json
import math
import os

import torch

import generate as gpt
import generate_llama as llama
import generate_moe as moe

HERE = os.path.dirname(os.path.abspath(__file__))
LAYERS, HIDDEN, VOCAB, HEADS = moe.LAYERS, moe.HIDDEN, moe.VOCAB, 4
KV_RANK, NOPE, ROPE, VALUE, THETA = 12, 6, 4, 8, 10000.0
DEEPSEEK = moe.KINDS["deepseek"]
KINDS = {"v3": {"q_rank": 20, "first_dense": 1, "further": 0.0},
         "lite": {"q_rank": 0, "first_dense": LAYERS, "further": 0.0},
         "further": {"q_rank": 20, "first_dense": 1, "further": 0.3}}
MODULE = f"h.{LAYERS}."
RUN = moe.RUN


def initial_weights(kind):
    """By our own names."""
    w = {name: t for name, t in moe.initial_weights({**DEEPSEEK, "first_dense": kind["first_dense"]}).items()
         if ".attn." not in name}
    torch.manual_seed(20241226)
    normal = lambda *shape, stddev=0.2, mean=0.0: torch.randn(*shape) * stddev + mean
    layers = LAYERS
    if kind["further"]:
        layers += 1
        w.update({name.replace(f"h.{LAYERS - 1}.", MODULE): t.roll(1, 0) for name, t in w.items()
                  if name.startswith(f"h.{LAYERS - 1}.")})
        for norm in ("hnorm", "enorm", "ln_f"):
            w[MODULE + norm + ".weight"] = normal(HIDDEN, stddev=0.1, mean=1.0)
        for half in ("hidden", "token"):
            w[MODULE + f"eh_proj.{half}.weight"] = normal(HIDDEN, HIDDEN, stddev=0.1)
    for i in range(layers):
        at = f"h.{i}.attn."
        heads = HEADS * (NOPE + ROPE)
        if kind["q_rank"]:
            w[at + "q_a.weight"] = normal(kind["q_rank"], HIDDEN)
            w[at + "q_a_norm.weight"] = normal(kind["q_rank"], stddev=0.1, mean=1.0)
            w[at + "q_b.weight"] = normal(heads, kind["q_rank"])
        else:
            w[at + "q.weight"] = normal(heads, HIDDEN)
        w[at + "kv_a.weight"] = normal(KV_RANK + ROPE, HIDDEN)
        w[at + "kv_a_norm.weight"] = normal(KV_RANK, stddev=0.1, mean=1.0)
        w[at + "kv_b.weight"] = normal(HEADS * (NOPE + VALUE), KV_RANK)
        w[at + "proj.weight"] = normal(HIDDEN, HEADS * VALUE, stddev=0.1)
    return w


ENDS = {"wte.weight": "model.embed_tokens.weight", "ln_f.weight": "model.norm.weight",
        "lm_head.weight": "lm_head.weight"}
PARTS = {"ln_1": "input_layernorm", "ln_2": "post_attention_layernorm", "attn.q_a": "self_attn.q_a_proj",
         "attn.q_a_norm": "self_attn.q_a_layernorm", "attn.q_b": "self_attn.q_b_proj", "attn.q": "self_attn.q_proj",
         "attn.kv_a": "self_attn.kv_a_proj_with_mqa", "attn.kv_a_norm": "self_attn.kv_a_layernorm",
         "attn.kv_b": "self_attn.kv_b_proj", "attn.proj": "self_attn.o_proj", "mlp.router": "mlp.gate"}
OF_MODULE = {MODULE + "hnorm": "hnorm", MODULE + "enorm": "enorm", MODULE + "ln_f": "shared_head.norm"}
MLP = {"gate": "gate_proj", "up": "up_proj", "proj": "down_proj"}


def name_in_file(name):
    if name in ENDS:
        return ENDS[name]
    _, layer, rest = name.split(".", 2)
    part, kind = rest.rsplit(".", 1)
    if f"h.{layer}.{part}" in OF_MODULE:
        part = OF_MODULE[f"h.{layer}.{part}"]
    elif rest == "mlp.router.balance":
        part, kind = "mlp.gate", "e_score_correction_bias"
    elif part in PARTS:
        part = PARTS[part]
    else:  # of an MLP, an expert or the shared one
        at, matrix = part.rsplit(".", 1)
        part = at.replace("mlp.shared", "mlp.shared_experts") + "." + MLP[matrix]
    return f"model.layers.{layer}.{part}.{kind}"


def file_of(w):
    """As DeepSeek's files have them: one matrix joins the module's inputs, and it has copies of what it shares."""
    halves = [MODULE + f"eh_proj.{half}.weight" for half in ("token", "hidden")]
    out = {name_in_file(name): t for name, t in w.items() if name not in halves}
    if halves[0] in w:
        at = f"model.layers.{LAYERS}."
        out[at + "eh_proj.weight"] = torch.cat([w[half] for half in halves], 1)
        out[at + "embed_tokens.weight"] = w["wte.weight"].clone()
        out[at + "shared_head.head.weight"] = w["lm_head.weight"].clone()
    return out


def rotate(x):
    """x: (B, T, heads, ROPE); columns 2i and 2i+1 are a complex number."""
    frequency = THETA ** (-torch.arange(0, ROPE, 2, dtype=torch.float64) / ROPE)
    angle = torch.arange(x.shape[1], dtype=torch.float64)[:, None] * frequency
    turn = torch.polar(torch.ones_like(angle), angle)[None, :, None, :]
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], ROPE // 2, 2))
    return torch.view_as_real(pairs * turn).flatten(3)


def attention(x, w, at):
    b, t, _ = x.shape
    if at + "q.weight" in w:
        q = x @ w[at + "q.weight"].T
    else:
        q = llama.rms_norm(x @ w[at + "q_a.weight"].T, w[at + "q_a_norm.weight"]) @ w[at + "q_b.weight"].T
    q_nope, q_rope = q.view(b, t, HEADS, NOPE + ROPE).split([NOPE, ROPE], -1)
    narrow, k_rope = (x @ w[at + "kv_a.weight"].T).split([KV_RANK, ROPE], -1)
    kv = llama.rms_norm(narrow, w[at + "kv_a_norm.weight"]) @ w[at + "kv_b.weight"].T
    k_nope, v = kv.view(b, t, HEADS, NOPE + VALUE).split([NOPE, VALUE], -1)
    k_rope = rotate(k_rope.unsqueeze(2)).expand(b, t, HEADS, ROPE)
    q, k = torch.cat([q_nope, rotate(q_rope)], -1), torch.cat([k_nope, k_rope], -1)
    scores = torch.einsum("bshd,bthd->bhst", q, k) / math.sqrt(NOPE + ROPE)
    scores = scores.masked_fill(~torch.tril(torch.ones(t, t, dtype=torch.bool)), float("-inf"))
    y = torch.einsum("bhst,bthd->bshd", torch.softmax(scores, -1), v)
    return y.reshape(b, t, HEADS * VALUE) @ w[at + "proj.weight"].T


def loss_of(w, ids, targets, kind):
    b, t = ids.shape

    def block(x, i):
        h = f"h.{i}."
        x = x + attention(llama.rms_norm(x, w[h + "ln_1.weight"]), w, h + "attn.")
        y = llama.rms_norm(x, w[h + "ln_2.weight"]).view(b * t, HIDDEN)
        dense = i < kind["first_dense"]
        return x + (moe.swiglu(y, w, h + "mlp.") if dense else moe.mixture(y, w, h, DEEPSEEK, [])).view(b, t, HIDDEN)

    def loss_of_rows(x, norm, targets, count):
        logits = llama.rms_norm(x, w[norm]) @ w["lm_head.weight"].T
        sum_of = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1), reduction="sum")
        return sum_of / count

    x = w["wte.weight"][ids]
    for i in range(LAYERS):
        x = block(x, i)
    loss = loss_of_rows(x, "ln_f.weight", targets, b * t)
    if not kind["further"]:
        return loss
    half = lambda part, norm, x: llama.rms_norm(x, w[MODULE + norm]) @ w[MODULE + f"eh_proj.{part}.weight"].T
    y = half("hidden", "hnorm.weight", x) + half("token", "enorm.weight", w["wte.weight"][targets])
    y = block(y, LAYERS)[:, :-1]
    return loss + kind["further"] * loss_of_rows(y, MODULE + "ln_f.weight", targets[:, 1:], b * t)


def train(kind, start, stream):
    w = {name: tensor.double().requires_grad_(not name.endswith("balance")) for name, tensor in start.items()}
    trained = {name: t for name, t in w.items() if t.requires_grad}
    groups = [{"params": [t for t in trained.values() if t.dim() == 2], "weight_decay": gpt.DECAY},
              {"params": [t for t in trained.values() if t.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RUN["learning_rate"], betas=gpt.BETAS, eps=gpt.EPSILON, foreach=False)
    rows, gradient = [], None
    for step in range(gpt.STEPS):
        first = step * gpt.BATCH * gpt.SEQUENCE
        window = torch.tensor(stream[first : first + gpt.BATCH * gpt.SEQUENCE + 1])
        shape = (gpt.BATCH, gpt.SEQUENCE)
        loss = loss_of(w, window[:-1].view(shape), window[1:].view(shape), kind)
        optimizer.zero_grad()
        loss.backward()
        for t in trained.values():  # an expert that nobody chose
            t.grad = torch.zeros_like(t) if t.grad is None else t.grad
        gradient = gradient or {name: t.grad.clone() for name, t in trained.items()}
        norm = torch.nn.utils.clip_grad_norm_(list(trained.values()), RUN["clip_norm"])
        for group in optimizer.param_groups:
            group["lr"] = gpt.learning_rate(RUN, step)
        rows.append({"step": step + 1, "loss": loss.item(), "gradient_norm": norm.item()})
        optimizer.step()
    return rows, gradient


def main():
    torch.set_num_threads(1)
    golden = {"torch": torch.__version__}
    for name, kind in KINDS.items():
        start = initial_weights(kind)
        gpt.write_safetensors(os.path.join(HERE, f"latent_{name}_initial.safetensors"),
                              file_of(start))
        rows, gradient = train(kind, start, gpt.tokens())
        gpt.write_safetensors(os.path.join(HERE, f"latent_{name}_gradient_step_1.safetensors"), gradient)
        golden[name] = {"steps": rows}
        print(name, [(round(r["loss"], 4), round(r["gradient_norm"], 3)) for r in rows])
    with open(os.path.join(HERE, "latent_golden.json"), "w") as file:
        json.dump(golden, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
