"""Options that change requests: headers, fields, names of parameters, statuses, redirects and the timeout."""

import dataclasses
import os
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from runs.errors import ExitCode, HarnessError, InputError, SetupError
from runs.record.engines.servers import request_reasons
from scenarios.command_line.schema_options import words_without_secrets
from scenarios.launch.run_config import load_yaml, make_config
from sut.http.address import Access, ServerAddress
from sut.http.dialects import DIALECTS
from sut.http.secret_options import body_fields, body_reference, header_reference, header_values, without_secrets
from sut.http.tokenizer import BYTES
from tests.conftest import run_here
from tests.support.servers import server_dialects
from tests.support.servers.http_server import HttpServer, ServerReply, json_reply
from tests.support.servers.text_server import reply_text, text_server
from tests.sut.http.endpoint_runs import PROMPTS, SAMPLING, SERVERS, failure_of, responses, started_engine

SECRET = "a-secret-of-the-tests"
EXACT = SAMPLING.model_copy(update={"min_tokens": 8})
Body = dict[str, Any]


@pytest.mark.parametrize("text", [f"X-Key={SECRET}", f"X-Key: {SECRET}", f"X-Key:{SECRET}", f" X-Key = {SECRET} "])
def test_a_header_is_recorded_by_its_name(text: str) -> None:
    assert header_reference(text) == "X-Key"
    assert header_reference("X-Key") == "X-Key"
    assert header_values(["X-Key"]) == {"X-Key": SECRET}


@pytest.mark.parametrize("text", ["", "=a", "X Y=a", "X-None", "X-Key=", "Host=a", "content-length: 3", "X=a\r\nY: b"])
def test_an_invalid_header_is_refused_without_its_value(text: str) -> None:
    with pytest.raises(ValueError, match=r"form|sets|value|empty") as refused:
        header_reference(f"{text}{SECRET}" if text.count("=") == 1 and text[-1] != "=" else text)
    assert SECRET not in str(refused.value)


def test_additional_fields_are_recorded_by_their_hash() -> None:
    reference = body_reference('{"b": {"c": "x"}, "a": 1}')
    assert reference.startswith("sha256:")
    assert reference == body_reference({"a": 1, "b": {"c": "x"}}) == body_reference(reference)
    assert body_fields(reference) == {"a": 1, "b": {"c": "x"}}
    assert body_fields(None) == {}


@pytest.mark.parametrize("text", ["", "{", "[1]", "3", "{}", "a=b", '{"a": NaN}', f"sha256:{'0' * 64}"])
def test_additional_fields_must_be_a_json_object(text: str) -> None:
    with pytest.raises(ValueError, match=r"not|only"):
        body_reference(text)
    with pytest.raises(InputError, match="--extra-body"):
        make_config({"scenario": "Offline", "api_server": "http://host", "extra_body": text})


def test_a_configuration_file_stores_no_secrets(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(f"scenario: Offline\nheader: {{X-Key: {SECRET}}}\nnested:\n  extra-body: {{a: {SECRET}}}\n")
    values = load_yaml(path)
    assert SECRET not in str(values)
    assert values["header"] == ["X-Key"]
    config = make_config({"scenario": "Offline", "header": f"X-Key={SECRET}", "extra_body": {"a": SECRET}})
    assert SECRET not in str(config) + str(config.model_dump(mode="json"))
    assert make_config(config.model_dump(mode="json", exclude_unset=True)) == config
    assert SECRET in os.environ.values()


@pytest.mark.parametrize(
    "words",
    [
        ["--header", f"X-Key={SECRET}"],
        [f"--header=X-Key={SECRET}"],
        ["-H", f"X-Key: {SECRET}"],
        [f"-HX-Key={SECRET}"],
        ["--headers", f"X-Key={SECRET}", "--rates", "5"],
        ["--extra-body", f'{{"a": "{SECRET}"}}'],
        [f'--extra_body={{"a": "{SECRET}"}}'],
        [f'--extra-request-body={{"a": "{SECRET}"}}'],
    ],
)
def test_a_recorded_command_has_no_secrets(words: list[str]) -> None:
    shown = words_without_secrets(["http://host", *words])
    assert SECRET not in " ".join(shown)
    assert len(shown) == 1 + len(words)
    assert words_without_secrets(shown) == shown


def test_secrets_in_texts_of_a_server_are_hidden() -> None:
    access = Access.of(
        without_secrets({"header": ["X-Key=header-secret", "X-Short=abc"], "extra_body": {"a": ["body-secret"]}})
    )
    assert access.hidden("bad header-secret and body-secret, abc") == "bad [key] and [key], abc"
    assert access.hidden("bad header-sec") == "bad [key]"
    assert "header-secret" not in repr(access)


def test_headers_and_additional_fields_make_a_run_ineligible() -> None:
    assert request_reasons({"header": [], "extra_body": None, "insecure": False}) == []
    reasons = request_reasons({"header": ["X-Key"], "extra_body": "sha256:0", "extra_fields": ["a"], "insecure": True})
    assert len(reasons) == 3
    assert "X-Key" in reasons[0]


@pytest.mark.parametrize("dialect", ["vllm", "sglang", "openai", "openai-chat"])
async def test_headers_and_fields_are_sent_with_each_request(dialect: str) -> None:
    is_text = DIALECTS[dialect].sends_text
    async with text_server(dialect) if is_text else SERVERS[dialect]() as server:
        access = Access.of({"header": [header_reference(f"X-Key={SECRET}"), header_reference("User-Agent=mine")]})
        more = {"model_path": BYTES} if is_text else {}
        fields = {"chat_template_kwargs": {"enable_thinking": False}}
        async with started_engine(server.url, dialect=dialect, access=access, extra_fields=fields, **more) as engine:
            assert (await responses(engine, PROMPTS[:1]))[0][-1][0] == "done"
        assert all(request["chat_template_kwargs"] == {"enable_thinking": False} for request in server.requests)
        assert all(f"x-key: {SECRET}\r\n".encode() in head for head in server.heads)
        assert all(head.lower().count(b"user-agent:") == 1 for head in server.heads)
        assert all(b"user-agent: mine\r\n" in head for head in server.heads)


FIELDS = [
    "model", "prompt", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "max_new_tokens",
    "n_predict", "min_tokens", "temperature", "top_p", "top_k", "seed", "ignore_eos", "n", "best_of", "stop", "echo",
    "prompt_token_ids", "input_ids", "token_ids", "sampling_params", "stop_token_ids", "return_token_ids", "request_id",
]  # fmt: skip


@pytest.mark.parametrize("name", FIELDS)
def test_fields_set_by_the_harness_are_refused(name: str) -> None:
    line = ("run", "--scenario", "Offline", "--api-server", "http://127.0.0.1:1", "--extra-body", f'{{"{name}": 1}}')
    finished = run_here(*line)
    assert finished.code == ExitCode.BAD_INPUT
    assert f"--extra-body: the harness sets the field {name}" in finished.stderr


@pytest.mark.parametrize(
    "option", ["top_k=x", "max_tokens=seed", "max_tokens=stream", "max_tokens=a b", "max_tokens=1", "top_p="]
)
def test_a_parameter_can_be_renamed_only_to_a_new_name(option: str) -> None:
    finished = run_here("run", "--scenario", "Offline", "--api-server", "http://127.0.0.1:1", "--api-rename", option)
    assert finished.code == ExitCode.BAD_INPUT
    assert "--api-rename" in finished.stderr


def _only_max_completion_tokens(words: str) -> Any:
    def make_reply(body: Body) -> ServerReply:
        if "max_tokens" in body:
            return json_reply({"error": {"message": words}}, 400)
        return reply_text({**body, "max_tokens": body["max_completion_tokens"]})

    return make_reply


@pytest.mark.parametrize(
    "words",
    [
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        "use max_completion_tokens",
        "body.max_tokens: Extra inputs are not permitted",
        "unknown field max_tokens",
    ],
)
async def test_a_server_that_refuses_max_tokens_suggests_a_rename(words: str) -> None:
    async with text_server("openai-chat", _only_max_completion_tokens(words)) as server:
        options: dict[str, Any] = {"dialect": "openai-chat", "model_path": BYTES, "sampling": EXACT}
        with pytest.raises(SetupError) as refused:
            async with started_engine(server.url, **options):
                pass
        assert "--api-rename max_tokens=max_completion_tokens" in refused.value.fix
        renamed = {"max_tokens": "max_completion_tokens"}
        async with started_engine(server.url, renamed=renamed, **options) as engine:
            assert (await responses(engine, PROMPTS[:1]))[0][-1][0] == "done"
        assert server.requests[-1]["max_completion_tokens"] == 8
        assert "max_tokens" not in server.requests[-1]


async def test_a_too_large_max_tokens_suggests_no_rename() -> None:
    words = "max_tokens is too large: 4096. This model supports at most 2048 completion tokens"
    async with text_server("openai-chat", _only_max_completion_tokens(words)) as server:
        with pytest.raises(SetupError) as refused:
            async with started_engine(server.url, dialect="openai-chat", model_path=BYTES):
                pass
    assert "--api-rename max_tokens=" not in refused.value.fix


async def _failure(reply: ServerReply, name: str = "openai-chat", **more: Any) -> HarnessError:
    honest = reply_text if DIALECTS[name].sends_text else server_dialects.vllm
    request_count = 0

    def reply_with_status(body: Body) -> ServerReply:
        nonlocal request_count
        request_count += 1
        return honest(body) if request_count <= (2 if name.startswith("openai") else 3) else reply

    path = {"model_path": BYTES} if DIALECTS[name].sends_text else {}
    server = HttpServer(DIALECTS[name].path, reply_with_status, DIALECTS[name].owner or "somebody")
    async with server, started_engine(server.url, dialect=name, connections=1, **path, **more) as engine:
        (events,) = await responses(engine, PROMPTS[:1])
        failure_of(events)
        error = events[-1][1]
        assert isinstance(error, HarnessError)
        return error


@pytest.mark.parametrize("status", [201, 202, 206, 299])
@pytest.mark.parametrize("name", ["openai", "openai-chat", "vllm"])
async def test_each_success_status_is_accepted(status: int, name: str) -> None:
    honest = reply_text if DIALECTS[name].sends_text else server_dialects.vllm
    path = {"model_path": BYTES} if DIALECTS[name].sends_text else {}
    server = HttpServer(DIALECTS[name].path, lambda body: dataclasses.replace(honest(body), status=status), "somebody")
    async with server, started_engine(server.url, dialect=name, **path) as engine:
        assert (await responses(engine, PROMPTS[:1]))[0][-1][0] == "done"


@pytest.mark.parametrize("status", [301, 302, 307, 308])
@pytest.mark.parametrize("name", ["openai-chat", "vllm"])
async def test_a_redirect_names_its_target_and_the_new_url(status: int, name: str) -> None:
    target = f"https://other.example{DIALECTS[name].path}"
    error = await _failure(ServerReply([], status, headers=(f"location: {target}",)), name)
    assert f"status {status}: the server redirects to {target}" in error.message
    assert f"--api-server https://other.example:443{DIALECTS[name].path}" in error.fix


@pytest.mark.parametrize(
    ("path", "location", "fix"),
    [
        ("/v1/models", "https://b/v1/models", "give --api-server https://b:443;"),
        ("/v1/models", "/eu/v1/models", "give --api-server http://host:80/eu;"),
        ("/v1/completions", "/eu/v1/completions", "give --api-server http://host:80/eu/v1/completions;"),
        ("/v1/models", "/v1/models/", "turn off the redirect"),
        ("/v1/completions", "ftp://b", "turn off the redirect"),
    ],
)
def test_the_url_after_a_redirect_is_proposed(path: str, location: str, fix: str) -> None:
    assert ServerAddress.parse("http://host").fix_of_redirect(path, location.encode()).startswith(fix)


@pytest.mark.parametrize("status", [400, 404, 413, 429, 500, 503])
@pytest.mark.parametrize("name", ["openai-chat", "vllm"])
async def test_a_log_is_named_only_if_it_exists(status: int, name: str) -> None:
    error = await _failure(ServerReply([b"x"], status), name)
    assert f"status {status}: x" in error.message
    assert "log" not in error.fix
    assert error.fix


async def test_a_self_signed_certificate_is_accepted_only_with_insecure(tmp_path: Path) -> None:
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout key.pem -out cert.pem -subj /CN=elsewhere"
    subprocess.run(command.split(), cwd=tmp_path, check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    async with text_server("openai", tls=context) as server:
        with pytest.raises(SetupError, match="certificate is not valid") as refused:
            async with started_engine(server.url, dialect="openai", model_path=BYTES):
                pass
        assert "--insecure" in refused.value.fix
        access = Access.of({"insecure": True})
        async with started_engine(server.url, dialect="openai", model_path=BYTES, access=access) as engine:
            assert (await responses(engine, PROMPTS[:1]))[0][-1][0] == "done"


@pytest.mark.parametrize(
    "options", [{"insecure": True, "api_ca": "ca.pem"}, {"header": ["Authorization=a"], "api_key_env": "SERVER_KEY"}]
)
def test_contradicting_options_are_refused(options: Body, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVER_KEY", "sk-1")
    with pytest.raises(InputError, match=r"contradicts|too"):
        Access.of(without_secrets(options))


async def test_a_late_response_ends_the_run_at_the_timeout() -> None:
    error = await _failure(ServerReply([b": wait\n\n", 30.0], content_type="text/event-stream"), request_timeout_s=0.5)
    assert "no complete response within 0.5 s (--request-timeout)" in error.message
