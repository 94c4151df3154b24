"""Build, test and time everything on a Mac, and write a report to send back: `pdm run check-mac`.

The project has no Mac of its own. The report has the build, the Metal kernels that compile and run on this
GPU, the test results, and the times of attention and of products with packed weights beside MLX's. Parts that
fail are in the report, too. It has versions and the name of the chip, nothing personal. Takes some minutes.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
REPORT = ROOT / "build" / "check-mac.json"
# The kernel tests that do not need the CPU: file names without test_.
KERNEL_TESTS = """causality dtypes grouped_heads head_sizes hidden_rows layouts lengths masks nan
ragged_batches running_maximum scale softcap_and_sinks window""".split()

# MLX reads this at its start. With TF32, on the newest GPUs, it would keep only 10 bits of a float32 factor.
os.environ.setdefault("MLX_ENABLE_TF32", "0")

PART_SECONDS = 1800  # a part that hangs must not prevent the report

Part = Callable[[str], dict[str, Any]]


def command(*words: str | Path, **environment: str) -> dict[str, Any]:
    """Whether a program succeeded, and the end of its output."""
    path = os.pathsep.join(
        [str(ROOT / "src"), str(ROOT / "src/extensions"), os.environ.get("PYTHONPATH", "")]
    )
    env = {**os.environ, "PYTHONPATH": path, **environment}
    ended = subprocess.run(words, cwd=ROOT, env=env, text=True, capture_output=True, check=False)
    output = (ended.stdout + ended.stderr).strip().replace(str(ROOT), ".").replace(str(Path.home()), "~")
    return {"ok": ended.returncode == 0, "output": output[-20000:]}


def machine(device: str) -> dict[str, Any]:
    """Versions and the name of the device."""
    import mlx.core as mx

    from benches.harness import machine as host
    from tiny_llm.runtime.installation import check_installation

    kind = {"cpu": mx.cpu, "gpu": mx.gpu}[device]
    return {
        "ok": True,
        "macos": platform.mac_ver()[0],
        **host.describe(),
        "device": {name: str(value) for name, value in mx.device_info(kind).items()},
        "installation": check_installation(),
    }


def build(device: str) -> dict[str, Any]:
    """The extension, compiled if a source is newer; whether the build made a metallib."""
    outcome = command(sys.executable, "src/extensions/build.py")
    package = ROOT / "src/extensions/tiny_llm_ext"
    return {
        **outcome,
        "metallib": (package / "tiny_llm_ext.metallib").is_file(),
        "texts": sorted(path.name for path in (package / "metal").glob("*.metal")),
    }


def kernels(device: str) -> dict[str, Any]:
    """The kernel that attention takes for each type, head size and number of rows; reasons against others."""
    import mlx.core as mx

    from tiny_llm.runtime.extension import load_extension

    stream = {"cpu": mx.cpu, "gpu": mx.gpu}[device]
    chosen, reasons = {}, {}
    for dtype in (mx.float32, mx.float16, mx.bfloat16):
        for size in (64, 80, 96, 128, 256):
            for rows in (1, 64):
                x = mx.zeros((1, 2, rows, size), dtype)
                keys = mx.zeros((1, 2, 1100, size), dtype)
                explanation = load_extension().explain_attention(x, keys, keys, stream=stream)
                name = f"{dtype} head size {size}, {rows} rows"
                chosen[name] = explanation["path"]
                if explanation["reasons"]:
                    reasons[name] = list(explanation["reasons"])
    return {"ok": not reasons, "chosen": chosen, "reasons": reasons}


def tests(device: str) -> dict[str, Any]:
    """The course's tests on this device, the kernel tests, and the tests of Metal's host side."""
    words = [sys.executable, *"-m pytest -q -rfE --tb=short -p no:cacheprovider".split()]
    files = [f"tests/kernels/attention/test_{name}.py" for name in KERNEL_TESTS]
    course = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").glob("test_*.py"))
    outcomes = {
        "course": command(*words, *course, "-k", device),
        "kernels": command(*words, *files, TINY_LLM_TEST_DEVICE=device),
        "host": command(*words, *map(str, sorted((ROOT / "tests/metal/host").glob("test_*.py")))),
    }
    return {"ok": all(outcome["ok"] for outcome in outcomes.values()), **outcomes}


def times(device: str) -> dict[str, Any]:
    """Times of attention and of the product with packed weights beside MLX's own, each checked first."""
    import mlx.core as mx

    from benches.check_mac import rows

    mx.set_default_device({"cpu": mx.cpu, "gpu": mx.gpu}[device])
    found = rows(device)
    return {"ok": all(row["error"] < row["allowed"] for row in found), "rows": found}


def model(device: str) -> dict[str, Any]:
    """Tokens a second of the embedded model, with and without FlashAttention."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "model.json"
        words = f"bench.py --model tiny --compare --device {device} --num-seqs 4 --json {result}"
        outcome = command(sys.executable, *words.split())
        return {**outcome, "result": json.loads(result.read_text()) if result.is_file() else None}


PARTS: dict[str, Part] = {part.__name__: part for part in (build, machine, kernels, tests, times, model)}


def in_a_child(name: str, device: str) -> dict[str, Any]:
    """The result of a part, run in a process of its own: if it crashes or hangs, the others still run."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.json"
        words = [sys.executable, __file__, "--device", device, "--child", name, "--output", str(found)]
        ended = subprocess.run(words, text=True, capture_output=True, check=False, timeout=PART_SECONDS)
        if found.is_file():
            return json.loads(found.read_text())
        return {"ok": False, "error": f"exit status {ended.returncode}", "output": ended.stderr[-20000:]}


def run_parts(names: list[str], device: str, output: Path) -> dict[str, Any]:
    """Run one part after the other, and write the report after each."""
    report: dict[str, Any] = {"report": "check-mac", "device": device, "parts": {}}
    for name in names:
        print(f"{name}: {(PARTS[name].__doc__ or '').splitlines()[0]}", flush=True)
        begin = time.perf_counter()
        try:
            found = in_a_child(name, device)
        except subprocess.TimeoutExpired:
            found = {"ok": False, "error": f"not finished after {PART_SECONDS} s"}
        seconds = round(time.perf_counter() - begin, 1)
        report["parts"][name] = {**found, "took_seconds": seconds}
        print(f"    {'ok' if found['ok'] else 'NOT OK'} in {seconds} s", flush=True)
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(report, indent=1) + "\n")
        output.with_suffix(".txt").write_text(as_text(report))
    return report


def run_here(name: str, device: str, output: Path) -> None:
    """Run a part in this process, and write its result."""
    try:
        found = PARTS[name](device)
    except (Exception, SystemExit) as error:
        what = f"{type(error).__name__}: {error}"
        found = {"ok": False, "error": what, "output": traceback.format_exc()}
    output.write_text(json.dumps(found))


def as_text(report: dict[str, Any]) -> str:
    """The report as text: a line for each part, errors, and times."""
    lines = [f"check-mac on the {report['device']}"]
    for name, part in report["parts"].items():
        lines += ["", f"{name}: {'ok' if part['ok'] else 'NOT OK'} in {part['took_seconds']} s"]
        if "device" in part:
            lines += [f"  {key}: {value}" for key, value in part["device"].items()]
        lines += [f"  {key}: {value}" for key, value in part.get("versions", {}).items()]
        lines += [f"  {case}: {path}" for case, path in part.get("chosen", {}).items()]
        lines += [f"  {case}: {reason}" for case, why in part.get("reasons", {}).items() for reason in why]
        lines += [
            f"  {row['case']}: {row['times_as_fast']:.2f} times as fast as {row['beside']}, "
            f"error {row['error']:.1e} by {row['path']}"
            for row in part.get("rows", [])
        ]
        lines += [
            f"  {run['name']}: {run['prefill_tokens_per_second']:.0f} tokens of prompt a second, "
            f"{run['decode_tokens_per_second']:.1f} of answer"
            for run in (part.get("result") or {}).get("contestants", [])
        ]
        for what, outcome in {name: part, **part}.items():
            if isinstance(outcome, dict) and "output" in outcome:
                end = outcome["output"].splitlines()[-1:] if outcome["ok"] else [outcome["output"]]
                lines += [f"  {what}: {line}" for line in end]
        if "error" in part:
            lines.append(f"  {part['error']}")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=REPORT, help="the report; beside it, a text version")
    parser.add_argument("--part", action="append", choices=PARTS, help="run only this part; may be repeated")
    # For the tests of this program on other machines: any device that MLX has.
    parser.add_argument("--device", choices=["cpu", "gpu"], help=argparse.SUPPRESS)
    parser.add_argument("--child", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if platform.system() != "Darwin" and not options.device:
        print(f"check-mac needs a Mac; this is {platform.system()}.", file=sys.stderr)
        return 2
    sys.path[:0] = [str(ROOT / "src"), str(ROOT)]
    if options.child:
        run_here(options.child, options.device, options.output)
        return 0
    names = [name for name in PARTS if not options.part or name in options.part]
    report = run_parts(names, options.device or "gpu", options.output.resolve())
    print(f"\nThe report: {options.output}, and as text {options.output.with_suffix('.txt')}")
    print("Please send both files back: open an issue of this project and attach them.")
    return 0 if all(part["ok"] for part in report["parts"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
