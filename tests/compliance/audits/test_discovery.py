"""The search for audits in the modules of the package."""

import sys
from pathlib import Path

import pytest

from compliance.audits import catalog
from compliance.audits.discovery import AUDITS, declared

MODULE = """
from compliance.audits.base import AuditTest
from compliance.audits.catalog.test04 import OfficialTest04

class Family(AuditTest):
    def runs(self, request): return []

class One(Family):
    name = "one"
    def verify(self, request, runs): ...

class Two(Family):
    name = "two"
    def verify(self, request, runs): ...
"""


def test_each_audit_has_a_unique_name() -> None:
    assert len(list(declared())) == len(AUDITS)


def test_multiple_audits_of_one_module_are_found_without_their_base_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "family_of_audits.py").write_text(MODULE)
    monkeypatch.setattr(catalog, "__path__", [str(tmp_path), *catalog.__path__])
    try:
        assert {test.name for test in declared()} == {"one", "two", *AUDITS}
    finally:
        sys.modules.pop("compliance.audits.catalog.family_of_audits", None)
