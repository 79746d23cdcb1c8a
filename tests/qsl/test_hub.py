"""Without the hub: said at once, with exit code 3, and what lies in the cache is used all the same."""

import http.server
import threading

import pytest

from qsl.hub import from_hub, need_hub
from qsl.model_files import model_facts
from qsl.tokenizers import load_tokenizer
from runs.errors import SetupError
from scripts.prepare_dataset import main

NOWHERE = "http://127.0.0.1:9"  # the discard port: nobody listens


def test_offline_is_said_before_anything_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(SetupError, match="HF_HUB_OFFLINE is set"):
        need_hub("a model")


def test_a_hub_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", NOWHERE)
    for look in (model_facts, load_tokenizer):
        with pytest.raises(SetupError, match=r"127\.0\.0\.1:9 cannot be reached"):
            look("nobody/nothing")
    assert from_hub("a model", lambda local: local)  # what the cache has


def test_a_hub_that_answers_no_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:  # knows no HEAD: 501
        threading.Thread(target=server.handle_request, daemon=True).start()
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        assert from_hub("a model", lambda local: local) is False


def test_the_program_ends_with_3(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert main(["--source", "hub", "--output", "/tmp/never.json", "--model-path", "nobody/nothing"]) == 3
    errors = capsys.readouterr().err
    assert errors.startswith("error: ")
    assert "fix: " in errors
