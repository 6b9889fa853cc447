#!/usr/bin/python3
"""Generates the golden numbers of a tiny gpt-oss trained by PyTorch in float64, written out as transformers'
modeling_gpt_oss.py has it: sinks beside the scores, a window in every other layer, biases everywhere, a softmax over the
chosen experts, gate and up in turn in one tensor of all experts, a SwiGLU that is clamped and shifted. See README.md;
data and optimizer as in generate.py. Weights have Hugging Face's names and orientations, gradients our own.
"""
import json
import math
import os

import torch

import generate as gpt
import generate_llama as llama

HERE = os.path.dirname(os.path.abspath(__file__))
LAYERS, HIDDEN, HEADS, GROUPS, HEAD, VOCAB = 3, 32, 4, 2, 8, 64
WIDTH, EXPERTS, CHOSEN, WINDOW, ALPHA, LIMIT = 24, 8, 4, 6, 1.702, 7.0
RUN = gpt.RUNS["cosine_clipped"]


def initial_weights():
    torch.manual_seed(20250805)
    normal = lambda *shape, stddev=0.08, mean=0.0: torch.randn(*shape) * stddev + mean
    w = {"model.embed_tokens.weight": normal(VOCAB, HIDDEN, stddev=0.1)}
    for i in range(LAYERS):
        h = f"model.layers.{i}."
        w[h + "input_layernorm.weight"] = normal(HIDDEN, stddev=0.1, mean=1.0)
        w[h + "post_attention_layernorm.weight"] = normal(HIDDEN, stddev=0.1, mean=1.0)
        for name, rows, stddev in (("q", HEADS * HEAD, 0.2), ("k", GROUPS * HEAD, 0.2), ("v", GROUPS * HEAD, 0.08)):
            w[h + f"self_attn.{name}_proj.weight"] = normal(rows, HIDDEN, stddev=stddev)
            w[h + f"self_attn.{name}_proj.bias"] = normal(rows)
        w[h + "self_attn.o_proj.weight"] = normal(HIDDEN, HEADS * HEAD)
        w[h + "self_attn.o_proj.bias"] = normal(HIDDEN)
        w[h + "self_attn.sinks"] = normal(HEADS, stddev=1.0)
        w[h + "mlp.router.weight"] = normal(EXPERTS, HIDDEN, stddev=0.3)
        w[h + "mlp.router.bias"] = normal(EXPERTS)
        w[h + "mlp.experts.gate_up_proj"] = normal(EXPERTS, HIDDEN, 2 * WIDTH, stddev=0.8)
        w[h + "mlp.experts.gate_up_proj_bias"] = normal(EXPERTS, 2 * WIDTH, stddev=0.3)
        w[h + "mlp.experts.down_proj"] = normal(EXPERTS, WIDTH, HIDDEN, stddev=0.05)
        w[h + "mlp.experts.down_proj_bias"] = normal(EXPERTS, HIDDEN)
    w["model.norm.weight"] = normal(HIDDEN, stddev=0.1, mean=1.0)
    w["lm_head.weight"] = normal(VOCAB, HIDDEN)
    return w


def attention(x, w, h, window):
    b, t, _ = x.shape
    linear = lambda name: x @ w[h + f"{name}_proj.weight"].T + w[h + f"{name}_proj.bias"]
    split = lambda name, heads: linear(name).view(b, t, heads, HEAD).transpose(1, 2)
    q, k, v = llama.rope(split("q", HEADS)), llama.rope(split("k", GROUPS)), split("v", GROUPS)
    k, v = (y.repeat_interleave(HEADS // GROUPS, dim=1) for y in (k, v))
    mask = torch.tril(torch.ones(t, t, dtype=torch.bool))
    if window:
        mask &= torch.triu(torch.ones(t, t, dtype=torch.bool), 1 - window)
    scores = (q @ k.transpose(-2, -1) / math.sqrt(HEAD)).masked_fill(~mask, float("-inf"))
    sinks = w[h + "sinks"].view(1, HEADS, 1, 1).expand(b, -1, t, 1)
    p = torch.softmax(torch.cat([scores, sinks], -1), -1)[..., :-1]
    y = (p @ v).transpose(1, 2).reshape(b, t, HEADS * HEAD)
    return y @ w[h + "o_proj.weight"].T + w[h + "o_proj.bias"]


def mixture(x, w, h, clamped):
    best, choice = torch.topk(x @ w[h + "router.weight"].T + w[h + "router.bias"], CHOSEN, -1)
    weights = torch.softmax(best, -1)
    y = torch.zeros_like(x)
    for e in range(EXPERTS):
        token, k = (choice == e).nonzero(as_tuple=True)
        if not len(token):
            continue
        both = x[token] @ w[h + "experts.gate_up_proj"][e] + w[h + "experts.gate_up_proj_bias"][e]
        gate, up = both[..., ::2], both[..., 1::2]
        clamped[0] += int((gate > LIMIT).sum() + (up.abs() > LIMIT).sum())
        clamped[1] += both.numel()
        gate, up = gate.clamp(max=LIMIT), up.clamp(min=-LIMIT, max=LIMIT)
        made = ((up + 1) * gate * torch.sigmoid(ALPHA * gate)) @ w[h + "experts.down_proj"][e]
        y = y.index_add(0, token, weights[token, k][:, None] * (made + w[h + "experts.down_proj_bias"][e]))
    return y


def loss_of(w, ids, targets, clamped):
    b, t = ids.shape
    x = w["model.embed_tokens.weight"][ids]
    for i in range(LAYERS):
        h = f"model.layers.{i}."
        x = x + attention(llama.rms_norm(x, w[h + "input_layernorm.weight"]), w, h + "self_attn.", WINDOW * (1 - i % 2))
        y = llama.rms_norm(x, w[h + "post_attention_layernorm.weight"]).view(b * t, HIDDEN)
        x = x + mixture(y, w, h + "mlp.", clamped).view(b, t, HIDDEN)
    logits = llama.rms_norm(x, w["model.norm.weight"]) @ w["lm_head.weight"].T
    return torch.nn.functional.cross_entropy(logits.view(-1, VOCAB), targets.view(-1))


def our_names(tensors):
    """Each expert by itself, matrices (out, in), under our names."""
    names = {"input_layernorm": "ln_1", "post_attention_layernorm": "ln_2", "self_attn.q_proj": "attn.q",
             "self_attn.k_proj": "attn.k", "self_attn.v_proj": "attn.v", "self_attn.o_proj": "attn.proj",
             "self_attn.sinks": "attn.sinks", "mlp.router": "mlp.router"}
    ends = {"model.embed_tokens.weight": "wte.weight", "model.norm.weight": "ln_f.weight"}
    out = {}
    for name, tensor in tensors.items():
        if not name.startswith("model.layers."):
            out[ends.get(name, name)] = tensor
            continue
        _, _, layer, rest = name.split(".", 3)
        if not rest.startswith("mlp.experts."):
            stem = next(theirs for theirs in names if rest.startswith(theirs))
            out[f"h.{layer}.{names[stem]}{rest[len(stem):]}"] = tensor
            continue
        kind = ".bias" if rest.endswith("_bias") else ".weight"
        for e in range(EXPERTS):
            one = tensor[e] if kind == ".bias" else tensor[e].T
            parts = {"gate": one[::2], "up": one[1::2]} if "gate_up" in rest else {"proj": one}
            for part, values in parts.items():
                out[f"h.{layer}.mlp.experts.{e}.{part}{kind}"] = values.contiguous()
    return out


def main():
    torch.set_num_threads(1)
    start = initial_weights()
    gpt.write_safetensors(os.path.join(HERE, "gpt_oss_initial.safetensors"), start)
    w = {name: tensor.double().requires_grad_() for name, tensor in start.items()}
    decays = lambda name, t: t.dim() > 1 and not name.endswith("_bias")
    optimizer = torch.optim.AdamW(
        [{"params": [t for n, t in w.items() if decays(n, t)], "weight_decay": gpt.DECAY},
         {"params": [t for n, t in w.items() if not decays(n, t)], "weight_decay": 0.0}],
        lr=RUN["learning_rate"], betas=gpt.BETAS, eps=gpt.EPSILON, foreach=False)
    stream, rows, clamped = gpt.tokens(), [], [0, 0]
    for step in range(gpt.STEPS):
        first = step * gpt.BATCH * gpt.SEQUENCE
        window = torch.tensor(stream[first : first + gpt.BATCH * gpt.SEQUENCE + 1])
        shape = (gpt.BATCH, gpt.SEQUENCE)
        loss = loss_of(w, window[:-1].view(shape), window[1:].view(shape), clamped)
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            gradient = our_names({name: t.grad.clone() for name, t in w.items()})
            gpt.write_safetensors(os.path.join(HERE, "gpt_oss_gradient_step_1.safetensors"), gradient)
        norm = torch.nn.utils.clip_grad_norm_(list(w.values()), RUN["clip_norm"])
        for group in optimizer.param_groups:
            group["lr"] = gpt.learning_rate(RUN, step)
        rows.append({"step": step + 1, "loss": loss.item(), "gradient_norm": norm.item()})
        optimizer.step()
    print([round(r["loss"], 4) for r in rows], "clamped", clamped[0] / clamped[1])
    with open(os.path.join(HERE, "gpt_oss_golden.json"), "w") as file:
        json.dump({"torch": torch.__version__, "clamped": clamped[0] / clamped[1], "steps": rows}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
