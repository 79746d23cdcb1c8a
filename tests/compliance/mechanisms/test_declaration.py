"""What a run declares: its fields, where they come from, the registries and the validation record."""

import json
from pathlib import Path
from typing import Any

import pytest

from compliance.mechanisms.declaration import (
    FIELD_NAMES,
    DeclaredFields,
    declare,
    from_environment,
    read_declaration_file,
    validate,
)
from compliance.mechanisms.technique_registry import QUALITY_FILE, REGISTRY_DIR, load_registries
from runs.errors import InputError
from tests.support.mechanism_rows import eagle3, fp8, row

REGISTRIES = load_registries()

VARIANTS = [
    ("baseline", "none", None, None),
    ("kv_quantization", "fp8_e4m3", "fp8_e4m3", "kv_cache"),
    ("kv_quantization", "turboquant_class", "turboquant_class", "kv_cache"),
    ("kv_compression", "kvtc_class", "kvtc_class", "kv_cache"),
    ("compressed_attention", "triattention_class", "triattention_class", "attention"),
    ("speculative_decoding", "mtp", None, None),
    ("speculative_decoding", "eagle3", None, None),
    ("speculative_decoding", "medusa", None, None),
    ("speculative_decoding", "dflash", None, None),
]


def test_registries_hold_exactly_what_was_agreed() -> None:
    found = [
        (entry.mechanism, entry.mechanism_variant, entry.compression_method, entry.compression_scope)
        for entry in REGISTRIES.variants.values()
    ]
    assert found[: len(VARIANTS)] == VARIANTS
    assert {mechanism for mechanism, *_ in found[len(VARIANTS) :]} == {"weight_quantization"}
    ours = {"weight_quantization"}
    assert set(REGISTRIES.compression) - ours == {"kv_quantization", "kv_compression", "compressed_attention"}
    assert REGISTRIES.speculative == ("speculative_decoding",)
    core = json.loads((REGISTRY_DIR / QUALITY_FILE).read_text())["eval_harnesses"]
    assert [entry["quality_eval_id"] for entry in core] == ["ruler_v1", "longbench_v2", "humaneval", "math_500"]
    assert REGISTRIES.quality_evals[4:] == ("mlperf_cnndm_rouge", "mlperf_orca_rouge")


def test_fields_are_fourteen_and_the_environment_sets_each() -> None:
    numbers = [name for name in FIELD_NAMES if not str(DeclaredFields.model_fields[name].annotation).startswith("str")]
    assert (len(FIELD_NAMES), len(numbers)) == (14, 5)
    environment = {name.upper(): "1" for name in FIELD_NAMES}
    declared = declare(from_environment({**environment, "SUPPORT_STATUS": "supported", "MECHANISM": "x"}))
    assert declared.values == {name: 1 if name in numbers else "1" for name in FIELD_NAMES} | {"mechanism": "x"}
    assert (declared.issues, declared.support_status) == ((), "reviewed_preview")


def test_command_line_wins_over_environment_wins_over_file() -> None:
    declared = declare(
        {"mechanism": "a", "mechanism_variant": None},
        {"mechanism": "b", "mechanism_variant": "b"},
        {"mechanism": "c", "mechanism_variant": "c", "mechanism_notes": "c"},
    )
    assert [declared.values[name] for name in ("mechanism", "mechanism_variant", "mechanism_notes")] == ["a", "b", "c"]


def test_nothing_declared_is_a_baseline() -> None:
    declared = declare({}, {"mechanism": "  "})
    assert declared.values == {"mechanism": "baseline", **dict.fromkeys(FIELD_NAMES[1:])}


@pytest.mark.parametrize(
    ("name", "value", "taken", "told"),
    [
        ("compression_ratio", "2.5", 2.5, False),
        ("compression_ratio", "two", None, True),
        ("compression_ratio", "nan", None, True),
        ("compression_ratio", True, None, True),
        ("compression_overhead_ms", "inf", None, True),
        ("decompression_overhead_ms", "-1", None, True),
        ("speculative_acceptance_rate", "1.5", None, True),
        ("speculative_acceptance_rate", "1", 1.0, False),
        ("speculative_wasted_tokens", "1e3", 1000, False),
        ("speculative_wasted_tokens", "12.7", 12, True),
        ("speculative_wasted_tokens", "", None, False),
        ("speculative_wasted_tokens", "10" * 400, None, True),
        ("speculative_wasted_tokens", "1e30", None, True),
        ("mechanism_notes", 7, "7", True),
        ("mechanism", "\udcff", "\\udcff", True),
        ("support_status", "gold", None, True),
    ],
)
def test_coercion(name: str, value: Any, taken: Any, told: bool) -> None:
    declared = declare({name: value})
    assert declared.given.get(name) == taken
    assert [issue.split()[0] for issue in declared.issues] == ([name] if told else [])


@pytest.mark.parametrize("text", ["mechanism: [", "just text", "mechanisms: baseline", "support_status: gold"])
def test_a_bad_declaration_file_is_an_input_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "declaration.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=str(path)):
        read_declaration_file(path)


@pytest.mark.parametrize(
    ("given_row", "registered", "quality", "known", "issues"),
    [
        (row(), True, None, None, 0),
        (fp8(quality_eval_id="ruler_v1", quality_eval_status="pending"), True, True, True, 0),
        (row("kv_quantization"), False, None, None, 1),
        (row("kv_quantization", mechanism_variant="fp4"), False, None, None, 1),
        (fp8(quality_eval_id="mine", quality_eval_status="done"), True, False, False, 2),
        (eagle3(), True, None, None, 2),
        (eagle3(draft_model_id="draft"), True, None, None, 1),
        (fp8(compression_scope="weights"), True, None, None, 1),
    ],
)
def test_validation_record(
    given_row: dict[str, Any], registered: bool, quality: bool | None, known: bool | None, issues: int
) -> None:
    record = validate(given_row, REGISTRIES)
    assert record["mechanism_eval_registered"] is registered
    assert record["quality_eval_registered"] is quality
    assert record["quality_eval_status_known"] is known
    assert len(record["issues"]) == issues
