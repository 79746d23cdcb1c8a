"""Addresses, keys and certificates of servers."""

from pathlib import Path

import pytest

from runs.errors import InputError, SetupError
from sut.http.address import Access, ServerAddress, addresses
from sut.http.declaration import read_declaration
from tests.support.official import DATACENTER


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://localhost:8000", "http://localhost:8000"),
        ("http://localhost:8000/v1/", "http://localhost:8000"),
        ("https://llm.example.org/eu/v1", "https://llm.example.org:443/eu"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_addresses_are_normalized(text: str, url: str) -> None:
    assert ServerAddress.parse(text).url == url


def test_a_password_in_an_address_is_refused_without_repeating_it() -> None:
    with pytest.raises(InputError) as refused:
        ServerAddress.parse("http://me:secret@host:8000")
    assert "secret" not in str(refused.value)


def test_a_server_named_twice_is_refused() -> None:
    assert len(addresses("http://a:1, http://b:1")) == 2
    with pytest.raises(InputError, match="twice"):
        addresses("http://a:1,http://a:1/v1")


@pytest.mark.parametrize("key", ["", "two words", "line\nend", "schlüssel"])
def test_an_invalid_key_is_refused_without_repeating_it(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVER_KEY", key)
    with pytest.raises(InputError, match="SERVER_KEY") as refused:
        Access.from_environment("SERVER_KEY")
    assert not key or key not in str(refused.value)


def test_complete_and_truncated_keys_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVER_KEY", "sk-0123456789")
    access = Access.from_environment("SERVER_KEY")
    assert access.hidden("bad key sk-0123456789!") == "bad key [key]!"
    assert access.hidden("bad key sk-0123456") == "bad key [key]"
    assert access.hidden("status 401: task-s") == "status 401: task-s"
    assert Access().hidden("sk-0123456789") == "sk-0123456789"


def test_local_and_remote_addresses_are_distinguished() -> None:
    for host in ("127.0.0.1", "127.8.0.1", "[::1]", "localhost"):
        assert ServerAddress.parse(f"http://{host}:8000").is_here(), host
    for host in ("192.0.2.1", "no-such-host.invalid"):  # a documentation address, to which nothing is sent
        assert not ServerAddress.parse(f"http://{host}:8000").is_here(), host


def test_an_invalid_certificate_authority_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text("no certificate")
    with pytest.raises(SetupError, match="--api-ca"):
        Access(ca_file=path).tls_context(ServerAddress.parse("https://localhost:1"))


def test_the_example_declaration_is_eligible(tmp_path: Path) -> None:
    declared = read_declaration(Path("configs/endpoint-declaration.yaml"))
    assert declared.unofficial_reasons(DATACENTER.model) == []
    text = Path("configs/endpoint-declaration.yaml").read_text()
    path = tmp_path / "declared.yaml"
    path.write_text(text.replace("enable_prefix_caching: false", "enable_prefix_caching: true"))
    assert "prefix caching" in read_declaration(path).unofficial_reasons(DATACENTER.model)[0]


@pytest.mark.parametrize("content", ["", "dtype: 3", "[1]", "dtype: a\nunknown: 1", "a: [", "\x00"])
def test_an_incomplete_or_unknown_declaration_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "declared.yaml"
    path.write_text(content)
    with pytest.raises(InputError, match=r"declared\.yaml"):
        read_declaration(path)
    with pytest.raises(InputError, match="--api-declaration"):
        read_declaration(tmp_path / "missing.yaml")
