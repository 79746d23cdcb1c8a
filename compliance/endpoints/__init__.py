"""Run folders of the MLPerf Endpoints client, judged: the load that was asked for, its audit, the rules."""

from importlib import import_module
from typing import Any

# Commands that also judge results of LoadGen import these modules by name, and only for run folders.
JUDGES = {"verdict": "compliance.endpoints.verdict", "submission": "compliance.endpoints.submission"}


def judge_of(name: str) -> Any:
    """Import a module of `JUDGES`."""
    return import_module(JUDGES[name])
