"""The CMake part of the build for Metal, with an `xcrun` that logs its arguments instead of Apple's."""

import os
import subprocess
import sys

import pytest

import build

from ...support.processes.child import ROOT

pytestmark = pytest.mark.slow

XCRUN = """#!/bin/sh
echo "$@" >> "{log}"
[ -z "$NO_COMPILER" ] || {{ echo "unable to find utility metal" >&2; exit 72; }}
while [ $# -gt 1 ]; do [ "$1" = -o ] && echo compiled > "$2"; shift; done
"""


class Build:
    """A build folder configured as if MLX had Metal."""

    def __init__(self, folder):
        self.folder, self.log = folder / "build", folder / "log"
        xcrun = folder / "bin/xcrun"
        xcrun.parent.mkdir()
        xcrun.write_text(XCRUN.format(log=self.log))
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


def test_a_metallib_is_built_only_where_the_compiler_exists(tmp_path):
    project = Build(tmp_path)
    project.configure()
    project.run(build.tool("ninja"), "-C", project.folder, "metallib")
    assert project.metallib.is_file()
    compiled = [line for line in project.log.read_text().splitlines() if "-MMD" in line]
    names = {line.split(" -c ")[1].split()[0].rsplit("/", 1)[1] for line in compiled}
    assert names == {"flash_attention.metal", "attention.metal", "quantized_matmul.metal"}
    for line in project.log.read_text().splitlines():
        assert "-mmacosx-version-min=14.0" in line
        assert "-fno-fast-math" in line or ".air " in line, "hidden scores are infinite"

    output = project.configure(NO_COMPILER="1")
    assert "the Metal kernels are compiled at run time" in output
    assert "unable to find utility metal" in output
    assert not project.metallib.exists(), "an old metallib would be preferred to the sources"
