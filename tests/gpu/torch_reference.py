#!/usr/bin/env python3
"""PyTorch on the same GPU, for comparison with gpu_bench and the worker: matrix products, attention, and training
steps of GPT-2 small in fp32 and in bf16 (autocast, flash attention, fused AdamW), plain and compiled. Prints one JSON
object. scripts/gpu-check runs it."""
import json
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F

LAYERS, C, HEADS, V, T, B = 12, 768, 12, 50304, 1024, 8


def median_seconds(work, repeats=11):
    for _ in range(3):
        work()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e-3)
    return statistics.median(times)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.qkv, self.proj = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.fc, self.down = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, HEADS, C // HEADS).transpose(1, 2) for y in self.qkv(self.ln_1(x)).split(C, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, C))
        return x + self.down(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(V, C), nn.Embedding(T, C)
        self.blocks, self.ln_f = nn.Sequential(*[Block() for _ in range(LAYERS)]), nn.LayerNorm(C)

    def forward(self, ids, targets):
        x = self.ln_f(self.blocks(self.wte(ids) + self.wpe.weight[: ids.shape[1]]))
        return F.cross_entropy((x @ self.wte.weight.T).view(-1, V), targets.view(-1))


def training_seconds(bf16, batch, compiled=False):
    torch.manual_seed(1)
    model = Gpt2().cuda()
    run = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), fused=True)
    ids = torch.randint(0, 50257, (batch, T), device="cuda")

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=bf16):
            loss = run(ids, ids)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return median_seconds(step, 7)


def product_seconds(dtype):
    a, b = (torch.randn(4096, 4096, device="cuda").to(dtype) for _ in range(2))
    return median_seconds(lambda: a @ b)


def attention_seconds(dtype):
    q, k, v = (torch.randn(B, HEADS, T, 64, device="cuda").to(dtype) for _ in range(3))
    return median_seconds(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True))


def main():
    began = time.time()
    torch.backends.cuda.matmul.allow_tf32 = False
    out = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    out["matmul_4096_flops_per_s"] = 2 * 4096**3 / product_seconds(torch.float32)
    out["matmul_4096_bf16_flops_per_s"] = 2 * 4096**3 / product_seconds(torch.bfloat16)
    out["attention_s"] = attention_seconds(torch.float32)
    out["attention_bf16_s"] = attention_seconds(torch.bfloat16)
    out["gpt2_124m_fp32_tokens_per_s"] = B * T / training_seconds(False, B)
    out["gpt2_124m_bf16_tokens_per_s"] = 4 * B * T / training_seconds(True, 4 * B)
    try:
        out["gpt2_124m_bf16_compiled_tokens_per_s"] = 4 * B * T / training_seconds(True, 4 * B, compiled=True)
    except Exception as error:  # no compiler there, for one: the other figures still count
        out["gpt2_124m_bf16_compiled_tokens_per_s"] = None
        out["compile_error"] = str(error).splitlines()[0]
    out["note"] = f"batch {B} x {T} in fp32, {4 * B} x {T} in bf16"
    print(json.dumps(out | {"seconds": time.time() - began}))


if __name__ == "__main__":
    main()
