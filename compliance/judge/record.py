"""The JSON of verdicts, findings and rules that were not applied."""

from typing import Any

import orjson

from compliance.judge.rule import source_in_full
from compliance.judge.verdict import Finding, NotApplied, Verdict, not_applied


def record(verdict: Verdict[Any], *, strict: bool = False) -> dict[str, Any]:
    """Return a verdict in plain types. Its details add the fields of the command.

    Args:
        strict: True if warnings count as failures.
    """
    common: dict[str, Any] = {
        "schema_version": 1,  # in version 2, `not_judged` is a list of objects
        "verdict": verdict.outcome,
        "exit_code": int(verdict.exit_code(strict=strict)),
        "error": None if verdict.error is None else {"message": verdict.error.message, "fix": verdict.error.fix},
        "findings": [finding_record(finding) for finding in verdict.all_findings],
        "not_judged": [not_applied_record(entry) for entry in not_applied(verdict)],
    }
    return common if verdict.details is None else dict(verdict.details.as_json(verdict, common))


def not_applied_record(entry: NotApplied, *results: str) -> dict[str, Any]:
    """Return rules that were not applied in plain types.

    Args:
        results: Results to which the rules were not applied, for a tree or multiple subjects.
    """
    what = entry.what or ("without input" if entry.lacks_input else "not applicable")
    return {"what": what, "why": entry.why, "rules": entry.rules, "results": results}


def finding_record(finding: Finding) -> dict[str, Any]:
    """Return a finding in plain types, with source and fix of its rule. NumPy's numbers become plain numbers."""
    rule, plain = finding.definition, orjson.dumps(dict(finding.numbers), option=orjson.OPT_SERIALIZE_NUMPY)
    return {
        "rule": rule.id,
        "kind": rule.kind,
        "severity": finding.severity,
        "sentence": finding.sentence,
        "text": finding.text,
        "found": finding.found,
        "expected": finding.required,
        "file": str(finding.files[0]) if finding.files else "",
        "files": [str(path) for path in finding.files],
        "line": finding.line,
        "decided_by": list(finding.decided_by),
        "numbers": orjson.loads(plain),
        "source": source_in_full(finding.source),
        "fix": finding.fix or rule.fix,
    }
