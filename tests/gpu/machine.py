"""What a machine with a GPU has: CUDA's libraries wherever they lie, tools, and what its GPU can do at most by the
datasheet."""
import glob
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys

from reading import read

# What Orrery's programs open. cuDNN opens its parts by name when it needs them, and compiles kernels by NVRTC.
LIBRARIES = ("libcublas.so.13", "libcublasLt.so.13", "libnccl.so.2", "libcudnn.so.9", "libnvrtc.so.13")
CUDNN_PARTS = tuple(
    f"libcudnn_{part}.so.9" for part in ("graph", "ops", "heuristic", "engines_precompiled", "engines_runtime_compiled")
)
FOLDERS = (
    "/usr/local/cuda*/lib64",
    "/usr/local/cuda*/lib",
    "/usr/local/cuda*/targets/x86_64-linux/lib",
    "/usr/local/cudnn*/lib*",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/opt/nvidia/*/lib*",
)
TOOL_FOLDERS = (
    "/usr/local/cuda*/bin",
    "/usr/local/cuda*/compute-sanitizer",
    "/opt/nvidia/nsight-compute/*",
    "/usr/lib/nsight-compute",
)


def pip_folders():
    """Of the packages that PyTorch brings: pip's wheels keep each library in a folder of its own."""
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        spec = None
    bases = list(spec.submodule_search_locations or []) if spec else []
    return [folder for base in bases for folder in sorted(glob.glob(base + "/**/lib", recursive=True))]


def candidate_folders(environment):
    """In the order in which they are asked."""
    told = [folder for folder in environment.get("LD_LIBRARY_PATH", "").split(":") if folder]
    installed = [folder for pattern in FOLDERS for folder in sorted(glob.glob(pattern), reverse=True)]
    return list(dict.fromkeys(told + pip_folders() + installed))


def find_libraries(environment, folders=None):
    """Library -> the first folder that has it (of cuDNN: with its parts); those that are nowhere are not in it."""
    found = {}
    for library in LIBRARIES:
        wanted = (library, *CUDNN_PARTS) if "cudnn" in library else (library,)
        for folder in candidate_folders(environment) if folders is None else folders:
            if all(os.path.exists(os.path.join(folder, name)) for name in wanted):
                found[library] = folder
                break
    return found


def cudnn_version(environment):
    """As a program of Orrery's would see it, in a process of its own. -> (version, or None; why not)"""
    code = (
        "import ctypes; l = ctypes.CDLL('libcudnn.so.9'); l.cudnnGetVersion.restype = ctypes.c_size_t; "
        "[ctypes.CDLL(n) for n in %r]; print(l.cudnnGetVersion())" % (CUDNN_PARTS,)
    )
    try:
        said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.SubprocessError) as error:
        return None, str(error)
    version = said.stdout.strip()
    if said.returncode == 0 and version.isdigit():
        return f"{int(version) // 10000}.{int(version) // 100 % 100}.{int(version) % 100}", ""
    return None, (said.stderr.strip().splitlines() or ["no word"])[-1]


def find_tool(name, environment):
    path = shutil.which(name, path=environment.get("PATH"))
    if path:
        return path
    found = [file for folder in TOOL_FOLDERS for file in glob.glob(f"{folder}/{name}") if os.access(file, os.X_OK)]
    return max(found, default=None)


def gpu(environment):
    """Of the first GPU, by its driver; empty where that does not answer."""
    keys = ("name", "driver_version", "memory.total", "compute_cap")
    try:
        said = subprocess.run(
            ["nvidia-smi", "--query-gpu=" + ",".join(keys), "--format=csv,noheader"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=30,
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    values = [value.strip() for value in (said.stdout.splitlines() or [""])[0].split(",")]
    return dict(zip(keys, values)) if said.returncode == 0 and len(values) == len(keys) else {}


# -- the datasheet's peak --------------------------------------------------------------------------------------------
UNITS = {"TFLOPS": 1e12, "PFLOPS": 1e15, "GFLOPS": 1e9}


def catalogue_peaks(folder):
    """Device of clusters/catalog/devices -> its dense bf16 peak, FLOP/s."""
    peaks = {}
    for file in sorted(pathlib.Path(folder).glob("*.yaml")):
        text = read(file)
        name = re.search(r"^name: *(\S+)", text, re.M)
        peak = re.search(r"^peak:.*\bbf16: *([\d.]+) *(\wFLOPS)", text, re.M)
        if name and peak:
            peaks[name[1]] = float(peak[1]) * UNITS[peak[2]]
    return peaks


def datasheet_peak(gpu_name, peaks):
    """(dense bf16 FLOP/s, the catalogue's device) of "NVIDIA H200", "NVIDIA H100 PCIe" and the like; None, None where
    no device has that name. A variant (PCIe, NVL, a superchip) runs at another rate than the module of the same model
    and is never taken for it."""
    words = re.findall(r"[A-Z]+\d*[A-Z]*", (gpu_name or "").upper())
    model = next((word for word in words if re.fullmatch(r"[A-Z]+\d+[A-Z]*", word)), None)
    variants = {"PCIE", "NVL"}
    variant = next((word for word in words if word in variants), "")

    def is_it(name):
        parts = name.upper().split("-")
        return parts[0] == model and next((part for part in parts if part in variants), "") == variant

    found = {name: peak for name, peak in peaks.items() if is_it(name)}
    # A model with other memory may be made for one machine, at its own rate.
    size = re.search(r"(\d+)\s?GB", (gpu_name or "").upper())
    of_size = {name: peak for name, peak in found.items() if size and name.lower().endswith(f"-{size[1]}gb")}
    found = of_size or found
    if len(set(found.values())) != 1:
        return None, None
    name = sorted(found)[0]
    return found[name], name
