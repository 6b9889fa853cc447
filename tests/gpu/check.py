#!/usr/bin/env python3
"""The half of scripts/gpu-check that runs on a machine with a GPU, from an unpacked pack. Started by it.

Usage: check.py PACK OUT                              is it right, and how fast is each operator
       check.py --speed PACK OUT [AFTER]              training beside PyTorch and llm.c; AFTER: results of a first
                                                      call, whose tuned products count here too
Exit codes: 0 all passed, 5 a check failed, 6 no GPU
"""
import pathlib
import sys
import tempfile

import figures
import machine
import page
import speed
from steps import NoGpu, Session, Step
from worker import ALONE, command, cores, train_step

# Limits are in seconds. The steps of a call sum to less than ten minutes (check_test.py adds them up), which is what
# a command has on machines that are lent; those that tell most come first.
GOLDEN = ("bf16", "lamb_bf16", "tf32", "dropout", "dropout_bf16", "lossless", "fp8")
PAIRS = ("data_2", "tensor_2", "pipeline_2", "zero_3", "fp16_data_2", "server_2", "dropout_context_2")
SECTIONS = ("SpeedOfLight", "MemoryWorkloadAnalysis", "Occupancy", "LaunchStats", "WarpStateStats")
FP8_FROM = 89  # compute capability, times ten


def look_around(session):
    """What this machine has, noted; cuDNN must be there, or attention would be by own kernels and nobody would know."""
    session.use_libraries([])
    try:
        note_machine(session)
    except Exception as error:  # what it has is then for the programs to find
        why = f"this machine could not be looked at: {type(error).__name__}: {error}"
        session.note("machine", kind="machine", passed=False, why=why)


def note_machine(session):
    libraries = machine.find_libraries(session.own)
    session.use_libraries(dict.fromkeys(libraries.values()))
    version, why = machine.cudnn_version(session.environment)
    tools = {name: machine.find_tool(name, session.own) for name in ("compute-sanitizer", "ncu")}
    session.note(
        "machine",
        kind="machine",
        gpu=machine.gpu(session.own),
        libraries=libraries,
        cudnn=version,
        missing=[name for name in machine.LIBRARIES if name not in libraries],
        tools=tools,
        passed=version is not None,
        why="" if version else "cuDNN IS NOT THERE, so attention is by Orrery's own kernels: " + why,
    )


def find_gpu(session):
    """By the first program that needs one; it also says which tests there are."""
    session.run(Step("device", 10, [session.pack / "bin/test_gpu", "--gtest_list_tests"], figures.device))
    if session.result("device")["exit_code"] == 77:
        raise NoGpu(session.result("device")["device"])


def operators(session, shards, limit):
    test = session.pack / "bin/test_gpu"
    filters = {name: f"--gtest_filter={figures.filter_of(name)}" for name in shards}
    session.run(*(Step(f"operators-{name}", limit, [test, filters[name]], figures.operators) for name in shards))


# -- under tools -----------------------------------------------------------------------------------------------------
def with_tool(session, name, limit, tool, flags, run, judge):
    """A run of one rank under a tool, which has this machine's libraries where the worker has the pack's; or a line
    that the tool is not there."""
    path, log = session.result("machine").get("tools", {}).get(tool), session.work / f"{name}.log"
    if not path:
        return session.note(name, kind="tool", passed=None, why=f"{tool} is not there")
    begin = [path, *flags, "--target-processes", "all", "--log-file", log]
    worker = ["env", "LD_LIBRARY_PATH=" + session.environment["LD_LIBRARY_PATH"], *run]
    environment = session.environment | {"LD_LIBRARY_PATH": session.own.get("LD_LIBRARY_PATH", "")}
    session.run(Step(name, limit, [*begin, *worker], judge, environment, writes=(log.name,)))


def sanitizers(session):
    """Two steps of a small model; races are looked for in own kernels alone, since those of libraries take long."""
    run = command(session, "bf16", "sanitized", "--steps", 2, "--no-graphs", *ALONE)
    for name, flags in (("memcheck", "--report-api-errors no"), ("racecheck", "--kernel-regex kns=orrery")):
        flags = f"--tool {name} {flags} --error-exitcode 9 --print-limit 20".split()
        with_tool(session, name, 25, "compute-sanitizer", flags, run, figures.sanitizer)


def hardware_counters(session):
    """Of the five kernels that take longest in two steps of GPT-2 124M: first times of all launches, then counters of
    these. Clocks are left as they are."""
    run = command(session, "gpt2-124m-bf16", "counted", "--steps", 2, "--no-graphs", *ALONE, threads=cores())
    shared = "--clock-control none --csv --print-kernel-base mangled".split()
    times = "--metrics gpu__time_duration.sum --page raw --print-units base".split()
    with_tool(session, "kernel-times", 30, "ncu", times + shared, run, figures.kernel_times)
    names = sorted({kernel["kernel"] for kernel in session.result("kernel-times").get("kernels", [])})
    if not names:
        return
    once = "--filter-mode per-launch-config --launch-skip 1 --launch-count 1".split()
    these = ["--kernel-name-base", "mangled", "--kernel-name", f"regex:^({'|'.join(names)})$"]
    sections = [word for section in SECTIONS for word in ("--section", section)]
    flags = [*sections, *once, *these, "--page", "details", *shared]
    with_tool(session, "counters", 20, "ncu", flags, run, figures.counters)


# -- the calls -------------------------------------------------------------------------------------------------------
def lost_peer(session):
    folder, deadline = session.work / "lost-peer", 10
    program = [sys.executable, session.pack / "check/lost_peer.py", folder, deadline]
    run = command(session, "data_2", "lost-peer")
    session.run(Step("lost-peer", 18, [*program, *run], figures.lost_peer, writes=(folder.name,)))


def probe(session):
    flags = f"--probe --backend cuda --budget 25 --threads 1 --most-bytes {4 << 30} --stream-bytes {512 << 20}".split()
    session.run(Step("probe", 40, [session.pack / "bin/orrery-worker", *flags, *ALONE], figures.probe))


def first_call(session):
    look_around(session)
    find_gpu(session)
    golden = lambda plan, limit, *flags, **more: session.run(train_step(session, plan, limit, *flags, **more))
    real = lambda plan, limit, *flags, cudnn=True, **more: golden(
        plan, limit, *flags, threads=cores(), judge=figures.training, cudnn=cudnn, **more
    )
    fp8 = has_fp8(session)
    operators(session, [name for name, _ in figures.SHARDS if name != "large"], 40)
    golden("serial", 15)
    real("gpt2-124m-bf16", 40)
    session.run(*(train_step(session, name, 30) for name in GOLDEN if name != "fp8" or fp8))
    session.run(Step("bench", 45, [session.pack / "bin/gpu_bench"], figures.bench))
    probe(session)
    real("gpt2-124m-bf16", 18, "--no-graphs", variant="no-graphs")  # with the products that the first has tuned
    sanitizers(session)
    hardware_counters(session)
    golden("serial", 8, "--no-graphs", variant="no-graphs")
    golden("dropout_bf16", 8, "--no-graphs", variant="no-graphs")
    if fp8:
        real("gpt2-124m-fp8", 20)
    reference = [sys.executable, session.pack / "check/torch_reference.py"]
    session.run(Step("torch", 20, reference, figures.torch, environment=session.own))
    for plan in sorted((session.pack / "plans").glob("unseen-*.yaml")):
        real(plan.stem, 8)
    real("gpt2-124m", 15, cudnn=False)  # in fp32, which cuDNN's attention is not for
    operators(session, ["large"], 12)
    for name in PAIRS:  # two ranks on one GPU, which NCCL must be persuaded to
        golden(name, 9, ranks=2)
    golden("data_2", 9, "--no-graphs", variant="no-graphs", ranks=2)
    golden("data_2", 9, "--no-queued-messages", "--no-graphs", variant="host-ordered", ranks=2)
    lost_peer(session)


def has_fp8(session):
    """Older devices refuse it."""
    found = session.result("machine").get("gpu", {}).get("compute_cap", "").replace(".", "")
    return found.isdigit() and int(found) >= FP8_FROM


def second_call(session, after):
    look_around(session)
    find_gpu(session)
    speed.all_steps(session, after)


def main(arguments):
    fast = arguments[:1] == ["--speed"]
    pack, out, *after = arguments[fast:]
    pack = pathlib.Path(pack).resolve()
    make = (lambda results: speed.page(results, pack)) if fast else (lambda results: page.page(results, pack))
    with tempfile.TemporaryDirectory() as work:
        session = Session(pathlib.Path(out).resolve(), work, pack, make)
        try:
            if fast:
                second_call(session, after[0] if after else None)
            else:
                first_call(session)
        except NoGpu as why:
            print(f"gpu-check: {why}", file=sys.stderr)
            return 6
        session.finish()
    print((session.out / "results.json").read_text(), end="", flush=True)
    text = (session.out / "page.txt").read_text()
    print(text, text.splitlines()[0], sep="\n", file=sys.stderr)  # where only the end is kept, it says how it went
    return 0 if session.passed else 5


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
