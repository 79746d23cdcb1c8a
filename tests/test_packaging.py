"""Declared dependencies, compared with those that `make setup` installs; the image; shell completion."""

import ast
import importlib.metadata
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
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from runs.harness import HARNESS_VERSION
from tests.conftest import OF_A_FILE, ROOT
from tests.support.documents.documentation import parse

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


EXTRAS = {name: value for name, value in PROJECT["optional-dependencies"].items() if name != "vllm"}  # a name of `gpu`


def locked_versions(name: str) -> dict[str, list[str]]:
    """Return each package of a lock with its versions: multiple ones if they differ by platform."""
    text = (ROOT / "requirements" / f"{name}.lock").read_text()
    versions: dict[str, list[str]] = {}
    for package, version in re.findall(r"(?m)^([\w.-]+)==([^\s;]+)", text):
        versions.setdefault(package, []).append(version)
    return versions


@pytest.mark.parametrize("engine", ["cpu", "gpu"])
def test_each_lock_matches_its_inputs(engine: str) -> None:
    versions = locked_versions(engine)
    requirements = [*PROJECT["dependencies"], *EXTRAS[engine], *EXTRAS["ray"], *EXTRAS["dev"]]
    if engine == "cpu":
        lines = (ROOT / "requirements" / "cpu.in").read_text().splitlines()
        requirements += [line for line in lines if not line.startswith("#")]
    apart = {"torch"} if engine == "cpu" else set()
    for requirement in map(Requirement, requirements):
        name = canonicalize_name(requirement.name)
        assert (name in versions) != (name in apart), f"{name}: run `make lock`"
        assert all(requirement.specifier.contains(version) for version in versions.get(name, ()))


@pytest.mark.parametrize("name", ["cpu", "gpu", "uv", "docs", "loadgen"])
def test_each_locked_package_has_hashes(name: str) -> None:
    lines = (ROOT / "requirements" / f"{name}.lock").read_text().splitlines()
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if line[:1] not in ("#", " ", ""):
            assert line.endswith("\\")
            assert after.startswith("    --hash=sha256:")


def test_requirements_of_locked_packages_are_locked() -> None:
    """Only packages of this environment are checked. A lock has one list for packages that differ by platform."""
    versions = locked_versions("cpu")
    left_out = {"torch", *tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["exclude-dependencies"]}
    for name in [*versions, "torch"]:
        try:
            requires = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for requirement in map(Requirement, requires):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                assert canonicalize_name(requirement.name) in {*versions, *left_out}, f"{name} requires {requirement}"


def test_files_in_the_duration_table_exist() -> None:
    assert all((ROOT / "tests" / name).is_file() for name in OF_A_FILE)


def test_repeated_versions_are_equal() -> None:
    """A text that names the version of a package in pyproject.toml has the same version."""
    assert PROJECT["version"] == HARNESS_VERSION
    (ray,) = EXTRAS["ray"]
    for path in ("sut/replicas/cluster_process.py", "docs/parallel.md"):
        assert re.findall(r"ray==[\d.]*\d", (ROOT / path).read_text()) == [ray]
    (torch,) = (line for line in EXTRAS["cpu"] if line.startswith("torch"))
    assert re.findall(r"torch==[\d.]*\d", (ROOT / "docs" / "install.md").read_text()) == [torch]
    assert "torch==" not in (ROOT / "scripts" / "setup.sh").read_text().replace("'^torch=='", "")


def names(*requirements: str) -> set[str]:
    return {canonicalize_name(Requirement(requirement).name) for requirement in requirements}


def test_each_dependency_has_one_documented_line() -> None:
    text = (ROOT / "docs" / "dependencies.md").read_text()
    rows = re.findall(r"(?m)^\| ([\w-]+) \| ([^|]+) \| ([^|]+) \|$", text)
    rows = [row for row in rows if row[0] != "package"]
    described = [canonicalize_name(row[0]) for row in rows]
    assert len(described) == len(set(described))
    groups = [*EXTRAS.values(), *tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"].values()]
    assert set(described) == names(*PROJECT["dependencies"], *(line for group in groups for line in group))
    assert all(len(part) > 3 for row in rows for part in row[1:])


@pytest.mark.parametrize("part", ["product", "development"])
def test_each_imported_package_is_declared(part: str) -> None:
    """A package that comes with another one is missing when that one drops it."""
    local_modules = {
        "mlperf_llama_vllm",
        "sut",
        "qsl",
        "scenarios",
        "runs",
        "compliance",
        "scripts",
        "tools",
        "tests",
        "main",
        "__future__",
    }
    extras = [EXTRAS[name] for name in ("cpu", "gpu", "ray", *(["dev"] if part == "development" else []))]
    declared = names(*PROJECT["dependencies"], *(value for extra in extras for value in extra))
    declared |= names(
        *(line for line in (ROOT / "requirements/quantize.txt").read_text().split("\n") if line[:1] not in "#")
    )
    folders = (
        ("tests", "tools")
        if part == "development"
        else ("mlperf_llama_vllm", "sut", "qsl", "scenarios", "runs", "compliance", "scripts")
    )
    imported = {name for folder in folders for path in (ROOT / folder).rglob("*.py") for name in imports(path)}
    packages = importlib.metadata.packages_distributions()
    assert {"transformers", "numpy"} <= imported
    for name in sorted(imported - local_modules - sys.stdlib_module_names):
        providers = set(map(canonicalize_name, packages.get(name, [name])))
        assert providers & declared, f"{name}: imported, but {', '.join(providers)} is not in pyproject.toml"


def imports(path: Path) -> set[str]:
    """Return the top-level packages that a module imports, at its top or in functions."""
    modules = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            modules.add(str(node.module).partition(".")[0])
    return modules


# The image and where it runs -----------------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Containerfile, in order."""
    text = re.sub(r"(?m)^#.*\n", "", (ROOT / "Containerfile").read_text()).replace("\\\n", " ")
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in text.splitlines()) if word]


def test_the_image_has_the_locked_vllm_version() -> None:
    base = next(rest for word, rest in instructions() if word == "ARG" and rest.startswith("BASE="))
    assert base.endswith(f":v{locked_versions('gpu')['vllm'][0]}")
    assert ("COPY", ". .") in instructions()


@pytest.mark.long
def test_the_image_steps_install_the_harness(tmp_path: Path) -> None:
    """The test needs an installed vLLM.

    A Python with the packages of this environment replaces that of the base image.
    """
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
    output = ""
    for word, rest in instructions():
        if word == "RUN":
            done = subprocess.run(["sh", "-c", rest], cwd=checkout, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, f"{rest}\n{done.stdout}{done.stderr}"
            output = done.stdout
    assert output.split()[-1] == HARNESS_VERSION


def example(name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((ROOT / "configs" / name).read_text())
    assert set(content) == {"apiVersion", "kind", "metadata", "spec"}
    return content


def templates(content: dict[str, Any]) -> list[dict[str, Any]]:
    spec = content["spec"]
    groups = [spec] if "template" in spec else [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    return [group["template"] for group in groups]


@pytest.mark.parametrize("name", ["kubernetes-job.yaml", "raycluster.yaml"])
def test_kubernetes_examples_have_consistent_volumes(name: str) -> None:
    content = example(name)
    for template in templates(content):
        volumes = {volume["name"] for volume in template["spec"]["volumes"]}
        for container in template["spec"]["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} == volumes
            if container.get("args"):
                assert parse(container["args"]) == "run"


def test_the_kubernetes_page_quotes_the_examples() -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    job = (ROOT / "configs" / "kubernetes-job.yaml").read_text()
    quoted = re.findall(r"(?ms)^```yaml\n(.*?)^```$", page)
    assert quoted
    assert all(block in job for block in quoted)
    claims = {
        volume["persistentVolumeClaim"]["claimName"]
        for name in ("kubernetes-job.yaml", "raycluster.yaml")
        for template in templates(example(name))
        for volume in template["spec"]["volumes"]
        if "persistentVolumeClaim" in volume
    }
    assert claims == {"mlperf"}
    assert "volume claim `mlperf`" in page
    for setting in ("backoffLimit: 0", "terminationGracePeriodSeconds: 60"):
        assert setting in job
        assert setting in page


@pytest.mark.long
def test_kubernetes_examples_match_the_official_schemas(tmp_path: Path) -> None:
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
def test_shell_completion_proposes_commands_and_options(typed: str, offered: str) -> None:
    words = shlex.split(typed)
    shell = {"COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1), "_MLPERF_LLAMA_VLLM_COMPLETE": "bash_complete"}
    code = "import sys, main; sys.argv[0] = 'mlperf-llama-vllm'; sys.exit(main.entry())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, **shell}, capture_output=True, text=True, check=False
    )
    assert f"plain,{offered}" in done.stdout.splitlines(), done.stderr


# uv -----------------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("extra", ["cpu", "gpu"])
def test_uv_resolves_all_dependencies(extra: str, tmp_path: Path) -> None:
    """The packages are resolved for this Python and not installed, because they have gigabytes."""
    project = tmp_path / "project"
    project.mkdir()
    version = f"=={sys.version_info[0]}.{sys.version_info[1]}.*"
    text = (ROOT / "pyproject.toml").read_text()
    (project / "pyproject.toml").write_text(
        text.replace('requires-python = ">=3.11"', f'requires-python = "{version}"')
    )
    for name in ("README.md", "main.py"):
        (project / name).write_bytes((ROOT / name).read_bytes())
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "run_uv.py"), "sync", "--extra", extra, "--no-sources", "--dry-run"],
        cwd=project, env={**os.environ, "VIRTUAL_ENV": ""}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for requirement in PROJECT["optional-dependencies"][extra]:
        assert f"+ {requirement}" in done.stderr
