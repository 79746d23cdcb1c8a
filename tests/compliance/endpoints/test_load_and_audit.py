"""The load of real run folders replayed, and the client's audit judged again: honest ones pass, changed ones do not."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from compliance.endpoints.audit import AuditFolder, judge_audit
from compliance.endpoints.load import dataset_size, judge_load, read_load, replayed_order
from compliance.endpoints.submission import run_folders
from compliance.endpoints.verdict import judge_folder
from compliance.finding import Finding
from runs.endpoints.folder import EndpointsRun
from runs.errors import ExitCode
from scenarios.status.snapshot import take_snapshot
from tests.support.endpoints_client import CASES, client_program, make, unpack

MS = 1_000_000
AUDITED = ("audit-honest", "audit-cached")
Events = list[dict[str, Any]]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("recorded"))


def _load_findings(folder: Path) -> list[Finding]:
    load = read_load(EndpointsRun(folder))
    assert load is not None
    return list(judge_load(load))


def _audit_findings(folder: Path) -> list[Finding]:
    return list(judge_audit(AuditFolder(EndpointsRun(folder))))


def _worst(findings: list[Finding]) -> set[str]:
    return {finding.rule for finding in findings if finding.severity == "error"}


def _told(findings: list[Finding]) -> set[str]:
    return {finding.rule for finding in findings if finding.severity in ("error", "warning")}


HONEST = ["offline", "poisson", "concurrency", "warm-up", "server-died", *AUDITED]


@pytest.mark.parametrize("name", HONEST)
def test_honest_loads_are_those_that_were_asked_for(name: str, recorded: Path) -> None:
    assert not _told(_load_findings(recorded / name))


@pytest.mark.parametrize("leg", ["reference", "output_caching"])
def test_a_run_of_an_audit_is_known_by_its_place(leg: str, recorded: Path) -> None:
    assert not _told(_load_findings(recorded / "audit-honest" / "audit" / leg))


def test_the_honest_server_passes_where_the_client_fails_it(recorded: Path) -> None:
    findings = _audit_findings(recorded / "audit-honest")
    assert not _told(findings)
    (verdict,) = [finding for finding in findings if finding.rule == "endpoints-audit-verdict"]
    assert verdict.numbers == {"client": False, "ours": True}


def test_the_server_that_keeps_answers_fails_where_the_client_passes_it(recorded: Path) -> None:
    findings = _audit_findings(recorded / "audit-cached")
    assert _worst(findings) == {"endpoints-audit-second-time"}
    (verdict,) = [finding for finding in findings if finding.rule == "endpoints-audit-verdict"]
    assert verdict.numbers == {"client": True, "ours": False}


def _config(folder: Path, change: Callable[[Any], None]) -> None:
    path = folder / "config.yaml"
    content = yaml.safe_load(path.read_text())
    change(content)
    path.write_text(yaml.safe_dump(content))


def _runtime(**others: int) -> Callable[[Path], None]:
    return lambda folder: _config(folder, lambda config: config["settings"]["runtime"].update(others))


def _pattern(**others: float) -> Callable[[Path], None]:
    return lambda folder: _config(folder, lambda config: config["settings"]["load_pattern"].update(others))


def _warm_up(**others: object) -> Callable[[Path], None]:
    return lambda folder: _config(folder, lambda config: config["settings"]["warmup"].update(others))


def _events(change: Callable[[Events], Events | None]) -> Callable[[Path], None]:
    def changed(folder: Path) -> None:
        path = folder / "events.jsonl"
        events = [json.loads(line) for line in path.read_text().splitlines()]
        events = change(events) or events
        path.write_text("".join(json.dumps(event) + "\n" for event in events))

    return changed


def _of(events: Events, kind: str) -> Events:
    return [event for event in events if event["event_type"] == f"sample.{kind}"]


def _lose(kind: str, place: int) -> Callable[[Path], None]:
    return _events(lambda events: [event for event in events if event is not _of(events, kind)[place]])


def _move(place: int, by_ms: int) -> Callable[[Path], None]:
    def move(events: Events) -> None:
        _of(events, "issued")[place]["timestamp_ns"] += by_ms * MS

    return _events(move)


def _stretch(events: Events) -> None:
    start = events[0]["timestamp_ns"]
    for event in events:
        event["timestamp_ns"] = start + (event["timestamp_ns"] - start) * 4 // 3


def _later_completion(events: Events) -> None:
    done = _of(events, "complete")
    done[4]["timestamp_ns"] = done[8]["timestamp_ns"] - 1


def _swap_times(events: Events) -> None:
    one, other = _of(events, "issued")[20], _of(events, "issued")[30]
    one["timestamp_ns"], other["timestamp_ns"] = other["timestamp_ns"], one["timestamp_ns"]


def _other_prompt(events: Events) -> None:
    _of(events, "issued")[3]["data"][1] += " more"


def _map(change: Callable[[dict[str, int]], None]) -> Callable[[Path], None]:
    def changed(folder: Path) -> None:
        path = folder / "sample_idx_map.json"
        content = json.loads(path.read_text())
        change(content["performance"])
        path.write_text(json.dumps(content))

    return changed


def _swap_indices(indices: dict[str, int]) -> None:
    first, second = list(indices)[5], list(indices)[6]
    indices[first], indices[second] = indices[second], indices[first]


def _other_index(indices: dict[str, int]) -> None:
    indices[list(indices)[-1]] += 1


def _larger_data_set(indices: dict[str, int]) -> None:
    indices |= dict(zip(indices, replayed_order(42, 25, len(indices)).tolist(), strict=True))


def _lose_index(indices: dict[str, int]) -> None:
    indices.popitem()


def _sorted(indices: dict[str, int]) -> None:
    indices |= dict(zip(indices, [place % 24 for place in range(len(indices))], strict=True))


CHANGES: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "order seed": ("concurrency", _runtime(dataloader_random_seed=43), "endpoints-order"),
    "order seed, offline": ("offline", _runtime(dataloader_random_seed=7), "endpoints-order"),
    "indices swapped": ("poisson", _map(_swap_indices), "endpoints-order"),
    "another index": ("offline", _map(_other_index), "endpoints-order"),
    "a larger data set": ("poisson", _map(_larger_data_set), "endpoints-prompts"),
    "rows one after the other": ("offline", _map(_sorted), "endpoints-order"),
    "an index lost": ("concurrency", _map(_lose_index), "endpoints-order"),
    "another prompt": ("concurrency", _events(_other_prompt), "endpoints-prompts"),
    "more asked for": ("offline", _runtime(n_samples_to_issue=61), "endpoints-count"),
    "fewer asked for": ("concurrency", _runtime(n_samples_to_issue=50), "endpoints-count"),
    "a minimum duration": ("poisson", _runtime(min_duration_ms=60_000, n_samples_to_issue=None), "endpoints-count"),
    "a query lost": ("concurrency", _lose("issued", 10), "endpoints-count"),
    "the first query lost": ("poisson", _lose("issued", 0), "endpoints-order"),
    "the last query lost": ("offline", _lose("issued", -1), "endpoints-count"),
    "a completion lost": ("offline", _lose("complete", 10), "endpoints-drained"),
    "a completion lost, by concurrency": ("concurrency", _lose("complete", 0), "endpoints-concurrency"),
    "the last completion lost": ("poisson", _lose("complete", -1), "endpoints-drained"),
    "a completion lost of a dead server": ("server-died", _lose("complete", 30), "endpoints-drained"),
    "schedule seed": ("poisson", _runtime(scheduler_random_seed=43), "endpoints-arrivals"),
    "another schedule seed": ("poisson", _runtime(scheduler_random_seed=1), "endpoints-arrivals"),
    "a lower rate": ("poisson", _pattern(target_qps=25.0), "endpoints-arrivals"),
    "a much lower rate": ("poisson", _pattern(target_qps=3.0), "endpoints-arrivals"),
    "a query moved forward": ("poisson", _move(40, -20), "endpoints-arrivals"),
    "two times swapped": ("poisson", _events(_swap_times), "endpoints-arrivals"),
    "queries late": ("poisson", _events(_stretch), "endpoints-late"),
    "a higher rate": ("poisson", _pattern(target_qps=40.0), "endpoints-late"),
    "less concurrency": ("concurrency", _pattern(target_concurrency=7), "endpoints-concurrency"),
    "half the concurrency": ("warm-up", _pattern(target_concurrency=4), "endpoints-concurrency"),
    "more concurrency": ("concurrency", _pattern(target_concurrency=9), "endpoints-concurrency-kept"),
    "a later completion": ("concurrency", _events(_later_completion), "endpoints-concurrency"),
    "a query before its place": ("concurrency", _move(20, -30), "endpoints-concurrency"),
    "no warm-up": ("warm-up", _warm_up(enabled=False), "endpoints-warm-up"),
    "more warm-up": ("warm-up", _warm_up(n_requests=7), "endpoints-warm-up"),
    "warm-up of all": ("concurrency", _warm_up(enabled=True), "endpoints-warm-up"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_loads_are_told(change: str, recorded: Path, tmp_path: Path) -> None:
    name, edit, rule = CHANGES[change]
    folder = tmp_path / name
    shutil.copytree(recorded / name, folder)
    edit(folder)
    assert rule in _told(_load_findings(folder))


def _swap_legs(folder: Path) -> None:
    one, other = folder / "audit" / "reference", folder / "audit" / "output_caching"
    one.rename(folder / "x")
    other.rename(one)
    (folder / "x").rename(other)


def _verdict(**others: object) -> Callable[[Path], None]:
    def changed(folder: Path) -> None:
        path = folder / "audit" / "audit_output_caching_test.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | others))

    return changed


def _copied(folder: Path) -> None:
    leg = folder / "audit" / "output_caching"
    shutil.rmtree(leg)
    shutil.copytree(folder / "audit" / "reference", leg)


def _text(folder: Path) -> None:
    (folder / "audit" / "verify_OUTPUT_CACHING_TEST.txt").write_text("Performance check pass: True\n")


def _asked(**others: object) -> Callable[[Path], None]:
    return lambda folder: _config(folder, lambda config: config["audit"].update(others))


def _leg_config(folder: Path) -> None:
    _config(folder / "audit" / "reference", lambda config: config["model_params"].update(temperature=1.0))


def _other_server(folder: Path) -> None:
    _config(folder, lambda config: config["endpoint_config"].update(endpoints=["http://127.0.0.1:1"]))


AUDIT_CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "runs swapped": (_swap_legs, "endpoints-order"),
    "runs swapped, by their times": (_swap_legs, "endpoints-audit-same"),
    "another server before the audit": (_other_server, "endpoints-audit-same"),
    "the reference twice": (_copied, "endpoints-order"),
    "verdict turned": (_verdict(passed=True), "endpoints-audit-numbers"),
    "rates changed": (_verdict(audit_qps=90.0, passed=True), "endpoints-audit-numbers"),
    "threshold changed": (_verdict(threshold=0.9), "endpoints-audit-numbers"),
    "answers changed": (_verdict(audit_completed=20), "endpoints-audit-numbers"),
    "text turned": (_text, "endpoints-audit-numbers"),
    "another sample asked for": (_asked(sample_index=3), "endpoints-order"),
    "more samples asked for": (_asked(samples=30), "endpoints-count"),
    "another sampling": (_leg_config, "endpoints-audit-same"),
    "no verdict": (lambda folder: (folder / "audit" / "audit_output_caching_test.json").unlink(), "endpoints-audit"),
    "no reference": (lambda folder: shutil.rmtree(folder / "audit" / "reference"), "endpoints-audit"),
    "no audit": (lambda folder: shutil.rmtree(folder / "audit"), "endpoints-audit"),
}


@pytest.mark.parametrize("change", AUDIT_CHANGES)
def test_changed_audits_are_told(change: str, recorded: Path, tmp_path: Path) -> None:
    edit, rule = AUDIT_CHANGES[change]
    folder = tmp_path / "audit-honest"
    shutil.copytree(recorded / "audit-honest", folder)
    edit(folder)
    assert rule in _worst(_audit_findings(folder))


def test_an_audit_that_ran_alone_is_judged(recorded: Path, tmp_path: Path) -> None:
    folder = tmp_path / "curve" / "alone"
    shutil.copytree(recorded / "audit-honest" / "audit", folder / "audit")
    assert run_folders(tmp_path / "curve") == [folder]
    verdict = judge_folder(folder)
    assert verdict.outcome in ("PASS", "FLAG")
    assert "a measured run" in verdict.not_judged
    (told,) = [finding for finding in verdict.findings if finding.rule == "endpoints-audit-verdict"]
    assert told.numbers["ours"] is True
    (shown,) = take_snapshot([folder]).entries
    assert (shown.kind, shown.exit_code) == ("audit", ExitCode.NEGATIVE)  # by the client's verdict
    _verdict(audit_qps=90.0, passed=True)(folder)
    assert "endpoints-audit-numbers" in _worst(judge_folder(folder).findings)


def _without(folder: Path, places: slice) -> None:
    """Take completions out."""
    path = folder / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    done = [number for number, line in enumerate(lines) if '"sample.complete"' in line][places]
    path.write_text("".join(line for number, line in enumerate(lines) if number not in done))


@pytest.mark.parametrize(("taken", "severity"), [(slice(-5, None), "warning"), (slice(4, 6), "error")])
def test_a_run_that_was_stopped_while_it_drained(taken: slice, severity: str, recorded: Path, tmp_path: Path) -> None:
    folder = tmp_path / "concurrency"
    shutil.copytree(recorded / "concurrency", folder)
    _without(folder, taken)
    (found,) = [one for one in _load_findings(folder) if one.rule == "endpoints-drained"]
    assert found.severity == severity


def test_the_size_of_a_data_set_is_found_by_its_order() -> None:
    for size, sent in ((24, 60), (24, 15), (1000, 300), (7, 7)):
        assert dataset_size(replayed_order(42, size, sent), 42) == (size, True)
    assert dataset_size(replayed_order(42, 1000, 300), 43) == (None, True)
    assert dataset_size(replayed_order(42, 200_000, 100), 42)[1] is False  # too many sizes to try them all


@pytest.mark.long  # a minute each
@pytest.mark.parametrize("name", CASES)
def test_the_real_client(name: str, tmp_path: Path) -> None:
    program = client_program()
    if program is None:
        pytest.skip("MLPERF_ENDPOINTS_CLIENT names no client")
    folder = make(program, tmp_path / "out", name)
    assert not _worst(_load_findings(folder))
    if name.startswith("audit"):
        assert bool(_worst(_audit_findings(folder))) == ("cached" in name)
