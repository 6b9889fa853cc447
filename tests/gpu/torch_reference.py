#!/usr/bin/env python3
"""PyTorch on the same GPU, for comparison with gpu_bench and the worker: one matrix product, attention, and training
steps of GPT-2 small in fp32, with and without TF32. Prints one JSON object. scripts/gpu-check runs it."""
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


def training_seconds(tf32):
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.manual_seed(1)
    model = Gpt2().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), fused=True)
    ids = torch.randint(0, 50257, (B, T), device="cuda")

    def step():
        loss = model(ids, ids)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return median_seconds(step, 7)


def main():
    began = time.time()
    torch.backends.cuda.matmul.allow_tf32 = False
    a, b = torch.randn(4096, 4096, device="cuda"), torch.randn(4096, 4096, device="cuda")
    q, k, v = (torch.randn(B, HEADS, T, 64, device="cuda") for _ in range(3))
    product = median_seconds(lambda: a @ b)
    attention = median_seconds(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True))
    fp32, tf32 = training_seconds(False), training_seconds(True)
    print(json.dumps({
        "device": torch.cuda.get_device_name(), "torch": torch.__version__,
        "matmul_4096_flops_per_s": 2 * 4096**3 / product, "attention_s": attention,
        "gpt2_124m_fp32_step_s": fp32, "gpt2_124m_fp32_tokens_per_s": B * T / fp32,
        "gpt2_124m_tf32_step_s": tf32, "gpt2_124m_tf32_tokens_per_s": B * T / tf32,
        "seconds": time.time() - began, "note": f"batch {B} x {T}, not compiled"}))


if __name__ == "__main__":
    main()
