#!/usr/bin/python3
"""Generates golden numbers of a small recommendation model: the DLRM of tests/exec/recommender.h, trained by PyTorch.

dlrm_clicks.tsv holds the samples, in Criteo's form; dlrm_initial.safetensors the weights before step 1, with the public
DLRM's names; dlrm_golden.json each step's loss by each optimizer, in float64, and dlrm_NAME_final.safetensors what 20
steps of it have made of the weights. Tables are torch's own EmbeddingBag with sparse gradients. Adam of tables is
torch.optim.SparseAdam (moments of rows that a step does not look up stay), whose epsilon stands beside the uncorrected
moment: each step gives it epsilon * sqrt(1 - beta2^t), which makes it fbgemm's ADAM. Row-wise Adagrad is written out.
"""
import json
import math
import os

import torch

import generate as g

DENSE, WIDTH, BATCH, STEPS = 3, 8, 16, 20
TABLES = [(50, "sum", 1), (7, "mean", 3), (200, "sum", 4), (13, "sum", 2)]
BOTTOM, TOP = [16, 8], [16, 8, 1]
EPSILON, BETAS = 1e-8, (0.9, 0.999)
RATES = {"sgd": 0.1, "rowwise_adagrad": 0.02, "adam": 0.01}


def clicks():
    """Lines of Criteo's form; small values are frequent, some fields are empty or negative."""
    state, lines = 20260101, []

    def draw(below):
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (state >> 33) % below

    for _ in range(STEPS * BATCH):
        fields, total = [], 0
        for _ in range(DENSE):
            value = draw(100)
            total += value // 20
            fields.append("" if draw(10) == 0 else str(value - 3))
        for rows, _, hot in TABLES:
            for _ in range(hot):
                value = draw(5 if draw(2) == 0 else 3 * rows)
                total += value % 3
                fields.append("" if draw(20) == 0 else f"{value:x}")
        lines.append("\t".join([str(int(total % 5 < 2))] + fields))
    return lines


def read(line):
    fields = line.split("\t")
    dense = [math.log(max(int(x), 0) + 1) if x else 0.0 for x in fields[1 : 1 + DENSE]]
    at, bags = 1 + DENSE, []
    for rows, _, hot in TABLES:
        bags.append([int(x, 16) % rows if x else 0 for x in fields[at : at + hot]])
        at += hot
    return float(fields[0]), dense, bags


def widths_of_top():
    vectors = len(TABLES) + 1
    return [WIDTH + vectors * (vectors - 1) // 2] + TOP


def initial_weights():
    torch.manual_seed(20260102)
    weights = {}
    for prefix, widths in (("bot_l.", [DENSE] + BOTTOM), ("top_l.", widths_of_top())):
        for i in range(len(widths) - 1):
            deviation = math.sqrt(2 / sum(widths[i : i + 2]))
            weights[f"{prefix}{2 * i}.weight"] = torch.randn(widths[i + 1], widths[i]) * deviation
            weights[f"{prefix}{2 * i}.bias"] = torch.randn(widths[i + 1]) * math.sqrt(1 / widths[i + 1])
    for t, (rows, _, _) in enumerate(TABLES):
        weights[f"emb_l.{t}.weight"] = torch.randn(rows, WIDTH) * 0.2
    return weights


def mlp(weights, prefix, x, layers, last_is_linear):
    for i in range(layers):
        x = x @ weights[f"{prefix}{2 * i}.weight"].T + weights[f"{prefix}{2 * i}.bias"]
        if i + 1 < layers or not last_is_linear:
            x = torch.relu(x)
    return x


def loss_of(weights, samples):
    labels = torch.tensor([s[0] for s in samples], dtype=torch.float64)
    dense = torch.tensor([s[1] for s in samples], dtype=torch.float64)
    vectors = [mlp(weights, "bot_l.", dense, len(BOTTOM), False)]
    for t, (_, mode, _) in enumerate(TABLES):
        bags = torch.tensor([s[2][t] for s in samples])
        vectors.append(torch.nn.functional.embedding_bag(bags, weights[f"emb_l.{t}.weight"], mode=mode, sparse=True))
    stacked = torch.stack(vectors, 1)
    products = torch.bmm(stacked, stacked.transpose(1, 2))
    pairs = [(i, j) for i in range(len(vectors)) for j in range(i)]
    interaction = products[:, [i for i, _ in pairs], [j for _, j in pairs]]
    logits = mlp(weights, "top_l.", torch.cat([vectors[0], interaction], 1), len(TOP), True)
    return torch.nn.functional.binary_cross_entropy_with_logits(logits[:, 0], labels)


class RowwiseAdagrad:
    """fbgemm's EXACT_ROWWISE_ADAGRAD: one state a row, the mean of its gradient's squares."""

    def __init__(self, tables, rate):
        self.tables, self.rate = tables, rate
        self.states = [torch.zeros(len(t), dtype=torch.float64) for t in tables]

    def step(self):
        for table, state in zip(self.tables, self.states):
            rows, values = table.grad.coalesce().indices()[0], table.grad.coalesce().values()
            state[rows] += values.pow(2).mean(1)
            with torch.no_grad():
                table[rows] -= self.rate * values / (state[rows].sqrt() + EPSILON)[:, None]


class Adam:
    def __init__(self, tables, rate):
        self.sparse = torch.optim.SparseAdam(tables, lr=rate, betas=BETAS, eps=EPSILON)
        self.steps = 0

    def step(self):
        self.steps += 1
        for group in self.sparse.param_groups:
            group["eps"] = EPSILON * math.sqrt(1 - BETAS[1] ** self.steps)
        self.sparse.step()


def optimizers(name, dense, tables):
    rate = RATES[name]
    if name == "sgd":
        return [torch.optim.SGD(dense + tables, lr=rate)]
    if name == "adam":
        return [torch.optim.Adam(dense, lr=rate, betas=BETAS, eps=EPSILON), Adam(tables, rate)]
    return [torch.optim.Adagrad(dense, lr=rate, eps=EPSILON), RowwiseAdagrad(tables, rate)]


def train(name, start, samples):
    weights = {key: value.to(torch.float64).requires_grad_() for key, value in start.items()}
    dense = [value for key, value in weights.items() if not key.startswith("emb_l")]
    tables = [value for key, value in weights.items() if key.startswith("emb_l")]
    both, losses = optimizers(name, dense, tables), []
    for step in range(STEPS):
        for value in weights.values():
            value.grad = None
        loss = loss_of(weights, samples[step * BATCH : (step + 1) * BATCH])
        loss.backward()
        losses.append(loss.item())
        for one in both:
            one.step()
    return losses, {key: value.detach() for key, value in weights.items()}


def main():
    torch.set_num_threads(1)
    lines, start = clicks(), initial_weights()
    with open(os.path.join(g.HERE, "dlrm_clicks.tsv"), "w") as file:
        file.write("\n".join(lines) + "\n")
    g.write_safetensors(os.path.join(g.HERE, "dlrm_initial.safetensors"), start)
    samples = [read(line) for line in lines]
    golden = {"torch": torch.__version__, "epsilon": EPSILON, "betas": BETAS, "runs": {}}
    for name, rate in RATES.items():
        losses, end = train(name, start, samples)
        golden["runs"][name] = {"learning_rate": rate, "losses": losses}
        g.write_safetensors(os.path.join(g.HERE, f"dlrm_{name}_final.safetensors"), end)
        print(name, [round(x, 4) for x in losses])
    with open(os.path.join(g.HERE, "dlrm_golden.json"), "w") as file:
        json.dump(golden, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
