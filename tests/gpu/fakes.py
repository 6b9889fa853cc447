"""Fake programs for check_test.py: a pack of them leaves behind what broken programs leave, on a machine that seems
to have a GPU, cuDNN and tools."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap

import check
import figures
import machine
import speed

HERE = pathlib.Path(__file__).resolve().parent

TESTS = {
    "attention": ["Cuda/Operators.Agree/attention_flash", "Cuda/Operators.Agree/attention_grad_flash"],
    "products": ["Cuda/Operators.Agree/matmul_bias", "RoundedOperands.AreTheBytes"],
    "tables": ["Cuda/Operators.Agree/embedding_grad_many"],
    "norms": ["Cuda/Operators.Agree/bf16_layer_norm_33"],
    "losses": ["Cuda/Operators.Agree/softmax_max_5"],
    "updates": ["Cuda/Operators.Agree/adamw_fp32"],
    "compression": ["Cuda/Operators.Agree/sparse_encode_tf32_5"],
    "chains": ["Cuda/Chains.Leave/bf16"],
    "large": ["CudaLarge.Rows"],
    "others": ["CudaBackend.Refuses", "Cuda/Operators.Agree/gelu"],
}

FAKE_TESTS = """
    import json, os, pathlib, signal, sys
    tests = json.loads((pathlib.Path(__file__).resolve().parent.parent / "data/tests.json").read_text())
    print("GPU: NVIDIA H200 (driver 13.0, runtime 13.0, NCCL 2.28.9, cuDNN)")
    if "list_tests" in sys.argv[1]:
        for test in sum(tests.values(), []):
            print(test.split(".")[0] + ".\\n  " + test.split(".", 1)[1] + "  # GetParam() = 1")
        sys.exit(0)
    for test in tests[sys.argv[1].split("=")[-1]]:
        print("[ RUN      ] " + test, flush=True)
        if test == os.environ.get("FAKE_CRASH"):
            os.kill(os.getpid(), signal.SIGSEGV)
        print("[       OK ] " + test + " (0 ms)")
"""

# The run's name says what is wrong with it; the rest is as a sound run leaves it.
FAKE_WORKER = """
    import json, os, pathlib, sys
    flags = sys.argv[1:]
    if "--probe" in flags:
        print('{"event":"copy"}\\n{"event":"end"}')
        sys.exit(0)
    run = pathlib.Path(flags[flags.index("--run") + 1])
    name, pack = run.name[4:], pathlib.Path(__file__).resolve().parent.parent
    broken = json.loads(os.environ.get("FAKE_BROKEN", "{}")).get(name)
    golden = json.loads((pack / "data/golden.json").read_text())["runs"]["cosine_clipped"]["float32"]["steps"]
    losses = [step["loss"] for step in golden]
    count = int(flags[flags.index("--steps") + 1]) if "--steps" in flags else len(losses)
    losses = (losses * 2)[:count]
    kernel = "own, tensor cores" if broken == "own attention" else "cuDNN 9.19.0"
    choices = [{"operator": "attention", "kernel": kernel, "reason": ""}]
    lines = [{"event": "started", "steps": count}, {"event": "kernels", "choices": choices}]
    if broken == "no JSON":
        print("Segmentation fault (core dumped)\\n\\x00\\xff{{{")
    for line in lines if broken != "no JSON" else []:
        print(json.dumps(line))
    if broken == "no file":
        sys.exit(0)
    run.mkdir(parents=True)
    if broken == "a loss that is no number":
        losses[6] = None
    rows = [{"step": i + 1, "loss": loss, "step_time_s": 0.01, "tokens_per_s": 1e5, "memory_peak_bytes": 1e9}
            for i, loss in enumerate(losses)]
    if broken == "a time that is no number":
        rows[-1]["tokens_per_s"] = rows[-1]["step_time_s"] = rows[-1]["memory_peak_bytes"] = None
    text = "".join(json.dumps(row) + "\\n" for row in rows)
    if broken == "a truncated line":
        text = text[:-40]
    if broken == "NaN":
        text = text.replace(json.dumps(losses[3]), "NaN", 1)
    (run / "metrics.jsonl").write_text(text)
"""

FAKE_BENCH = """
    import os, time
    print('{"device":"NVIDIA H200","versions":"13.0"}', flush=True)
    for name in ("matmul", "gelu"):
        print('{"name":"%s","time_s":1e-5,"fastest_s":1e-5,"flops_per_s":5e14,"bytes_per_s":1e12}' % name, flush=True)
    if "FAKE_BENCH_FAILS" in os.environ:
        print('{"name":"rope","error":"CUDA: an illegal memory access"}\\n{"name":"tru', flush=True)
        raise SystemExit(1)
"""

FAKE_SANITIZER = """
    import sys
    log = sys.argv[sys.argv.index("--log-file") + 1]
    race = "racecheck" in sys.argv
    open(log, "w").write("========= COMPUTE-SANITIZER\\n" + (
        "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\\n" if race else
        "========= ERROR SUMMARY: 0 errors\\n"))
"""

FAKE_NCU = """
    import sys
    log = open(sys.argv[sys.argv.index("--log-file") + 1], "w")
    log.write("==PROF== Connected to process 1\\n")
    launch, kernel = '"ID","Kernel Name","Block Size","Grid Size",', '_ZN6orrery4exec4cuda6kernelE'
    if "raw" in sys.argv:
        log.write(launch + '"gpu__time_duration.sum"\\n"","","","","ns"\\n')
        for i in range(12):
            log.write('"%d","%s%d","(256, 1, 1)","(%d, 1, 1)","%d,000"\\n' % (i, kernel, i % 6, i % 6, 1 + i % 6))
    else:
        log.write(launch + '"Section Name","Metric Name","Metric Unit","Metric Value"\\n')
        log.write('"0","%s5","(256, 1, 1)","(5, 1, 1)","Speed","DRAM Throughput","%%","85.1"\\n' % kernel)
"""

# Two ranks of lost_peer.py, of which one dies; else one for all.
FAKE_MPIEXEC = """
    import json, os, pathlib, sys, time
    if "--rank" not in sys.argv:
        os.execv(sys.argv[3], sys.argv[3:])
    folder = pathlib.Path(sys.argv[sys.argv.index("--rank") + 1])
    (folder / "rank-0.err").write_text("orrery-worker: rank 0: waited more than 10 s for rank 1: all_reduce\\n")
    for rank, code in ((1, -9), (0, 1)):
        (folder / "part").write_text(json.dumps({"exit_code": code, "at": time.time()}))
        (folder / "part").replace(folder / f"rank-{rank}.json")
"""

FAKE_SMI = """
    print("NVIDIA H200, 580.159.04, 143771 MiB, 9.0")
"""

NAMES = [
    *check.GOLDEN,
    *check.PAIRS,
    "serial",
    "gpt2-124m",
    "gpt2-124m-bf16",
    "gpt2-124m-fp8",
    "unseen-1",
    "speed-gpt2-124m",
    "speed-gpt2-1558m",
    "speed-tinyllama-1.1b",
]


FAKE_TORCH = """
    import json, os, sys
    out = sys.argv[sys.argv.index("--out") + 1]
    runs = json.load(open(os.path.dirname(sys.argv[1]) + "/golden.json"))["runs"]
    losses = [step["loss"] for step in runs["cosine_clipped"]["float32"]["steps"]]
    done = {"step_time_s": 0.02, "losses": losses[:5], "seconds_to_warm": 20.0, "memory_peak_bytes": 1e9}
    modes = {m: done for m in os.environ["FAKE_TORCH_MODES"].split(",")}
    json.dump({"torch": "2.11", "modes": modes, "peak_bf16_flops_per_s": {"8192x8192x8192": 7.9e14}}, open(out, "w"))
"""


class Folder:
    """A pack of fakes, and a machine with a GPU for it."""

    def __init__(self, with_cudnn=True):
        self.path = pathlib.Path(tempfile.mkdtemp())
        self.pack, self.out, self.tools, self.cudnn = (self.path / name for name in ("pack", "out", "tools", "cudnn"))
        for folder in ("bin", "lib", "plans", "data", "check"):
            (self.pack / folder).mkdir(parents=True)
        self.tools.mkdir()
        shutil.copy(HERE.parent / "golden/pytorch/golden.json", self.pack / "data")
        for name in NAMES:
            (self.pack / f"plans/{name}.yaml").write_text("data: @PACK@/data\n")
        for name, text in (("test_gpu", FAKE_TESTS), ("orrery-worker", FAKE_WORKER), ("gpu_bench", FAKE_BENCH)):
            self.program(self.pack / "bin" / name, text)
        self.program(self.pack / "bin/mpiexec", FAKE_MPIEXEC)
        by_filter = {figures.filter_of(shard): tests for shard, tests in TESTS.items()}
        (self.pack / "data/tests.json").write_text(json.dumps(by_filter))
        for name, text in (("compute-sanitizer", FAKE_SANITIZER), ("ncu", FAKE_NCU), ("nvidia-smi", FAKE_SMI)):
            self.program(self.tools / name, text)
        (self.pack / "version").write_text("test\n")
        (self.pack / "data/peaks.json").write_text('{"H200-SXM5-141GB": 989.4e12}')
        for name in speed.GOALS:
            (self.pack / f"data/speed-{name}.json").write_text(json.dumps(job_of(name)))
        for file in HERE.glob("*.py"):
            if file.name not in ("torch_training.py", "torch_reference.py"):
                shutil.copy(file, self.pack / "check")
        if with_cudnn:
            make_cudnn(self.cudnn)

    def program(self, path, text):
        path.write_text(f"#!{sys.executable} -IS\n" + textwrap.dedent(text))
        path.chmod(0o755)

    def environment(self, **more):
        return os.environ | {"PATH": f"{self.tools}:{os.environ['PATH']}", "LD_LIBRARY_PATH": str(self.cudnn)} | more

    def call(self, *flags, **environment):
        """-> exit code, page, object, lines."""
        ran = subprocess.run(
            [sys.executable, self.pack / "check/check.py", *flags, self.pack, self.out],
            env=self.environment(**environment),
            capture_output=True,
            text=True,
        )
        self.said = ran.stderr
        lines = [json.loads(line) for line in (self.out / "results.jsonl").read_text().splitlines()]
        return ran.returncode, (self.out / "page.txt").read_text(), json.loads(ran.stdout or "null"), lines


def job_of(name):
    model = {
        "family": "gpt",
        "layers": 12,
        "hidden": 768,
        "heads": 12,
        "kv_heads": 12,
        "ffn_hidden": 3072,
        "vocab": 50257,
    }
    predicted = {
        "step_time_s": 0.06,
        "memory_peak_bytes": 2**34,
        "memory_capacity_bytes": 2**37,
        "mfu": 0.4,
        "tokens_per_s": 5e5,
    }
    return {"name": name, "model": model, "batch": 32, "sequence": 1024, "predicted": predicted}


def make_cudnn(folder):
    """Libraries of cuDNN's names, of which one says a version."""
    folder.mkdir()
    for library in ("libcudnn.so.9", *machine.CUDNN_PARTS):
        subprocess.run(
            ["c++", "-shared", "-fPIC", "-x", "c++", "-", "-o", folder / library],
            check=True,
            input=b'extern "C" unsigned long cudnnGetVersion() { return 91900; }',
        )
