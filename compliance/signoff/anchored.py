"""Is a leg anchored in time, sealed only, or not sealed? docs/signoff.md says what each of the three can show."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from cryptography.x509 import Certificate

from compliance.finding import OURS, Finding, decides, fail, note, warn
from runs.errors import InputError
from runs.record.anchors import Entry, checked_time_of
from runs.record.attestation import Attestation, read_attestation
from runs.record.layout import RunDir
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
            times.append((checked_time_of(run, trust.authorities), "by a time stamp"))
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
