"""Rules on run directories of the MLPerf Endpoints client: their files, load, audit, and the rules of the round."""

from importlib import import_module
from typing import Any

# Modules that commands import by name, and only for run directories of the client.
JUDGES = {"verdict": "compliance.endpoints.verdict", "submission": "compliance.endpoints.submission"}


def judge_of(name: str) -> Any:
    """Import a module of `JUDGES`."""
    return import_module(JUDGES[name])
