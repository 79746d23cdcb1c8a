"""The file of a curve: all mistakes together, seed sets and cohorts."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from compliance.mlperf_endpoints.cohorts import parse_cohort
from runs.errors import InputError
from scenarios.curve.client_config import ClientForm, PlannedLoad, client_config, point_settings
from scenarios.curve.curve_config import CurveConfig, checks_by, load_curve
from tests.scenarios.curve.conftest import ROWS, CurveFiles

FORM = ClientForm("since 25 August 2026", None)
SEEDS = {"scheduler_rng_seed": 11, "sample_index_rng_seed": 12, "model_seed": 13}


def loaded(files: CurveFiles, *, is_rehearsal: bool = True, **changes: Any) -> CurveConfig:
    return load_curve(files.write(**changes), files.output, is_rehearsal=is_rehearsal)


def refused(files: CurveFiles, *, is_rehearsal: bool = True, **changes: Any) -> str:
    with pytest.raises(InputError) as error:
        loaded(files, is_rehearsal=is_rehearsal, **changes)
    return str(error.value)


def test_the_rows_of_the_dataset_are_counted(curve_files: CurveFiles) -> None:
    assert loaded(curve_files).rows == ROWS
    assert loaded(curve_files, rows=7).rows == 7


@pytest.mark.parametrize(
    "changes",
    [
        {"client": "no-such-program"}, {"server": "ftp://host"}, {"unknown": 1}, {"points": 6}, {"c_max": 30},
        {"c_min": 33}, {"datasets": [{"path": "prompts.jsonl"}]}, {"datasets": [{"path": "x.jsonl"}] * 2},
        {"shared_src": "nowhere"}, {"system": "nowhere.json"}, {"division": "Standardized"}, {"disclosures": {}},
        {"concurrencies": [32, 40]}, {"concurrencies": list(range(32, 40)), "c_max": 40}, {"accelerators": None},
        {"points": 33}, {"points": 7, "offline": "dedicated"}, {"concurrencies": list(range(32, 65))},
        {"concurrencies": list(range(32, 64)), "offline": "dedicated"}, {"concurrencies": [0, *range(32, 40)]},
        {"max_concurrency": 32}, {"seed_set": "Z"}, {"target_cohort": "soon"}, {"c_max": 99, "offline": "dedicated"},
        {"c_max": 40_000},
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_key_is_refused(curve_files: CurveFiles, changes: dict[str, Any]) -> None:
    assert str(curve_files.root) in refused(curve_files, **changes)


def test_all_mistakes_are_reported_together(curve_files: CurveFiles) -> None:
    text = refused(curve_files, client="no-such-program", seed_set="Z", shared_docs="nowhere")
    assert all(word in text for word in ("no-such-program", "seed_set Z: unknown to this version", "nowhere"))


def test_a_model_outside_the_round_needs_a_rehearsal(curve_files: CurveFiles) -> None:
    assert "not a model of the round" in refused(curve_files, is_rehearsal=False)


@pytest.mark.parametrize(
    ("day", "cohort", "bound", "words"),
    [
        (date(2026, 10, 5), "2026-12-C0", False, ""),
        (date(2026, 12, 1), "2026-12-C0", False, ""),
        (date(2026, 11, 20), "2026-11-C1", False, "write target_cohort: 2026-12-C0"),
        (date(2026, 11, 20), "2026-12-C1", False, "set A can be adopted until cohort 2026-12-C0"),
        (date(2026, 11, 20), "2026-12-C1", True, ""),
        (date(2026, 12, 2), "2026-12-C0", False, "repeat all points with a newer seed set"),
    ],
)  # fmt: skip
def test_the_cohort_must_be_open_and_allow_the_seed_set(
    curve_files: CurveFiles, monkeypatch: pytest.MonkeyPatch, day: date, cohort: str, bound: bool, words: str
) -> None:
    monkeypatch.setattr("scenarios.curve.curve_config.today", lambda: day)
    changes = {"model": "Llama-3.1-8B-Instruct", "target_cohort": cohort, "bound": bound}
    if words:
        assert words in refused(curve_files, is_rehearsal=False, **changes)
    else:
        assert loaded(curve_files, is_rehearsal=False, **changes).benchmark == "llama3_1-8b"


def test_checks_pass_one_business_day_before_the_cohort() -> None:
    cohort = parse_cohort("2026-12-C0")
    assert cohort is not None
    assert checks_by(cohort, {}) == date(2026, 12, 1)
    assert checks_by(cohort, {"2026-12-C0": date(2026, 12, 7)}) == date(2026, 12, 4)


def test_seeds_that_contradict_a_published_set_of_the_name_are_refused(curve_files: CurveFiles) -> None:
    path = curve_files.root / "seedset.yaml"
    path.write_text(yaml.safe_dump({"seed_sets": [{"id": "A"} | SEEDS]}))
    assert "differ from the published set" in refused(curve_files, seed_sets="seedset.yaml")


def test_a_downloaded_seed_set_is_used(curve_files: CurveFiles) -> None:
    path = curve_files.root / "seedset.yaml"
    path.write_text(yaml.safe_dump({"seed_sets": [{"id": "B"} | SEEDS]}))
    curve = loaded(curve_files, seed_sets="seedset.yaml", seed_set="B")
    config = client_config(curve, ClientForm("until August 2026", 13), PlannedLoad(40, 48, accuracy=True), Path("out"))
    assert config["model_params"]["seed"] == 13
    assert config["settings"]["runtime"] == {
        "min_duration_ms": 0, "n_samples_to_issue": 48, "scheduler_random_seed": 11, "dataloader_random_seed": 12
    }  # fmt: skip
    assert [dataset["type"] for dataset in config["datasets"]] == ["performance", "accuracy"]


def test_the_number_of_samples_is_no_setting_of_a_point(curve_files: CurveFiles) -> None:
    curve = loaded(curve_files)
    short, longer, higher = (
        point_settings(client_config(curve, FORM, load, Path("out")))
        for load in (PlannedLoad(40, 48), PlannedLoad(40, 96), PlannedLoad(41, 48))
    )
    assert short == longer != higher


def test_a_dedicated_offline_run_does_not_stream(curve_files: CurveFiles) -> None:
    load = PlannedLoad(ROWS, ROWS, is_offline=True)
    config = client_config(loaded(curve_files), FORM, load, Path("out"))
    assert (config["type"], config["model_params"]["streaming"]) == ("offline", "off")
    assert config["settings"]["load_pattern"] == {"type": "max_throughput"}
