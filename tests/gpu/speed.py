#!/usr/bin/env python3
"""What scripts/gpu-check --speed needs besides shell: the description of a training step for PyTorch's side, tokens, and the
page that sets Orrery, PyTorch and llm.c side by side.

Usage: speed.py tokens FILE [COUNT]                   tokens by Zipf's law, in llm.c's format
       speed.py job NAME MODEL.yaml SIMULATED.json    the step that a plan was simulated for (standard output)
       speed.py page OUT PACK                         OUT/results.json and OUT/page.txt from what is in OUT so far
       speed.py agree METRICS.jsonl TORCH.json        exit 5 unless the losses are the same to 1e-5
"""
import bisect
import itertools
import json
import pathlib
import re
import statistics
import struct
import sys

# At least so many times PyTorch's tokens per second, and that share of the measured bf16 peak.
GOALS = {"gpt2-124m": (1.2, None), "gpt2-1558m": (1.1, 0.5), "tinyllama-1.1b": (1.1, 0.5)}
MOST_APART = 2e-2  # the first losses from PyTorch's, relative: two ways to round to bf16
ORDER_APART = 1e-2  # those of --no-repeat from those that repeat: the order of attention's sums, carried on by training
SPANS_GOAL = 0.01  # of a step, on average
WARM = 9           # first steps, which are traced, captured as graphs, and tuned in


def read(path):
    try:
        return path.read_text()
    except OSError:
        return ""


def parsed(text):
    try:
        return json.loads(text)
    except ValueError:
        return None


# -- here: what goes into the pack ------------------------------------------------------------------------------------------
def write_tokens(path, count=1_600_000, words=32_000):
    """The r-th of `words` ids is drawn in proportion to 1 / (r + 2.7), as words are in English (Zipf 1935, Mandelbrot 1953):
    the gradient of an embedding takes longer where many rows carry the same token. The same file for all three systems."""
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
    json.dump({"name": name, "model": model, "batch": plan["batch"], "sequence": plan["sequence"],
               "vocab_padded": -(-model["vocab"] // multiple) * multiple, "seed": 1234, "warmup_steps": 20,
               "optimizer": {"learning_rate": 6e-4, "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8, "weight_decay": 0.1,
                             "clip_norm": 1.0},
               "predicted": {key: result[key] for key in ("step_time_s", "memory_peak_bytes", "memory_capacity_bytes",
                                                         "mfu", "tokens_per_s")}},
              sys.stdout, indent=1)
    print()


# -- there: the page --------------------------------------------------------------------------------------------------------
def forward_flops_per_token(model, sequence):
    """Products and the full attention matrix, as models/counts.h: the numerator of MFU is three times that."""
    c, d = model["hidden"], model["hidden"] // model["heads"]
    attention = c * (model["heads"] + 2 * model["kv_heads"]) * d + model["heads"] * d * c
    mlp = (3 if model["family"] == "llama" else 2) * c * model["ffn_hidden"]
    scores = 2 * sequence * model["heads"] * d
    return 2 * (model["layers"] * (attention + mlp + scores) + c * model["vocab"])


def events_of(path):
    return [e for e in map(parsed, read(path).splitlines()) if isinstance(e, dict)]


def spans_cost(rows, timeline):
    """What marks cost: of steps that the timeline has spans of, and of all, because one step of several has them. The steps
    alternate within one run."""
    try:
        where = timeline["columns"].index("iteration")
        sampled = {row[where] for row in timeline["rows"]}
    except (TypeError, KeyError, ValueError, IndexError):
        return None
    late = rows[WARM:]
    with_marks = [r["step_time_s"] for r in late if r["step"] - 1 in sampled]
    without = [r["step_time_s"] for r in late if r["step"] - 1 not in sampled]
    if len(with_marks) < 3 or len(without) < 3:
        return None
    a, b = statistics.median(with_marks), statistics.median(without)
    return {"step_time_s": b, "step_time_sampled_s": a, "slower_when_sampled": a / b - 1,
            "slower_on_average": (a / b - 1) * len(with_marks) / len(late)}


def orrerys(out, name, steps):
    """`name` with ".no-repeat" behind it: of that variant."""
    rows = [r for r in map(parsed, read(out / f"run-speed-{name}/metrics.jsonl").splitlines()) if r]
    step = steps.get(f"train_speed-{name}")
    if not step:
        return None
    run = {"exit_code": step["exit_code"], "seconds": step["seconds"], "steps": len(rows)}
    said = {e.get("event"): e for e in events_of(out / f"train_speed-{name}.out")}
    run["graphs"], run["kernels"] = said.get("graphs"), (said.get("kernels") or {}).get("choices")
    if len(rows) > WARM + 2:
        late = [r["step_time_s"] for r in rows[WARM:]]
        run.update(step_time_s=statistics.median(late), fastest_step_s=min(late), losses=[r["loss"] for r in rows],
                   memory_peak_bytes=rows[-1]["memory_peak_bytes"],
                   workspace_bytes=max(rows[-1].get("kernel_workspace_bytes_by_rank") or [0]),
                   spans=spans_cost(rows, parsed(read(out / f"run-speed-{name}/timeline.json"))))
    return run


def llm_c(out, tokens):
    rows = re.findall(r"step +\d+/\d+ \| loss ([\d.]+).*?\| ([\d.]+) ms \|", read(out / "llmc.out"))
    if len(rows) < WARM + 3:
        return None
    step_time = statistics.median(float(ms) for _, ms in rows[WARM:]) * 1e-3
    return {"steps": len(rows), "step_time_s": step_time, "tokens_per_s": tokens / step_time,
            "losses": [float(loss) for loss, _ in rows]}


def losses_apart(losses, others):
    """The largest relative difference of two runs' first losses. None: not a finite number."""
    pairs = [(a, b) for a, b in zip(losses, others) if a is not None and b is not None]
    return max((abs(a - b) / b for a, b in pairs), default=None)


def compare(out, job, steps):
    name, model = job["name"], job["model"]
    tokens = job["batch"] * job["sequence"]
    row = {"batch": job["batch"], "sequence": job["sequence"], "predicted": job["predicted"],
           "flops_per_step": 3 * tokens * forward_flops_per_token(model, job["sequence"]), "orrery": orrerys(out, name, steps),
           "orrery_no_repeat": orrerys(out, name + ".no-repeat", steps), "torch": parsed(read(out / f"torch-{name}.json"))}
    mine, theirs, any_order = row["orrery"] or {}, row["torch"] or {}, row["orrery_no_repeat"] or {}
    best = (theirs.get("modes") or {}).get(theirs.get("best"))
    for run in (mine, any_order):
        if "step_time_s" in run:
            run["tokens_per_s"] = tokens / run["step_time_s"]
    if name == "gpt2-124m":
        row["llm_c"] = llm_c(out, tokens)
    row["ratio"], row["ratio_no_repeat"] = (
        run["tokens_per_s"] / best["tokens_per_s"] if best and "tokens_per_s" in run else None for run in (mine, any_order))
    row["ratio_goal"], row["utilisation_goal"] = GOALS.get(name, (None, None))
    if "losses" in mine and "losses" in any_order:
        row["no_repeat_apart"] = losses_apart(any_order["losses"], mine["losses"])
    if best and "losses" in mine:
        row["losses_apart"] = losses_apart(mine["losses"], best["losses"])
    return row


def peaks(out, rows):
    found = {f"gpu_bench, {r['name']}": r["flops_per_s"] for r in (parsed(read(out / "peak.out")) or {}).get("operators", [])}
    for name, row in rows.items():
        for size, rate in ((row["torch"] or {}).get("peak_bf16_flops_per_s") or {}).items():
            found[f"PyTorch before {name}, {size}"] = rate
    return found


def share(value, digits=1):
    return "-" if value is None else f"{100 * value:.{digits}f} %"


def gib(value):
    return "-" if value is None else f"{value / 2**30:.1f} GiB"


def model_lines(name, row):
    mine, theirs = row["orrery"] or {}, row["torch"] or {}
    best = (theirs.get("modes") or {}).get(theirs.get("best")) or {}
    told = lambda goal, value, show: "" if goal is None else f", goal {show(goal)}: " + (
        "not measured" if value is None else "reached" if value >= goal else "missed")
    ms = lambda r: "-" if "step_time_s" not in r else f"{1e3 * r['step_time_s']:.1f} ms"
    rate = lambda r: "-" if "tokens_per_s" not in r else f"{r['tokens_per_s']:.0f}"
    lines = ["", f"{name}, {row['batch']} sequences of {row['sequence']}, bf16",
             "%-10s %10s %14s %14s %14s" % ("", "step", "tokens/s", "of the peak", "memory")]
    any_order = row["orrery_no_repeat"] or {}
    for who, r, used, memory in (("Orrery", mine, row["utilisation"], mine.get("memory_peak_bytes")),
                                 ("any order", any_order, row["no_repeat_utilisation"], any_order.get("memory_peak_bytes")),
                                 ("PyTorch", best, row["torch_utilisation"], best.get("memory_peak_bytes")),
                                 ("llm.c", row.get("llm_c") or {}, row.get("llm_c_utilisation"), None),
                                 ("predicted", {k: row["predicted"][k] for k in ("step_time_s", "tokens_per_s")}, None,
                                  row["predicted"]["memory_peak_bytes"])):
        if who not in ("llm.c", "any order") or r:
            lines.append("%-10s %10s %14s %14s %14s" % (who, ms(r), rate(r), share(used), gib(memory)))
    if row["ratio_goal"]:
        shown = "-" if row["ratio"] is None else f"{row['ratio']:.2f}"
        lines.append(f"Orrery / PyTorch: {shown}" + told(row["ratio_goal"], row["ratio"], lambda g: f"{g:.1f}"))
        if any_order:
            shown = "-" if row["ratio_no_repeat"] is None else f"{row['ratio_no_repeat']:.2f}"
            lines.append(f"Orrery with --no-repeat (any order) / PyTorch: {shown}"
                         + told(row["ratio_goal"], row["ratio_no_repeat"], lambda g: f"{g:.1f}"))
    if row["utilisation_goal"]:
        lines.append(f"of the peak: {share(row['utilisation'])}" + told(row["utilisation_goal"], row["utilisation"], share))
    for mode, r in (theirs.get("modes") or {}).items():
        lines.append(f"PyTorch {theirs.get('torch')}, {mode}: " + (r["error"] if "error" in r else
                     f"{ms(r)}, {rate(r)} tokens/s, {gib(r['memory_peak_bytes'])}, warm after {r['seconds_to_warm']:.0f} s"))
    if row.get("losses_apart") is not None:
        lines.append("first losses, the same initial weights and tokens: Orrery %s, PyTorch %s, apart by %.1e at most" % (
            ", ".join(f"{x:.4f}" for x in mine["losses"][:3]), ", ".join(f"{x:.4f}" for x in best["losses"][:3]),
            row["losses_apart"]) + ("" if row["losses_apart"] <= MOST_APART else f", WRONG: more than {MOST_APART}"))
    if row.get("no_repeat_apart") is not None:
        lines.append("losses with --no-repeat apart from those without by %.1e at most" % row["no_repeat_apart"]
                     + ("" if row["no_repeat_apart"] <= ORDER_APART else f", WRONG: more than {ORDER_APART}"))
    if mine.get("spans"):
        s = mine["spans"]
        lines.append(f"spans: steps with marks {share(s['slower_when_sampled'], 2)} slower, {share(s['slower_on_average'], 2)} "
                     f"on average (goal 1 %: {'kept' if s['slower_on_average'] <= SPANS_GOAL else 'missed'})")
    g = mine.get("graphs")
    if g:
        lines.append(f"graphs: {g['captured']} captured, {g['steps_in_graphs']} steps in them, {g['failed']} failed {g['reason']}")
    lines += [f"{c['operator']} by {c['kernel']}{c['reason'] and ': ' + c['reason']}" for c in mine.get("kernels") or []]
    lines += [f"--no-repeat: {c['operator']} by {c['kernel']}{c['reason'] and ': ' + c['reason']}"
              for c in any_order.get("kernels") or [] if c not in (mine.get("kernels") or [])]
    return lines


def write_page(out, pack):
    out, pack = pathlib.Path(out), pathlib.Path(pack)
    steps = {}
    for line in read(out / "steps").splitlines():
        name, code, end, begin = line.split()
        steps[name] = {"exit_code": int(code), "seconds": round(float(end) - float(begin), 1)}
    jobs = [json.loads(file.read_text()) for file in sorted(pack.glob("data/speed-*.json"))]
    rows = {job["name"]: compare(out, job, steps) for job in jobs}
    measured = peaks(out, rows)
    peak = max(measured.values(), default=None)
    for row in rows.values():
        used = lambda r: row["flops_per_step"] / r["step_time_s"] / peak if peak and r and "step_time_s" in r else None
        theirs = row["torch"] or {}
        row["utilisation"], row["no_repeat_utilisation"] = used(row["orrery"]), used(row["orrery_no_repeat"])
        row["torch_utilisation"] = used((theirs.get("modes") or {}).get(theirs.get("best")))
        if row.get("llm_c"):
            row["llm_c_utilisation"] = used(row["llm_c"])
    done = all(row["orrery"] and row["orrery"]["exit_code"] == 0 and "step_time_s" in row["orrery"]
               and (row.get("losses_apart") or 0) <= MOST_APART and (row.get("no_repeat_apart") or 0) <= ORDER_APART for row in rows.values())
    reached = done and all(
        (row["ratio"] or 0) >= (row["ratio_goal"] or 0) and (row["utilisation"] or 0) >= (row["utilisation_goal"] or 0)
        for row in rows.values())
    packed_llmc = (pack / "bin/train_gpt2cu").exists()
    result = {"format_version": "1.0", "version": read(pack / "version").strip(), "gpu": read(out / "gpu").strip(), "done": done,
              "goals_reached": reached, "peak_bf16_flops_per_s": peak, "peaks": measured, "models": rows, "steps": steps,
              "llm_c": "packed" if packed_llmc else "not packed"}
    page = [f"Speed of {result['version']} on {result['gpu'] or 'an unnamed GPU'}: "
            + ("goals reached" if reached else "goals not all reached" if done else "NOT ALL MODELS RAN, OR NOT RIGHT"),
            "", "measured bf16 peak: " + ("-" if peak is None else f"{peak / 1e12:.0f} TFLOP/s"
                                          + f", the best of {len(measured)}: {max(measured, key=measured.get)}"),
            "model FLOPs: forward times 3, full attention matrix; tokens by Zipf's law over 32,000 ids, the same for all"]
    for name, row in rows.items():
        page += model_lines(name, row)
    page += ["", "llm.c: " + ("not packed" if not packed_llmc else "ran" if any(r.get("llm_c") for r in rows.values()) else
                             "gave no figure: see llmc.out, llmc.err")]
    for name, s in steps.items():
        page.append(f"{name}: exit {s['exit_code']}, {s['seconds']} s")
        if s["exit_code"]:
            page += ["  " + line for line in read(out / f"{name}.err").splitlines()[-8:]]
    for path, text in (("results.json", json.dumps(result, indent=1)), ("page.txt", "\n".join(page))):
        (out / (path + ".part")).write_text(text + "\n")
        (out / (path + ".part")).replace(out / path)
    return 0 if done else 5


def agree(metrics, torch):
    mine = [json.loads(line)["loss"] for line in read(pathlib.Path(metrics)).splitlines()]
    theirs = json.loads(read(pathlib.Path(torch)))["losses"]
    if not mine or len(mine) != len(theirs):
        print(f"{len(mine)} and {len(theirs)} steps", file=sys.stderr)
        return 5
    apart = max(abs(a - b) / b for a, b in zip(mine, theirs))
    print(f"losses {', '.join(f'{x:.6f}' for x in mine)}; PyTorch's are apart by {apart:.1e} at most")
    return 0 if apart <= 1e-5 else 5


def main(verb, *rest):
    if verb == "tokens":
        return write_tokens(rest[0], *map(int, rest[1:]))
    return {"job": write_job, "page": write_page, "agree": agree}[verb](*rest)


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("tokens", "job", "page", "agree"):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
