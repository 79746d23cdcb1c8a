"""Bad input to each command: an exit code of the contract, the value, the fix, and no written file."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

import main

RUN = ["run", "--scenario", "Server", "--engine", "dummy", "--dry-run"]
ENDPOINT = ["run", "--scenario", "Server", "--engine", "endpoint", "--api-server", "http://127.0.0.1:9", "--dry-run"]
AUDIT = ["audit", "--test", "output_caching", "--scenario", "Offline", "--engine", "dummy", "--dry-run"]
TUNE = ["tune", "--scenario", "Server", "--engine", "dummy", "--dry-run"]
SUBMIT = ["submit", "adir", "--organization", "O", "--system-name", "S", "--output", "tree"]
SIGNOFF = ["signoff", "--scope", "harness", "--ref", "adir"]


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


def listening(path: Path) -> None:
    working_dir = Path.cwd()
    os.chdir(path.parent)  # the name of a socket must be short
    try:
        socket.socket(socket.AF_UNIX).bind(path.name)
    finally:
        os.chdir(working_dir)


# Objects in place of a requested file. Each command refuses them.
FILES: dict[str, Callable[[Path], object]] = {
    "absent": lambda path: None,
    "adirectory": Path.mkdir,
    "pipe": os.mkfifo,
    "socket": listening,
    "loop": lambda path: path.symlink_to(path.name),
    "device": lambda path: path.symlink_to("/dev/zero"),
    "sparse": sparse,
    "latin": lambda path: path.write_bytes("größe: 1\n".encode("latin-1")),
    "nul": lambda path: path.write_bytes(b"a: 1\0\n"),
    "text": lambda path: path.write_text("just words\n"),
    "list": lambda path: path.write_text("[1, 2]\n"),
    "twice": lambda path: path.write_text("a: 1\na: 2\n"),
    "unknown": lambda path: path.write_text('{"no_such_key": 1}\n'),
    "nested": lambda path: path.write_text("a: " + "[" * 1500 + "\n"),
    "number": lambda path: path.write_text(f"a: {'9' * 5000}\n"),
    "tag": lambda path: path.write_text("a: !!python/object/apply:os.system ['true']\n"),
    "alias": lambda path: path.write_text("a: &a [1,1]\nb: &b [*a,*a]\nc: [*b,*nothing]\n"),
    "cut": lambda path: path.write_text('{"a": '),
}
OPTIONS = {
    "run --config": [*RUN, "--config"],
    "run --user-conf": [*RUN, "--user-conf"],
    "run --audit-conf": [*RUN, "--audit-conf"],
    "run --dataset-path": [*RUN, "--dataset-path"],
    "run --api-declaration": [*ENDPOINT, "--api-declaration"],
    "audit --config": [*AUDIT, "--config"],
    "tune --config": [*TUNE, "--config"],
    "campaign --config": ["campaign", "--dry-run", "--config"],
    "submit --system": [*SUBMIT, "--system"],
    "signoff --claim": [*SIGNOFF, "--claim"],
    "gate --declaration": ["gate", "adir", "--declaration"],
    "store --declaration": ["store", "ingest", "adir", "--declaration"],
}
FOLDERS = {
    "gate": ["gate"],
    "verify": ["verify"],
    "check": ["check"],
    "status": ["status"],
    "results": ["results"],
    "report": ["report"],
    "signoff --ref": ["signoff", "--scope", "harness", "--ref"],
    "store ingest": ["store", "ingest"],
    "store --db": ["store", "summary", "--db"],
    "submit": ["submit", "--organization", "O", "--system-name", "S", "--output", "tree"],
    "doctor --dataset-path": ["doctor", "--dataset-path"],
}
# An empty directory has no runs. A row of an early version, without declaration, is not judged.
FINE = {("status", "adirectory"), ("gate", "unknown")}

LISTS = ("x", "max_num_seqs=", "dtype=[1]", "dummy_slots=[]", "dummy_slots=[x]")
VALUES = [
    *[[*RUN, "--target-qps", value] for value in ("-1", "0", "nan", "inf", "-inf", "1e400", "many", "1e9", "")],
    *[[*RUN, "--total-sample-count", value] for value in ("-1", "0", "1.5", "9" * 30, "nan", "65", "")],
    *[[*RUN, "--stall-timeout-s", value] for value in ("-1", "0", "nan", "inf", "soon")],
    *[[*RUN, "--engine-start-timeout-s", value] for value in ("-1", "0", "nan", "inf")],
    *[[*RUN, "--admission", "fcfs", "--admission-tokens", value] for value in ("0", "-5", "1.5")],
    *[[*RUN, "--admission", "fcfs", "--admission-queries", value] for value in ("0", "-5", "x")],
    *[[*RUN, "--replicas", value] for value in ("0", "-1", "two", "1000000", "1.5")],
    *[[*RUN, "--dummy-ttft-ms", value] for value in ("-1", "nan", "inf", "1e300")],
    *[[*RUN, "--dummy-tpot-ms", value] for value in ("-1", "nan", "inf")],
    *[[*RUN, "--dummy-slots", value] for value in ("-1", "x", "1.5")],
    *[[*RUN, "--dummy-shortest-tokens", value] for value in ("500", "0", "-1")],
    *[[*RUN, "--dummy-fault", value] for value in ("boom", "die@", "die@x", "die@-1", "")],
    *[[*RUN, "--engine-arg", value] for value in ("x", "=1", "")],
    *[[*RUN, "--sampling-arg", value] for value in ("temperature=hot", "no_such=1", "top_p=nan", "max_tokens=-1", "x")],
    *[[*RUN, "--scenario", value] for value in ("MultiStream", "", "Offline ")],
    *[[*RUN, "--lg-model-name", value] for value in ("llama", "")],
    *[[*RUN, "--model-path", value] for value in ("", ".", "/dev/null", "/no/model", "a\0b", "x" * 5000)],
    *[[*RUN, "--mechanism", value] for value in ("/dev/zero", "a/b/c")],
    *[[*RUN, "--output-log-dir", value] for value in ("", "a\0b", "x" * 300, "/dev/null/x")],
    *[[*ENDPOINT, "--api-server", value] for value in ("", "localhost", "ftp://x", "http://", "http://x:99999", "http://[::")],
    *[[*ENDPOINT, "--api-connections", value] for value in ("0", "-1", "x")],
    *[[*ENDPOINT, "--api-dialect", value] for value in ("", "esperanto")],
    *[[*ENDPOINT, "--api-key-env", value] for value in ("", "NO_SUCH_VARIABLE")],
    *[[*AUDIT, "--samples", value] for value in ("0", "-1", "65", "9" * 30, "x")],
    *[[*AUDIT, "--audit-samples", value] for value in ("0", "-1", "x")],
    *[[*AUDIT, "--sample-index", value] for value in ("a", "-1", "99999", "", "1,,2")],
    *[[*AUDIT, "--threshold", value] for value in ("2", "-1", "nan", "inf", "0")],
    *[[*AUDIT, "--test", value] for value in ("TEST01", "", "test06")],
    [*AUDIT, "--target-qps", "nan"],
    *[[*TUNE, "--offline-qps", value] for value in ("0", "-1", "nan", "inf")],
    *[[*TUNE, "--max-probes", value] for value in ("0", "9", "-1", "x")],
    *[[*TUNE, "--resolution", value] for value in ("0", "nan", "2", "-1")],
    *[[*TUNE, "--estimate-s", value] for value in ("0", "nan", "-1", "inf")],
    *[[*TUNE, "--search", "--search-trials", value] for value in ("-1", "x")],
    *[[*TUNE, "--search", "--search-budget-s", value] for value in ("nan", "-1", "inf")],
    *[[*TUNE, "--search", "--search-values", value] for value in LISTS],
    *[[*SIGNOFF, "--noise-band", value] for value in ("0", "-1", "nan", "inf", "100", "x")],
    *[[*SIGNOFF, "--remeasure", value] for value in ("-1", "4", "x")],
    ["signoff", "--scope", "all"],
    ["signoff", "--scope", "patch", "--ref", "adir", "--cand", "absent"],
    *[["status", "--interval", value] for value in ("0", "-1", "nan", "inf", "x")],
        ["gate", "adir", "--registry", "adir"],
    ["gate", "adir", "--division", "half"],
    *[["check", "adir", *words] for words in (["--round", "v9"], ["--official", "adir"])],
    *[["check", "adir", "--runs", value] for value in ("adir", "absent")],
    *[["verify", "adir", *words] for words in (["--scenario", "All"], ["--accuracy-only", "--performance-only"])],
    ["verify", "adir", "--dataset-path", "absent"],
    ["store", "query", "--db", "absent.sqlite"],
    ["store", "compare", "a", "b", "--db", "absent.sqlite"],
    ["store", "nothing"],
    *[["results", "adir"], ["report", "adir"], ["report"], ["verify"]],
    ["submit"],
    *[["init", value] for value in ("", "a\0b", "x" * 300)],
    ["init", "new", "--model-path", ""],
    *[["doctor", "--api-server", value] for value in ("", "localhost", "http://127.0.0.1:9")],
    *[["doctor", "--model-path", value] for value in ("", "adir", "/dev/null", "a\0b")],
]  # fmt: skip
NO_VALUE_TO_NAME = ("", "verify", "submit", "report")


@pytest.fixture
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "adir").mkdir()
    return tmp_path


def expect_refusal(words: list[str], value: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(str(path) for path in here.rglob("*"))
    code = main.main(words)
    reported = capsys.readouterr()
    text = reported.err + (reported.out if words[0] in ("doctor", "signoff") else "")
    assert code in ((2, 3) if words[0] != "signoff" else (1, 2, 3, 4)), (code, reported)
    assert "Traceback" not in reported.out + reported.err
    if words[0] not in ("doctor", "signoff") or code == 2:
        assert reported.err.startswith(("error: ", "  note: ")), reported.err
    assert (
        value[:60].encode("unicode_escape").decode() in text.replace("\\x00", "\x00").encode("unicode_escape").decode()
    ), text
    assert "fix: " in text or words[0] in ("doctor", "signoff"), text
    assert sorted(str(path) for path in here.rglob("*")) == before


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("option", OPTIONS)
def test_each_option_refuses_a_path_that_is_not_its_file(
    option: str, kind: str, working_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    FILES[kind](working_directory / kind)
    expect_refusal([*OPTIONS[option], kind], kind, working_directory, capsys)


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("option", FOLDERS)
def test_each_command_refuses_a_path_that_is_not_its_directory(
    option: str, kind: str, working_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    FILES[kind](working_directory / kind)
    if (option, kind) in FINE:
        assert main.main([*FOLDERS[option], kind]) == 0
    else:
        expect_refusal([*FOLDERS[option], kind], kind, working_directory, capsys)


@pytest.mark.parametrize("words", VALUES, ids=lambda words: "-".join((words[0], *words[-2:]))[:60])
def test_each_option_refuses_an_invalid_value(
    words: list[str], working_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value = "" if words[-1] in (*NO_VALUE_TO_NAME, "1e400", "1e300", "1e9") else words[-1].partition("=")[0]
    expect_refusal(words, value, working_directory, capsys)


@pytest.mark.parametrize("command", ["run", "tune", "campaign"])
def test_a_null_byte_in_a_configured_path_is_refused(
    command: str, working_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "scenario: Server\n" if command != "campaign" else "benchmark: llama3.1-8b\nscenarios: {Offline: {}}\n"
    (working_directory / "f.yaml").write_text(text + 'engine: dummy\noutput_log_dir: "a\\0b"\n')
    expect_refusal([command, "--dry-run", "--config", "f.yaml"], "null byte", working_directory, capsys)
