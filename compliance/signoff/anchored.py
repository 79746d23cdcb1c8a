"""Whether a run is anchored in time, sealed only, or not sealed, and whether a campaign's chain of statements is whole.
docs/signoff.md explains what each state shows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography.x509 import Certificate

from compliance.judge.check import decides
from compliance.judge.finding import Finding, fail, note, warn
from compliance.judge.rule import OURS
from runs.errors import InputError
from runs.record.anchors import Entry, time_of
from runs.record.attestation import read_attestation
from runs.record.layout import CampaignDir, RunDir
from runs.record.manifest import Manifest
from runs.record.statements import statements_below
from runs.wording import duration, printable

CLOCKS_DIFFER_S = 60.0  # a run may seem to be anchored so long before its end


@dataclass(frozen=True)
class Trust:
    """What a reviewer trusts. With a ledger or an authority every run must be anchored."""

    ledger: Mapping[str, Entry] | None = None  # by digest
    authorities: Sequence[Certificate] = ()  # that sign time stamps
    key: str | None = None  # that must have signed every run


@decides(
    "signoff",
    ("anchored", "error", OURS, "the statement of the run is in the reviewer's ledger, or has a time stamp",
     "give the run as it was anchored; a run is anchored when it ends, by `main.py anchor`"),
)  # fmt: skip
def anchored(run: RunDir, manifest: Manifest | None, trust: Trust) -> Iterator[Finding]:
    """A finding with the state of a run, and findings on what contradicts an anchor or the reviewer's key."""
    make = fail if trust.ledger is not None or trust.authorities else note
    try:
        statement = read_attestation(run)
    except InputError as error:
        yield make("anchored", f"not sealed: {error.message}", run.root)
        return
    if trust.key is not None and statement.key != trust.key:
        yield fail("attested", f"signed by the key {statement.key}, not by {trust.key}", run.seal)
    times: list[tuple[datetime, str]] = []
    missing: list[str] = []
    if trust.ledger is not None and (entry := trust.ledger.get(statement.digest)) is not None:
        times.append((entry.time, f"in the ledger as {printable(entry.name, 200)}"))
    elif trust.ledger is not None:
        known = any(entry.key == statement.key for entry in trust.ledger.values())
        key = "" if known else f", and no statement that the key {statement.key} signed"
        missing.append(f"the ledger does not contain the statement {statement.digest}{key}")
    if run.time_stamp.exists() and trust.authorities:
        try:
            times.append((time_of(run, trust.authorities), "by a time stamp"))
        except InputError as error:
            yield fail("anchored", error.message, run.time_stamp)
    elif run.time_stamp.exists():
        missing.append(f"who made {run.time_stamp.name} was not checked (--timestamp-ca)")
    elif trust.authorities:
        missing.append(f"there is no {run.time_stamp.name}")
    if not times:
        yield make("anchored", "; ".join(["sealed, not anchored", *missing]), run.seal, digest=statement.digest)
        return
    time, where = min(times)
    text = f"anchored at {time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC, {where}"
    if manifest is None or manifest.end_time_ns is None:
        yield note("anchored", text, run.seal)
    elif (after_s := time.timestamp() - manifest.end_time_ns / 1e9) < -CLOCKS_DIFFER_S:
        text += f", but by its own clock the run ended {duration(-after_s)} later"
        yield warn("anchored", text, run.seal, after_s=after_s)
    else:
        yield note("anchored", f"{text}, {duration(max(0.0, after_s))} after the run ended", run.seal, after_s=after_s)


@decides(
    "signoff",
    ("statement-chain", "warning", OURS, "each statement of a campaign names the one before it",
     "give the campaign's whole directory as it ended, with discarded runs"),
)  # fmt: skip
def chained(runs: Iterable[RunDir]) -> Iterator[Finding]:
    """Breaks in the chains of the campaigns that these runs belong to.

    A missing statement was written again or removed; the chain does not show which. A campaign starts one run at a
    time, so no two of its runs name the same statement. Runs outside a campaign's directory are ignored.
    """
    campaigns: dict[Path, None] = {}
    for run in runs:
        above = (one for one in run.root.resolve().parents if CampaignDir(one).configuration.is_file())
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
                text = f"names {previous} as the statement before it, which was written again or removed"
                yield warn("statement-chain", text, *seals)
            elif len(seals) > 1:
                before = statements[previous][0].root
                yield warn("statement-chain", f"{len(seals)} runs name the statement of {before} as previous", *seals)
