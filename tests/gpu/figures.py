"""What a step gave, from what it left: one function for each kind of step, (session, step, how it ended) -> figures.
`passed` is whether it did what it should (None: it could not be tried here, which is no failure), `why` the reason
where it did not."""
import csv
import fnmatch
import re

from reading import apart, event, last_lines, median, number, objects, parsed, read

# Tests of test_gpu that run in a process of their own, so that a crash hides no others: a test is of the first shard
# that takes it, by patterns of Google Test; the last one takes the rest.
SHARDS = (
    ("attention", "*attention*"),
    ("products", "*matmul*:*fp8*:RoundedOperands*"),
    ("tables", "*embedding*:*position*:*type_add*:*type_grad*:*gather*:*scatter*"),
    ("norms", "*layer_norm*:*rms_norm*:*bias_grad*"),
    ("losses", "*softmax*:*cross_entropy*:*class_loss*"),
    ("updates", "*adamw*:*sgd*:*lamb*:*adafactor*:*factor_*:*clip*:*norm_squared*:*loss_scale*:*overflow*"),
    ("compression", "*sparse*:*encode*:*decode*:*convert*:*sum_pieces*:*orthogonalise*:*add_scaled*"),
    ("chains", "Cuda/Chains*"),
    ("large", "CudaLarge*"),
    ("others", "*"),
)


def filter_of(shard):
    """For --gtest_filter."""
    before = []
    for name, patterns in SHARDS:
        if name == shard:
            return patterns + (":-" + ":".join(before) if before else "")
        before += patterns.split(":")
    raise KeyError(shard)


def shard_of(test):
    return next(name for name, patterns in SHARDS if any(fnmatch.fnmatchcase(test, p) for p in patterns.split(":")))


def listed_tests(text):
    """Of --gtest_list_tests: suites end with a dot and their tests are indented."""
    tests, suite = [], None
    for line in text.splitlines():
        name = line.split("#")[0].rstrip()
        if name.startswith("  ") and suite:
            tests.append(suite + name.strip())
        else:
            suite = name if name.endswith(".") and " " not in name else None
    return tests


def device(session, step, ended):
    """Of test_gpu --gtest_list_tests: the GPU, and how many tests a shard has."""
    text = read(session.work / f"{step.name}.out")
    tests = listed_tests(text)
    counts = {name: 0 for name, _ in SHARDS}
    for test in tests:
        counts[shard_of(test)] += 1
    said = next((line for line in text.splitlines() if line.startswith(("GPU: ", "skipped"))), "")
    return {"kind": "device", "device": said, "tests": counts, "passed": ended["exit_code"] == 0 and bool(tests)}


# -- test_gpu --------------------------------------------------------------------------------------------------------
def operators(session, step, ended):
    text, state = read(session.work / f"{step.name}.out"), {}
    for what, test in re.findall(r"^\[ +(RUN|OK|FAILED|SKIPPED) +\] (\S+?),?(?: .*)?$", text, re.M):
        if "/" in test or "." in test:  # not those of the summary, which names tests again
            state[test] = what
    ran = {what: [t for t, w in state.items() if w == what] for what in ("RUN", "OK", "FAILED", "SKIPPED")}
    wanted = session.result("device").get("tests", {}).get(step.name.removeprefix("operators-"))
    done, why = len(ran["OK"]) + len(ran["SKIPPED"]), []
    if ran["FAILED"]:
        why.append(f"{len(ran['FAILED'])} failed, first {ran['FAILED'][0]}")
    if ran["RUN"]:
        why.append(f"ended within {ran['RUN'][-1]}")
    if not why and (ended["exit_code"] != 0 or not done or (wanted or done) != done):
        why.append(f"{done} of {wanted} tests ran")
    return {
        "kind": "operators",
        "tests": wanted,
        "ok": len(ran["OK"]),
        "skipped": len(ran["SKIPPED"]),
        "failed": ran["FAILED"] + ran["RUN"],
        "differences": [line.strip() for line in re.findall(r"^.*(?:actual:|CUDA:|wrote outside).*$", text, re.M)][:6],
        "passed": not why,
        "why": "; ".join(why + ended_badly(ended)),
    }


def ended_badly(ended):
    if ended.get("timed_out"):
        return ["it ran out of time"]
    code = ended["exit_code"]
    return [] if code == 0 else [f"signal {-code}" if code < 0 else f"exit {code}"]


# -- training --------------------------------------------------------------------------------------------------------
def bound_of(plan):
    """How far losses may be from those of the CPU backend, or PyTorch's, relative: what operands in so many bits
    leave."""
    if "bf16" in plan or plan == "fp8":
        return 2e-2
    return 5e-3 if "fp16" in plan or plan == "tf32" else 1e-5


def reference_losses(pack, plan):
    rows, _ = objects(pack / f"data/reference-{plan}.jsonl")
    if rows:
        return [number(row.get("loss")) for row in rows]
    golden = (parsed(read(pack / "data/golden.json")) or {})["runs"]["cosine_clipped"]["float32"]["steps"]
    return [number(step.get("loss")) for step in golden]


def own_attention(kernels):
    """Which passes of attention were not by cuDNN, with the reason that the worker gives."""
    passes = [k for k in kernels if k.get("operator") in ("attention", "attention_grad")]
    own = [k for k in passes if not k.get("kernel", "").startswith("cuDNN")]
    return [f"{k['operator']} by {k.get('kernel')} ({k.get('reason') or 'no reason given'})" for k in own] or (
        [] if passes else ["no attention is named"]
    )


def training(session, step, ended, plan, variant, cudnn=False, warm=2):
    """What the metrics and events of the worker say, and what is wrong with it as a run. warm: steps before those
    that are timed. cudnn: its attention is of a kind that cuDNN has."""
    rows, bad = objects(session.work / step.name.replace("train-", "run-", 1) / "metrics.jsonl")
    events, _ = objects(session.work / f"{step.name}.out")
    losses = [number(row.get("loss")) for row in rows]
    late, rates = ([number(row.get(key)) for row in rows[warm:]] for key in ("step_time_s", "tokens_per_s"))
    kernels, graphs = event(events, "kernels").get("choices") or [], event(events, "graphs")
    wanted, why = event(events, "started").get("steps"), ended_badly(ended)
    if len(rows) != wanted:
        why.append(f"{len(rows)} of {wanted} steps" if wanted else "it did not start")
    if bad:
        why.append(f"{bad} line{'s' * (bad > 1)} of its metrics cut off or no JSON")
    if None in losses:
        why.append(f"the loss of step {losses.index(None) + 1} is no number")
    if graphs.get("failed"):
        why.append(f"{graphs['failed']} graphs failed: {graphs.get('reason')}")
    if cudnn and rows and session.result("machine").get("cudnn") and own_attention(kernels):
        why.append("cuDNN is there and was not used: " + ", ".join(own_attention(kernels)))
    last = rows[-1] if rows else {}
    if not why and not any(late):
        why.append(f"no step behind the {warm} that warm up")
    return {
        "kind": "training",
        "plan": plan,
        "variant": variant,
        "steps": len(rows),
        "losses": losses,
        "step_time_s": median(late),
        "fastest_step_s": min((t for t in late if t), default=None),
        "tokens_per_s": median(rates),
        "memory_peak_bytes": number(last.get("memory_peak_bytes")),
        "graphs": graphs or None,
        "kernels": kernels,
        "passed": not why,
        "why": "; ".join(why),
    }


def golden_training(session, step, ended, plan, variant):
    """And its losses beside the reference's."""
    found = training(session, step, ended, plan, variant)
    error = apart(found["losses"], reference_losses(session.pack, plan))
    far = error is None or error > bound_of(plan)
    why = [found["why"]] * bool(found["why"]) + [f"losses apart by more than {bound_of(plan)}"] * far
    return found | {"loss_error": error, "passed": not why, "why": "; ".join(why)}


# -- times -----------------------------------------------------------------------------------------------------------
def bench(session, step, ended):
    rows, bad = objects(session.work / f"{step.name}.out")
    operators_ = [row for row in rows if "name" in row and number(row.get("time_s"))]
    failed = [f"{row['name']}: {row['error']}" for row in rows if "error" in row]
    why = ended_badly(ended) + failed[:3] + ([f"{bad} lines no JSON"] if bad else [])
    if not operators_:
        why.append("no operator was timed")
    return {
        "kind": "bench",
        "device": rows[0] if rows and "device" in rows[0] else {},
        "operators": operators_,
        "passed": not why,
        "why": "; ".join(why + ([f"{len(operators_)} rows are kept"] if why and operators_ else [])),
    }


def probe(session, step, ended):
    events, _ = objects(session.work / f"{step.name}.out")
    whole = bool(event(events, "end"))
    return {
        "kind": "probe",
        "events": len(events),
        "passed": ended["exit_code"] == 0 and whole,
        "why": "; ".join(ended_badly(ended) + ([] if whole else ["it has no end"])),
    }


def torch(session, step, ended):
    rows, _ = objects(session.work / f"{step.name}.out")
    found = {key: value for row in rows for key, value in row.items()}
    passed = ended["exit_code"] == 0
    return {
        "kind": "torch",
        "figures": found,
        "passed": passed or (None if not found else False),
        "why": "" if passed else "; ".join(ended_badly(ended) + last_lines(session.work / f"{step.name}.err", 1)),
    }


# -- tools -----------------------------------------------------------------------------------------------------------
REFUSALS = (
    r"(?i)not supported|unable to|failed to init|NVGPUCTRPERM|permission|LibraryNotLoaded|no kernels were profiled"
)


def tool_refusal(text):
    """What a tool says that does not work on this machine; empty where it says nothing of the kind."""
    return next((line.strip("= ").strip()[:200] for line in text.splitlines() if re.search(REFUSALS, line)), "")


def sanitizer(session, step, ended):
    text = read(session.work / f"{step.name}.log")
    summary = re.search(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)", text)
    if not summary:
        refused = tool_refusal(text + read(session.work / f"{step.name}.err"))
        return {
            "kind": "sanitizer",
            "passed": None if refused else False,
            "why": refused or "; ".join(ended_badly(ended) + ["it has no summary"]),
        }
    count = int(summary[1])
    found = [
        line.strip("= ").strip()
        for line in text.splitlines()
        if re.search(r"(?i)invalid|hazard|misaligned|uninit|error:", line)
    ]
    why = ([f"{count} errors"] if count else []) + ended_badly(ended)
    return {
        "kind": "sanitizer",
        "errors": count,
        "found": found[:6] if count else [],
        "passed": not why,
        "why": "; ".join(why),
    }


def counter_rows(path):
    """The table within what ncu wrote: lines before it are its own messages."""
    lines = read(path).splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    return [row for row in csv.DictReader(lines[start:]) if (row.get("ID") or "").isdigit()]


def launch_of(row):
    return row.get("Kernel Name", ""), row.get("Grid Size", ""), row.get("Block Size", "")


def amount(text):
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None


def longest_kernels(path, count=5):
    """Of ncu's times of all launches: those kernels, by grid and block, that took the longest together."""
    times = {}
    for row in counter_rows(path):
        times.setdefault(launch_of(row), []).append(amount(row.get("gpu__time_duration.sum")) or 0.0)
    total = sum(map(sum, times.values()))
    found = sorted(times, key=lambda launch: -sum(times[launch]))[:count]
    return [
        {
            "kernel": launch[0],
            "grid": launch[1],
            "block": launch[2],
            "launches": len(times[launch]),
            "time_s": sum(times[launch]) * 1e-9,
            "share": sum(times[launch]) / total if total else None,
        }
        for launch in found
    ]


def kernel_times(session, step, ended):
    log = session.work / f"{step.name}.log"
    kernels = longest_kernels(log)
    if kernels:
        return {"kind": "kernel_times", "kernels": kernels, "passed": True}
    return {
        "kind": "kernel_times",
        "kernels": [],
        "passed": None,
        "why": tool_refusal(read(log) + read(session.work / f"{step.name}.err"))
        or "; ".join(ended_badly(ended))
        or "no kernel was seen",
    }


def counters(session, step, ended):
    """Of each of the longest kernels, one launch: metric -> value with its unit."""
    metrics = {}
    for row in counter_rows(session.work / f"{step.name}.log"):
        value = f"{row.get('Metric Value', '')} {row.get('Metric Unit', '')}".strip()
        if row.get("Metric Name"):
            metrics.setdefault(launch_of(row), {})[row["Metric Name"]] = value
    kernels = [
        {**one, "metrics": metrics.get((one["kernel"], one["grid"], one["block"]), {})}
        for one in session.result("kernel-times").get("kernels", [])
    ]
    seen = any(one["metrics"] for one in kernels)
    return {
        "kind": "counters",
        "kernels": kernels,
        "passed": True if seen else None,
        "why": ""
        if seen
        else tool_refusal(read(session.work / f"{step.name}.log")) or "; ".join(ended_badly(ended)) or "none was read",
    }


def readable(mangled):
    """The names in a mangled one: _ZN6orrery4exec5outerE... -> orrery::exec::outer."""
    found = re.match(r"_ZN[KVr]*|_Z", mangled)
    if not found:
        return mangled
    names, rest = [], mangled[found.end() :]
    while True:
        length = re.match(r"\d+", rest)
        if not length:
            break
        end = length.end() + int(length[0])
        names.append(rest[length.end() : end])
        rest = rest[end:]
    return "::".join(n for n in names if not n.startswith("_GLOBAL__N")) or mangled


# -- a rank that goes ------------------------------------------------------------------------------------------------
def lost_peer(session, step, ended):
    """Of lost_peer.py: the survivor must say what it waited for and end by itself, within its deadline."""
    told = next(iter(objects(session.work / f"{step.name}.out")[0]), {})
    survivor, why = told.get("survivor") or {}, []
    if not told.get("killed"):
        said = survivor.get("says") or last_lines(session.work / f"{step.name}.err", 2)
        why.append("no rank was killed: " + " ".join(said))
    elif survivor.get("exit_code") is None:
        why.append("the survivor did not end")
    else:
        if survivor["exit_code"] <= 0:
            why.append(f"the survivor ended with {survivor['exit_code']}, not by itself with a failure")
        if not survivor.get("says"):
            why.append("the survivor said nothing")
        if survivor["seconds"] > told.get("deadline_s", 0) + 5:
            why.append(f"the survivor needed {survivor['seconds']:.1f} s")
    if ended.get("timed_out"):
        why.append("it ran out of time")
    return {"kind": "lost_peer", **told, "passed": not why, "why": "; ".join(why)}
