"""Checks on attestations: the anchor of each run, and the chain of attestations of a campaign (docs/attestation.md)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography.x509 import Certificate

from compliance.judge.rule import OURS, decides
from compliance.judge.verdict import Finding, Severity, stated
from runs.attestation.anchors import Entry, time_of
from runs.attestation.attestation import read_attestation
from runs.attestation.statements import statements_below
from runs.errors import HarnessError, InputError
from runs.record.layout import CampaignDir, RunDir
from runs.record.manifest import Manifest
from runs.wording import duration, printable

CLOCKS_DIFFER_S = 60.0  # allowed difference between the clocks of the machine and of the anchor


@dataclass(frozen=True)
class Trust:
    """The ledger, authorities and key that a reviewer trusts. With a ledger or authority, each run must be anchored."""

    ledger: Mapping[str, Entry] | None = None  # entries by digest of the attestation
    authorities: Sequence[Certificate] = ()  # certificates of time-stamp authorities
    key: str | None = None  # public key that must have signed every run


@decides(
    "signoff",
    ("anchored", "error", OURS, "anchor of the run in the reviewer's ledger or by a time stamp",
     "restore the run as it was anchored; anchor new runs with `main.py anchor` when they end"),
)  # fmt: skip
def anchored(run: RunDir, manifest: Manifest | None, trust: Trust) -> Iterator[Finding]:
    """Report the signature and the anchor of a run, and contradictions to the anchor or to the reviewer's key."""
    severity: Severity = "error" if trust.ledger is not None or trust.authorities else "note"
    try:
        statement = read_attestation(run)
    except HarnessError as error:
        yield stated("anchored", f"not signed: {error.message}", run.root, severity=severity)
        return
    if trust.key is not None and statement.key != trust.key:
        yield stated("attested", f"signed by key {statement.key}, required: {trust.key}", run.seal)
    times: list[tuple[datetime, str]] = []
    missing: list[str] = []
    if trust.ledger is not None and (entry := trust.ledger.get(statement.digest)) is not None:
        times.append((entry.time, f"in the ledger as {printable(entry.name, 200)}"))
    elif trust.ledger is not None:
        is_listed = any(entry.key == statement.key for entry in trust.ledger.values())
        key = "" if is_listed else f", nor any attestation signed by key {statement.key}"
        missing.append(f"the ledger does not contain attestation {statement.digest}{key}")
    if run.time_stamp.exists() and trust.authorities:
        try:
            times.append((time_of(run, trust.authorities), "by a time stamp"))
        except InputError as error:
            yield stated("anchored", error.message, run.time_stamp)
    elif run.time_stamp.exists():
        missing.append(f"{run.time_stamp.name} is not checked, because --timestamp-ca is not given")
    elif trust.authorities:
        missing.append(f"{run.time_stamp.name} is missing")
    if not times:
        yield stated(
            "anchored",
            "; ".join(["signed, not anchored", *missing]),
            run.seal,
            digest=statement.digest,
            severity=severity,
        )
        return
    time, where = min(times)
    text = f"anchored at {time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC, {where}"
    if manifest is None or manifest.end_time_ns is None:
        yield stated("anchored", text, run.seal, severity="note")
    elif (after_s := time.timestamp() - manifest.end_time_ns / 1e9) < -CLOCKS_DIFFER_S:
        ended = f"the manifest states that the run ended {duration(-after_s)} after that"
        yield stated("anchored", "", run.seal, found=text, required=ended, severity="warning", after_s=after_s)
    else:
        yield stated(
            "anchored",
            f"{text}, {duration(max(0.0, after_s))} after the run ended",
            run.seal,
            after_s=after_s,
            severity="note",
        )


@decides(
    "signoff",
    ("statement-chain", "warning", OURS, "chain of the attestations of a campaign",
     "restore the campaign's whole directory, with discarded runs"),
)  # fmt: skip
def chained(runs: Iterable[RunDir]) -> Iterator[Finding]:
    """Report missing links in the chains of attestations of the campaigns to which these runs belong.

    A missing attestation was replaced or removed; the chain does not show which. A campaign starts one run at a time,
    so each attestation has at most one successor. Runs outside a campaign's directory are ignored.
    """
    campaigns: dict[Path, None] = {}
    for run in runs:
        above = (parent for parent in run.root.resolve().parents if CampaignDir(parent).configuration.is_file())
        campaigns |= dict.fromkeys(list(above)[:1])
    for campaign in campaigns:
        statements = statements_below(campaign)
        followers: dict[str, list[RunDir]] = {}
        for run, statement in sorted(statements.values(), key=lambda pair: pair[0].root):
            if statement.predicate.previous is not None:
                followers.setdefault(statement.predicate.previous, []).append(run)
        for previous, named_by in followers.items():
            seals = [run.seal for run in named_by]
            if previous not in statements:
                text = f"the preceding attestation {previous} was replaced or removed"
                yield stated("statement-chain", text, *seals)
            elif len(seals) > 1:
                before = statements[previous][0].root
                yield stated(
                    "statement-chain",
                    f"{len(seals)} runs follow the attestation of {before}, required: at most one",
                    *seals,
                )
