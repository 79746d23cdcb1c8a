"""The wheel: the packages and files of the clone, all below the package mlperf_llama_vllm."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

CONTENT = (
    "runs",
    "sut",
    "qsl",
    "compliance",
    "scenarios",
    "scripts",
    "configs",
    "main.py",
    "user.conf",
    "audit.config",
)


class Build(build_py):
    """Copies the content beside the modules of mlperf_llama_vllm, where `ROOT` of that package finds it."""

    def run(self) -> None:
        """Build the package anew, because an earlier build may have files that the clone no longer has."""
        target = Path(self.build_lib) / "mlperf_llama_vllm"
        shutil.rmtree(target, ignore_errors=True)
        super().run()
        if self.editable_mode:
            return  # an editable installation reads the clone
        for name in CONTENT:
            if Path(name).is_dir():
                shutil.copytree(name, target / name, ignore=shutil.ignore_patterns("__pycache__", "*.sh"))
            else:
                shutil.copy(name, target / name)


setup(packages=["mlperf_llama_vllm"], cmdclass={"build_py": Build})
