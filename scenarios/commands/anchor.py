"""The `anchor` command, which anchors the attestations of runs."""

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from runs.errors import ExitCode, InputError
from runs.record.layout import RunDir
from runs.what_is import what_is
from scenarios.command_line import command_output
from scenarios.command_line.command import PATH, Command
from scenarios.console import tell

if TYPE_CHECKING:
    from compliance.judge.verdict import Finding
    from runs.attestation.attestation import Attestation

EXAMPLES = (
    "add all runs of a campaign to the reviewer's ledger: anchor output/campaign --ledger /reviews/ledger",
    "add one run to a ledger in the reviewer's git repository: anchor RUN --ledger ../anchors",
    "request a time stamp for one run: anchor RUN --timestamp https://tsa.example.org/",
    "sign a complete run whose attestation is missing: anchor --attest RUN",
)


@click.command(cls=Command, examples=EXAMPLES)
@click.argument("runs", metavar="RUN...", type=PATH, nargs=-1, required=True)
@click.option("--ledger", type=PATH, metavar="DIR", help="Add one line per attestation to anchors.jsonl in DIR.")
@click.option(
    "--timestamp",
    metavar="URL",
    help="Request a time stamp (RFC 3161) from this authority, and write it into each run directory.",
)
@click.option("--attest", is_flag=True, help="First write the missing attestations of complete runs.")
@click.option(
    "--signing-key",
    type=PATH,
    metavar="FILE",
    help="Ed25519 private key (PEM) for --attest. Default: a key in your home directory.",
)
def anchor(
    runs: tuple[Path, ...], ledger: Path | None, timestamp: str | None, attest: bool, signing_key: Path | None
) -> ExitCode:
    """Anchor the attestations (seal.json) of runs, to detect later changes.

    RUN is a run directory, or a directory that contains run directories. DIR is the ledger, a directory that the
    reviewer keeps. If DIR is in a git repository, the command commits the new lines. Anchoring a run again changes
    nothing. A complete run has no attestation if its disk was full at the end; --attest signs it.

    Exit codes: 0 all runs are anchored or signed, 1 the files of a run differ from its attestation or it
    has none (no run is anchored), 2 bad
    input, 3 the ledger cannot be written, 4 git or the time-stamping authority failed.
    """
    if (ledger is None) == (timestamp is None) and (ledger is not None or not attest):
        raise InputError("anchor requires --ledger DIR or --timestamp URL", "give exactly one of these options")
    if signing_key is not None and not attest:
        raise InputError(f"--signing-key {signing_key} requires --attest", "give --attest, or omit --signing-key")
    if attest:
        signed = _sign(runs, signing_key)
        command_output.put(attested=signed)
        if ledger is None and timestamp is None:
            return ExitCode.OK
    from compliance.judge.record import finding_record
    from compliance.results.attestation_check import read_and_attested
    from runs.attestation.anchors import add_to_ledger, request_time_stamp
    from runs.attestation.statements import unattested_runs

    read: dict[str, tuple[Attestation | None, list[Finding]]] = {}
    for path in runs:
        attested = [RunDir(seal.parent) for seal in sorted(path.rglob(RunDir(path).seal.name))]
        complete = attested + unattested_runs(path)
        if not complete:
            raise what_is(path).refused(f"a directory with {RunDir(path).seal.name}, the attestation of a finished run")
        read |= {str(run.root): read_and_attested(run) for run in complete}
    violated = [finding for _, findings in read.values() for finding in findings]
    for finding in violated:
        tell(f"{finding}" + (f"; {finding.fix}" if finding.fix else ""))
    if violated:
        tell("no run was anchored")
        command_output.put(findings=[finding_record(finding) for finding in violated])
        return ExitCode.NEGATIVE
    statements = {name: statement for name, (statement, _) in read.items() if statement is not None}
    if ledger is not None:
        times: Iterable[datetime] = [entry.time for entry in add_to_ledger(ledger, statements)]
    else:
        times = (request_time_stamp(str(timestamp), RunDir(Path(name))) for name in statements)
    anchored: list[dict[str, object]] = []
    command_output.put(anchors=anchored)
    for (name, statement), time in zip(statements.items(), times, strict=True):
        anchored.append({"run": name, "digest": statement.digest, "key": statement.key, "time": time})
        tell(f"{name}: anchored at {time:%Y-%m-%d %H:%M:%S} UTC")
        tell(f"  attestation {statement.digest}")
        tell(f"  signed by {statement.key}")
    return ExitCode.OK


def _sign(folders: tuple[Path, ...], signing_key: Path | None) -> list[dict[str, str]]:
    """Sign the complete runs without an attestation below directories; return the runs and the new attestations."""
    from runs.attestation.signing_key import load_signer
    from runs.attestation.statements import attest_run, last_statement, unattested_runs
    from runs.record.finished_run import FinishedRun, require_complete
    from runs.record.layout import campaign_of
    from runs.record.manifest import read_manifest

    signer, signed = load_signer(signing_key), []
    for folder in folders:
        for run in unattested_runs(folder):
            require_complete(FinishedRun(run))
            campaign = campaign_of(run.root)
            previous = last_statement(campaign.root) if campaign is not None else None
            digest = attest_run(run, read_manifest(run.manifest), signer, previous)
            signed.append({"run": str(run.root), "digest": digest})
            tell(f"{run.root}: signed")
            tell(f"  attestation {digest}")
    if not signed:
        tell("every complete run has an attestation; no run was signed")
    return signed
