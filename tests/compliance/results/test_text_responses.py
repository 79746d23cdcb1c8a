"""Rules on generated token IDs for a server that sends text: they are not applied, and the reason is stated."""

import contextlib
import json
from pathlib import Path

import pytest

from compliance.audits.base import NoVerdictError, RunSpec
from compliance.audits.catalog.output_consistency import OutputConsistency
from compliance.audits.catalog.test06 import OfficialTest06
from compliance.audits.options import AuditRequest
from compliance.audits.run_artifacts import RunArtifacts
from compliance.judge.verdict import not_applied
from compliance.results.policy import judge_run
from compliance.results.run_evidence import RunEvidence
from runs.bench.circumstances import counted_output_tokens
from runs.errors import SetupError
from runs.record.engines.servers import unofficial_servers
from runs.record.layout import RunDir
from runs.record.manifest import Manifest
from scenarios.audit.run_audit import _refuse_text
from tests.support.runs.recorded import OVER_HTTP, recorded

TEXT = {
    "is_tokenized": True, "responses_with_usage": 64, "tokens_by_usage": 8000, "tokens_by_tokenizer": 7900,
    "responses_estimated": 0, "short": 3, "empty": 0, "issue_to_text": {"count": 0},
}  # fmt: skip
RULES = {"accuracy-longest", "plausible-padding"}


def _run(mode: str) -> RunDir:
    (path,) = (recorded() / OVER_HTTP / "campaign").glob(f"**/Offline/{mode}/**/manifest.json")
    return RunDir(path.parent)


def _as_text_server(run_dir: RunDir, **changed: object) -> Manifest:
    """Return the manifest of a run as if its server had sent text."""
    content = json.loads(Path(run_dir.manifest).read_bytes())
    for engine in content["observed"]["engines"]:
        engine["client"]["text"] = {**TEXT, **changed}
    return Manifest.model_validate(content)


def _applied_rules(*, text: bool) -> tuple[set[str], dict[str, str]]:
    """Return the applied rules of an accuracy run, and the reasons for the others."""
    run = RunEvidence(_run("accuracy"))
    if text:
        vars(run)["manifest"] = _as_text_server(run.dir)
    verdict = judge_run(run)
    return set(verdict.applied), {rule: entry.why for entry in not_applied(verdict) for rule in entry.rules}


def test_rules_on_generated_ids_do_not_apply_to_text() -> None:
    applied, _ = _applied_rules(text=False)
    assert applied >= RULES
    applied, reasons = _applied_rules(text=True)
    assert not applied & RULES
    assert all("sends text: the log has token IDs made from the text instead of" in reasons[rule] for rule in RULES)
    assert "plausible-shared-answers" in applied  # texts are comparable


@pytest.mark.parametrize(("tokenized", "refused"), [(True, ["TEST06"]), (False, ["TEST06", "output_consistency"])])
def test_audits_of_token_ids_give_no_verdict_on_text(tokenized: bool, refused: list[str]) -> None:
    run = RunArtifacts(_run("accuracy"), spec=RunSpec("performance"))
    vars(run)["manifest"] = _as_text_server(run.dir, is_tokenized=tokenized)
    for test in (OfficialTest06(), OutputConsistency()):
        message = f"{test.name} needs generated token IDs; run performance: server .* sends text"
        with pytest.raises(NoVerdictError, match=message) if test.name in refused else contextlib.nullcontext():
            test.need_ids([run], zeros_only=test.name != "TEST06")
    request = AuditRequest(
        scenario="Offline", loadgen_key="llama3_1-8b", loaded_count=64, options=OfficialTest06().default_options
    )
    with pytest.raises(NoVerdictError):
        OfficialTest06().verify(request, [run])
    if tokenized:
        plan = run.manifest.plan.model_copy(
            update={
                "engine": "endpoint",
                "engine_options": {"api_server": "http://localhost:1", "api_dialect": "openai"},
            }
        )
        with pytest.raises(
            SetupError, match="TEST06 needs generated token IDs, and server http://localhost:1 sends text"
        ):
            _refuse_text("TEST06", plan)
    else:
        with pytest.raises(NoVerdictError):
            list(OutputConsistency().compare({}, [], run, 0.05))


def test_a_run_on_a_text_server_is_not_eligible() -> None:
    run = RunEvidence(_run("accuracy"))
    reasons = unofficial_servers(_as_text_server(run.dir), run.benchmark.model)
    assert any("sends text" in reason for reason in reasons)


def test_output_tokens_are_counted_by_server_and_tokenizer() -> None:
    run_dir = _run("accuracy")
    answers = sum(client.answers for client in _as_text_server(run_dir).observed.clients)
    counts = counted_output_tokens(_as_text_server(run_dir, responses_with_usage=answers).observed.clients, 7900)
    assert (counts.server, counts.counted, counts.estimated) == (8000, 7900, False)
    manifest = _as_text_server(run_dir, responses_with_usage=0, is_tokenized=False, responses_estimated=9)
    counts = counted_output_tokens(manifest.observed.clients, 70)
    assert (counts.server, counts.counted, counts.estimated) == (None, None, True)
