"""A record that somebody damaged is a state to be shown, never a traceback."""

from pathlib import Path

import pytest

import main

TUNE = '{"scenario": "Server", "target_qps": null, "probes": [], "confirmations": []}'
RECORDS = {
    "tune.json": [
        *("{}", "[]", "{", TUNE.replace("[]", "5", 1), TUNE.replace("[]", '[{"number": 1}]', 1)),
        *(TUNE.replace("null", '"5"'), TUNE.replace('"Server"', "5")),
    ],
    "campaign.json": [
        *("{}", '{"legs": 5}', '{"legs": [5]}', '{"legs": [{"directory": 5}]}'),
        '{"legs": [{"directory": "a\\u0000b"}]}',
    ],
}


@pytest.mark.parametrize(("name", "content"), [(name, content) for name, all_ in RECORDS.items() for content in all_])
def test_it_is_told(name: str, content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / name).write_text(content)
    assert main.main(["status", str(tmp_path)]) == 2
    assert f"{name}" in capsys.readouterr().out
    assert main.main(["report", str(tmp_path)]) == 2
    assert "error: " in capsys.readouterr().err


def test_a_damaged_journal_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tune.lock").write_text("")
    (tmp_path / "journal.jsonl").write_text('{"step": "probe", "verdict": "VALID"}\n')
    assert main.main(["status", str(tmp_path)]) == 2
    assert "journal.jsonl:1" in capsys.readouterr().out
