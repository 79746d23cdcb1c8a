"""Which reference scores apply to an accuracy leg."""

from dataclasses import replace
from pathlib import Path

import pytest

from compliance.accuracy import accuracy_verdict
from qsl.embedded.articles import Baseline
from qsl.model_files import ModelFacts
from runs.benchmarks import BENCHMARKS
from runs.files import sha256_of
from scenarios.leg.config import make_config
from scenarios.leg.plan import PreparedLeg, prepare
from scenarios.leg.run_record import target_for


@pytest.fixture
def leg() -> PreparedLeg:
    return prepare(make_config({"scenario": "Offline", "engine": "dummy", "accuracy": True}), lambda text: None)


@pytest.fixture
def model(tmp_path: Path) -> ModelFacts:
    """The embedded model as far as scoring looks at it."""
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    return ModelFacts("small", tmp_path, None, 300, 200, "LlamaForCausalLM", {})


@pytest.fixture
def baseline(model: ModelFacts, monkeypatch: pytest.MonkeyPatch) -> Baseline:
    """Recorded scores of that model."""
    digest = sha256_of(model.folder / "model.safetensors")
    baseline = Baseline(30.0, 10.0, 20.0, 25.0, 9_000, 64, "small", digest, "", "", {})
    monkeypatch.setattr(accuracy_verdict, "bundled_baseline", lambda: baseline)
    return baseline


def test_the_benchmarks_data_set_has_the_official_target(leg: PreparedLeg) -> None:
    for key, benchmark in BENCHMARKS.items():
        plan = leg.plan.model_copy(update={"sample_count": benchmark.accuracy_samples, "loadgen_key": key})
        found, label = target_for(replace(leg, plan=plan, benchmark=benchmark, bundled=False))
        assert found is benchmark.targets
        assert benchmark.submission_name in label


def test_part_of_a_data_set_has_none(leg: PreparedLeg) -> None:
    plan = leg.plan.model_copy(update={"sample_count": 13_367})
    found, label = target_for(replace(leg, plan=plan, bundled=False))
    assert found is None
    assert "13,367 samples" in label


def test_the_embedded_model_has_its_baseline(leg: PreparedLeg, model: ModelFacts, baseline: Baseline) -> None:
    found, label = target_for(replace(leg, model=model))
    assert found is not None
    assert tuple(found[name].reference for name in ("rouge1", "gen_len", "gen_num")) == (30.0, 9_000, 64)
    assert "baseline" in label


def test_anything_else_on_the_bundled_articles_has_none(
    leg: PreparedLeg, model: ModelFacts, baseline: Baseline, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert target_for(replace(leg, model=None))[0] is None
    part = leg.plan.model_copy(update={"sample_count": 63})
    assert target_for(replace(leg, model=model, plan=part))[0] is None
    (model.folder / "model.safetensors").write_bytes(b"other weights")
    assert target_for(replace(leg, model=model))[0] is None
    monkeypatch.setattr(accuracy_verdict, "bundled_baseline", lambda: None)
    assert target_for(replace(leg, model=model))[0] is None
