"""Prepare and record a build of LoadGen from its source distribution: a part of `scripts/setup.sh`.

`choice KIND` prints `source` if LoadGen must be built for this machine and Python, otherwise `wheel`. `compiler` prints
the C++ compiler of the build. If the build cannot work, it names the missing package and exits with 3. `record TOOLS
COMPILER` writes how LoadGen was built to `loadgen-build.json` in the environment of this Python. This file needs only
Python's standard library.
"""

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

REFUSED = 3
RECORD = "loadgen-build.json"
# Machines and versions of Python for which LoadGen has wheels. The locks have the hashes of these wheels only.
WHEEL_MACHINES = {("Linux", "x86_64"), ("Darwin", "arm64")}
WHEEL_PYTHONS = ((3, 9), (3, 13))
# The smallest program that needs what LoadGen needs: a compiler for C++14, its library, and the headers of Python.
_PROGRAM = "#include <Python.h>\n#include <string>\nint main() { std::string text; }\n"


class BuildError(Exception):
    """LoadGen cannot be built; the message names the package to install."""


def choose(machine: tuple[str, str], python: tuple[int, int], *, is_installed: bool) -> str:
    """Return `source` if LoadGen must be built, otherwise `wheel`.

    Args:
        machine: operating system and processor, as `uname` names them.
        is_installed: True if the Python of VLLM=installed has LoadGen.
    """
    has_wheel = machine in WHEEL_MACHINES and WHEEL_PYTHONS[0] <= python <= WHEEL_PYTHONS[1]
    return "wheel" if has_wheel or is_installed else "source"


def find_compiler(variables: Mapping[str, str], include: str) -> str:
    """Return the command of a C++ compiler that can build LoadGen.

    The compiler is CXX, the compiler that built this Python, or a compiler on PATH.

    Args:
        include: directory of Python's headers.

    Raises:
        BuildError: If there is no compiler, or if headers are missing.
    """
    named, path = variables.get("CXX", ""), variables.get("PATH")
    candidates = [named] if named else [sysconfig.get_config_var("CXX") or "", "c++", "g++", "clang++"]
    command = next((text for text in candidates if text and shutil.which(shlex.split(text)[0], path=path)), None)
    install = "install the package g++ (Debian, Ubuntu) or gcc-c++ (Red Hat, SUSE)"
    if command is None and named:
        raise BuildError(f"CXX={named}: this program does not exist; {install}, or give a C++ compiler in CXX")
    if command is None:
        raise BuildError(f"LoadGen must be built from source, but a C++ compiler is missing: {install}")
    if not (Path(include) / "Python.h").is_file():
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        packages = f"{version}-dev (Debian, Ubuntu) or {version}-devel (Red Hat, SUSE)"
        raise BuildError(f"LoadGen must be built from source, but {include}/Python.h is missing: install {packages}")
    options = ["-std=c++14", "-fsyntax-only", "-x", "c++", f"-I{include}", "-"]
    done = subprocess.run(
        [*shlex.split(command), *options], input=_PROGRAM, capture_output=True, text=True, check=False,
        env={**variables, "LC_ALL": "C"},
    )  # fmt: skip
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines() or [""]
        raise BuildError(f"{command} cannot compile C++14 ({lines[0].strip()}): {install}")
    return command


def describe_build(extension: Path, tools: Sequence[str], compiler: str) -> dict[str, str]:
    """Return how an extension module was built.

    Args:
        tools: directories with the packages that built it.
        compiler: command of the compiler.
    """
    command = shlex.split(compiler)
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    versions = {
        distribution.name: distribution.version for distribution in importlib.metadata.distributions(path=list(tools))
    }
    return {
        "extension_sha256": hashlib.sha256(extension.read_bytes()).hexdigest(),
        "compiler": version,
        "pybind11": versions["pybind11"],
    }


def main(arguments: Sequence[str]) -> None:
    match arguments:
        case ["choice", kind]:
            is_installed = kind == "installed" and importlib.util.find_spec("mlperf_loadgen") is not None
            uname = platform.uname()
            print(choose((uname.system, uname.machine), sys.version_info[:2], is_installed=is_installed))
        case ["compiler"]:
            try:
                print(find_compiler(os.environ, sysconfig.get_path("include")))
            except BuildError as error:
                print(f"setup: {error}", file=sys.stderr)
                sys.exit(REFUSED)
        case ["record", tools, compiler]:
            spec = importlib.util.find_spec("mlperf_loadgen")
            if spec is None or spec.origin is None:
                sys.exit("setup: the build of LoadGen contains no module mlperf_loadgen")
            build = describe_build(Path(spec.origin), [tools], compiler)
            (Path(sys.prefix) / RECORD).write_text(json.dumps(build, indent=2) + "\n", encoding="utf-8")
        case _:
            sys.exit(f"usage: {sys.argv[0]} choice KIND | compiler | record TOOLS COMPILER")


if __name__ == "__main__":
    main(sys.argv[1:])
