"""The dated tables of the round: cohorts, seed sets from a downloaded file, and the age of each table."""

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from compliance.judge.record import record
from compliance.judge.text import text
from compliance.mlperf_endpoints.cohorts import cohorts_since, parse_cohort, window
from compliance.mlperf_endpoints.endpoints_evidence import EndpointsEvidence
from compliance.mlperf_endpoints.round_tables import SEED_SETS_VARIABLE, RoundTables, judge_tables, round_tables
from compliance.mlperf_endpoints.verdict import RUN
from compliance.submission.build_points import point_of
from main import main as run_command
from runs.errors import ExitCode, InputError
from runs.mlperf_endpoints.folder import EndpointsRun
from tests.support.mlperf_endpoints.folder_changes import in_config
from tests.support.mlperf_endpoints.table_day import fix_day
from tests.support.mlperf_endpoints.verdicts import judge_folder

CopyOf = Callable[[str], Path]
RUNTIME = "settings/runtime"
B = {"scheduler_rng_seed": 2**63 + 11, "sample_index_rng_seed": 12, "model_seed": 13}


def seed_file(folder: Path, cohort: str | None = "2026-11-C1", **sets: dict[str, Any]) -> Path:
    """A seedset.yaml as MLCommons publishes it."""
    content = {"seed_sets": [{"id": name} | seeds for name, seeds in (sets or {"B": B}).items()]}
    path = folder / "seedset.yaml"
    path.write_text(yaml.safe_dump({"cohort": {"version": 1.0, "cohort-id": cohort} | content} if cohort else content))
    return path


@pytest.mark.parametrize(
    ("cohort", "day"),
    [
        ("2026-10-C0", date(2026, 10, 7)), ("2026-10-C1", date(2026, 10, 21)), ("2026-12-C0", date(2026, 12, 2)),
        ("2026-12-C1", date(2026, 12, 16)), ("2027-01-C0", date(2027, 1, 6)), ("2027-09-C0", date(2027, 9, 1)),
    ],
)  # fmt: skip
def test_a_cohort_is_published_on_the_first_or_third_wednesday(cohort: str, day: date) -> None:
    parsed = parse_cohort(cohort)
    assert parsed is not None
    assert (str(parsed), parsed.day()) == (cohort, day)


def test_the_day_of_a_cohort_may_be_an_exception() -> None:
    first = parse_cohort("2026-12-C0")
    assert first is not None
    assert first.day({"2026-12-C0": date(2026, 12, 9)}) == date(2026, 12, 9)
    assert list(cohorts_since(date(2026, 11, 28), date(2026, 12, 8), {"2026-12-C0": date(2026, 12, 9)})) == []


@pytest.mark.parametrize("text", ["2026-13-C0", "2026-00-C1", "2026-12-C2", "2026-12", "", None, 2026])
def test_other_texts_are_no_cohort(text: object) -> None:
    assert parse_cohort(text) is None


def test_set_a_ends_with_the_first_cohort_of_december() -> None:
    (published,) = round_tables().seed_sets
    assert published.name == "A"
    assert [str(cohort) for cohort in published.cohorts] == ["2026-10-C1", "2026-11-C0", "2026-11-C1", "2026-12-C0"]
    january = parse_cohort("2026-12-C1")
    assert january is not None
    assert [str(cohort) for cohort in window(january, 2)] == ["2026-12-C1", "2027-01-C0"]


def test_every_table_states_its_origin() -> None:
    for table in round_tables().record():
        assert table["source"]
        assert table["commit"]
        assert date.fromisoformat(table["as_of"]) <= date(2026, 11, 28)


@pytest.mark.parametrize(
    ("day", "severity", "due"),
    [
        (date(2026, 10, 5), "pass", ""),
        (date(2026, 10, 20), "pass", ""),
        (date(2026, 10, 21), "warning", ""),
        (date(2026, 11, 17), "warning", ""),
        (date(2026, 11, 28), "warning", "18 November 2026"),
        (date(2026, 12, 16), "warning", "16 December 2026"),
    ],
)
def test_the_age_of_the_tables_is_stated(day: date, severity: str, due: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fix_day(monkeypatch, day)
    tables = round_tables()
    (finding,) = judge_tables(tables)
    assert finding.severity == severity
    text = "\n".join(tables.lines())
    assert "as of 2 October 2026" in text
    assert ("a newer set was due" in text) == bool(due)
    assert due in text


def test_an_age_is_a_warning_that_counts_for_official_rules_only(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fix_day(monkeypatch, date(2026, 11, 28))
    verdict = judge_folder(recorded / "concurrency")
    assert verdict.outcome == "PASS"
    assert "  warning endpoints-tables: " in text(verdict, RUN)
    assert "a newer set was due on 18 November 2026" in text(verdict, RUN)
    assert record(verdict)["tables"][0]["cohorts_since"] == 4


def of_set(seeds: dict[str, int]) -> dict[str, int]:
    """Seeds by their names in config.yaml."""
    return {
        "scheduler_random_seed": seeds["scheduler_rng_seed"],
        "dataloader_random_seed": seeds["sample_index_rng_seed"],
    }


def test_a_set_of_a_downloaded_file_is_known(copy_of: CopyOf, tmp_path: Path) -> None:
    in_config(RUNTIME, lambda old: old | of_set(B))(folder := copy_of("concurrency"))
    seeds = [finding for finding in judge_folder(folder).findings if finding.rule == "endpoints-rule-seeds"]
    assert seeds == []
    path = seed_file(tmp_path)
    verdict = judge_folder(folder, seed_file=path)
    assert [finding.severity for finding in verdict.findings if finding.rule == "endpoints-rule-seeds"] == ["pass"]
    tables = round_tables(path)
    assert [seed_set.name for seed_set in tables.seed_sets] == ["B", "A"]
    assert point_of(EndpointsEvidence(EndpointsRun(folder), tables=tables))["seed_set"] == "B"
    assert run_command(["verify", str(folder), "--seed-sets", str(path)]) == ExitCode.FAILED  # another order


def test_an_unknown_set_is_not_judged(copy_of: CopyOf) -> None:
    in_config(RUNTIME, lambda old: old | of_set(B))(folder := copy_of("concurrency"))
    shown = text(judge_folder(folder, official=True), RUN)
    assert "  not judged: endpoints-rule-seeds: the seed set is unknown to this version: " in shown
    assert "endpoints-rule-seeds: random seeds" not in shown


def test_the_variable_of_the_official_program_names_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEED_SETS_VARIABLE, str(seed_file(tmp_path)))
    tables = round_tables()
    assert tables.seed_sets[0].name == "B"
    fix_day(monkeypatch, date(2026, 11, 28))
    assert "newer set was due" not in "\n".join(tables.lines())


def test_cohorts_of_a_set_replace_those_of_its_publication(tmp_path: Path) -> None:
    path = seed_file(tmp_path, C=B | {"cohorts": ["2026-12-C0"]})
    assert [str(cohort) for cohort in round_tables(path).seed_sets[0].cohorts] == ["2026-12-C0"]
    assert round_tables(seed_file(tmp_path, None)).seed_sets[0].cohorts == ()


@pytest.mark.parametrize(
    "content",
    [
        "", "[]", "cohort: {}", "seed_sets: []", "seed_sets: [1]", "seed_sets: [{id: B}]",
        "seed_sets: [{id: B, scheduler_rng_seed: 1, sample_index_rng_seed: '2', model_seed: 3}]",
        "cohort: {cohort-id: 2026-13-C0, seed_sets: [{id: B}]}",
    ],
)  # fmt: skip
def test_another_file_is_refused(content: str, tmp_path: Path, recorded: Path) -> None:
    (path := tmp_path / "seedset.yaml").write_text(content)
    with pytest.raises(InputError, match="--seed-sets"):
        round_tables(path)
    assert run_command(["verify", str(recorded / "offline"), "--seed-sets", str(path)]) == ExitCode.BAD_INPUT


def test_a_missing_file_is_refused(tmp_path: Path, recorded: Path) -> None:
    missing = str(tmp_path / "seedset.yaml")
    for command in ("verify", "check"):
        assert run_command([command, str(recorded / "offline"), "--seed-sets", missing]) == ExitCode.BAD_INPUT


def test_tables_are_read_once() -> None:
    assert isinstance(round_tables(), RoundTables)
    assert round_tables() is round_tables()
