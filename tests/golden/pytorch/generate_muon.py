#!/usr/bin/python3
"""Generates golden_muon.json: the run `cosine_clipped` of generate.py and of generate_llama.py with Muon, in float64.

Matrices of blocks move by Muon as in Keller Jordan's reference (github.com/KellerJordan/Muon, `muon_update`, with
Newton-Schulz in the run's own precision instead of bfloat16), each of q, k and v by itself; all else by torch's AdamW
with a rate of its own, both after one schedule. Reads nothing but what the other two make anew; writes one file.
"""
import json
import os

import torch

import generate as gpt
import generate_llama as llama

MUON = {"learning_rate": 0.02, "momentum": 0.95, "weight_decay": 0.05}
ADAMW = {"learning_rate": 3e-3, "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8, "weight_decay": 0.1}
SCHEDULE = {"warmup_steps": 5, "minimum": 0.002}
CLIP = 1.0


def orthogonalised(g):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.T if g.size(0) > g.size(1) else g
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if g.size(0) > g.size(1) else x


class Muon:
    """Of matrices (out, in)."""

    def __init__(self, matrices):
        self.matrices, self.buffers = matrices, [torch.zeros_like(m) for m in matrices]

    def step(self, gradients, rate):
        for matrix, buffer, g in zip(self.matrices, self.buffers, gradients):
            buffer.lerp_(g, 1 - MUON["momentum"])
            update = g.lerp(buffer, MUON["momentum"])
            update = orthogonalised(update) * max(1, g.size(0) / g.size(1)) ** 0.5
            matrix.mul_(1 - rate * MUON["weight_decay"])
            matrix.add_(update, alpha=-rate)


def views(name, tensor, fused):
    """The matrices (out, in) that a stored one is made of: Conv1D keeps them transposed, q, k and v side by side."""
    if not fused:
        return [tensor]
    return [part.T for part in tensor.split(tensor.size(1) // 3 if "c_attn" in name else tensor.size(1), dim=1)]


def train(module, start, stream, fused):
    w = {name: tensor.clone().double().requires_grad_() for name, tensor in start.items()}
    blocks = [name for name, t in w.items() if t.dim() == 2 and (".h." in name or ".layers." in name)]
    rest = [name for name in w if name not in blocks]
    muon = Muon([view for name in blocks for view in views(name, w[name].detach(), fused)])
    adamw = torch.optim.AdamW(
        [{"params": [w[name] for name in rest if w[name].dim() == 2], "weight_decay": ADAMW["weight_decay"]},
         {"params": [w[name] for name in rest if w[name].dim() == 1], "weight_decay": 0.0}],
        lr=ADAMW["learning_rate"], betas=(ADAMW["beta1"], ADAMW["beta2"]), eps=ADAMW["epsilon"], foreach=False)
    run = {"learning_rate": MUON["learning_rate"], **SCHEDULE}
    losses = []
    for step in range(gpt.STEPS):
        first = step * gpt.BATCH * gpt.SEQUENCE
        window = torch.tensor(stream[first : first + gpt.BATCH * gpt.SEQUENCE + 1])
        loss = module.loss_of(w, window[:-1].view(gpt.BATCH, gpt.SEQUENCE), window[1:].view(gpt.BATCH, gpt.SEQUENCE))
        for tensor in w.values():
            tensor.grad = None
        loss.backward()
        losses.append(loss.item())
        torch.nn.utils.clip_grad_norm_(list(w.values()), CLIP)
        rate = gpt.learning_rate(run, step)
        for group in adamw.param_groups:
            group["lr"] = rate * ADAMW["learning_rate"] / MUON["learning_rate"]
        adamw.step()
        with torch.no_grad():
            muon.step([view for name in blocks for view in views(name, w[name].grad, fused)], rate)
    return losses


def main():
    torch.set_num_threads(1)
    golden = {"torch": torch.__version__, "muon": MUON, "adamw": ADAMW, "schedule": SCHEDULE, "clip_norm": CLIP}
    stream = gpt.tokens()
    golden["losses"] = {"gpt": train(gpt, gpt.initial_weights(), stream, True),
                        "llama": train(llama, llama.initial_weights(), stream, False)}
    for name, losses in golden["losses"].items():
        print(name, [round(x, 4) for x in losses])
    with open(os.path.join(gpt.HERE, "golden_muon.json"), "w") as file:
        json.dump(golden, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
