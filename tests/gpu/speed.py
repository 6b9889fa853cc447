"""The second call of scripts/gpu-check: three models trained beside PyTorch, and one beside llm.c. Its steps, what
they gave, and the page that sets them side by side.

Ratios are of tokens per second, each named by what PyTorch was: compiled, and how, or not. MFU is model FLOPs
(forward times 3, full attention matrix) over the datasheet's dense bf16 peak."""
import pathlib
import re
import statistics
import sys

import figures
import machine
from page import guarded
from reading import apart, last_lines, median, number, objects, parsed, read
from steps import Step, extract
from worker import cores, train_step

# At least so many times PyTorch's tokens per second, and that MFU; both of Orrery with --no-repeat, beside a PyTorch
# that need not repeat either.
GOALS = {"gpt2-124m": (1.2, None), "gpt2-1558m": (1.1, 0.5), "tinyllama-1.1b": (1.1, 0.5)}
MOST_APART = 2e-2  # the first losses from PyTorch's, relative: two ways to round to bf16
ORDER_APART = 1e-2  # those of --no-repeat from those that repeat: the order of attention's sums, carried on by training
SPANS_GOAL = 0.01  # of a step, on average
WARM = 9  # first steps, which are traced, captured as graphs, and tuned in
SHORT = WARM + 9  # steps of a second run
COMPILED = ("blocks", "whole", "reduce-overhead")  # modes of torch_training.py


# -- steps -----------------------------------------------------------------------------------------------------------
def all_steps(session, after):
    """What tells most first: each model as fast as it goes, and PyTorch beside it. after: results of the first call,
    whose tuned products count here too."""
    if after:
        take_cache(session, pathlib.Path(after))
    bits = lambda name, limit, *flags, **more: session.run(
        train_step(session, f"speed-{name}", limit, *flags, threads=cores(), judge=trained, **more)
    )
    free = lambda name, limit: bits(name, limit, "--no-repeat", variant="no-repeat")
    free("gpt2-124m", 40)
    torch_step(session, "gpt2-124m", 75, "blocks,whole,reduce-overhead")
    free("gpt2-1558m", 75)
    torch_step(session, "gpt2-1558m", 95, "blocks")
    free("tinyllama-1.1b", 60)
    torch_step(session, "tinyllama-1.1b", 80, "blocks")
    # What bits that repeat cost, on the products that are tuned already.
    for name, limit in (("gpt2-124m", 20), ("gpt2-1558m", 40), ("tinyllama-1.1b", 35)):
        bits(name, limit, "--steps", SHORT)
    session.run(Step("peak", 15, [session.pack / "bin/gpu_bench", "--peak"], figures.bench))
    beside_llm_c(session)


def beside_llm_c(session):
    program, tokens = session.pack / "bin/train_gpt2cu", session.pack / "data/speed.bin"
    if not program.exists():
        return session.note("llmc", kind="llm_c", passed=None, why="llm.c is not packed")
    # It wants to validate at the first step and the last (one batch), and finds no tokenizer to sample by.
    flags = "-e d12 -b 32 -t 1024 -d 32768 -r 0 -x 40 -v 100000 -m 1 -s 0 -h 0 -l 0.0006 -u 20 -c 0.1".split()
    session.run(Step("llmc", 25, [program, "-i", tokens, "-j", tokens, *flags], llm_c))


def take_cache(session, after):
    archive = after if after.is_file() else after / "results.tar.gz"
    if archive.exists():
        extract(archive, session.work / "after")
        if (session.work / "after/cache").exists():
            (session.work / "after/cache").replace(session.work / "cache")
    else:
        print(f"gpu-check: {after} has no results.tar.gz: products are tuned again", file=sys.stderr)


def torch_step(session, name, limit, modes):
    """Compiled from nothing: the caches are the session's own."""
    out = session.work / f"torch-{name}.json"
    own = session.own | {
        "TORCHINDUCTOR_CACHE_DIR": str(session.work / "inductor"),
        "TRITON_CACHE_DIR": str(session.work / "triton"),
    }
    begin = [
        sys.executable,
        session.pack / "check/torch_training.py",
        session.pack / f"data/speed-{name}.json",
        session.pack / "data/speed.bin",
        "--steps",
        30,
        "--modes",
        modes,
        "--out",
        out,
    ]
    session.run(
        Step(
            f"torch-{name}",
            limit,
            lambda seconds: [*begin, "--seconds", max(5, int(seconds - 5))],
            torch_trained,
            environment=own,
            writes=(out.name,),
        )
    )


# -- what they gave --------------------------------------------------------------------------------------------------
def trained(session, step, ended, plan, variant):
    found = figures.training(session, step, ended, plan, variant, cudnn=True, warm=WARM)
    return found | {"spans": spans_cost(session.work / step.name.replace("train-", "run-", 1))}


def spans_cost(folder):
    """What marks cost: of steps that the timeline has spans of, and of all, because one step of several has them. The
    steps alternate within one run."""
    timeline = parsed(read(folder / "timeline.json"))
    try:
        where = timeline["columns"].index("iteration")
        sampled = {row[where] for row in timeline["rows"]}
    except (TypeError, KeyError, ValueError, IndexError):
        return None
    late = [r for r in objects(folder / "metrics.jsonl")[0] if number(r.get("step_time_s")) and number(r.get("step"))][
        WARM:
    ]
    with_marks = [r["step_time_s"] for r in late if r["step"] - 1 in sampled]
    without = [r["step_time_s"] for r in late if r["step"] - 1 not in sampled]
    if len(with_marks) < 3 or len(without) < 3:
        return None
    a, b = statistics.median(with_marks), statistics.median(without)
    return {
        "step_time_s": b,
        "step_time_sampled_s": a,
        "slower_when_sampled": a / b - 1,
        "slower_on_average": (a / b - 1) * len(with_marks) / len(late),
    }


def torch_trained(session, step, ended):
    """Its file is written after each mode. Not to end is no failure of Orrery's: there is no ratio then."""
    found = parsed(read(session.work / f"{step.name}.json")) or {}
    modes = {mode: r for mode, r in (found.get("modes") or {}).items() if isinstance(r, dict)}
    worked = [mode for mode in COMPILED if number(modes.get(mode, {}).get("step_time_s"))]
    why = figures.ended_badly(ended) + ([] if found else last_lines(session.work / f"{step.name}.err", 1))
    return {
        "kind": "torch",
        "torch": found.get("torch"),
        "modes": modes,
        "attention": found.get("attention") or [],
        "peaks": found.get("peak_bf16_flops_per_s") or {},
        "passed": True if worked else None,
        "why": "" if worked else "; ".join(why) or "no mode that compiles has ended",
    }


def llm_c(session, step, ended):
    rows = re.findall(r"step +\d+/\d+ \| loss ([\d.]+).*?\| ([\d.]+) ms \|", read(session.work / f"{step.name}.out"))
    times = [float(ms) * 1e-3 for _, ms in rows[WARM:]]
    if len(times) < 3:
        return {"kind": "llm_c", "passed": None, "why": "it gave no figure; " + "; ".join(figures.ended_badly(ended))}
    return {
        "kind": "llm_c",
        "steps": len(rows),
        "step_time_s": median(times),
        "losses": [float(loss) for loss, _ in rows],
        "passed": True,
    }


# -- side by side ----------------------------------------------------------------------------------------------------
def forward_flops_per_token(model, sequence):
    """Products and the full attention matrix, as models/layers/counts.h: the numerator of MFU is three times that."""
    c, d = model["hidden"], model["hidden"] // model["heads"]
    attention = c * (model["heads"] + 2 * model["kv_heads"]) * d + model["heads"] * d * c
    mlp = (3 if model["family"] == "llama" else 2) * c * model["ffn_hidden"]
    scores = 2 * sequence * model["heads"] * d
    return 2 * (model["layers"] * (attention + mlp + scores) + c * model["vocab"])


def fastest(modes, names):
    """The name of the mode with the shortest step among `names`, or None."""
    worked = [name for name in names if number(modes.get(name, {}).get("step_time_s"))]
    return min(worked, key=lambda name: modes[name]["step_time_s"], default=None)


def compare(results, job, peak):
    """One model: Orrery without and with bits that repeat, PyTorch, llm.c."""
    name, tokens = job["name"], job["batch"] * job["sequence"]
    by_step = {r["step"]: r for r in results}
    flops = 3 * tokens * forward_flops_per_token(job["model"], job["sequence"])
    row = {
        "batch": job["batch"],
        "sequence": job["sequence"],
        "flops_per_step": flops,
        "predicted": dict(job["predicted"]),
        "no_repeat": dict(by_step.get(f"train-speed-{name}.no-repeat") or {}),
        "repeat": dict(by_step.get(f"train-speed-{name}") or {}),
        "torch": dict(by_step.get(f"torch-{name}") or {}),
    }
    if name == "gpt2-124m":
        row["llm_c"] = dict(by_step.get("llmc") or {})
    modes = row["torch"].get("modes") or {}
    runs = [row["no_repeat"], row["repeat"], row["predicted"], row.get("llm_c") or {}, *modes.values()]
    for run in runs:
        if number(run.get("step_time_s")):
            run["tokens_per_s"] = tokens / run["step_time_s"]
            run["mfu"] = flops / run["step_time_s"] / peak if peak else None
    row["compiled"], row["eager"] = fastest(modes, COMPILED), fastest(modes, ("eager",))
    ratio = (
        lambda run, mode: run["tokens_per_s"] / modes[mode]["tokens_per_s"]
        if mode and number(run.get("tokens_per_s"))
        else None
    )
    row["ratio"], row["ratio_repeat"] = (ratio(row[who], row["compiled"]) for who in ("no_repeat", "repeat"))
    row["ratio_eager"] = ratio(row["no_repeat"], row["eager"]) if not row["compiled"] else None
    row["ratio_goal"], row["mfu_goal"] = GOALS.get(name, (None, None))
    theirs = modes.get(row["compiled"] or row["eager"] or "", {})
    row["losses_apart"] = apart(row["no_repeat"].get("losses") or [], theirs.get("losses") or [])
    row["no_repeat_apart"] = apart(row["no_repeat"].get("losses") or [], row["repeat"].get("losses") or [])
    row["right"] = (
        bool(row["no_repeat"].get("passed"))
        and row["repeat"].get("passed") is not False
        and (row["losses_apart"] or 0) <= MOST_APART
        and (row["no_repeat_apart"] or 0) <= ORDER_APART
    )
    row["reached"] = (
        row["right"]
        and (row["ratio"] or 0) >= (row["ratio_goal"] or 0)
        and ((row["no_repeat"].get("mfu") or 0) >= (row["mfu_goal"] or 0))
    )
    return row


def share(value, digits=1):
    return "-" if value is None else f"{100 * value:.{digits}f} %"


def ms(run):
    return f"{1e3 * run['step_time_s']:.1f} ms" if number(run.get("step_time_s")) else "-"


def gib(value):
    return "-" if value is None else f"{value / 2**30:.1f} GiB"


def goal_word(goal, value, show):
    if goal is None:
        return ""
    return f", goal {show(goal)}: " + ("not measured" if value is None else "reached" if value >= goal else "missed")


def ratio_lines(row):
    """The headline first: neither side repeats. A ratio names what PyTorch was."""
    modes, compiled = row["torch"].get("modes") or {}, row["compiled"]
    two = lambda value: "-" if value is None else f"{value:.2f}"
    if compiled:
        return [
            f"Orrery with --no-repeat / PyTorch compiled ({compiled}): {two(row['ratio'])}"
            + goal_word(row["ratio_goal"], row["ratio"], lambda g: f"{g:.1f}"),
            f"Orrery that repeats bit by bit / PyTorch compiled ({compiled}), which need not: "
            + two(row["ratio_repeat"]),
        ]
    why = "; ".join(f"{mode}: {r.get('error', 'no figure')}" for mode, r in modes.items() if mode in COMPILED) or row[
        "torch"
    ].get("why")
    lines = [f"THERE IS NO RATIO AGAINST A COMPILED PYTORCH ({why or 'it did not run'})"]
    if row["ratio_eager"] is not None:
        lines.append(f"Orrery with --no-repeat / PyTorch eager (not compiled, for no goal): {two(row['ratio_eager'])}")
    return lines


def model_lines(name, row):
    free, bits, modes = row["no_repeat"], row["repeat"], row["torch"].get("modes") or {}
    rate = lambda r: "-" if number(r.get("tokens_per_s")) is None else f"{r['tokens_per_s']:.0f}"
    lines = [
        "",
        f"{name}, {row['batch']} sequences of {row['sequence']}, bf16",
        "%-22s %10s %14s %8s %10s" % ("", "step", "tokens/s", "MFU", "memory"),
    ]
    table = [
        ("Orrery, --no-repeat", free),
        ("Orrery, repeats", bits),
        *((f"PyTorch, {mode}", r) for mode, r in modes.items()),
        ("llm.c", row.get("llm_c") or {}),
        ("predicted, repeats", row["predicted"]),
    ]
    for who, r in table:
        if who.startswith("Orrery") or number(r.get("step_time_s")):
            lines.append(
                "%-22s %10s %14s %8s %10s" % (who, ms(r), rate(r), share(r.get("mfu")), gib(r.get("memory_peak_bytes")))
            )
    lines += ratio_lines(row)
    if row["mfu_goal"]:
        lines.append(
            f"MFU with --no-repeat: {share(free.get('mfu'))}" + goal_word(row["mfu_goal"], free.get("mfu"), share)
        )
    for who, r in (("--no-repeat", free), ("repeating", bits)):
        if r.get("why"):
            lines.append(f"{who}: {r['why']}")
    for mode, r in modes.items():
        lines.append(
            f"PyTorch {row['torch'].get('torch')}, {mode}: "
            + (str(r["error"]) if "error" in r else f"warm after {r.get('seconds_to_warm') or 0:.0f} s")
        )
    lines += losses_lines(row)
    if free.get("spans"):
        s = free["spans"]
        lines.append(
            f"spans: steps with marks {share(s['slower_when_sampled'], 2)} slower, {share(s['slower_on_average'], 2)} "
            f"on average (goal 1 %: {'kept' if s['slower_on_average'] <= SPANS_GOAL else 'missed'})"
        )
    g = free.get("graphs")
    if g:
        lines.append(
            f"graphs: {g.get('captured')} captured, {g.get('steps_in_graphs')} steps in them, "
            f"{g.get('failed')} failed {g.get('reason') or ''}"
        )
    lines += kernel_lines("--no-repeat", free) + kernel_lines("repeating", bits)
    return lines


def losses_lines(row):
    lines, four = [], lambda values: ", ".join("-" if x is None else f"{x:.4f}" for x in (values or [])[:3])
    theirs = (row["torch"].get("modes") or {}).get(row["compiled"] or row["eager"] or "", {})
    wrong = lambda value, most: "" if value <= most else f", WRONG: more than {most}"
    if row["losses_apart"] is not None:
        lines.append(
            f"first losses, the same initial weights and tokens: Orrery {four(row['no_repeat'].get('losses'))}, "
            f"PyTorch {four(theirs.get('losses'))}, apart by {row['losses_apart']:.1e} at most"
            + wrong(row["losses_apart"], MOST_APART)
        )
    if row["no_repeat_apart"] is not None:
        lines.append(
            f"losses with --no-repeat apart from those that repeat by {row['no_repeat_apart']:.1e} at most"
            + wrong(row["no_repeat_apart"], ORDER_APART)
        )
    return lines


def kernel_lines(who, run):
    return [
        f"{who}: {c.get('operator')} by {c.get('kernel')}{c.get('reason') and ': ' + c['reason'] or ''}"
        for c in run.get("kernels") or []
    ]


def page(results, pack):
    jobs = [job for job in (parsed(read(file)) for file in sorted(pack.glob("data/speed-*.json"))) if job]
    seen = next((r for r in results if r["step"] == "machine"), {})
    gpu = (seen.get("gpu") or {}).get("name", "")
    peak, device = machine.datasheet_peak(gpu, parsed(read(pack / "data/peaks.json")) or {})
    rows = {job["name"]: compare(results, job, peak) for job in jobs}
    right = bool(rows) and all(row["right"] for row in rows.values()) and all(r["passed"] is not False for r in results)
    reached = right and all(row["reached"] for row in rows.values())
    version = read(pack / "version").strip()
    lines = [
        f"Speed of {version} on {gpu or 'an unnamed GPU'}: "
        + ("goals reached" if reached else "goals not all reached" if right else "NOT ALL MODELS RAN, OR NOT RIGHT"),
        "",
    ]
    if seen.get("why"):
        lines += [seen["why"], ""]
    lines.append(
        f"MFU: model FLOPs (forward times 3, full attention) over {peak / 1e12:.1f} TFLOP/s, the dense bf16 peak "
        f"of the {device}'s datasheet"
        if peak
        else f"no MFU: the catalogue has no {gpu or 'such GPU'}"
    )
    lines.append(
        "tokens by Zipf's law over 32,000 ids, the same for all; PyTorch sums in any order, as it does by default"
    )
    for name, row in rows.items():
        lines += guarded(model_lines, name, row)[0]
    lines.append("")
    rates = peak_rates(results)
    if rates:
        best = max(rates, key=rates.get)
        lines.append(f"large bf16 products reach {rates[best] / 1e12:.0f} TFLOP/s here ({best})")
    lines += step_lines(results)
    result = {
        "format_version": "1.1",
        "version": version,
        "gpu": seen.get("gpu") or {},
        "done": right,
        "goals_reached": reached,
        "datasheet_peak_bf16_flops_per_s": peak,
        "product_rates": rates,
        "models": rows,
        "steps": {r["step"]: {k: r.get(k) for k in ("exit_code", "seconds", "passed", "why")} for r in results},
    }
    return lines, result, right


def peak_rates(results):
    """FLOP/s of large products, here and by PyTorch: what the card gives, beside what its datasheet says."""
    rates = {}
    for r in results:
        if r["step"] == "peak":
            rates |= {
                f"gpu_bench, {o['name']}": o["flops_per_s"]
                for o in r.get("operators") or []
                if number(o.get("flops_per_s"))
            }
        if r["step"].startswith("torch-"):
            rates |= {f"PyTorch, {size}": rate for size, rate in (r.get("peaks") or {}).items() if number(rate)}
    return rates


def step_lines(results):
    lines = []
    for r in results:
        code = "" if r.get("exit_code") is None else f"exit {r['exit_code']}, {r.get('seconds')} s, "
        lines.append(
            f"{r['step']}: {code}{'ok' if r['passed'] else 'FAILED' if r['passed'] is False else 'not run'}"
            + (f": {r['why']}" if r.get("why") else "")
        )
        lines += ["  " + line for line in r.get("says") or []]
    return lines
