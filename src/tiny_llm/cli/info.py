"""`tiny-llm info`: what is installed, what this machine supports, and how fast attention runs on it."""

import argparse
from typing import Any

from ..runtime.gpu import gpu_line
from ..runtime.installation import check_installation
from . import arguments
from .output_files import print_json

DESCRIPTION = "Shows what is installed, what this machine supports, and how fast attention runs on it."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_threads(parser)
    arguments.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the report; exit code 1 when the extension is not usable."""
    report = check_installation()
    print_json(report, indent=2) if options.json else print(as_text(report))
    return 0 if report["extension"]["loaded"] else 1


def as_text(report: dict[str, Any]) -> str:
    extension = report["extension"]
    lines = [
        ("tiny-llm", report["tiny_llm"]),
        ("python", report["python"]),
        ("mlx", f"{report['mlx']['version']}, {report['mlx']['back_end']} back end"),
        ("devices", ", ".join(f"{kind} ({name})" for kind, name in report["devices"].items())),
    ]
    if report["gpu"] is not None:
        lines.append(("gpu", gpu_line(report["gpu"])))
    if not extension["loaded"]:
        lines.append(("extension", f"not loaded: {extension['reason']}"))
    else:
        cpu, rate = report["cpu"], report["attention"]
        found = ", ".join(f"{isa} (active)" if isa == cpu["active"] else isa for isa in cpu["found"])
        lines += [
            ("extension", "loaded"),
            ("instruction sets", found),
            ("threads", threads_text(**cpu["threads"])),
            ("attention", f"{rate['gflops']:.0f} GFLOP/s ({rate['work']})"),
        ]
    if report["warnings"]:
        lines += [("warning", warning) for warning in report["warnings"]]
    return "\n".join(f"{name:<18}{value}" for name, value in lines)


def threads_text(prompts: int, decoding: int, reason: str) -> str:
    numbers = str(prompts) if prompts == decoding else f"{prompts} in prompts, {decoding} in decoding"
    return f"{numbers} ({reason})"
