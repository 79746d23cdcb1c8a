"""What of `--cluster` is refused before there is a cluster."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from runs.errors import ExitCode
from sut.replicas.cluster_process import passed_on, shares
from tests.conftest import StartedMain, run_here
from tests.support.legs import arguments

StartMain = Callable[..., StartedMain]


def without_ray(folder: Path) -> dict[str, str]:
    (folder / "ray.py").write_text("raise ImportError('No module named ray')\n")
    return {"PYTHONPATH": str(folder)}


def test_without_ray(start_main: StartMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    finished = start_main(*arguments("Offline", out, "--cluster", "auto"), environment=without_ray(tmp_path)).wait()
    assert finished.code == ExitCode.REFUSED
    assert "--cluster auto needs Ray: No module named ray" in finished.stderr
    assert "pip install ray==" in finished.stderr
    assert not out.exists()


def test_doctor_without_ray(start_main: StartMain, tmp_path: Path) -> None:
    finished = start_main("doctor", "--cluster", environment=without_ray(tmp_path)).wait()
    assert finished.code == ExitCode.REFUSED
    assert "cluster" in finished.stdout
    assert "--cluster auto needs Ray" in finished.stdout


@pytest.mark.parametrize("address", ["ray://head:10001", "head", "head:port", ""])
def test_an_address_that_is_none(address: str, tmp_path: Path) -> None:
    finished = run_here(*arguments("Offline", tmp_path / "run", "--cluster", address))
    assert finished.code == ExitCode.BAD_INPUT
    assert f"--cluster {address}" in finished.stderr


def test_an_address_where_nothing_answers(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed (docs/parallel.md)")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    finished = run_here(*arguments("Offline", tmp_path / "run", "--cluster", f"127.0.0.1:{port}"))
    assert finished.code == ExitCode.REFUSED
    assert "no cluster answers there" in finished.stderr
    assert "ray start --head" in finished.stderr


@pytest.mark.parametrize(
    ("fit", "count", "given"),
    [
        ({0: 8, 1: 8}, 4, {0: 2, 1: 2}),
        ({0: 8, 1: 8}, 1, {0: 1}),
        ({0: 8, 2: 4}, 6, {0: 4, 2: 2}),
        ({0: 1, 1: 1}, 5, {0: 3, 1: 2}),
    ],
)
def test_replicas_are_shared_out_by_what_fits(fit: dict[int, int], count: int, given: dict[int, int]) -> None:
    assert shares(fit, count) == given


def test_a_users_variables_are_passed_on_but_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_API_KEY": "secret", "HF_TOKEN": "secret", "PATH": "/bin"}
    for name in os.environ:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert passed_on() == {"VLLM_CPU_KVCACHE_SPACE": "2"}
