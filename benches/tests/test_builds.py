"""Peers that were built for less than the machine are refused."""

from __future__ import annotations

from pathlib import Path
from subprocess import CalledProcessError

import pytest

from benches import peers
from benches.harness import builds
from benches.harness.builds import LLAMA_CPP_FEATURES, SlowPeer, check_llama_cpp, cpu_flags, peer_builds
from benches.names import LLAMA_CPP, MLX_LM

LINE = "CPU : SSE3 = 1 | AVX2 = 1 | AVX512 = 1 | AVX512_BF16 = 0 | AMX_INT8 = 1 | OPENMP = 1 | REPACK = 1"


def test_a_build_for_the_machine_is_taken() -> None:
    check_llama_cpp(LINE, {"avx2", "avx512f", "amx_int8", "sse3"})


@pytest.mark.parametrize("flag", LLAMA_CPP_FEATURES)
def test_a_build_that_lacks_a_feature_of_the_machine_is_refused(flag: str) -> None:
    feature = LLAMA_CPP_FEATURES[flag]
    without = LINE.replace(f"| {feature} = 1", f"| {feature} = 0")
    with pytest.raises(SlowPeer, match=f"lacks {feature}, which this machine has: build it as docs/"):
        check_llama_cpp(without, {flag})


def test_vnni_without_avx512_counts_too() -> None:
    with pytest.raises(SlowPeer, match="lacks AVX_VNNI"):
        check_llama_cpp(LINE, {"avx2", "avx_vnni"})


def test_a_build_with_threads_of_its_own_is_refused() -> None:
    with pytest.raises(SlowPeer, match="lacks OPENMP"):
        check_llama_cpp(LINE.replace("OPENMP = 1", ""), set())


def test_a_slow_peer_ends_the_benchmark_before_it_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "llama_cpp.py").write_text("llama_print_system_info = lambda: b'CPU : OPENMP = 1 | '\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(builds, "cpu_flags", lambda: {"amx_int8"})
    record = tmp_path / "peers.json"
    assert peers.main(["--rows", "start", "--json", str(record)]) == 1
    assert "bench peers: this build of llama.cpp lacks AMX_INT8" in capsys.readouterr().err
    assert not record.exists()


def test_why_a_peer_does_not_load_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "llama_cpp.py").write_text("raise RuntimeError('no libgomp.so.1')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(CalledProcessError):
        peer_builds([LLAMA_CPP])
    assert "no libgomp.so.1" in capfd.readouterr().err


def test_an_environment_that_slows_peers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")
    with pytest.raises(SlowPeer, match="ATEN_CPU_CAPABILITY is set"):
        peer_builds([MLX_LM])


def test_only_peers_of_the_suite_are_asked() -> None:
    assert peer_builds([MLX_LM]).keys() == {MLX_LM}
    assert peer_builds([]) == {}


@pytest.mark.llama_cpp
def test_the_installed_build_of_llama_cpp_is_for_this_machine() -> None:
    assert "avx2" in cpu_flags()
    assert "AVX2 = 1" in peer_builds([LLAMA_CPP])[LLAMA_CPP]
