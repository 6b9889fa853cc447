#!/usr/bin/python3
"""Generates the golden numbers of a tiny Llama (grouped queries, RMSNorm, SwiGLU, RoPE, its own head) trained by PyTorch
in float64, with the names and orientations of Hugging Face's Llama. See README.md; data and optimizer as in generate.py.

RoPE turns element i of a head with element i + D/2, as transformers' rotate_half does.
"""
import json
import math
import os

import torch

import generate as gpt

HERE = os.path.dirname(os.path.abspath(__file__))
LAYERS, HIDDEN, HEADS, GROUPS, WIDTH, VOCAB = 2, 32, 4, 2, 96, 64
HEAD = HIDDEN // HEADS
EPSILON, THETA = 1e-5, 10000.0
RUN = gpt.RUNS["cosine_clipped"]


def initial_weights():
    torch.manual_seed(20240801)
    normal = lambda *shape, stddev=0.08, mean=0.0: torch.randn(*shape) * stddev + mean
    w = {"model.embed_tokens.weight": normal(VOCAB, HIDDEN, stddev=0.1)}
    for i in range(LAYERS):
        h = f"model.layers.{i}."
        w[h + "input_layernorm.weight"] = normal(HIDDEN, stddev=0.1, mean=1.0)
        w[h + "self_attn.q_proj.weight"] = normal(HEADS * HEAD, HIDDEN, stddev=0.2)
        w[h + "self_attn.k_proj.weight"] = normal(GROUPS * HEAD, HIDDEN, stddev=0.2)
        w[h + "self_attn.v_proj.weight"] = normal(GROUPS * HEAD, HIDDEN)
        w[h + "self_attn.o_proj.weight"] = normal(HIDDEN, HEADS * HEAD)
        w[h + "post_attention_layernorm.weight"] = normal(HIDDEN, stddev=0.1, mean=1.0)
        w[h + "mlp.gate_proj.weight"] = normal(WIDTH, HIDDEN)
        w[h + "mlp.up_proj.weight"] = normal(WIDTH, HIDDEN)
        w[h + "mlp.down_proj.weight"] = normal(HIDDEN, WIDTH)
    w["model.norm.weight"] = normal(HIDDEN, stddev=0.1, mean=1.0)
    w["lm_head.weight"] = normal(VOCAB, HIDDEN)
    return w


def rms_norm(x, weight):
    return x / torch.sqrt((x**2).mean(-1, keepdim=True) + EPSILON) * weight


def rope(x):
    """x: (B, heads, T, HEAD)."""
    half = HEAD // 2
    frequency = THETA ** (-torch.arange(half, dtype=x.dtype) / half)
    angle = torch.arange(x.shape[2], dtype=x.dtype)[:, None] * frequency
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], dim=-1)


def attention(x, w, h):
    b, t, _ = x.shape
    split = lambda name, heads: (x @ w[h + f"self_attn.{name}_proj.weight"].T).view(b, t, heads, HEAD).transpose(1, 2)
    q, k, v = rope(split("q", HEADS)), rope(split("k", GROUPS)), split("v", GROUPS)
    k, v = (y.repeat_interleave(HEADS // GROUPS, dim=1) for y in (k, v))
    mask = torch.tril(torch.ones(t, t, dtype=torch.bool))
    p = torch.softmax((q @ k.transpose(-2, -1) / math.sqrt(HEAD)).masked_fill(~mask, float("-inf")), dim=-1)
    return (p @ v).transpose(1, 2).reshape(b, t, HEADS * HEAD) @ w[h + "self_attn.o_proj.weight"].T


def loss_of(w, ids, targets):
    x = w["model.embed_tokens.weight"][ids]
    for i in range(LAYERS):
        h = f"model.layers.{i}."
        x = x + attention(rms_norm(x, w[h + "input_layernorm.weight"]), w, h)
        y = rms_norm(x, w[h + "post_attention_layernorm.weight"])
        gate, up = y @ w[h + "mlp.gate_proj.weight"].T, y @ w[h + "mlp.up_proj.weight"].T
        x = x + (torch.nn.functional.silu(gate) * up) @ w[h + "mlp.down_proj.weight"].T
    logits = rms_norm(x, w["model.norm.weight"]) @ w["lm_head.weight"].T
    return torch.nn.functional.cross_entropy(logits.view(-1, VOCAB), targets.view(-1))


def main():
    torch.set_num_threads(1)
    start = initial_weights()
    gpt.write_safetensors(os.path.join(HERE, "llama_initial.safetensors"), start)
    gpt.loss_of = loss_of
    rows, norms, gradients, _ = gpt.train(RUN, start, gpt.tokens(), torch.float64)
    gpt.write_safetensors(os.path.join(HERE, "llama_gradient_step_1.safetensors"), gradients[0])
    with open(os.path.join(HERE, "llama_golden.json"), "w") as file:
        json.dump({"torch": torch.__version__, "steps": rows, "final_norms": norms}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
