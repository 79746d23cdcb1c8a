"""What is declared to be installed is what `make setup` installs. The image. Completion."""

import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from runs.environment import HARNESS_VERSION
from tests.conftest import ROOT
from tests.support.docs import parse

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def names(lines: list[str]) -> set[str]:
    return {re.split(r"[=<>;\s]", line)[0].lower() for line in lines}


def locked(name: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    return dict(re.findall(r"(?m)^([\w.-]+)==(\S+)", "\n".join(lines).replace("_", "-")))


def test_the_dependencies_are_those_of_make_setup() -> None:
    harness = [line for line in (ROOT / "requirements" / "harness.in").read_text().splitlines() if line[:1] != "#"]
    assert names(PROJECT["dependencies"]) | names(PROJECT["optional-dependencies"]["dev"]) == names(harness)
    assert PROJECT["version"] == HARNESS_VERSION


@pytest.mark.parametrize(("extra", "lock"), [("cpu", "cpu.lock"), ("gpu", "gpu.in")])
def test_an_extra_names_the_locked_engine(extra: str, lock: str) -> None:
    versions = locked(lock)
    for requirement in PROJECT["optional-dependencies"][extra]:
        name, version = requirement.split("==")
        if name != "torch" or extra == "gpu":  # the CPU's torch is named in scripts/setup.sh
            assert versions[name] == version
        else:
            assert f"torch=={version}" in (ROOT / "scripts" / "setup.sh").read_text()


# The image and where it runs -----------------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    """The Containerfile's, in order."""
    text = re.sub(r"(?m)^#.*\n", "", (ROOT / "Containerfile").read_text()).replace("\\\n", " ")
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in text.splitlines()) if word]


def test_the_image_has_the_locked_vllm() -> None:
    base = next(rest for word, rest in instructions() if word == "ARG" and rest.startswith("BASE="))
    assert base.endswith(f":v{locked('gpu.in')['vllm']}")
    assert ("COPY", ". .") in instructions()


@pytest.mark.long
def test_the_steps_of_the_image(tmp_path: Path) -> None:
    """Run where there is a vLLM already: a Python that sees this environment's packages stands for the base image's."""
    checkout = tmp_path / "harness"
    tracked = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=True).stdout
    for name in filter(None, tracked.decode().split("\0")):
        if (ROOT / name).is_file():
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            (checkout / name).write_bytes((ROOT / name).read_bytes())
    base = tmp_path / "base"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(base)], check=True)
    (packages,) = (base / "lib").glob("python*/site-packages")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if path.name not in ("pip", "installed.pth") and not path.name.startswith(("pip-", "setuptools", "_distutils")):
            (packages / path.name).symlink_to(path)
    path_variable = f"{base / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path_variable, "PIP_NO_INDEX": "1", "MORE": ""}
    environment.pop("PYTHONPATH", None)
    said = ""
    for word, rest in instructions():
        if word == "RUN":
            done = subprocess.run(["sh", "-c", rest], cwd=checkout, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, f"{rest}\n{done.stdout}{done.stderr}"
            said = done.stdout
    assert said.split()[-1] == HARNESS_VERSION


def example(name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((ROOT / "configs" / name).read_text())
    assert set(content) == {"apiVersion", "kind", "metadata", "spec"}
    return content


def templates(content: dict[str, Any]) -> list[dict[str, Any]]:
    spec = content["spec"]
    groups = [spec] if "template" in spec else [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    return [group["template"] for group in groups]


@pytest.mark.parametrize("name", ["kubernetes-job.yaml", "raycluster.yaml"])
def test_an_example_for_a_cluster(name: str) -> None:
    content = example(name)
    for template in templates(content):
        volumes = {volume["name"] for volume in template["spec"]["volumes"]}
        for container in template["spec"]["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} == volumes
            if container.get("args"):
                assert parse(container["args"]) == "run"


@pytest.mark.long
def test_the_examples_by_the_schemas_of_kubernetes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "home")], check=True)
    python = str(tmp_path / "home" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", "kubernetes-validate==1.37.0"], check=True)
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, **template}
        for template in templates(example("raycluster.yaml"))
    ]
    path = tmp_path / "objects.yaml"
    path.write_text(yaml.safe_dump([example("kubernetes-job.yaml"), *pods]))
    code = "import sys, yaml, kubernetes_validate as k\n"
    code += "for one in yaml.safe_load(open(sys.argv[1])): k.validate(one, k.latest_version(), strict=True)"
    subprocess.run([python, "-c", code, str(path)], check=True)


# The shell --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("mlperf-llama-vllm ca", "campaign"),
        ("mlperf-llama-vllm run --scen", "--scenario"),
        ("mlperf-llama-vllm check --round v6", "v6.0"),
        ("mlperf-llama-vllm store exp", "export"),
    ],
)
def test_completion(typed: str, offered: str) -> None:
    words = shlex.split(typed)
    asked = {"COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1), "_MLPERF_LLAMA_VLLM_COMPLETE": "bash_complete"}
    code = "import sys, main; sys.argv[0] = 'mlperf-llama-vllm'; sys.exit(main.entry())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )
    assert f"plain,{offered}" in done.stdout.splitlines(), done.stderr


# uv -----------------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("extra", ["cpu", "gpu"])
def test_uv_finds_a_version_of_everything(extra: str, tmp_path: Path) -> None:
    """Resolved for this Python and not installed, which is gigabytes; without the index that may be out of reach."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "home")], check=True)
    binaries = tmp_path / "home" / "bin"
    subprocess.run([str(binaries / "python"), "-m", "pip", "install", "-q", "uv"], check=True)
    project = tmp_path / "project"
    project.mkdir()
    version = f"=={sys.version_info[0]}.{sys.version_info[1]}.*"
    text = (ROOT / "pyproject.toml").read_text()
    (project / "pyproject.toml").write_text(
        text.replace('requires-python = ">=3.11"', f'requires-python = "{version}"')
    )
    for name in ("README.md", "main.py"):
        (project / name).write_bytes((ROOT / name).read_bytes())
    environment = {**os.environ, "UV_FIND_LINKS": os.environ.get("PIP_FIND_LINKS", "")}
    done = subprocess.run(
        [str(binaries / "uv"), "sync", "--extra", extra, "--no-sources", "--dry-run"],
        cwd=project, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for requirement in PROJECT["optional-dependencies"][extra]:
        assert f"+ {requirement}" in done.stderr
