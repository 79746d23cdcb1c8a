"""The `signoff` command, which signs off results from their raw files."""

import re
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from compliance.signoff.signoff_verdict import (
    MAX_ROUNDS,
    NOISE_BAND_PCT,
    SCOPES,
    OnFailure,
    SignOffScope,
    feedback,
    sign_off_text,
)
from runs.errors import ExitCode, InputError
from runs.harness import PROGRAM
from runs.wording import counted
from scenarios.command_line import command_output
from scenarios.command_line.command import PATH, Command, given_options, write_record, writing
from scenarios.command_line.options import score_options, score_sources
from scenarios.console import tell

MAX_DIRECTORIES = 400  # per sign-off, because each pair of runs is compared
EXAMPLES = (
    "check both runs of a result: signoff --scope harness --ref RESULT",
    "check that a change is a gain: signoff --scope patch --ref BEFORE --cand AFTER --claim claim.json",
    "check all runs of a submission: signoff --scope bundle --ref output/campaign --out verdict.json",
)


class _SeveralDirectories(Command):
    """A command that accepts `--ref A B` for `--ref A --ref B`."""

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


@click.command(
    cls=_SeveralDirectories,
    examples=EXAMPLES,
    shown=("--scope", "--ref", "--cand", "--claim", "--strict-flag", "--out", "--remeasure"),
)
@click.option("--scope", type=click.Choice(SCOPES), help="What to check, see above.")
@click.option("--ref", type=PATH, multiple=True, metavar="DIR...", help="Directories of the reference runs.")
@click.option("--cand", type=PATH, multiple=True, metavar="DIR...", help="Directories of the candidate runs.")
@click.option("--claim", type=PATH, metavar="FILE", help="JSON file with the claim to check (docs/signoff.md).")
@score_options(". Default: the dataset in manifest.json.")
@click.option(
    "--noise-band",
    type=float,
    default=NOISE_BAND_PCT,
    show_default=True,
    metavar="PERCENT",
    help="Differences within this band count as noise, in spread, drift and gain; in percent.",
)
@click.option(
    "--policy",
    type=click.Choice(["open", "closed"]),
    help="Exit code if the sign-off reaches no verdict: closed 4, open 0. Default: closed for the scope bundle, else "
    "open.",
)
@click.option("--strict-flag", is_flag=True, help="Exit with code 1 also on a FLAG.")
@click.option(
    "--out",
    type=PATH,
    metavar="FILE",
    help="Write the verdict to FILE, as JSON. Default: signoff_SCOPE.json in the first directory of --cand, or else of "
    "--ref.",
)
@click.option(
    "--feedback", "feedback_file", type=PATH, metavar="FILE", help="Write the required corrections to FILE, as JSON."
)
@click.option(
    "--ledger", type=PATH, metavar="DIR", help=f"Require that this ledger contains every run (`{PROGRAM} anchor`)."
)
@click.option(
    "--timestamp-ca",
    type=PATH,
    metavar="FILE",
    help="Require a time stamp for every run; FILE is the root certificate (PEM) of the authority.",
)
@click.option("--key", metavar="HEX", help=f"Require that this key signed each run. `{PROGRAM} anchor` prints the key.")
@click.option(
    "--remeasure",
    type=int,
    default=0,
    metavar="N",
    help=f"Repeat the performance runs at most N times (0 to {MAX_ROUNDS}) if the verdict requires it, alternating "
    "between runs of the reference and of the candidate. The verdict is about the new runs. Default: 0.",
)
def signoff(
    scope: SignOffScope | None,
    ref: tuple[Path, ...],
    cand: tuple[Path, ...],
    claim: Path | None,
    dataset_path: Path | None,
    model_path: str | None,
    noise_band: float,
    policy: OnFailure | None,
    strict_flag: bool,
    out: Path | None,
    feedback_file: Path | None,
    ledger: Path | None,
    timestamp_ca: Path | None,
    key: str | None,
    remeasure: int,
) -> ExitCode:
    """Sign off results from their log files: PASS, FLAG or FAIL, with reasons.

    The command recomputes every number. It uses reported and claimed values only to find contradictions. If evidence is
    missing or null, the verdict is FAIL. The command does not change the files of the runs. It writes the verdict to
    --out or into the first directory, and appends a line to signoffs.jsonl.

    DIR is a run directory, a directory that contains performance/run_1 and accuracy, or the directory of a campaign.
    With the scope harness, DIR can also be a run folder of the MLPerf Endpoints client. The scopes are:

    \b
    baseline  check that repeated runs on one system have similar results, equal conditions and plausible responses
    profile   measure the phases of a request, and check that the claim names the changed phase
    harness   check that both runs of a result used one system, and that LoadGen issued the load
    patch     check that one change is a real gain, under equal conditions and without side effects
    bundle    check multiple changes; with --ref alone, check the runs of a submission

    Exit codes: 0 PASS or FLAG, 1 FAIL (with --strict-flag also FLAG), 2 bad input, 3 FILE cannot be written or a run
    cannot be started, 4 no verdict, because the sign-off itself or a new run failed, 130 interrupted.
    """
    if scope is None:
        raise InputError("--scope: missing", f"choose from {', '.join(SCOPES)}")
    if not 0 < noise_band < 100:
        raise InputError(f"--noise-band {noise_band:g}: not a percentage", "give a number such as 0.5")
    if remeasure and (ledger or timestamp_ca):
        raise InputError("--remeasure: new runs are not anchored", "remove --ledger and --timestamp-ca")
    if key is not None and not re.fullmatch("[0-9a-f]{64}", key):
        raise InputError(f"--key {key}: not 64 hex digits", f"give the key as `{PROGRAM} anchor` prints it")
    check_directories(scope, ref, cand)
    from compliance.judge.record import record
    from compliance.signoff.anchored import Trust
    from compliance.signoff.claim import read_claim
    from compliance.signoff.judge import sign_off
    from runs.attestation.anchors import read_authorities, read_ledger

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
        from scenarios.audit.remeasure import remeasured  # A sign-off without --remeasure starts no runs.
        from scenarios.terminal import Terminal

        verdict, rounds = remeasured(sign, ref, cand, remeasure, Terminal(), tell)
    else:
        verdict = sign(ref, cand)
    tell(sign_off_text(verdict).rstrip())
    content = record(verdict)
    command_output.put(**content)
    if remeasure:
        tell(f"repeated the performance runs {counted(rounds, 'time')}, of at most {remeasure}")
    _save(scope, (*cand, *ref)[0], out, content | ({"remeasured": rounds} if remeasure else {}))
    write_record("--feedback", feedback_file, feedback(verdict))
    return verdict.exit_code(strict=strict_flag)


def _save(scope: SignOffScope, judged: Path, out: Path | None, content: dict[str, Any]) -> None:
    """Write the verdict to `out`, or else into the directory of the result, if that is possible.

    Raises:
        SetupError: If `out` cannot be written.
    """
    from scenarios.audit.saved_verdict import save_verdict, verdict_file

    if out is not None:
        with writing("--out", out):
            save_verdict(out, content)
        tell(f"written to {out}")
        return
    path = verdict_file(judged, scope)
    if path is None:
        tell("verdict not saved, because the logs are not from this harness; use --out FILE to save it")
        return
    try:
        save_verdict(path, content)
        tell(f"written to {path}")
    except OSError as error:
        where = f"{error.filename or path} cannot be written: {error.strerror}"
        tell(f"verdict not saved: {where}; use --out FILE to save it")


def check_directories(scope: SignOffScope, ref: Sequence[Path], cand: Sequence[Path]) -> None:
    """Refuse directories that the scope or an option of the command does not accept.

    Raises:
        InputError: If a directory does not exist, or the scope does not accept it or the number of directories.
    """
    from compliance.sources import function_for
    from runs.what_is import what_is

    if not ref:
        raise InputError("--ref: missing", "give at least one run directory")
    if len(ref) + len(cand) > MAX_DIRECTORIES:
        raise InputError(
            f"--ref and --cand: {len(ref) + len(cand):,} directories; at most {MAX_DIRECTORIES} are allowed",
            "sign off fewer repetitions at a time",
        )
    if scope == "patch" and not cand:
        raise InputError("--scope patch: --cand is missing", "give the candidate's run directories with --cand")
    if cand and scope in ("baseline", "harness"):
        raise InputError(f"--scope {scope}: --cand is not supported", "remove --cand, or use --scope patch")
    for option, paths in (("--ref", ref), ("--cand", cand)):
        for path in paths:
            if not path.is_dir():
                raise what_is(path).refused("a directory with runs", option)
    function_for("signoff", (*ref, *cand), given_options())
