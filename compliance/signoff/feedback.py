"""What a verdict leaves for others: `audit_feedback.json` for whoever mends the result, and one line of the ledger."""

import time
from pathlib import Path
from typing import Any

import orjson

from compliance.signoff.signoff_verdict import Verdict, as_word, reason_json
from runs.errors import InputError


def feedback(verdict: Verdict) -> dict[str, Any]:
    """What has to be mended: every reason that lowers the verdict, the gravest first, by rule and file.

    The reasons of a degraded sign-off are left out: it found nothing that could be relied on.
    """
    names = ("rule", "severity", "text", "where")
    found = [] if verdict.degraded else verdict.reasons
    lowering = [one for severity in ("error", "warning") for one in found if one.severity == severity]
    return {
        **_of(verdict, "schema_version", "short_name", "audit_scope", "verdict", "action", "error"),
        "to_mend": [{name: value for name, value in reason_json(one).items() if name in names} for one in lowering],
    }


def _of(verdict: Verdict, *names: str) -> dict[str, Any]:
    record = verdict.as_json()
    return {name: record[name] for name in names}


def ledger_line(verdict: Verdict, remeasured: int = 0) -> dict[str, Any]:
    """One line a verdict: what was judged, when, and what became of it.

    Args:
        verdict: the last one.
        remeasured: how often the legs were run anew before it.
    """
    told = ("schema_version", "short_name", "audit_scope", "verdict", "action", "auditor_status", "noise_band_pct")
    return {
        **_of(verdict, *told, "e2e_delta_pct", "levers", "note", "ref", "cand"),
        "time_ns": time.time_ns(),
        "remeasured": remeasured,
        "reasons": [one.rule for one in verdict.reasons if as_word(one) == verdict.decision],
    }


def append_ledger(path: Path, line: dict[str, Any]) -> None:
    """Add a line with one write; what is there stays as it is.

    Raises:
        InputError: the file does not end with a whole line: it is no ledger, or was cut.
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as stream:
        if stream.tell():
            stream.seek(-1, 2)
            if stream.read(1) != b"\n":
                raise InputError(f"--ledger {path} does not end with a whole line", "mend its last line")
        stream.write(orjson.dumps(line) + b"\n")
