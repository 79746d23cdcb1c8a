"""Is a leg anchored in time, sealed only, or not sealed, and is the chain of a campaign's statements whole?
docs/signoff.md says what each can show."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography.x509 import Certificate

from compliance.finding import OURS, Finding, decides, fail, note, warn
from runs.errors import InputError
from runs.record.anchors import Entry, time_of
from runs.record.attestation import Attestation, read_attestation, statements_below
from runs.record.layout import CampaignDir, RunDir
from runs.record.manifest import Manifest
from runs.wording import duration, printable

CLOCKS_DIFFER_S = 60.0  # that much a leg may seem to be anchored before its end


@dataclass(frozen=True)
class Trust:
    """What a reviewer holds statements against. With a ledger or an authority every leg has to be anchored."""

    ledger: Mapping[str, Entry] | None = None  # by digest
    authorities: Sequence[Certificate] = ()  # that sign time stamps
    key: str | None = None  # that has to have signed every leg

    @property
    def asks_for_anchors(self) -> bool:
        return self.ledger is not None or bool(self.authorities)


@decides(
    "signoff",
    ("anchored", "error", OURS, "the statement of the leg is in the reviewer's ledger, or has a time stamp",
     "give the leg as it was anchored; a leg is anchored when it ends, by `main.py anchor`"),
)  # fmt: skip
def anchored(run: RunDir, manifest: Manifest | None, trust: Trust) -> Iterator[Finding]:
    """One finding that names the state; and what contradicts an anchor or the reviewer's key."""
    tell = fail if trust.asks_for_anchors else note
    try:
        statement = read_attestation(run)
    except InputError as error:
        yield tell("anchored", f"not sealed: {error.message}", run.root)
        return
    if trust.key is not None and statement.key != trust.key:
        yield fail("attested", f"signed by the key {statement.key}, not by {trust.key}", run.seal)
    times: list[tuple[datetime, str]] = []
    missing: list[str] = []
    if trust.ledger is not None:
        entry = trust.ledger.get(statement.digest)
        if entry is not None:
            times.append((entry.time, f"in the ledger as {printable(entry.name, 200)}"))
        else:
            missing.append(_not_in(trust.ledger, statement))
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
        yield tell("anchored", "; ".join(["sealed, not anchored", *missing]), run.seal, digest=statement.digest)
    else:
        yield _at(*min(times), run, manifest)


def _not_in(ledger: Mapping[str, Entry], statement: Attestation) -> str:
    known = any(entry.key == statement.key for entry in ledger.values())
    key = "" if known else f", and no statement that the key {statement.key} signed"
    return f"the ledger has not the statement {statement.digest}{key}"


def _at(time: datetime, where: str, run: RunDir, manifest: Manifest | None) -> Finding:
    text = f"anchored at {time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC, {where}"
    if manifest is None or manifest.end_time_ns is None:
        return note("anchored", text, run.seal)
    after_s = time.timestamp() - manifest.end_time_ns / 1e9
    if after_s < -CLOCKS_DIFFER_S:
        text += f", but by its own clock the leg ended {duration(-after_s)} later"
        return warn("anchored", text, run.seal, after_s=after_s)
    return note("anchored", f"{text}, {duration(max(0.0, after_s))} after the leg ended", run.seal, after_s=after_s)


@decides(
    "signoff",
    ("statement-chain", "warning", OURS, "each statement of a campaign names the one before it, which is there",
     "give the campaign's directory whole and as it ended, discarded legs too"),
)  # fmt: skip
def chained(runs: Iterable[RunDir]) -> Iterator[Finding]:
    """Breaks in the chains of the campaigns that hold these legs.

    A statement that is not there was written again or removed; which of the two, the chain alone does not show. Two
    legs that name one statement were not run by one campaign, which runs one leg at a time. A leg outside a campaign's
    directory says nothing: the leg before it is elsewhere.
    """
    parents = [next((one for one in run.root.resolve().parents if _holds_campaign(one)), None) for run in runs]
    for campaign in dict.fromkeys(filter(None, parents)):
        statements = statements_below(campaign)
        followers: dict[str, list[RunDir]] = {}
        for run, statement in sorted(statements.values(), key=lambda pair: pair[0].root):
            if statement.predicate.previous is not None:
                followers.setdefault(statement.predicate.previous, []).append(run)
        for previous, named_by in followers.items():
            seals = [run.seal for run in named_by]
            if previous not in statements:
                text = f"names {previous} as the statement before it, which is not there: written again, or removed"
                yield warn("statement-chain", text, *seals)
            elif len(seals) > 1:
                before = statements[previous][0].root
                yield warn("statement-chain", f"{len(seals)} legs name the statement of {before} as previous", *seals)


def _holds_campaign(folder: Path) -> bool:
    return CampaignDir(folder).configuration.is_file()
