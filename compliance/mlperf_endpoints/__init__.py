"""Rules on run directories of the MLPerf Endpoints client: their files, load, audit, and the rules of the round."""

from importlib import import_module
from typing import Any

# Commands that also judge results of LoadGen import these modules by name: the first two for run directories only, the
# third for those with an audit.
JUDGES = {
    "verdict": "compliance.mlperf_endpoints.verdict",
    "submission": "compliance.mlperf_endpoints.submission",
    "audit": "compliance.mlperf_endpoints.client_audits",
}


def judge_of(name: str) -> Any:
    """Import a module of `JUDGES`."""
    return import_module(JUDGES[name])
