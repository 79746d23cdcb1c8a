"""The sign-off of run directories of the MLPerf Endpoints client. They have no attestation."""

from dataclasses import replace

from compliance.judge.verdict import Finding, judge
from compliance.mlperf_endpoints.submission import same_configuration
from compliance.signoff.evidence import Sides, SignOffRequest, unreadable
from compliance.signoff.judge import CLAIMED, POLICY
from compliance.signoff.signoff_verdict import SignOff, SignOffDetails
from compliance.sources import VerdictRequest, find


def judge_client_runs(details: SignOffDetails, request: SignOffRequest) -> SignOff:
    """Check each directory like `verify`, then all as one curve, and then the claim."""
    runs, findings = [], list[Finding]()
    for case in find("verify", request.ref, VerdictRequest(request.sources)):
        part = case.judge()
        findings += [finding for finding in part.all_findings if part.counts(finding)]
        details.log_sha256[part.details.directory] = part.details.hashes()["sha256"]
        runs += [part.details.run] if part.details.run is not None else []
        if part.error is not None:
            findings.append(unreadable(part.error, case.home))
        if len(request.ref) == 1:
            details.metrics["ref"] = part.details.measured
    findings += same_configuration(request.ref[0], runs)
    sides = Sides(details, [], [], request.claim, request.sources, request.trust)
    verdict = judge(sides, replace(POLICY, checks=dict.fromkeys(POLICY.checks, CLAIMED)))
    return replace(verdict, findings=[*findings, *verdict.findings], not_applied=[])
