"""Lets the real LoadGen read configuration files, in a process of its own.

Called as a script: a JSON list of [text, model, scenario] on stdin; for each, on stdout, the code of FromConfig and
the settings that differ from those of an untouched TestSettings.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

AS_AUDIT = 2  # reads only the given file, so that one process can read many


def read_all(cases: list[tuple[str, str, str]]) -> list[tuple[int, dict[str, Any]]]:
    """What LoadGen makes of each (text, model, scenario)."""
    from tests.support.patience import finish

    with tempfile.TemporaryFile("w+") as stream:
        json.dump(cases, stream)
        stream.seek(0)
        with subprocess.Popen([sys.executable, __file__], stdin=stream, stdout=subprocess.PIPE, text=True) as process:
            stdout, _ = finish(process)
    return [(code, changed) for code, changed in json.loads(stdout)]


def _values(settings: Any) -> dict[str, Any]:
    names = [name for name in dir(settings) if not name.startswith("_")]
    values = {name: getattr(settings, name) for name in names}
    return {
        name: value if isinstance(value, bool | int | float) else str(value)
        for name, value in values.items()
        if not callable(value)
    }


def _read(text: str, model: str, scenario: str) -> tuple[int, dict[str, Any]]:
    import mlperf_loadgen as lg

    settings = lg.TestSettings()
    settings.scenario = getattr(lg.TestScenario, scenario)
    before = _values(settings)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "some.conf"
        path.write_bytes(text.encode())
        code = settings.FromConfig(str(path), model, scenario, AS_AUDIT)
    return code, {name: value for name, value in _values(settings).items() if value != before[name]}


if __name__ == "__main__":
    print(json.dumps([_read(*case) for case in json.load(sys.stdin)]))
