"""The script of axe-core, which finds barriers for readers with disabilities in a page."""

from importlib.resources import files

import pytest


def axe_script() -> str:
    """Return the script. Skip the test if the package that contains it is not installed."""
    pytest.importorskip("axe_core_python", reason="axe-core-python is not installed: make setup")
    return files("axe_core_python").joinpath("axe.min.js").read_text("utf-8")
