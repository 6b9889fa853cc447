#!/usr/bin/env python3
"""What scripts/gpu-check packs besides programs and plans, and the proof that PyTorch's side trains what Orrery trains.

Usage: inputs.py tokens FILE [COUNT]                   tokens by Zipf's law, in llm.c's format
       inputs.py job NAME MODEL.yaml SIMULATED.json    the step that a plan was simulated for (standard output)
       inputs.py peaks FOLDER                          dense bf16 peaks of a catalogue's devices (standard output)
       inputs.py agree METRICS.jsonl TORCH.json        exit 5 unless the losses are the same to 1e-5
"""
import bisect
import itertools
import json
import pathlib
import re
import struct
import sys

from machine import catalogue_peaks
from reading import apart, number, objects, parsed, read


def write_tokens(path, count=1_600_000, words=32_000):
    """The r-th of `words` ids is drawn in proportion to 1 / (r + 2.7), as words are in English (Zipf 1935, Mandelbrot
    1953): the gradient of an embedding takes longer where many rows carry the same token. The same file for all three
    systems.
    """
    bounds = list(itertools.accumulate(1 / (rank + 2.7) for rank in range(words)))
    state, drawn = 20240520, []
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        drawn.append(bisect.bisect_right(bounds, (state >> 11) * 2.0**-53 * bounds[-1], 0, words - 1))
    with open(path, "wb") as file:
        file.write(struct.pack("<256i", 20240520, 1, count, *[0] * 253))
        file.write(struct.pack(f"<{count}H", *drawn))


def catalogue_entry(path):
    """The keys of a model file that are one line each; all that PyTorch's side asks for are."""
    model = {}
    for line in pathlib.Path(path).read_text().splitlines():
        found = re.fullmatch(r"(\w+): *([^#]+?) *(#.*)?", line)
        if not found:
            continue
        try:
            model[found[1]] = json.loads(found[2])
        except ValueError:
            model[found[1]] = found[2]
    model.setdefault("kv_heads", model["heads"])
    return model


def write_job(name, model_file, simulated):
    result = json.loads(pathlib.Path(simulated).read_text())["result"]
    plan, model = result["plan"], catalogue_entry(model_file)
    multiple = plan["vocab_multiple"]
    json.dump(
        {
            "name": name,
            "model": model,
            "batch": plan["batch"],
            "sequence": plan["sequence"],
            "vocab_padded": -(-model["vocab"] // multiple) * multiple,
            "seed": 1234,
            "warmup_steps": 20,
            "optimizer": {
                "learning_rate": 6e-4,
                "beta1": 0.9,
                "beta2": 0.95,
                "epsilon": 1e-8,
                "weight_decay": 0.1,
                "clip_norm": 1.0,
            },
            "predicted": {
                key: result[key]
                for key in ("step_time_s", "memory_peak_bytes", "memory_capacity_bytes", "mfu", "tokens_per_s")
            },
        },
        sys.stdout,
        indent=1,
    )
    print()


def write_peaks(folder):
    json.dump(catalogue_peaks(folder), sys.stdout, indent=1)
    print()


def agree(metrics, torch):
    mine = [number(row.get("loss")) for row in objects(metrics)[0]]
    theirs = (parsed(read(torch)) or {}).get("losses") or []
    if not mine or len(mine) != len(theirs):
        print(f"{len(mine)} and {len(theirs)} steps", file=sys.stderr)
        return 5
    difference = apart(mine, theirs)
    print(f"losses {', '.join(map(str, mine))}; PyTorch's are apart by {difference:.1e} at most")
    return 0 if difference <= 1e-5 else 5


def main(verb, *rest):
    if verb == "tokens":
        return write_tokens(rest[0], *map(int, rest[1:]))
    return {"job": write_job, "peaks": write_peaks, "agree": agree}[verb](*rest)


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("tokens", "job", "peaks", "agree"):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
