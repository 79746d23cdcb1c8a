"""A result with two runs in one directory."""

from typing import Any

import orjson

from runs.record.layout import ResultDir, RunDir


class Pair(ResultDir):
    """The runs of a result in a directory of their own."""

    @property
    def runs(self) -> tuple[RunDir, RunDir]:
        return self.performance, self.accuracy


def manifest_of(run: RunDir) -> dict[str, Any]:
    content: dict[str, Any] = orjson.loads(run.manifest.read_bytes())
    return content
