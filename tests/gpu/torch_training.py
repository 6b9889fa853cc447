#!/usr/bin/env python3
"""PyTorch's training step of a GPT or a Llama of Orrery's, made as fast as PyTorch makes it, on the same initial weights and
the same batches: bf16 autocast, compiled without graph breaks, flash attention, fused AdamW, clipping.

Usage: torch_training.py JOB.json TOKENS.bin [--device cuda|cpu] [--steps N] [--seconds BUDGET] [--modes LIST] [--out FILE]

JOB.json is what scripts/gpu-check wrote of the plan: model, batch, sequence, vocab_padded, seed, warm-up, optimizer. Modes are
tried in order, each with what is left of the budget: "blocks" compiles one block and uses it for all layers, which takes the
compiler least; "whole" compiles the model, "reduce-overhead" does so with CUDA graphs, "eager" does not compile. Where no mode
that compiles works, eager is tried and the reason is told. FILE is written after every mode. On a CPU: fp32, eager, for the
losses. Sums are in any order, as PyTorch's are unless it is told otherwise.
"""
import argparse
import contextlib
import json
import math
import os
import signal
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F

LOW = 0xFFFFFFFF
FOR_EAGER = 15  # seconds of the budget, kept for it until a mode has worked
MOST_DRAWN = 1 << 23  # values at a time: some twenty temporaries of 8 bytes each


# -- Orrery's initial weights: base/random.h, exec/state/initialise.h ------------------------------------------------------------
def stream_of(name):
    """FNV-1a, 64 bits."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def normals(name, seed, first, count, device):
    """Elements [first, first + count) of a tensor of standard normal numbers, in float64: Philox 4x32-10 and Box-Muller."""
    index = torch.arange(first, first + count, dtype=torch.int64, device=device)
    stream = stream_of(name)
    c = [index & LOW, index >> 32, torch.full_like(index, stream & LOW), torch.full_like(index, stream >> 32)]
    k0, k1 = seed & LOW, seed >> 32
    for _ in range(10):
        p0, p1 = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57  # wrap around at 64 bits, as unsigned products do
        c = [p1 >> 32 & LOW ^ c[1] ^ k0, p1 & LOW, p0 >> 32 & LOW ^ c[3] ^ k1, p0 & LOW]
        k0, k1 = k0 + 0x9E3779B9 & LOW, k1 + 0xBB67AE85 & LOW
    unit = lambda a, b: ((a >> 5 << 26) | b >> 6).double() * 2.0**-53
    return torch.sqrt(-2 * torch.log(1 - unit(c[0], c[1]))) * torch.cos(2 * math.pi * unit(c[2], c[3]))


def draw(parameter, name, rows, stddev, seed):
    """The first `rows` rows of a matrix; the padding behind them is zero."""
    with torch.no_grad():
        parameter.zero_()
        flat, count = parameter.view(-1), rows * parameter.shape[1]
        for first in range(0, count, MOST_DRAWN):
            some = min(MOST_DRAWN, count - first)
            flat[first : first + some] = (normals(name, seed, first, some, parameter.device) * stddev).float()


# -- the models: models/layers/expand.cpp ------------------------------------------------------------------------------------------
class Settings:
    def __init__(self, job):
        self.__dict__.update(job["model"])
        self.batch, self.sequence, self.padded = job["batch"], job["sequence"], job["vocab_padded"]
        self.head_dim = self.hidden // self.heads
        self.llama = self.family == "llama"
        self.attention = plain_attention
        self.residual = torch.float32  # type of the residual stream


def plain_attention(q, k, v):
    """Where PyTorch has no other (before 2.0, which only the comparison on a CPU meets)."""
    k, v = (y.repeat_interleave(q.shape[1] // y.shape[1], dim=1) for y in (k, v))
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1) @ v


def grouped_attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])


def repeated_attention(q, k, v):
    if k.shape[1] != q.shape[1]:
        k, v = (y.repeat_interleave(q.shape[1] // y.shape[1], dim=1) for y in (k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class RmsNorm(nn.Module):
    def __init__(self, width, epsilon):
        super().__init__()
        self.weight, self.epsilon = nn.Parameter(torch.ones(width)), epsilon

    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt((y * y).mean(-1, keepdim=True) + self.epsilon) * self.weight).to(x.dtype)


class LayerNorm(nn.LayerNorm):
    def forward(self, x):  # autocast computes it in fp32; its result is stored as the residual stream is
        return super().forward(x).to(x.dtype)


def turned(x, cosine, sine):
    """RoPE: element i of a head with element i + D/2."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cosine - b * sine, b * cosine + a * sine], dim=-1).to(x.dtype)


class Block(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        norm = (lambda: RmsNorm(s.hidden, s.norm_epsilon)) if s.llama else (lambda: LayerNorm(s.hidden, s.norm_epsilon))
        self.ln_1, self.ln_2 = norm(), norm()
        bias, width = not s.llama, s.heads * s.head_dim
        self.qkv = nn.Linear(s.hidden, width + 2 * s.kv_heads * s.head_dim, bias=bias)
        self.proj = nn.Linear(width, s.hidden, bias=bias)
        self.up = nn.Linear(s.hidden, (2 if s.llama else 1) * s.ffn_hidden, bias=bias)
        self.down = nn.Linear(s.ffn_hidden, s.hidden, bias=bias)

    def forward(self, x, cosine=None, sine=None):
        s = self.s
        b, t, _ = x.shape
        sizes = [s.heads * s.head_dim, s.kv_heads * s.head_dim, s.kv_heads * s.head_dim]
        q, k, v = (y.view(b, t, -1, s.head_dim).transpose(1, 2) for y in self.qkv(self.ln_1(x)).split(sizes, dim=2))
        if s.llama:
            q, k = turned(q, cosine, sine), turned(k, cosine, sine)
        y = s.attention(q, k, v)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, -1))
        y = self.up(self.ln_2(x))
        if s.llama:
            gate, up = y.chunk(2, dim=-1)
            return x + self.down(F.silu(gate) * up)
        return x + self.down(F.gelu(y, approximate="tanh"))


class Head(nn.Module):
    def __init__(self, s, tied):
        super().__init__()
        self.s = s
        self.ln_f = RmsNorm(s.hidden, s.norm_epsilon) if s.llama else LayerNorm(s.hidden, s.norm_epsilon)
        self.weight = tied if tied is not None else nn.Parameter(torch.empty(s.padded, s.hidden))

    def forward(self, x, targets):
        logits = F.linear(self.ln_f(x), self.weight)  # over the padded vocabulary; what is padding has no probability
        return F.cross_entropy(logits[..., : self.s.vocab].reshape(-1, self.s.vocab), targets.reshape(-1))


class Transformer(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.wte = nn.Embedding(s.padded, s.hidden)
        self.wpe = None if s.llama else nn.Embedding(s.max_sequence, s.hidden)
        self.blocks = nn.ModuleList(Block(s) for _ in range(s.layers))
        self.head = Head(s, None if s.llama else self.wte.weight)
        if s.llama:
            half = s.head_dim // 2
            frequency = s.rope_theta ** (-torch.arange(half, dtype=torch.float64) / half)
            angle = torch.arange(s.sequence, dtype=torch.float64)[:, None] * frequency
            self.register_buffer("cosine", angle.cos().float())
            self.register_buffer("sine", angle.sin().float())

    def forward(self, ids, targets):
        x = self.wte(ids)
        if self.wpe is not None:
            x = x + self.wpe.weight[: ids.shape[1]]
        x = x.to(self.s.residual)
        for block in self.blocks:
            x = block(x, self.cosine, self.sine) if self.s.llama else block(x)
        return self.head(x, targets)

    def draw(self, seed):
        s, std = self.s, self.s.initial_stddev
        residual = std / math.sqrt(2 * s.layers)
        draw(self.wte.weight, "wte.weight", s.vocab, std, seed)
        if self.wpe is not None:
            draw(self.wpe.weight, "wpe.weight", s.max_sequence, std, seed)
        if s.llama:
            draw(self.head.weight, "lm_head.weight", s.vocab, std, seed)
        for i, block in enumerate(self.blocks):
            at, q, kv = f"h.{i}.", s.heads * s.head_dim, s.kv_heads * s.head_dim
            with torch.no_grad():
                for name, part in zip(("q", "k", "v"), block.qkv.weight.split([q, kv, kv])):
                    draw(part, f"{at}attn.{name}.weight", part.shape[0], std, seed)
                ups = zip(("gate", "up") if s.llama else ("fc",), block.up.weight.split(s.ffn_hidden))
                for name, part in ups:
                    draw(part, f"{at}mlp.{name}.weight", s.ffn_hidden, std, seed)
            draw(block.proj.weight, at + "attn.proj.weight", s.hidden, residual, seed)
            draw(block.down.weight, at + "mlp.proj.weight", s.hidden, residual, seed)
            for linear in (block.qkv, block.proj, block.up, block.down):
                if linear.bias is not None:
                    nn.init.zeros_(linear.bias)


# -- choices ----------------------------------------------------------------------------------------------------------------
class OutOfTime(Exception):
    pass


@contextlib.contextmanager
def at_most(seconds):
    """Raises OutOfTime in the block after that many seconds."""

    def ring(*_):
        raise OutOfTime(f"not done in {seconds:.0f} s")

    old = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def median_seconds(work, repeats, warm=2):
    """Of what `work` queues on the GPU."""
    for _ in range(warm):
        work()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    marks[0].record()
    for mark in marks[1:]:
        work()
        mark.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) * 1e-3 for a, b in zip(marks, marks[1:]))


def peak_bf16():
    """FLOP/s of large products of random numbers, by size: what the card gives of its datasheet's peak."""
    rates = {}
    for m, n, k in ((8192, 8192, 8192), (16384, 8192, 8192), (16384, 16384, 8192)):
        a, b = (torch.randn(*shape, device="cuda").to(torch.bfloat16) for shape in ((m, k), (n, k)))
        rates[f"{m}x{n}x{k}"] = 2 * m * n * k / median_seconds(lambda: a @ b.T, 11)
        del a, b
    return rates


def kernels_of(name):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel([getattr(SDPBackend, name)])


def fastest_attention(s, told):
    """The kernel, and the way to share key heads, that takes the least time forward and backward. -> (context, function)"""
    best = None
    shape = lambda heads: (s.batch, s.sequence, heads, s.head_dim)
    for kernel in ("FLASH_ATTENTION", "CUDNN_ATTENTION"):
        for way in (grouped_attention, repeated_attention) if s.kv_heads != s.heads else (repeated_attention,):
            try:
                inputs = [torch.randn(*shape(h), device="cuda", dtype=torch.bfloat16, requires_grad=True)
                          for h in (s.heads, s.kv_heads, s.kv_heads)]
                dy = torch.randn(*shape(s.heads), device="cuda", dtype=torch.bfloat16).transpose(1, 2)

                def both():
                    y = way(*(x.transpose(1, 2) for x in inputs))
                    torch.autograd.grad(y, inputs, dy)

                with kernels_of(kernel):
                    seconds = median_seconds(both, 7)
            except Exception as error:  # a kernel that does not take this shape
                told.append({"kernel": kernel, "way": way.__name__, "error": first_line(error)})
                continue
            told.append({"kernel": kernel, "way": way.__name__, "seconds": seconds})
            if best is None or seconds < best[0]:
                best = (seconds, kernel, way)
    if best is None:
        return contextlib.nullcontext, repeated_attention
    return (lambda: kernels_of(best[1])), best[2]


def first_line(error):
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def compiled(model, mode):
    if mode == "eager":
        return model
    if mode == "blocks":
        for part in (*model.blocks, model.head):
            part.compile(fullgraph=True, dynamic=False)
        return model
    return torch.compile(model, fullgraph=True, dynamic=False, mode=None if mode == "whole" else mode)


def undo_compilation(model):
    torch._dynamo.reset()
    for part in (*model.blocks, model.head):
        part._compiled_call_impl = None


# -- data and steps ---------------------------------------------------------------------------------------------------------
def batches(path, s, steps, device):
    """Orrery's sequential order: sequence g of a step is the tokens [(step * B + g) * T, ...), targets are the next ones."""
    with open(path, "rb") as file:
        data = bytearray(file.read())
    stream = torch.frombuffer(data, dtype=torch.int16, offset=1024).to(torch.int64) & 0xFFFF
    size = s.batch * s.sequence
    at = torch.arange(steps * size + 1) % stream.numel()
    stream = stream[at].to(device)
    cut = lambda first: stream[first : first + steps * size].view(steps, s.batch, s.sequence)
    return cut(0), cut(1)


class Training:
    def __init__(self, job, tokens, steps, device):
        self.s, self.cuda = Settings(job), device == "cuda"
        self.optimizer_job, self.warmup = job["optimizer"], job["warmup_steps"]
        with torch.device(device) if hasattr(torch, "get_default_device") else contextlib.nullcontext():
            self.model = Transformer(self.s)
        self.model.to(device)
        self.ids, self.targets = batches(tokens, self.s, steps, device)
        if self.cuda:
            self.s.residual = torch.bfloat16  # as Orrery's; plain autocast would keep it in fp32, and be slower
        self.device, self.seed, self.taken = device, job["seed"], 0
        self.begin()

    def begin(self):
        """Initial weights, and an optimizer that has not seen a step."""
        self.model.draw(self.seed)
        for norm in (m for m in self.model.modules() if isinstance(m, (LayerNorm, RmsNorm))):
            nn.init.ones_(norm.weight)
            if getattr(norm, "bias", None) is not None:
                nn.init.zeros_(norm.bias)
        self.parameters, o = list(self.model.parameters()), self.optimizer_job
        groups = [{"params": [p for p in self.parameters if p.dim() == 2], "weight_decay": o["weight_decay"]},
                  {"params": [p for p in self.parameters if p.dim() == 1], "weight_decay": 0.0}]
        fastest = {"fused": True} if self.cuda else {"foreach": False}
        self.optimizer = torch.optim.AdamW(groups, lr=o["learning_rate"], betas=(o["beta1"], o["beta2"]), eps=o["epsilon"], **fastest)
        self.taken = 0

    def step(self, run):
        i = self.taken % len(self.ids)
        for group in self.optimizer.param_groups:
            group["lr"] = self.optimizer_job["learning_rate"] * min(1.0, (self.taken + 1) / max(1, self.warmup))
        with torch.autocast("cuda", dtype=torch.bfloat16) if self.cuda else contextlib.nullcontext():
            loss = run(self.ids[i], self.targets[i])
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, self.optimizer_job["clip_norm"])
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.taken += 1
        return loss.detach().clone()

    def measure(self, mode, steps, seconds):
        """Median step time, first losses and memory in a mode. No step waits for the GPU."""
        began = time.monotonic()
        self.begin()
        torch.cuda.reset_peak_memory_stats()
        losses = []
        with at_most(seconds):
            run = compiled(self.model, mode)
            for _ in range(5):
                if mode == "reduce-overhead":
                    torch.compiler.cudagraph_mark_step_begin()
                losses.append(self.step(run))
            torch.cuda.synchronize()
            warm = time.monotonic() - began
            each = self.some_seconds(run, 2, mode)
            left = seconds - (time.monotonic() - began)
            count = max(5, min(steps, int(0.8 * left / each)))
            step_time = self.some_seconds(run, count, mode)
        return {"step_time_s": step_time, "tokens_per_s": self.s.batch * self.s.sequence / step_time, "steps": count,
                "seconds_to_warm": warm, "losses": [x.item() for x in losses],
                "memory_peak_bytes": torch.cuda.max_memory_allocated(), "memory_reserved_bytes": torch.cuda.max_memory_reserved()}

    def some_seconds(self, run, count, mode):
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        marks[0].record()
        for mark in marks[1:]:
            if mode == "reduce-overhead":
                torch.compiler.cudagraph_mark_step_begin()
            self.step(run)
            mark.record()
        torch.cuda.synchronize()
        return statistics.median(a.elapsed_time(b) * 1e-3 for a, b in zip(marks, marks[1:]))


def on_gpu(job, options, save):
    end = time.monotonic() + options.seconds
    torch.set_float32_matmul_precision("high")
    out = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "attention": [], "modes": {},
           "peak_bf16_flops_per_s": {}}
    training = Training(job, options.tokens, options.steps, "cuda")
    kernels, training.s.attention = fastest_attention(training.s, out["attention"])
    save(out)
    modes, worked = options.modes.split(","), False
    with kernels():
        while modes:
            mode = modes.pop(0)
            left = end - time.monotonic() - (0 if worked or mode == "eager" else FOR_EAGER)
            try:
                if left < 5:
                    raise OutOfTime("no time left for it")
                out["modes"][mode] = training.measure(mode, options.steps, left)
            except Exception as error:
                out["modes"][mode] = {"error": f"{type(error).__name__}: {first_line(error)}"}
            undo_compilation(training.model)
            training.optimizer = None
            training.model.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
            worked = worked or "step_time_s" in out["modes"][mode]
            save(out)
            if not modes and not worked and mode != "eager":
                modes.append("eager")
    if end - time.monotonic() > 5:
        out["peak_bf16_flops_per_s"] = peak_bf16()
        save(out)
    return 0 if worked else 1


def on_cpu(job, options, save):
    training = Training(job, options.tokens, options.steps, "cpu")
    save({"device": "cpu", "torch": torch.__version__, "losses": [training.step(training.model).item() for _ in range(options.steps)]})
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("job")
    parser.add_argument("tokens")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--modes", default="blocks,whole")
    parser.add_argument("--out")
    options = parser.parse_args()
    with open(options.job) as file:
        job = json.load(file)
    began = time.time()

    def save(result):
        text = json.dumps({"name": job["name"], **result, "seconds": time.time() - began})
        if not options.out:
            return print(text, flush=True)
        with open(options.out + ".part", "w") as file:
            file.write(text + "\n")
        os.replace(options.out + ".part", options.out)

    return (on_gpu if options.device == "cuda" else on_cpu)(job, options, save)


if __name__ == "__main__":
    raise SystemExit(main())
