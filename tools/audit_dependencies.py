"""Report known vulnerabilities of the locked packages: `python -m tools.audit_dependencies`, a part of `make lint`.

pip-audit requests the advisories; uv runs it in a separate environment. The report is kept for a day, and shown with
its date when the advisories cannot be reached. The exit code is always 0, because a commit does not cause an advisory.
"""

import hashlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qsl.cache import cache_dir
from runs.errors import HarnessError
from runs.files.temporary import temporary_folder
from runs.files.writing import write_json
from runs.harness import HARNESS_ROOT
from runs.processes.child import run_program
from scripts.run_uv import NOT_FOUND

PIP_AUDIT = "pip-audit==2.10.1"
FIRST = ("click", "numpy", "pydantic")  # requested first: some networks have packages without advisories
FIRST_LIMIT_S, TIME_LIMIT_S = 20.0, 60.0
FRESH_S = 86_400.0
SHOWN = 5  # packages named in a line

Ask = Callable[[str], list[dict[str, Any]]]  # pins → pip-audit's `dependencies`


class NoAdvisoriesError(Exception):
    """The advisories cannot be reached; the message is the reason."""


@dataclass(frozen=True)
class Report:
    """pip-audit's report on the pins."""

    dependencies: list[dict[str, Any]]
    time_s: float  # since 1970


def locked_pins(root: Path = HARNESS_ROOT) -> str:
    """Return `name==version` of all packages of all locks, one per line."""
    texts = (path.read_text() for path in sorted((root / "requirements").glob("*.lock")))
    return "".join(
        f"{pin}\n" for pin in sorted({pin for text in texts for pin in re.findall(r"(?m)^[\w.-]+==[^\s;]+", text)})
    )


def ask_pip_audit(pins: str) -> list[dict[str, Any]]:
    """Return pip-audit's report.

    Raises:
        NoAdvisoriesError: If there is no report, or it covers no package.
    """
    _ask("".join(pin for pin in pins.splitlines(keepends=True) if pin.partition("==")[0] in FIRST), FIRST_LIMIT_S)
    return _ask(pins, TIME_LIMIT_S)


def _ask(pins: str, limit_s: float) -> list[dict[str, Any]]:
    with temporary_folder("audit-") as folder:
        requirements = folder / "requirements.txt"
        requirements.write_text(pins)
        command = [sys.executable, "scripts/run_uv.py", "tool", "run", "--quiet", PIP_AUDIT]
        command += ["--requirement", str(requirements), "--no-deps", "--disable-pip", "--timeout", "5"]
        command += ["--progress-spinner", "off", "--format", "json"]
        try:
            done = run_program(command, cwd=HARNESS_ROOT, timeout_s=limit_s)
        except subprocess.TimeoutExpired as error:
            raise NoAdvisoriesError(f"{PIP_AUDIT} took longer than {limit_s:.0f} s") from error
    if done.returncode == NOT_FOUND:
        raise NoAdvisoriesError("uv is missing")
    try:
        dependencies: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError) as error:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"]
        raise NoAdvisoriesError(f"{PIP_AUDIT}: {lines[-1].strip()}") from error
    if all("skip_reason" in dependency for dependency in dependencies):
        # pip-audit calls this "no known vulnerabilities".
        raise NoAdvisoriesError("the package index has no advisories")
    return dependencies


def audit(pins: str, ask: Ask, kept: Path, now_s: float) -> list[str]:
    """Return the lines of the report.

    Args:
        kept: File with the last report.
        now_s: Seconds since 1970.
    """
    digest = hashlib.sha256(pins.encode()).hexdigest()
    last, reason = _read(kept, digest), ""
    if last is None or not 0 <= now_s - last.time_s < FRESH_S:
        try:
            last = Report(ask(pins), now_s)
            write_json(kept, {"pins_sha256": digest, "time_s": now_s, "dependencies": last.dependencies})
        except NoAdvisoriesError as error:
            reason = str(error)
    if last is None:
        return [f"dependency audit: skipped: {reason}"]
    return [*_lines(last), *([f"  advisories not renewed: {reason}"] if reason else [])]


def _read(kept: Path, digest: str) -> Report | None:
    """Return the last report, if it is on the same pins."""
    try:
        content = json.loads(kept.read_bytes())
        return Report(content["dependencies"], content["time_s"]) if content["pins_sha256"] == digest else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _lines(report: Report) -> list[str]:
    checked = [entry for entry in report.dependencies if "skip_reason" not in entry]
    unknown = [str(entry["name"]) for entry in report.dependencies if "skip_reason" in entry]
    vulnerable = [entry for entry in checked if entry["vulns"]]
    day = time.strftime("%Y-%m-%d", time.localtime(report.time_s))
    lines = [
        f"dependency audit: {len(vulnerable)} of {len(checked)} locked packages with known vulnerabilities "
        f"(advisories of {day})"
    ]
    for dependency in vulnerable:
        for vulnerability in dependency["vulns"]:
            fixed = (
                f"fixed in {', '.join(vulnerability['fix_versions'])}" if vulnerability["fix_versions"] else "not fixed"
            )
            lines.append(f"  {dependency['name']} {dependency['version']}: {vulnerability['id']}, {fixed}")
    if unknown:
        more = f" and {len(unknown) - SHOWN} more" if len(unknown) > SHOWN else ""
        lines.append(f"  without advisories: {', '.join(unknown[:SHOWN])}{more}")
    return lines


def main() -> int:
    """Print the report; return 0."""
    try:
        lines = audit(locked_pins(), ask_pip_audit, cache_dir() / "advisories.json", time.time())
    except (HarnessError, OSError) as error:
        lines = [f"dependency audit: skipped: {error}"]
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
