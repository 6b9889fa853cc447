"""The page of the first call of scripts/gpu-check: results of steps -> lines for people, an object for programs, and
whether all is well. A part that cannot be shown says so and leaves the others as they are."""
import traceback

from figures import readable
from reading import number, read


def page(results, pack):
    parts = (
        machine_lines,
        operator_lines,
        training_lines,
        comparison_lines,
        fp8_lines,
        graph_lines,
        lost_peer_lines,
        tool_lines,
        counter_lines,
        kernel_lines,
        bench_lines,
        torch_lines,
        failure_lines,
    )
    lines, whole = [], True
    for part in parts:
        found, made = guarded(part, results)
        whole = whole and made
        lines += ["", *found] if found else []
    failed = [r["step"] for r in results if r["passed"] is False]
    different = [name for name, c in comparisons(results).items() if c["same_losses"] is False]
    passed = whole and bool(results) and not failed and not different
    version, gpu = read(pack / "version").strip(), of(results, "machine").get("gpu") or {}
    head = f"GPU check of {version} on {gpu.get('name', 'an unnamed GPU')}: " + ("PASSED" if passed else "FAILED")
    if failed or different:
        head += f" ({', '.join([*failed, *(name + ' has other losses' for name in different)][:12])})"
    result = {
        "format_version": "1.1",
        "version": version,
        "gpu": gpu,
        "passed": passed,
        "failed": failed,
        "comparisons": comparisons(results),
        "results": results,
    }
    return [head, *lines], result, passed


def guarded(part, *arguments):
    """A part's lines, and whether it could be made; one that fails says so, and its figures are in results.jsonl."""
    try:
        return part(*arguments), True
    except Exception:
        return [f"THIS PART OF THE PAGE FAILED ({part.__name__}):", *traceback.format_exc().splitlines()[-3:]], False


def of(results, step):
    return next((r for r in results if r["step"] == step), {})


def of_kind(results, kind):
    return [r for r in results if r.get("kind") == kind]


def word(result):
    return {True: "ok", False: "FAILED", None: "not run"}[result["passed"]]


def name_of(training):
    variant = training.get("variant")
    return training.get("plan", training["step"]) + (f".{variant}" if variant else "")


def show(value, form):
    return "-" if number(value) is None else form % value


def machine_lines(results):
    found = of(results, "machine")
    if not found:
        return []
    gpu, lines = found.get("gpu") or {}, []
    if found["passed"] is False:
        lines += ["!" * 100, found["why"], "!" * 100]
    lines.append("GPU: " + (", ".join(f"{key} {value}" for key, value in gpu.items()) or "nvidia-smi does not answer"))
    lines.append(of(results, "device").get("device", ""))
    if found.get("cudnn"):
        lines.append(
            f"cuDNN {found['cudnn']} in {(found.get('libraries') or {}).get('libcudnn.so.9', 'a folder of the system')}"
        )
    if found.get("missing"):
        lines.append("not found in a folder that is searched: " + ", ".join(found["missing"]))
    absent = [name for name, path in (found.get("tools") or {}).items() if not path]
    if absent:
        lines.append("tools that are not there: " + ", ".join(absent))
    return lines


def operator_lines(results):
    found, lines = of_kind(results, "operators"), []
    if not found:
        return []
    lines.append("operators against the CPU backend, a process for each line:")
    for r in found:
        lines.append(
            "  %-14s %-7s %4d of %4s passed, %d skipped, %5.1f s%s"
            % (
                r["step"].removeprefix("operators-"),
                word(r),
                r.get("ok") or 0,
                r.get("tests"),
                r.get("skipped") or 0,
                r["seconds"],
                "  " + r["why"] if r.get("why") else "",
            )
        )
        lines += ["      " + one for one in r.get("differences") or []] if not r["passed"] else []
    return lines


def training_lines(results):
    lines = []
    for r in of_kind(results, "training"):
        alone = not r.get("beside")  # times of runs side by side say nothing
        lines.append(
            "%-28s %-7s %2d steps  loss error %-8s step %-9s s  %s tokens/s%s"
            % (
                name_of(r),
                word(r),
                r["steps"],
                show(r.get("loss_error"), "%.1e"),
                show(alone and r.get("step_time_s") or None, "%.4f"),
                show(alone and r.get("tokens_per_s") or None, "%.0f"),
                "  " + r["why"] if r.get("why") else "",
            )
        )
    return lines


def comparisons(results):
    """The same plan in two ways: the same bits, and what the faster one saves."""
    runs, found = {name_of(r): r for r in of_kind(results, "training")}, {}
    for name, other in runs.items():
        one = runs.get(other.get("plan"))
        if not other.get("variant") or not one:
            continue
        losses, others = one.get("losses") or [], other.get("losses") or []
        known = bool(losses) and bool(others)
        found[name] = {
            "same_losses": (losses == others and None not in losses) if known else None,
            "step_time_s": one.get("step_time_s") if not one.get("beside") else None,
            "step_time_without_s": other.get("step_time_s") if not other.get("beside") else None,
        }
    return found


def comparison_lines(results):
    return [
        "%-28s %s losses, step %s s instead of %s s"
        % (
            name,
            "same" if c["same_losses"] else "OTHER",
            show(c["step_time_s"], "%.4f"),
            show(c["step_time_without_s"], "%.4f"),
        )
        for name, c in comparisons(results).items()
        if c["same_losses"] is not None
    ]


def fp8_lines(results):
    """8 bits beside 16: the same text, the same weights to begin with."""
    eight, sixteen = of(results, "train-gpt2-124m-fp8"), of(results, "train-gpt2-124m-bf16")
    pairs = [(a, b) for a, b in zip(eight.get("losses") or [], sixteen.get("losses") or []) if a is not None and b]
    if not pairs:
        return []
    return [
        "GPT-2 124M in fp8: step %s s, in bf16 %s s; losses apart by %.1e at most"
        % (
            show(eight.get("step_time_s"), "%.4f"),
            show(sixteen.get("step_time_s"), "%.4f"),
            max(abs(a - b) / b for a, b in pairs),
        )
    ]


def graph_lines(results):
    return [
        "%-28s %s graphs, %s launches of them, %s steps in graphs, %s without, %s failed %s"
        % (
            name_of(r),
            g.get("captured"),
            g.get("replayed"),
            g.get("steps_in_graphs"),
            g.get("steps_without"),
            g.get("failed"),
            g.get("reason") or "",
        )
        for r in of_kind(results, "training")
        if (g := r.get("graphs"))
    ]


def lost_peer_lines(results):
    lines = []
    for r in of_kind(results, "lost_peer"):
        survivor = r.get("survivor") or {}
        lines.append(
            f"a rank killed in the middle of step {r.get('step_of_training')}: {word(r)}; the survivor ended after "
            f"{show(survivor.get('seconds'), '%.1f')} s of {r.get('deadline_s')} s, "
            f"exit code {survivor.get('exit_code')}, and said:"
        )
        lines += ["  " + one for one in survivor.get("says") or ["nothing"]]
    return lines


def tool_lines(results):
    lines = []
    for r in [*of_kind(results, "tool"), *of_kind(results, "sanitizer")]:
        lines.append(
            f"{r['step']}: {word(r)}"
            + (f", {r['errors']} errors" if "errors" in r else "")
            + (f": {r['why']}" if r.get("why") else "")
        )
        lines += ["  " + one for one in r.get("found") or []]
    return lines


SHOWN = (
    "Duration",
    "DRAM Throughput",
    "L2 Cache Throughput",
    "Compute (SM) Throughput",
    "L2 Hit Rate",
    "Achieved Occupancy",
    "Registers Per Thread",
    "Warp Cycles Per Issued Instruction",
)


def counter_lines(results):
    kernels = of(results, "counters").get("kernels") or of(results, "kernel-times").get("kernels") or []
    lines = ["the longest kernels of two steps of GPT-2 124M, each launch by itself (ncu):"] if kernels else []
    for one in kernels:
        lines.append(
            "  %-60.60s %5d launches %9.2f ms together, %5.1f %%  grid %s, block %s"
            % (
                readable(one["kernel"]),
                one["launches"],
                one["time_s"] * 1e3,
                100 * (one.get("share") or 0),
                one["grid"],
                one["block"],
            )
        )
        metrics = one.get("metrics") or {}
        lines += (
            ["      " + ", ".join(f"{name} {metrics[name]}" for name in SHOWN if name in metrics)] if metrics else []
        )
    for step in ("kernel-times", "counters"):
        why = of(results, step).get("why")
        if why and of(results, step).get("kind") != "tool":
            lines.append(f"{step}: {why}")
    return lines


def kernel_lines(results):
    """Which kernels ran: each set once, with the runs that had it."""
    sets = {}
    for r in of_kind(results, "training"):
        for c in r.get("kernels") or []:
            text = f"{c.get('operator')} by {c.get('kernel')}" + (f": {c['reason']}" if c.get("reason") else "")
            sets.setdefault(text, []).append(name_of(r))
    return [
        f"{text}  [{', '.join(runs[:4])}{f' and {len(runs) - 4} more' if len(runs) > 4 else ''}]"
        for text, runs in sets.items()
    ]


def bench_lines(results):
    rows = of(results, "bench").get("operators") or []
    if not rows:
        return []
    lines = ["%-52s %12s %12s %12s" % ("operator", "us", "TFLOP/s", "GB/s")]
    for row in rows:
        lines.append(
            "%-52s %12.1f %12.2f %12.1f"
            % (
                row["name"],
                row["time_s"] * 1e6,
                (number(row.get("flops_per_s")) or 0) / 1e12,
                (number(row.get("bytes_per_s")) or 0) / 1e9,
            )
        )
    return lines


def torch_lines(results):
    found = of(results, "torch").get("figures") or {}
    if not found:
        return []
    scaled = lambda key, scale, form: show((number(found.get(key)) or 0) * scale or None, form)
    return [
        f"PyTorch {found.get('torch')}: matmul 4096 {scaled('matmul_4096_flops_per_s', 1e-12, '%.1f')} TFLOP/s fp32, "
        f"{scaled('matmul_4096_bf16_flops_per_s', 1e-12, '%.1f')} bf16, "
        f"attention {scaled('attention_bf16_s', 1e6, '%.0f')} us bf16",
        f"PyTorch, GPT-2 124M, tokens/s, eager (not compiled; --speed has the compiled ones): "
        f"{scaled('gpt2_124m_fp32_eager_tokens_per_s', 1, '%.0f')} fp32 (B 8), "
        f"{scaled('gpt2_124m_bf16_eager_tokens_per_s', 1, '%.0f')} bf16 (B 32)",
    ]


def failure_lines(results):
    """Of all that did not pass: why, and its last words."""
    lines = []
    for r in results:
        if r["passed"] is True:
            continue
        code = "" if r.get("exit_code") is None else f"exit {r['exit_code']}, {r.get('seconds')} s: "
        lines += [f"{r['step']}: {word(r)}: {code}{r.get('why') or ''}", *("  " + line for line in r.get("says") or [])]
        lines += ["  " + test for test in (r.get("failed") or [])[:12]] if r.get("kind") == "operators" else []
    return lines
