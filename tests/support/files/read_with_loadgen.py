"""The real LoadGen as reader of configuration files, in a process of its own.

Start it as a script. Each line of stdin is a JSON list of [content, model, scenario]; the characters of `content` are
bytes. Each line of stdout has the code of FromConfig and the settings.
"""

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

AS_AUDIT = 2  # reads only the given file, so one process can read many


class Read(Protocol):
    def __call__(self, content: bytes, model: str, scenario: str) -> tuple[int, dict[str, Any]]:
        """Return the code of FromConfig and all settings."""


@contextmanager
def loadgen_reader() -> Iterator[Read]:
    """Yield the reader of LoadGen."""
    command = [sys.executable, "-P", __file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        questions, responses = process.stdin, process.stdout

        def read(content: bytes, model: str, scenario: str) -> tuple[int, dict[str, Any]]:
            questions.write(json.dumps([content.decode("latin-1"), model, scenario]) + "\n")
            questions.flush()
            code, values = json.loads(responses.readline())
            return code, values

        yield read
        questions.close()


def are_equal(a: Any, b: Any) -> bool:
    """Return whether two settings are equal; NaN equals NaN."""
    return a == b or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b))


def _values(settings: Any) -> dict[str, Any]:
    names = [name for name in dir(settings) if not name.startswith("_")]
    values = {name: getattr(settings, name) for name in names}
    return {
        name: value if isinstance(value, bool | int | float) else str(value)
        for name, value in values.items()
        if not callable(value)
    }


def _read(path: Path, content: str, model: str, scenario: str) -> tuple[int, dict[str, Any]]:
    import mlperf_loadgen as lg

    settings = lg.TestSettings()
    settings.scenario = getattr(lg.TestScenario, scenario)
    path.write_bytes(content.encode("latin-1"))
    return settings.FromConfig(str(path), model, scenario, AS_AUDIT), _values(settings)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for line in sys.stdin:
            print(json.dumps(_read(Path(folder) / "some.conf", *json.loads(line))), flush=True)
