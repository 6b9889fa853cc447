#!/usr/bin/env python3
"""PyTorch on the same GPU, for comparison with gpu_bench and the worker: matrix products, attention, and training
steps of GPT-2 small in fp32 and in bf16 (autocast, flash attention, fused AdamW), not compiled: torch_training.py has
those that are. Prints a JSON object for each figure, as soon as it is known. scripts/gpu-check runs it."""
import json

import torch
from torch.nn import functional as F
from torch_training import Settings, Transformer, median_seconds, repeated_attention

HEADS, T, B = 12, 1024, 8
SETTINGS = Settings({"model": {"family": "gpt", "layers": 12, "hidden": 768, "heads": HEADS, "kv_heads": HEADS,
                               "ffn_hidden": 3072, "vocab": 50257, "max_sequence": T, "norm_epsilon": 1e-5},
                     "batch": B, "sequence": T, "vocab_padded": 50304})
SETTINGS.attention = repeated_attention


def training_seconds(bf16, batch):
    torch.manual_seed(1)
    SETTINGS.residual = torch.bfloat16 if bf16 else torch.float32
    model = Transformer(SETTINGS).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), fused=True)
    ids = torch.randint(0, 50257, (batch, T), device="cuda")

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=bf16):
            loss = model(ids, ids)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return median_seconds(step, 7, warm=3)


def product_seconds(dtype):
    a, b = (torch.randn(4096, 4096, device="cuda").to(dtype) for _ in range(2))
    return median_seconds(lambda: a @ b, 11, warm=3)


def attention_seconds(dtype):
    q, k, v = (torch.randn(B, HEADS, T, 64, device="cuda").to(dtype) for _ in range(3))
    return median_seconds(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True), 11, warm=3)


def tell(**figures):
    print(json.dumps(figures), flush=True)


def main():
    torch.backends.cuda.matmul.allow_tf32 = False
    tell(device=torch.cuda.get_device_name(), torch=torch.__version__)
    tell(matmul_4096_bf16_flops_per_s=2 * 4096**3 / product_seconds(torch.bfloat16))
    tell(attention_bf16_s=attention_seconds(torch.bfloat16))
    tell(matmul_4096_flops_per_s=2 * 4096**3 / product_seconds(torch.float32))
    tell(attention_s=attention_seconds(torch.float32))
    tell(gpt2_124m_bf16_eager_tokens_per_s=4 * B * T / training_seconds(True, 4 * B))
    tell(gpt2_124m_fp32_eager_tokens_per_s=B * T / training_seconds(False, B))


if __name__ == "__main__":
    main()
