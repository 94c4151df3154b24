"""How peers were built and set. One that lacks what this machine has is refused: it would flatter us."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

from benches.harness.machine import ROOT
from benches.names import LLAMA_CPP, MLX_LM, OPENVINO, PYTORCH

# By the flag of /proc/cpuinfo: what llama.cpp's feature line says of a build that uses it.
LLAMA_CPP_FEATURES = {
    "avx2": "AVX2",
    "avx_vnni": "AVX_VNNI",
    "avx512f": "AVX512",
    "avx512vbmi": "AVX512_VBMI",
    "avx512_vnni": "AVX512_VNNI",
    "avx512_bf16": "AVX512_BF16",
    "amx_int8": "AMX_INT8",
}
THREADS = "OPENMP"  # llama.cpp's own threads are slower
REDUCING = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS")


class SlowPeer(Exception):
    """A peer is not at its best on this machine; the text says what is missing and what to do."""


def peer_builds(names: Collection[str]) -> dict[str, str]:
    """A line for each of these peers that is installed, for the record; raises SlowPeer.

    Asked in a process of its own, because loading a peer starts its threads.
    """
    if reducing := [name for name in REDUCING if name in os.environ]:
        raise SlowPeer(f"{reducing[0]} is set, which limits PyTorch or OpenVINO: unset it")
    done = subprocess.run(
        [sys.executable, "-m", "benches.harness.builds", *names],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=ROOT,
    )
    builds: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    if line := builds.get(LLAMA_CPP):
        check_llama_cpp(line, cpu_flags())
    return builds


def check_llama_cpp(line: str, flags: Collection[str]) -> None:
    """Raise SlowPeer unless the build of this feature line uses all that a CPU with these flags has."""
    has = set(re.findall(r"(\w+) = 1\b", line))
    needed = [THREADS, *(feature for flag, feature in LLAMA_CPP_FEATURES.items() if flag in flags)]
    if lacking := [feature for feature in needed if feature not in has]:
        raise SlowPeer(
            f"this build of llama.cpp lacks {', '.join(lacking)}, which this machine has: "
            "build it as docs/benchmarks/method.md says, or uninstall llama-cpp-python"
        )


def cpu_flags() -> set[str]:
    """The features of this CPU, as Linux names them; none where the system does not say."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return set(next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), []))


def _llama_cpp() -> str:
    from llama_cpp import llama_print_system_info

    return str(llama_print_system_info().decode().strip(" |"))


def _pytorch() -> str:
    import torch

    matrices = "oneDNN" if torch.backends.mkldnn.is_available() else "no oneDNN"
    return f"{torch.backends.cpu.get_cpu_capability()}, {matrices}, by the machine at run time"


def _openvino() -> str:
    import openvino

    core = openvino.Core()
    can = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    precision = core.get_property("CPU", "INFERENCE_PRECISION_HINT").get_type_name()
    cache = core.get_property("CPU", "KV_CACHE_PRECISION").get_type_name()
    return f"{' '.join(can)}; activations in {precision}, KV cache in {cache}"


if __name__ == "__main__":
    LINES = {
        LLAMA_CPP: ("llama_cpp", _llama_cpp),
        PYTORCH: ("torch", _pytorch),
        OPENVINO: ("openvino", _openvino),
        MLX_LM: ("mlx_lm", lambda: "float32 on one core: MLX has no other kernels for CPUs"),
    }
    asked = {name: LINES[name] for name in sys.argv[1:]}
    found = {name: ask() for name, (module, ask) in asked.items() if importlib.util.find_spec(module)}
    print(json.dumps(found))
