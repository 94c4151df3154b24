"""The build for Metal as far as CMake goes, with an `xcrun` that takes notes in the place of Apple's."""

import os
import subprocess
import sys

import pytest

import build

from ...support.processes.child import ROOT

pytestmark = pytest.mark.slow

XCRUN = """#!/bin/sh
echo "$@" >> "{notes}"
[ -z "$NO_COMPILER" ] || {{ echo "unable to find utility metal" >&2; exit 72; }}
while [ $# -gt 1 ]; do [ "$1" = -o ] && echo compiled > "$2"; shift; done
"""


class Build:
    """A build folder whose MLX claims to have Metal."""

    def __init__(self, folder):
        self.folder, self.notes = folder / "build", folder / "notes"
        xcrun = folder / "bin/xcrun"
        xcrun.parent.mkdir()
        xcrun.write_text(XCRUN.format(notes=self.notes))
        xcrun.chmod(0o755)
        self.environment = {**os.environ, "PATH": f"{xcrun.parent}{os.pathsep}{os.environ['PATH']}"}
        self.metallib = self.folder / "src/extensions/tiny_llm_ext/tiny_llm_ext.metallib"

    def run(self, *command, **environment) -> str:
        ended = subprocess.run(
            command, env={**self.environment, **environment}, text=True, capture_output=True, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    def configure(self, **environment) -> str:
        options = [
            "-DMLX_BUILD_METAL=ON",
            "-DCMAKE_OSX_DEPLOYMENT_TARGET=14.0",
            f"-DPython_EXECUTABLE={sys.executable}",
        ]
        options += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={build.tool('ninja')}"]
        return self.run(build.tool("cmake"), "-S", ROOT, "-B", self.folder, *options, **environment)


def test_a_metallib_is_made_where_the_compiler_is_and_only_there(tmp_path):
    project = Build(tmp_path)
    project.configure()
    project.run(build.tool("ninja"), "-C", project.folder, "metallib")
    assert project.metallib.is_file()
    compiled = [line for line in project.notes.read_text().splitlines() if "-MMD" in line]
    names = {line.split(" -c ")[1].split()[0].rsplit("/", 1)[1] for line in compiled}
    assert names == {"flash_attention.metal", "attention.metal", "quantized_matmul.metal"}
    for line in project.notes.read_text().splitlines():
        assert "-mmacosx-version-min=14.0" in line
        assert "-fno-fast-math" in line or ".air " in line, "infinities mark what is hidden"

    said = project.configure(NO_COMPILER="1")
    assert "the Metal kernels are compiled at run time" in said
    assert "unable to find utility metal" in said
    assert not project.metallib.exists(), "an old one would be preferred to the texts"
