"""The options of audits: those that a module declares are options of the command line and of files."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import click
import pytest

from compliance.audits.discovery import AUDITS
from compliance.audits.options import AuditOptions
from runs.errors import InputError
from scenarios.audit.audit_config import all_options, audit_options, load_audit
from scenarios.campaign.campaign_config import load_campaign
from scenarios.command_line.schema_options import options_of
from tests.conftest import run_here


def test_options_of_one_name_have_one_type() -> None:
    """The command line reads an option before it knows the audit."""
    kinds = defaultdict(set)
    for test in AUDITS.values():
        for option in options_of(test.options, AuditOptions.model_fields):
            assert isinstance(option, click.Option)
            kinds[option.name].add((option.is_flag, option.multiple))
    assert all(len(kind) == 1 for kind in kinds.values()), kinds
    assert all_options().own().keys() == kinds.keys()


def test_help_names_the_audits_that_take_an_option() -> None:
    shown = " ".join(run_here("audit", "--help-all").stdout.split())
    assert "--samples N output_caching: Number of unique samples" in shown
    assert "output_consistency, output_length: Number of samples of the performance run." in shown


@pytest.mark.parametrize(
    ("values", "message", "fix"),
    [
        (
            {"test": "TEST06", "threshold": 0.2},
            "--threshold 0.2: not an option of TEST06",
            "remove --threshold; TEST06 has no options",
        ),
        (
            {"test": "output_length", "sample_index": "3"},
            "--sample-index 3: not an option of output_length",
            "remove --sample-index; output_length has --samples, --threshold",
        ),
        (
            {"test": "output_caching", "treshold": 0.2},
            "--treshold: ",
            "write threshold",
        ),
        ({"test": "output_length", "threshold": "1.5"}, "--threshold 1.5: must be between 0 and 1", "--threshold 0.1"),
        (
            {"test": "output_caching", "sample_index": "3,x"},
            "--sample-index 3,x: ",
            "--sample-index 1",
        ),
        ({"test": "output_caching", "sample_index": [3, 3]}, "must not contain a sample twice", "--sample-index 1"),
        ({"samples": 3}, "--test: missing", "TEST04"),
        ({"test": ["TEST06"]}, "unknown audit", "TEST04"),
    ],
)
def test_an_option_unknown_to_the_audit_is_refused(values: dict[str, Any], message: str, fix: str) -> None:
    with pytest.raises(InputError) as error:
        audit_options(values)
    assert message in error.value.message
    assert fix in error.value.fix


def test_an_unknown_option_in_a_file_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "audit.yaml"
    file.write_text("scenario: Offline\naudit:\n  test: TEST04\n  sample-index: [3, 5]\n")
    with pytest.raises(InputError) as error:
        load_audit(file, {}, {})
    assert error.value.message == f"{file}:4: sample_index: [3, 5]: not an option of TEST04"
    assert error.value.fix == "remove sample_index; TEST04 has no options"


def test_each_audit_of_a_campaign_has_its_own_options(tmp_path: Path) -> None:
    file = tmp_path / "campaign.yaml"
    file.write_text(
        "benchmark: llama3.1-8b-edge\ndivision: open\nengine: dummy\nscenarios: [Offline]\naudits:\n"
        "- test: output_caching\n  sample-index: 3,5\n- test: output_length\n  threshold: 0.2\n- TEST06\n"
    )
    audits = [run.audit for run in load_campaign(file, {}).runs if run.audit is not None]
    assert [type(audit) for audit in audits] == [AUDITS[audit.test].options for audit in audits]
    assert [audit.model_dump(exclude_unset=True) for audit in audits] == [
        {"test": "output_caching", "sample_index": (3, 5)},
        {"test": "output_length", "threshold": 0.2},
        {"test": "TEST06"},
    ]
    file.write_text(file.read_text().replace("threshold", "audit_samples"))
    with pytest.raises(InputError, match=f"{file}:9: audit_samples: 0.2: not an option of output_length"):
        load_campaign(file, {})
