"""Folders of later releases of the client: renamed settings, no default duration, new sections of report.txt."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from compliance.judge.verdict import not_applied
from compliance.mlperf_endpoints.load import replayed_order
from compliance.mlperf_endpoints.verdict import FolderVerdict
from runs.errors import ExitCode
from runs.mlperf_endpoints.folder import CLIENT_FORMS, read_folder
from runs.mlperf_endpoints.layout import CONFIG, REPORT, SUMMARY
from tests.support.mlperf_endpoints.folder_changes import (
    Change,
    combined,
    in_config,
    in_events,
    in_json,
    in_map,
    places,
    set_at_path,
)
from tests.support.mlperf_endpoints.verdicts import judge_folder

CopyOf = Callable[[str], Path]
RUNTIME = "settings/runtime"
COUNT = f"{RUNTIME}/n_samples_to_issue"
TIMEOUTS = {"interrupted_teardown_grace_s": 30.0, "warmup_drain_timeout_s": 240.0}


def later_client(timeouts: dict[str, Any] | None = None, **runtime: Any) -> Change:
    """The settings as a later release of the client writes them, with more of settings.runtime."""

    def edit(folder: Path) -> None:
        content = yaml.safe_load((folder / CONFIG).read_text())
        settings = content["settings"]
        for name in ("drain", "service_ready_timeout_s"):
            settings.pop(name)
        settings["timeouts"] = TIMEOUTS | (timeouts or {})
        kept = {name: value for name, value in settings["runtime"].items() if "duration" not in name}
        settings["runtime"] = {name: value for name, value in (kept | runtime).items() if value is not None}
        (folder / CONFIG).write_text(yaml.safe_dump(content))

    return edit


def dataset_of(rows: int) -> Change:
    """The order of a dataset of this size."""

    def edit(samples: dict[str, int]) -> None:
        samples.update(zip(list(samples), replayed_order(42, rows, len(samples)).tolist(), strict=True))

    return in_map(edit)


def warned(verdict: FolderVerdict) -> set[str]:
    return {
        finding.rule.removeprefix("endpoints-") for finding in verdict.of("error", "warning") if verdict.counts(finding)
    }


def not_judged(verdict: FolderVerdict) -> set[str]:
    return {entry.what for entry in not_applied(verdict)}


def test_a_later_client_without_a_count_issues_the_dataset_once(copy_of: CopyOf) -> None:
    combined(dataset_of(60), later_client(n_samples_to_issue=None))(folder := copy_of("offline"))
    verdict = judge_folder(folder)
    assert verdict.reasons == []
    assert verdict.exit_code() == ExitCode.OK
    assert "count" not in warned(verdict)
    assert {"endpoints-max-duration", "endpoints-drain"} <= not_judged(verdict)


def test_a_later_client_without_a_count_issues_no_second_pass(copy_of: CopyOf) -> None:
    later_client(n_samples_to_issue=None)(folder := copy_of("offline"))  # 60 samples of 24 rows
    verdict = judge_folder(folder)
    assert verdict.exit_code() == ExitCode.FAILED
    assert [contradiction.required for contradiction in verdict.contradictions] == ["24"]


def test_the_first_client_without_a_count_needs_its_default_duration(copy_of: CopyOf) -> None:
    combined(dataset_of(60), in_config(RUNTIME, {}))(folder := copy_of("offline"))
    assert read_folder(folder).time_settings.min_duration_ms == 600_000
    assert judge_folder(folder).exit_code() == ExitCode.FAILED


def test_the_count_of_an_unknown_client_is_not_judged(copy_of: CopyOf) -> None:
    combined(dataset_of(60), in_config(RUNTIME, {}), in_config("settings", without("drain")))(
        folder := copy_of("offline")
    )
    verdict = judge_folder(folder)
    assert verdict.exit_code() == ExitCode.OK
    assert "endpoints-count" in not_judged(verdict)
    in_json(SUMMARY, set_at_path("git_sha", "ea3327530376fef63d706f4105612e17c2c80a8d"))(folder)
    assert judge_folder(folder).exit_code() == ExitCode.FAILED


def without(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda settings: {key: value for key, value in settings.items() if key != name}


@pytest.mark.parametrize(
    ("name", "change", "rules"),
    [
        ("concurrency", later_client(max_issue_duration_ms=100), {"max-duration"}),
        ("concurrency", later_client(max_issue_duration_ms=60_000), set()),
        ("offline", later_client(max_issue_duration_ms=1), set()),  # all samples were issued at once
        ("offline", later_client({"performance_drain_timeout_s": 0.01}), {"drain"}),
        ("offline", later_client({"performance_drain_timeout_s": 60.0}), set()),
        ("poisson", later_client(n_samples_to_issue=None, min_issue_duration_ms=1_500), {"count"}),
        ("poisson", later_client(min_issue_duration_ms=9_000, max_issue_duration_ms=8_000), {"settings"}),
        ("poisson", combined(later_client(), in_config("settings/drain", {})), {"settings"}),
    ],
)
def test_renamed_settings_are_checked(name: str, change: Change, rules: set[str], copy_of: CopyOf) -> None:
    change(folder := copy_of(name))
    verdict = judge_folder(folder)
    assert warned(verdict) == rules
    assert {"endpoints-max-duration", "endpoints-drain"} & not_judged(verdict)


def test_the_release_of_the_client_is_found_by_its_keys(recorded: Path, copy_of: CopyOf) -> None:
    assert read_folder(recorded / "poisson").time_settings.form == CLIENT_FORMS[0]
    later_client()(folder := copy_of("poisson"))
    assert read_folder(folder).time_settings.form == CLIENT_FORMS[1]


# Lines of a section that this version does not know.
BLOCKS = {
    "title": ["---------------- Steady State ----------------", "Verdict: PLATEAU", "TPS: {tps}"],
    "heading": ["Steady state:", "  Verdict: PLATEAU", "  TPS: {tps}", "  QPS: 1.00"],
    "label": ["Steady state: PLATEAU", "TPS: {tps}", "TPOT p50 3.29ms  p90 3.44ms"],
    "empty lines": ["", "Steady state:", "", "  Percentiles and more: 1", "  p50: 3.00 ms", ""],
}
PLACES = ["Version", "Duration", "QPS", "TPS", "------------------- Latency", "----------------- End of Report"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("block", BLOCKS)
def test_an_unknown_section_of_the_report_is_no_contradiction(block: str, place: str, copy_of: CopyOf) -> None:
    folder = copy_of("concurrency")
    tps = json.loads((folder / SUMMARY).read_text())["tps"]
    for value in (tps, tps * 1.1):
        lines = (folder / REPORT).read_text().splitlines()
        number = next(number for number, line in enumerate(lines) if line.startswith(place))
        more = [line.format(tps=f"{value:.2f}") for line in BLOCKS[block]]
        text = "\n".join([*lines[:number], *more, *lines[number:]])
        (copy := folder / REPORT).write_text(text)
        assert judge_folder(folder).contradictions == []
        copy.write_text("\n".join(lines))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("QPS: 86.57", "Steady state:\n  QPS: 86.57\nQPS: 96.57"),
        ("QPS: 86.57", "QPS: 96.57\nQPS: 86.57"),
        ("QPS: 86.57\n", ""),
        ("  Min: ", "Minimum of the window:\n  Min: "),
        ("\n  Percentiles:\n", "\n  Percentiles:\n    99.0: 1.00 ms\n"),
    ],
)
def test_a_change_beside_an_unknown_section_is_found(before: str, after: str, copy_of: CopyOf) -> None:
    folder = copy_of("concurrency")
    text = (folder / REPORT).read_text()
    assert before in text
    (folder / REPORT).write_text(text.replace(before, after, 1))
    assert {contradiction.rule for contradiction in judge_folder(folder).contradictions} == {"endpoints-report"}


@pytest.mark.parametrize(
    ("failed", "severity"),
    [(slice(0, 1), "warning"), (slice(0, 4), "warning"), (slice(0, 30), "error"), (slice(-5, None), "error")],
)
def test_a_server_that_died_fails_the_folder(failed: slice, severity: str, copy_of: CopyOf) -> None:
    def edit(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        ended = set(places(lines, "sample.complete")[failed])
        changed = []
        for place, line in enumerate(lines):
            if place in ended:
                changed.append(line | {"event_type": "error.generic", "data": None, "finish_reason": None})
            changed.append(line | {"data": None, "finish_reason": None} if place in ended else line)
        return changed

    in_events(edit)(folder := copy_of("concurrency"))
    (finding,) = [finding for finding in judge_folder(folder).findings if finding.rule == "endpoints-failed"]
    assert finding.severity == severity


def test_a_dead_server_needs_no_official_rules(recorded: Path) -> None:
    verdict = judge_folder(recorded / "server-died")
    assert (verdict.outcome, verdict.exit_code()) == ("FAIL", ExitCode.NEGATIVE)
