"""`main.py signoff`: from the command line to a verdict, its file and the exit code."""

import re
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import click

from compliance.signoff.signoff_verdict import MAX_ROUNDS, NOISE_BAND_PCT, SCOPES, Policy, Scope, feedback
from runs.errors import ExitCode, InputError
from runs.wording import counted
from scenarios.command_line import command_output
from scenarios.command_line.command import PATH, Command, write_record
from scenarios.command_line.options import score_options, score_sources
from scenarios.console import tell

MAX_DIRECTORIES = 400  # of one sign-off, which compares each pair of runs
EXAMPLES = (
    "both runs of a result: signoff --scope harness --ref RESULT",
    "whether a change is a gain: signoff --scope patch --ref BEFORE --cand AFTER --claim claim.json",
    "a submission: signoff --scope bundle --ref output/campaign --out verdict.json",
)


class _SeveralDirectories(Command):
    """Takes `--ref A B` for `--ref A --ref B`: an option with as many directories as follow it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        repeated: list[str] = []
        option = ""
        for before, word in pairwise(["", *args]):
            if word.startswith("-"):
                option = word
            elif option in ("--ref", "--cand") and before != option:
                repeated.append(option)
            repeated.append(word)
        return super().parse_args(ctx, repeated)


@click.command(cls=_SeveralDirectories, examples=EXAMPLES)
@click.option("--scope", type=click.Choice(SCOPES), help="What is signed off.")
@click.option("--ref", type=PATH, multiple=True, metavar="DIR...", help="The reference runs.")
@click.option("--cand", type=PATH, multiple=True, metavar="DIR...", help="The candidate's runs.")
@click.option("--claim", type=PATH, metavar="FILE", help="JSON file of the claim to check.")
@score_options(". Default: the one in manifest.json.")
@click.option(
    "--noise-band",
    type=float,
    default=NOISE_BAND_PCT,
    show_default=True,
    metavar="PERCENT",
    help="Noise band of spread, drift and gain.",
)
@click.option(
    "--policy",
    type=click.Choice(["open", "closed"]),
    help="Whether a failure of the sign-off itself blocks. Default: closed for a bundle, else open.",
)
@click.option("--strict-flag", is_flag=True, help="Also exit with code 1 on a FLAG.")
@click.option("--out", type=PATH, metavar="FILE", help="Write the verdict to FILE, as JSON.")
@click.option(
    "--feedback",
    "feedback_file",
    type=PATH,
    metavar="FILE",
    help="Write what must be corrected to FILE, as JSON (audit_feedback.json).",
)
@click.option("--ledger", type=PATH, metavar="DIR", help="Ledger that must contain every run (`main.py anchor`).")
@click.option(
    "--timestamp-ca",
    type=PATH,
    metavar="FILE",
    help="Root certificate (PEM) of the authority whose time stamp every run must have.",
)
@click.option("--key", metavar="HEX", help="Key that must have signed every run, as `main.py anchor` prints it.")
@click.option(
    "--remeasure",
    type=int,
    default=0,
    metavar="N",
    help="Where the verdict asks to measure again: start the performance runs again, at most N times "
    f"({MAX_ROUNDS} or fewer), reference and candidate in turn, and sign off the new runs. Default: 0.",
)
def signoff(
    scope: Scope | None,
    ref: tuple[Path, ...],
    cand: tuple[Path, ...],
    claim: Path | None,
    dataset_path: Path | None,
    model_path: str | None,
    noise_band: float,
    policy: Policy | None,
    strict_flag: bool,
    out: Path | None,
    feedback_file: Path | None,
    ledger: Path | None,
    timestamp_ca: Path | None,
    key: str | None,
    remeasure: int,
) -> ExitCode:
    """Sign off results from their raw files alone: PASS, FLAG or FAIL, with every reason.

    Every number is derived again; reported and claimed values serve only to find contradictions. Missing or null
    evidence is a FAIL. Nothing is written to the given directories. --ref and --cand take one or more run directories,
    directories with performance/run_1 and accuracy in them, or campaigns. The scope harness also takes run folders
    of the MLPerf Endpoints client.

    \b
    baseline  repeats of one system have close results, the same conditions and sound responses
    profile   phases of a request, and whether the claim names the phase that changed
    harness   performance and accuracy runs are of one system under LoadGen's own load
    patch     one change has the same conditions, is effective, is a real gain and hides nothing
    bundle    several changes, or, with --ref alone, the runs of a submission

    Exit codes: 0 PASS or FLAG, 1 FAIL (with --strict-flag also FLAG), 2 bad input, 3 the verdict cannot be written or
    a run cannot be started, 4 no verdict: the sign-off itself or a new run failed, 130 interrupted.
    """
    if scope is None:
        raise InputError("--scope is missing", f"choose one of {', '.join(SCOPES)}")
    if not 0 < noise_band < 100:
        raise InputError(f"--noise-band {noise_band:g} is no share in percent", "give a number such as 0.5")
    if remeasure and (ledger or timestamp_ca):
        raise InputError("--remeasure makes new runs, which are not anchored", "leave --ledger and --timestamp-ca out")
    if key is not None and not re.fullmatch("[0-9a-f]{64}", key):
        raise InputError(f"--key {key}: not 64 hex digits", "give the key as `main.py anchor` prints it")
    check_directories(scope, ref, cand, is_anchored=bool(ledger or timestamp_ca or key))
    from compliance.signoff.anchored import Trust
    from compliance.signoff.claim import read_claim
    from compliance.signoff.judge import sign_off
    from runs.record.anchors import read_authorities, read_ledger

    claimed = read_claim(claim) if claim else None
    trust = Trust(read_ledger(ledger) if ledger else None, read_authorities(timestamp_ca) if timestamp_ca else (), key)
    sign = partial(
        sign_off,
        scope,
        claim=claimed,
        noise_band_pct=noise_band,
        policy=policy,
        sources=score_sources(dataset_path, model_path),
        trust=trust,
    )
    rounds = 0
    if remeasure:
        from scenarios.audit.remeasure import remeasured  # loads what starts runs, which a sign-off alone does without
        from scenarios.terminal import Terminal

        verdict, rounds = remeasured(sign, ref, cand, remeasure, Terminal(), tell)
    else:
        verdict = sign(ref, cand)
    tell(verdict.as_text().rstrip())
    command_output.put(**verdict.record())
    if remeasure:
        tell(f"measured again {counted(rounds, 'time')}, of at most {remeasure}")
    record = verdict.record() | ({"remeasured": rounds} if remeasure else {})
    for option, path, content in (("--out", out, record), ("--feedback", feedback_file, feedback(verdict))):
        if path is not None:
            write_record(option, path, content)
            tell(f"written to {path}")
    return verdict.exit_code(strict=strict_flag)


def check_directories(scope: Scope, ref: Sequence[Path], cand: Sequence[Path], *, is_anchored: bool) -> None:
    """Refuse directories that the scope does not take.

    Args:
        is_anchored: whether the attestations of the runs are to be compared with a ledger, an authority or a key.

    Raises:
        InputError: a directory does not exist, there are too many, or the scope needs others.
    """
    from runs.endpoints.layout import is_run_folder
    from runs.what_is import what_is

    if not ref:
        raise InputError("--ref: no directory was given", "name at least one run directory")
    if len(ref) + len(cand) > MAX_DIRECTORIES:
        raise InputError(
            f"--ref and --cand: {len(ref) + len(cand):,} directories, at most {MAX_DIRECTORIES} are judged together",
            "sign off fewer repeats at a time",
        )
    if scope == "patch" and not cand:
        raise InputError("--scope patch: no --cand was given", "name the candidate's run directories")
    if cand and scope in ("baseline", "harness"):
        raise InputError(f"--scope {scope} takes no --cand", "leave it out, or use --scope patch")
    for option, paths in (("--ref", ref), ("--cand", cand)):
        for path in paths:
            if not path.is_dir():
                raise what_is(path).refused("a directory with runs", option)
    folders = [path for path in (*ref, *cand) if is_run_folder(path)]
    if folders and (scope != "harness" or len(folders) < len(ref) or is_anchored):
        raise InputError(
            f"{folders[0]} is a run folder of the MLPerf Endpoints client, which has no attestation",
            "sign such folders off with --scope harness, by themselves, without --ledger, --timestamp-ca and --key",
        )
