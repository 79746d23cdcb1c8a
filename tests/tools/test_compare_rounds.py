"""Records of a round: rules and results that differ, and the resources of a run of `check`."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.trees import clean_trees as trees
from tools.compare_rounds import main


def finding(rule: str, scenario: str) -> dict[str, Any]:
    place = {"division": "closed", "organisation": "Org", "system": "box", "benchmark": "b", "scenario": scenario}
    return {"rule": rule, "severity": "error", **place}


def write_record(path: Path, *findings: dict[str, Any], not_judged: tuple[str, ...] = ()) -> Path:
    missing = {"what": "without input", "why": "user.conf", "rules": list(not_judged), "results": ["closed/Org"]}
    record = {
        "findings": list(findings), "not_judged": [missing], "rules": ["one", "other"], "scenarios": ["closed/Org"],
        "verdict": "FAIL", "exit_code": 1, "errors": len(findings), "warnings": 0,
    }  # fmt: skip
    path.write_text(json.dumps(record))
    return path


def test_a_difference_names_rule_and_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = write_record(tmp_path / "before.json", finding("one", "Offline"), finding("one", "Server"))
    after = write_record(tmp_path / "after.json", finding("one", "Server"), not_judged=("other",))
    assert main(["compare", str(before), str(before)]) == 0
    assert capsys.readouterr().out == "the same 2 findings in 1 results\n"
    assert main(["compare", str(before), str(after)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["one: 2 → 1", "  - error, closed/Org/box/b/Offline"]
    assert lines[2] == "not judged: + in 1 results: other"
    assert "errors: 2 → 1" in lines


def test_a_tree_is_checked_and_measured(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    assert main(["record", "v6.1", str(trees.short_tree()[0].root), str(file)]) == 1  # its runs are short
    assert main(["compare", str(file), str(file)]) == 0
    usage = json.loads((tmp_path / "record.json.usage.json").read_bytes())
    assert usage["processor_s"] > 0
    assert usage["max_rss_mib"] > 10
