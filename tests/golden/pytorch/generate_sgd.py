#!/usr/bin/python3
"""Generates golden_sgd.json: the run `constant` of generate.py with torch.optim.SGD, plain, with momentum, with Nesterov's.

Reads initial.safetensors' values by making them anew with the same seed, and writes nothing else.
"""
import json
import os

import torch

import generate as g

RUNS = {
    "plain": {"learning_rate": 0.3, "momentum": 0.0, "nesterov": False},
    "momentum": {"learning_rate": 0.05, "momentum": 0.9, "nesterov": False},
    "nesterov": {"learning_rate": 0.05, "momentum": 0.9, "nesterov": True},
}
DECAY = 0.01


def train(run, start, stream, dtype):
    w = {name: tensor.clone().to(dtype).requires_grad_() for name, tensor in start.items()}
    groups = [{"params": [t for t in w.values() if t.dim() == 2], "weight_decay": DECAY},
              {"params": [t for t in w.values() if t.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups, lr=run["learning_rate"], momentum=run["momentum"], nesterov=run["nesterov"])
    losses = []
    for step in range(g.STEPS):
        first = step * g.BATCH * g.SEQUENCE
        window = torch.tensor(stream[first : first + g.BATCH * g.SEQUENCE + 1])
        loss = g.loss_of(w, window[:-1].view(g.BATCH, g.SEQUENCE), window[1:].view(g.BATCH, g.SEQUENCE))
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    return losses


def main():
    torch.set_num_threads(1)
    start, stream = g.initial_weights(), g.tokens()
    golden = {"torch": torch.__version__, "weight_decay": DECAY, "runs": {}}
    for name, run in RUNS.items():
        golden["runs"][name] = {**run, "losses": train(run, start, stream, torch.float64)}
        print(name, [round(x, 4) for x in golden["runs"][name]["losses"]])
    with open(os.path.join(g.HERE, "golden_sgd.json"), "w") as file:
        json.dump(golden, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
