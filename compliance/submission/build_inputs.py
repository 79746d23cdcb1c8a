"""The input of `main.py submit`: results with their runs and audits, and their places in a tree."""

import contextlib
from collections.abc import Iterable
from pathlib import Path
from shlex import quote

from compliance.audits.discovery import AUDITS
from compliance.results.find_results import campaign_results, find_results
from compliance.submission.candidate import AuditDir, Candidate
from runs.benchmarks import BENCHMARKS, DIRECTORIES, SUBMISSIONS
from runs.errors import HarnessError, InputError
from runs.files.reading import read_object
from runs.harness import PROGRAM
from runs.processes.lock_holder import holder_of
from runs.record.layout import CampaignDir, ResultDir, RunDir, audit_record, campaign_of
from runs.record.manifest import Manifest, read_manifest

# Audits that a submission contains. Other audits are ignored.
SUBMITTED_TESTS = tuple(sorted({name for entry in SUBMISSIONS.values() for name in entry.audits}))
_RESTORE = "restore the file"


def gather(paths: list[Path], *, beside: bool = True) -> list[Candidate]:
    """Find every result and audit in `paths`, in the order of their places in a tree.

    A path is the directory of a campaign, a result (`performance/run_1`, `accuracy`, `audit/NAME`), a run or an audit.
    Single runs are paired as in `verify`.

    Args:
        beside: True to add the audits in the result directories of single runs.

    Raises:
        InputError: If a path has none of these, two results or audits have the same place, or the result of an audit is
            missing.
        HarnessError: If a run cannot be read.
    """
    parts = [_parts(path) for path in paths]
    run_paths = [path for runs, _ in parts for path in runs]
    audit_paths = [path.resolve() for _, audits in parts for path in audits]
    candidates: dict[tuple[str, str], Candidate] = {}
    results = find_results(run_paths) if run_paths else []
    audits = _finished_audits(paths, [result.error for result in results if result.error is not None], audit_paths)
    for result in (result for result in results if result.runs):
        earlier = candidates.setdefault(result.place, Candidate(result))
        if earlier.result is not result:
            first_home, second_home = (" + ".join(map(str, home.directories)) for home in (earlier.result, result))
            raise InputError(
                f"two results for {earlier.name}: {first_home} and {second_home}", "name only the result to submit"
            )
    for audit in audits:
        path, candidate = audit.folder, candidates.get(audit.place)
        if candidate is None:
            raise InputError(
                f"{path}: the result of this {audit.test} for {'/'.join(audit.place)} is missing",
                "also give the directory of the result, or remove the directory of the audit",
            )
        twin = candidate.audits.setdefault(audit.test, audit)
        if twin is not audit:
            raise InputError(
                f"two {audit.test} audits for {candidate.name}: {twin.folder} and {path}",
                "name only the audit to submit",
            )
    for candidate in candidates.values() if beside else ():
        folders = [folder for home in candidate.homes for folder in _audits_of(home)]
        for audit in (_audit(folder) for folder in folders if audit_record(folder, folder.name).is_file()):
            if audit.place == candidate.result.place:
                candidate.audits.setdefault(audit.test, audit)
    if not candidates:
        raise InputError(f"{', '.join(map(str, paths))}: no result found", "name the directory of a campaign or result")
    return [candidates[key] for key in sorted(candidates)]


def continuation(campaign: CampaignDir) -> str:
    """Return the fix for missing runs of a campaign: wait for it while it runs, otherwise continue it."""
    if (process := holder_of(campaign.lock)) is not None:
        command = f"{PROGRAM} status {quote(str(campaign.root))} --watch"
        return f"wait for the end of the campaign (process {process}): `{command}`"
    file = read_object(campaign.configuration, _RESTORE).get("file")
    return f"continue the campaign: `{PROGRAM} campaign --config {quote(str(file)) if file else 'FILE'}`"


def unless_running(home: Path, fix: str) -> str:
    """Return the fix for a missing part of a result; while its campaign runs, the advice to wait."""
    campaign = campaign_of(home)
    return fix if campaign is None or holder_of(campaign.lock) is None else continuation(campaign)


def manifests_below(paths: Iterable[Path]) -> list[tuple[str, Manifest]]:
    """Return the readable manifests of the runs below directories, each with benchmark/scenario, without audits."""
    manifests = []
    for path in paths:
        for file in sorted(path.rglob(RunDir(path).manifest.name)):
            if not {"audit", ResultDir(path).discarded.name} & set(file.relative_to(path).parts):
                with contextlib.suppress(HarnessError):
                    plan = (manifest := read_manifest(file)).plan
                    place = BENCHMARKS[plan.loadgen_key].submission_name if plan.loadgen_key in BENCHMARKS else ""
                    manifests.append((f"{place}/{plan.scenario}", manifest))
    return manifests


def _finished_audits(paths: list[Path], errors: list[HarnessError], audit_paths: list[Path]) -> list[AuditDir]:
    """Return the audits in directories. All unfinished runs and audits cause one error.

    Args:
        paths: Paths from the command line. The error lists the missing runs of their campaigns.
        errors: Errors of unfinished runs.

    Raises:
        HarnessError: If a run or audit is unfinished; its class is that of the most severe error.
    """
    audits = []
    for path in dict.fromkeys(audit_paths):
        try:
            audits.append(_audit(path))
        except HarnessError as error:
            errors.append(error)
    if not errors:
        return audits
    worst, fix = max(errors, key=lambda error: error.exit_code), ""
    lines = [error.message for error in errors]
    for campaign in dict.fromkeys(folder for path in paths if (folder := campaign_of(path)) is not None):
        planned = read_object(campaign.configuration, _RESTORE).get("legs") or []
        lines += [f"{run['leg']} is missing" for run in planned if not _run_in(campaign, run["directory"]).exists()]
        fix = continuation(campaign)
    raise type(worst)("\n  ".join(dict.fromkeys(lines)), fix or worst.fix)


def _run_in(campaign: CampaignDir, directory: str) -> Path:
    """Return the directory of a run in a campaign. The campaign may have moved since the run was planned."""
    parts = Path(directory).parts
    begin = next((index for index, part in enumerate(parts) if part in DIRECTORIES), 0)
    return campaign.root.joinpath(*parts[begin:])


def _parts(path: Path) -> tuple[list[Path], list[Path]]:
    """Return the directories of runs and the directories of audits in a path."""
    if any(audit_record(path, test).is_file() for test in AUDITS):
        return [], [path]
    if campaign := campaign_results(path):
        return list(campaign), [audit for root in campaign for audit in _audits_of(ResultDir(root))]
    audits = _audits_of(ResultDir(path))
    holds_runs = any((path / part).exists() for part in ("performance", "accuracy", RunDir(path).manifest.name))
    return [path] if holds_runs or not audits else [], audits


def _audits_of(result: ResultDir) -> list[Path]:
    return [result.audit(test) for test in SUBMITTED_TESTS if result.audit(test).is_dir()]


def _audit(folder: Path) -> AuditDir:
    test = next((name for name in AUDITS if audit_record(folder, name).is_file()), None)
    if test is None:
        raise InputError(
            f"{folder}: {audit_record(folder, folder.name).name} is missing, because the audit did not finish",
            "repeat the audit",
        )
    if test not in SUBMITTED_TESTS:
        raise InputError(f"{folder}: {test} is not part of a submission", "remove this directory from the command")
    audit = AuditDir(test, folder)
    if (key := audit.manifest.plan.loadgen_key) not in BENCHMARKS:
        raise InputError(f"{folder}: unknown benchmark {key}", f"choose from {', '.join(BENCHMARKS)}")
    return audit
