"""Anchors: a ledger keeps its entries, whoever adds others; a time stamp is valid for the named authority."""

import random
import subprocess
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from runs.attestation.anchors import (
    LEDGER_NAME,
    add_to_ledger,
    read_authorities,
    read_ledger,
    request_time_stamp,
    time_of,
)
from runs.attestation.attestation import Attestation, Predicate, read_attestation
from runs.errors import ExecutionError, InputError, SetupError
from runs.record.layout import RunDir
from tests.support.files.editing import reseal
from tests.support.files.tsa import Authority, openssl, serve_authority


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "run")
    run.root.mkdir()
    run.engine_log.write_text("a log")
    reseal(run)
    return run


def statement(number: int) -> Attestation:
    return Attestation(f"{number:064x}", "ab" * 32, {}, Predicate(record_version=3, harness_commit=None, previous=None))


# Ledgers -----------------------------------------------------------------------------------------------------------


def test_a_ledger_keeps_the_first_entry_of_an_attestation(tmp_path: Path) -> None:
    (first,) = add_to_ledger(tmp_path, {"a": statement(1)})
    assert abs(datetime.now(UTC) - first.time) < timedelta(minutes=5)
    before = (tmp_path / LEDGER_NAME).read_bytes()
    again, second = add_to_ledger(tmp_path, {"b": statement(1), "c": statement(2)})
    assert (again, second.name, second.key) == (first, "c", "ab" * 32)
    assert (tmp_path / LEDGER_NAME).read_bytes().startswith(before)
    assert read_ledger(tmp_path) == {first.digest: first, second.digest: second}


def test_concurrent_entries_are_all_kept(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: add_to_ledger(tmp_path, {f"{number}": statement(number // 2)}), range(40)))
    assert len((tmp_path / LEDGER_NAME).read_bytes().splitlines()) == len(read_ledger(tmp_path)) == 20


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"digest":', "does not end with a whole line"),
        (b"{}\n", "line 1: digest"),
        (b"no JSON\n", "line 1"),
        (
            b'{"digest": "%s", "time": "2026-01-01T00:00:00", "name": "", "key": "%s"}\n' % (b"0" * 64, b"0" * 64),
            "time",
        ),
    ],
)
def test_a_damaged_ledger_is_refused_and_unchanged(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / LEDGER_NAME).write_bytes(content)
    with pytest.raises(InputError, match=message):
        add_to_ledger(tmp_path, {"a": statement(1)})
    assert (tmp_path / LEDGER_NAME).read_bytes() == content


def test_a_path_that_is_not_a_ledger_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a directory"):
        add_to_ledger(tmp_path / "none", {"a": statement(1)})
    assert not (tmp_path / "none").exists()
    with pytest.raises(InputError, match=LEDGER_NAME):
        read_ledger(tmp_path)  # an empty directory is not a ledger
    (tmp_path / f".{LEDGER_NAME}.lock").mkdir()
    with pytest.raises(SetupError, match="cannot be written"):
        add_to_ledger(tmp_path, {"a": statement(1)})


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True).stdout


def test_ledger_lines_are_committed_to_a_git_repository(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    for name, value in (("user.name", "A reviewer"), ("user.email", "reviewer@example.org")):
        git(tmp_path, "config", name, value)
    (tmp_path / "notes").write_text("not ours")
    hook = tmp_path / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho not today >&2; exit 1\n")
    hook.chmod(0o755)
    with pytest.raises(ExecutionError, match="git does not commit: not today"):
        add_to_ledger(tmp_path, {"a": statement(1)})
    hook.unlink()
    for number in (1, 2, 2):  # lines that git refused are committed with the next lines
        add_to_ledger(tmp_path, {"a": statement(number)})
    assert len(git(tmp_path, "log", "--format=%s").splitlines()) == 2
    assert git(tmp_path, "show", f"HEAD:{LEDGER_NAME}") == (tmp_path / LEDGER_NAME).read_text()
    assert git(tmp_path, "ls-files").split() == [LEDGER_NAME]


# Time stamps -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tsa") / "own")


def test_a_time_stamp_of_the_trusted_authority_is_accepted(run: RunDir, authority: Authority) -> None:
    with serve_authority(authority) as url:
        time = request_time_stamp(url, run)
        content = run.time_stamp.read_bytes()
        assert request_time_stamp(url, run) == time  # the earlier time stamp stays
    assert run.time_stamp.read_bytes() == content
    assert abs(datetime.now(UTC) - time) < timedelta(minutes=5)
    assert time_of(run) == time_of(run, read_authorities(authority.root)) == time
    assert list(read_attestation(run).files) == [run.engine_log.name]
    reseal(run)
    assert list(read_attestation(run).files) == [run.engine_log.name]  # a time stamp is not part of the attestation
    openssl("ts", "-verify", "-data", run.seal, "-in", run.time_stamp, "-CAfile", authority.root)


def test_a_time_stamp_of_another_authority_is_refused(run: RunDir, authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "root.pem").write_text("no certificate")
    with pytest.raises(InputError, match="--timestamp-ca"):
        read_authorities(tmp_path / "root.pem")
    with serve_authority(Authority(tmp_path / "mine", "Tests")) as url:  # under the same name
        request_time_stamp(url, run)
    with pytest.raises(InputError, match="not issued by the authority"):
        time_of(run, read_authorities(authority.root))


def test_a_time_stamp_of_another_attestation_is_refused(run: RunDir, authority: Authority) -> None:
    with serve_authority(authority) as url:
        request_time_stamp(url, run)
        run.engine_log.write_text("another log")
        reseal(run)
        for read in (time_of, lambda run: request_time_stamp(url, run)):
            with pytest.raises(InputError, match="is the time stamp of another attestation"):
                read(run)


def test_a_damaged_time_stamp_never_has_another_time(run: RunDir, authority: Authority) -> None:
    """Some bits of a time stamp are not signed, and none of them is part of the time. The last bit is signed."""
    with serve_authority(authority) as url:
        time = request_time_stamp(url, run)
    content, trusted, chance = run.time_stamp.read_bytes(), read_authorities(authority.root), random.Random(1)
    refused, last = 0, ""
    places = [(chance.randrange(len(content)), chance.randrange(8)) for _ in range(400)]
    for place, bit in [*places, (len(content) - 1, 0)]:
        damaged = bytearray(content)
        damaged[place] ^= 1 << bit
        run.time_stamp.write_bytes(damaged)
        try:
            assert time_of(run, trusted) == time
        except InputError as error:
            refused, last = refused + 1, error.message
    assert "not issued by the authority" in last
    for cut in (b"", content[:-1], b"x" + content):
        run.time_stamp.write_bytes(cut)
        with pytest.raises(InputError, match=run.time_stamp.name):
            time_of(run, trusted)
    assert refused > 380


@pytest.mark.parametrize(
    ("response", "status"), [(b"", 200), (b"<html>", 200), (b"", 500), (bytes.fromhex("30053003020102"), 200)]
)
def test_an_invalid_response_of_an_authority_is_not_kept(run: RunDir, response: bytes, status: int) -> None:
    with serve_authority(response, status) as url, pytest.raises(ExecutionError, match=url):
        request_time_stamp(url, run)
    assert not run.time_stamp.exists()


def test_a_time_stamp_for_another_request_is_not_kept(run: RunDir, authority: Authority, tmp_path: Path) -> None:
    second_run = RunDir(tmp_path / "other")
    second_run.root.mkdir()
    reseal(second_run)
    with serve_authority(authority) as url:
        request_time_stamp(url, second_run)
        request_time_stamp(url, run)
    earlier = run.time_stamp.read_bytes()
    run.time_stamp.unlink()
    # Time stamp of the same attestation with another nonce
    for response in (second_run.time_stamp.read_bytes(), earlier):
        with (
            serve_authority(response) as url,
            pytest.raises(ExecutionError, match="the response is a time stamp of other data"),
        ):
            request_time_stamp(url, run)


def test_an_unreachable_authority_is_an_error(run: RunDir) -> None:
    with serve_authority(b"") as url:
        pass
    with pytest.raises(ExecutionError, match="not a time stamp"):
        request_time_stamp(url, run)
    with pytest.raises(InputError, match="http"):
        request_time_stamp("file:///etc/hostname", run)
