#!/usr/bin/python3
"""Generates the golden numbers of two tiny mixtures of experts trained by PyTorch in float64, around the attention of
generate_llama.py. See README.md; data and optimizer as in generate.py.

`mixtral`: softmax, the two best of eight, normalised; balancing loss as transformers' load_balancing_loss_func has it
(all layers' tokens together), and a z-loss. `deepseek`: sigmoids, a bias for the choice alone, two of four groups by
their two best, three of eight experts, normalised and scaled, a shared expert, the first layer dense. Experts are
computed one by one, each on the tokens that chose it.
"""
import json
import os

import torch

import generate as gpt
import generate_llama as llama

HERE = os.path.dirname(os.path.abspath(__file__))
LAYERS, HIDDEN, VOCAB, WIDTH, EXPERTS = 3, 32, 64, 24, 8
RUN = gpt.RUNS["cosine_clipped"]
KINDS = {
    "mixtral": {"chosen": 2, "sigmoid": False, "groups": 1, "groups_chosen": 1, "scale": 1.0, "shared": 0,
                "first_dense": 0, "aux": 0.02, "z": 0.01},
    "deepseek": {"chosen": 3, "sigmoid": True, "groups": 4, "groups_chosen": 2, "scale": 2.5, "shared": 16,
                 "first_dense": 1, "aux": 0.0, "z": 0.0},
}


def initial_weights(kind):
    """Our own names, orientations as Hugging Face's Llama."""
    torch.manual_seed(20241123)
    normal = lambda *shape, stddev=0.08, mean=0.0: torch.randn(*shape) * stddev + mean
    w = {"wte.weight": normal(VOCAB, HIDDEN, stddev=0.1)}
    for i in range(LAYERS):
        h = f"h.{i}."
        for norm in ("ln_1", "ln_2"):
            w[h + norm + ".weight"] = normal(HIDDEN, stddev=0.1, mean=1.0)
        w[h + "attn.q.weight"] = normal(llama.HEADS * llama.HEAD, HIDDEN, stddev=0.2)
        w[h + "attn.k.weight"] = normal(llama.GROUPS * llama.HEAD, HIDDEN, stddev=0.2)
        w[h + "attn.v.weight"] = normal(llama.GROUPS * llama.HEAD, HIDDEN)
        w[h + "attn.proj.weight"] = normal(HIDDEN, llama.HEADS * llama.HEAD)
        mlp = lambda at, width: {at + "gate.weight": normal(width, HIDDEN, stddev=0.1),
                                 at + "up.weight": normal(width, HIDDEN, stddev=0.1),
                                 at + "proj.weight": normal(HIDDEN, width, stddev=0.1)}
        if i < kind["first_dense"]:
            w.update(mlp(h + "mlp.", 2 * WIDTH))
            continue
        w[h + "mlp.router.weight"] = normal(EXPERTS, HIDDEN, stddev=0.2)
        if kind["sigmoid"]:
            w[h + "mlp.router.balance"] = normal(EXPERTS, stddev=0.1)
        for e in range(EXPERTS):
            w.update(mlp(h + f"mlp.experts.{e}.", WIDTH))
        if kind["shared"]:
            w.update(mlp(h + "mlp.shared.", kind["shared"]))
    w["ln_f.weight"] = normal(HIDDEN, stddev=0.1, mean=1.0)
    w["lm_head.weight"] = normal(VOCAB, HIDDEN)
    return w


def swiglu(x, w, at):
    return (torch.nn.functional.silu(x @ w[at + "gate.weight"].T) * (x @ w[at + "up.weight"].T)) @ w[at + "proj.weight"].T


def choose(logits, w, h, kind):
    """(n, k) experts of each token, and their weights."""
    if not kind["sigmoid"]:
        p = torch.softmax(logits, -1)
        weights, choice = torch.topk(p, kind["chosen"], -1)
        return choice, weights / weights.sum(-1, keepdim=True)
    p = torch.sigmoid(logits)
    biased = (p + w[h + "mlp.router.balance"]).detach()
    grouped = biased.view(-1, kind["groups"], EXPERTS // kind["groups"])
    best = torch.topk(grouped.topk(2, -1).values.sum(-1), kind["groups_chosen"], -1).indices
    mask = torch.zeros(grouped.shape[:2], dtype=torch.bool).scatter_(1, best, True)
    masked = biased.masked_fill(~mask.repeat_interleave(EXPERTS // kind["groups"], 1), float("-inf"))
    choice = torch.topk(masked, kind["chosen"], -1).indices
    weights = p.gather(1, choice)
    return choice, weights / (weights.sum(-1, keepdim=True) + 1e-20) * kind["scale"]


def mixture(x, w, h, kind, routed):
    n = x.shape[0]
    logits = x @ w[h + "mlp.router.weight"].T
    choice, weights = choose(logits, w, h, kind)
    routed.append((logits, choice))
    y = torch.zeros_like(x)
    for e in range(EXPERTS):
        token, k = (choice == e).nonzero(as_tuple=True)
        if len(token):
            y = y.index_add(0, token, weights[token, k][:, None] * swiglu(x[token], w, h + f"mlp.experts.{e}."))
    return y + swiglu(x, w, h + "mlp.shared.") if kind["shared"] else y


def balancing(routed):
    """Of all layers' tokens together: E sum over k and e of the share of tokens that chose e as their k-th, times the
    mean softmax; and the mean square of the log of the sum of exponentials."""
    logits = torch.cat([one for one, _ in routed])
    choice = torch.cat([one for _, one in routed])
    shares = torch.nn.functional.one_hot(choice, EXPERTS).to(logits.dtype).mean(0)
    aux = EXPERTS * (shares * torch.softmax(logits, -1).mean(0)).sum()
    return aux, (torch.logsumexp(logits, -1) ** 2).mean()


def losses_of(w, ids, targets, kind):
    b, t = ids.shape
    names = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "proj"}
    x, routed = w["wte.weight"][ids], []
    for i in range(LAYERS):
        h = f"h.{i}."
        attention = {f"self_attn.{theirs}.weight": w[h + f"attn.{ours}.weight"] for theirs, ours in names.items()}
        x = x + llama.attention(llama.rms_norm(x, w[h + "ln_1.weight"]), attention, "")
        y = llama.rms_norm(x, w[h + "ln_2.weight"]).view(b * t, HIDDEN)
        dense = i < kind["first_dense"]
        x = x + (swiglu(y, w, h + "mlp.") if dense else mixture(y, w, h, kind, routed)).view(b, t, HIDDEN)
    logits = llama.rms_norm(x, w["ln_f.weight"]) @ w["lm_head.weight"].T
    return (torch.nn.functional.cross_entropy(logits.view(-1, VOCAB), targets.view(-1)), *balancing(routed))


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
        loss, aux, z = losses_of(w, window[:-1].view(shape), window[1:].view(shape), kind)
        optimizer.zero_grad()
        (loss + kind["aux"] * aux + kind["z"] * z).backward()
        for t in trained.values():  # an expert that nobody chose
            t.grad = torch.zeros_like(t) if t.grad is None else t.grad
        gradient = gradient or {name: t.grad.clone() for name, t in trained.items()}
        norm = torch.nn.utils.clip_grad_norm_(list(trained.values()), RUN["clip_norm"])
        for group in optimizer.param_groups:
            group["lr"] = gpt.learning_rate(RUN, step)
        rows.append({"step": step + 1, "loss": loss.item(), "aux_loss": aux.item(), "z_loss": z.item(),
                     "gradient_norm": norm.item()})
        optimizer.step()
    return rows, gradient


def main():
    torch.set_num_threads(1)
    golden = {"torch": torch.__version__}
    for name, kind in KINDS.items():
        start = initial_weights(kind)
        gpt.write_safetensors(os.path.join(HERE, f"moe_{name}_initial.safetensors"), start)
        rows, gradient = train(kind, start, gpt.tokens())
        gpt.write_safetensors(os.path.join(HERE, f"moe_{name}_gradient_step_1.safetensors"), gradient)
        golden[name] = {"steps": rows}
        print(name, [(round(r["loss"], 4), round(r["aux_loss"], 3)) for r in rows])
    with open(os.path.join(HERE, "moe_golden.json"), "w") as file:
        json.dump(golden, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
