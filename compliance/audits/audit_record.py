"""An audit's outcome on record, and as `verify_performance.txt`: the official words first, then what stands behind.

The record is written first, so that no bare PASS can be left behind by a crash.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from compliance.audits.base import AuditResult, LegArtifacts
from compliance.finding import Finding
from runs.errors import InputError
from runs.files import write_atomic, write_json
from runs.numbers.numbers import LatencyNumbers
from runs.reading import read_as
from runs.record.layout import audit_record

_FIX = "run the audit again"
SHOWN = ("mean", "p50", "p90", "p99")


class AuditRecord(BaseModel):
    """What `audit_<test>.json` holds; `model_extra` are the test's own details. Somebody's word: legs are judged."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, allow_inf_nan=False)

    schema_version: Literal[1]
    test: str
    passed: bool
    official: bool
    required: bool
    reason: Annotated[str, Field(min_length=1)]
    rule: str
    findings: list[dict[str, Any]]
    legs: list[dict[str, Any]]


def write_audit(folder: Path, result: AuditResult) -> None:
    """Write `audit_<test>.json`, copies of logs, then the text the official tools read; each atomically."""
    write_json(audit_record(folder, result.test), result.record())
    for name, source in result.copies.items():
        (folder / name).parent.mkdir(exist_ok=True)
        write_atomic(folder / name, source.read_bytes())
    write_atomic(folder / result.text_name, result.text)


def read_audit(folder: Path, test: str) -> AuditRecord:
    """The record of a test in its directory.

    Raises:
        InputError: missing, damaged, of another version or test.
    """
    path = audit_record(folder, test)
    record = read_as(path, AuditRecord, _FIX, within=folder)
    if record.test != test:
        raise InputError(f"{path}: test: it is of {record.test[:40]!r}", _FIX)
    return record


def performance_text(
    reference_score: float | str,
    test_score: float | str,
    passed: bool,
    problem: str,
    rule: str,
    legs: Sequence[LegArtifacts],
    checks: Sequence[Finding],
) -> str:
    """The text of a caching audit's verdict. `problem` follows `TEST FAIL:`."""
    lines = [
        "Verifying performance.",
        f"reference score = {reference_score}",
        f"test score = {test_score}",
        "TEST PASS" if passed else f"TEST FAIL: {problem}",
        *own_lines(rule, legs, checks),
    ]
    return "\n".join(lines) + "\n"


def own_lines(rule: str, legs: Sequence[LegArtifacts], checks: Sequence[Finding]) -> list[str]:
    """What follows the official wording: the rule, the legs, every check."""
    return [f"rule: {rule}", *(line for leg in legs for line in leg_lines(leg)), *(f"check: {c}" for c in checks)]


def leg_lines(leg: LegArtifacts) -> list[str]:
    """A leg in three lines: scenario, rates, validity; TTFT; TPOT."""
    detail, numbers = leg.detail, leg.numbers
    rates = [
        f"{value:.6g} {unit}"
        for value, unit in ((numbers.samples_per_second, "samples/s"), (numbers.tokens_per_second, "tokens/s"))
        if value is not None
    ]
    lines = [
        f"{leg.spec.label}: {detail.scenario}, {', '.join(rates)}, {leg.completed} of {leg.requested} samples, "
        f"LoadGen says {detail.validity}"
    ]
    for name, values in (("latency", numbers.latency_ns), ("TTFT", numbers.ttft_ns), ("TPOT", numbers.tpot_ns)):
        if values is not None:
            lines.append(f"{leg.spec.label}: {name} {_percentiles(values)}")
    return lines


def _percentiles(values: LatencyNumbers) -> str:
    return ", ".join(f"{name} {getattr(values, name) / 1e6:.3f} ms" for name in SHOWN)
