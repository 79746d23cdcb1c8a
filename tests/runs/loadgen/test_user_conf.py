"""user.conf and audit.config: lines that LoadGen would drop, misread or not survive are refused."""

from pathlib import Path

import pytest

from runs.benchmark import Scenario
from runs.benchmarks import BENCHMARKS
from runs.errors import InputError
from runs.loadgen.conf_lines import decode_conf
from runs.loadgen.user_conf import CheckedConf, check_conf, read_conf_text
from runs.rounds import CURRENT_ROUND

KEY = "llama3_1-8b"
PATH = Path("some/user.conf")

# A refused line of a Server run, and words of the message and of the fix
REFUSED = {
    "no-blanks": ("*.Server.target_qps=10", "ignores the line", "`*.Server.target_qps = 10`"),
    "no-blanks-and-a-comment": ("*.Server.target_qps=10 # ten", "ignores the line", "`*.Server.target_qps = 10`"),
    "no-blank-before": ("*.Server.target_qps= 10", "rejects the file", "`*.Server.target_qps = 10`"),
    "no-blank-behind": ("*.Server.target_qps =10", "rejects the file", "`*.Server.target_qps = 10`"),
    "no-equals": ("*.Server.target_qps 10", "rejects the file", "model.scenario.key = value"),
    "no-value": ("*.Server.target_qps =", "has no value", "write a value"),
    "two-values": ("*.Server.target_qps = 5 7", "the last of these values", "one value"),
    "thousands": ("*.*.min_duration = 600 000", "the last of these values", "one value"),
    "comment-without-blank": ("#a comment", "rejects the file", "a space after the # sign"),
    "comment-after-value": ("*.Server.target_qps = 10 # why", "rejects the file", "a line of its own"),
    "comment-after-value-no-blank": ("*.Server.target_qps = 10 #why", "rejects the file", "a line of its own"),
    "two-parts": ("Server.target_qps = 10", "'Server.target_qps' is not", "`*.Server.target_qps`"),
    "one-part": ("target_qps = 10", "'target_qps' is not", "`*.Server.target_qps`"),
    "directory": (
        "llama3.1-8b.Server.target_qps = 10",
        "LoadGen's name for this benchmark is llama3_1-8b",
        "`llama3_1-8b.Server.target_qps = 10`",
    ),
    "unknown-model": ("llama3_1_8b.Server.target_qps = 10", "no model 'llama3_1_8b'", "* or llama3_1-8b"),
    "unknown-scenario": ("*.Serve.target_qps = 10", "no scenario 'Serve'", "Server"),
    "scenario-in-lower-case": ("*.server.target_qps = 10", "no scenario 'server'", "Server"),
    "interactive": (
        "*.Interactive.target_qps = 10",
        "no scenario 'Interactive'",
        "`llama3_1-8b-interactive.Server.target_qps = 10`",
    ),
    "unknown-key": ("*.Server.target_qsp = 10", "no key 'target_qsp'", "target_qps"),
    "unknown-key-without-number": ("*.*.note = hello", "no key 'note'", "remove the line"),
    "scientific": ("*.*.min_duration = 1e3", "min_duration = 1e3: LoadGen reads 1", "write 1000"),
    "octal": ("*.*.min_duration = 010", "LoadGen reads 8", "write 10"),
    "no-octal": ("*.*.min_duration = 08", "LoadGen reads 0", "write 8"),
    "negative": ("*.*.min_duration = -1", "LoadGen reads 18446744073709551615", "a whole number"),
    "decimal-for-integer": ("*.Server.target_latency = 95.5", "LoadGen reads 95", "a whole number"),
    "word": ("*.*.min_duration = long", "min_duration = long: must be a number", "a number"),
    "not-a-number": ("*.Server.target_qps = nan", "target_qps = nan", "12.5"),
    "endless": ("*.Server.target_qps = inf", "target_qps = inf", "12.5"),
    "overflow": ("*.*.min_duration = 18446744073709551616", "LoadGen reads 18446744073709551615", "a whole number"),
    "overflow-in-ns": ("*.*.min_duration = 18446744073709551", "cannot run", "at most 1,000,000,000,000"),
    "no-rate": ("*.Server.target_qps = 0", "cannot run", "above 0"),
    "negative-rate": ("*.Server.target_qps = -1.5", "cannot run", "above 0"),
    "rate-without-end": ("*.Server.target_qps = 1000001", "cannot run", "at most 1,000,000"),
    "percentile-0": ("*.Server.target_latency_percentile = 0", "cannot run", "above 0"),
    "percentile-100": ("*.Server.target_latency_percentile = 100", "cannot run", "below 100"),
    "int": ("*.Server.max_async_queries = 3000000000", "cannot run", "at most 2,147,483,647"),
    "no-break-space": ("*.Server.target_qps\u00a0=\u00a010", "U+00A0", "retype"),
    "no-break-space-at-end": ("*.Server.target_qps = 10\u00a0", "U+00A0", "retype"),
    "no-break-space-in-latin-1": ("*.Server.target_qps\udca0=\udca010", "0xA0, which is not UTF-8", "retype"),
    "latin-1": ("*.Server.r\udce9glage = 1", "0xE9, which is not UTF-8", "retype"),
    "byte-order-mark": ("\ufeff*.Server.target_qps = 10", "byte order mark", "without a byte order mark"),
    "control-character": ("*.Server.target_qps\x1c=\x1c10", "U+001C", "retype"),
    "nul": ("*.Server.target_qps = 1\x000", "U+0000", "retype"),
    "lone-carriage-return": ("*.*.min_duration = 9\r*.*.max_duration = 0", "rejects the file", "with LF or CRLF"),
    "another-seed": (
        "*.*.qsl_rng_seed = 5",
        f"uses its built-in value {CURRENT_ROUND.seeds.qsl_rng_seed}",
        "remove the line",
    ),
    "test05": ("*.*.test05 = 1", "ignores this key", "remove the line"),
    "another-count": ("*.*.performance_sample_count = 5", "no key 'performance_sample_count'", "_override"),
    "another-duration": ("*.Server.target_duration = 5", "uses min_duration = 600000", "write min_duration"),
    "another-model-rejected": ("llama2-70b.Server.target_qps = ten", "rejects the file", "a number"),
}

# Lines of a Server run, and the values of the applied lines
ACCEPTED: dict[str, tuple[str, dict[str, str]]] = {
    "plain": ("*.Server.target_qps = 12.5", {"target_qps": "12.5"}),
    "model": (f"{KEY}.Server.target_qps = .9", {"target_qps": ".9"}),
    "scientific-real": ("*.Server.target_qps = 1e3", {"target_qps": "1e3"}),
    "signs": ("*.Server.target_qps = +5\n*.*.max_duration = -0", {"target_qps": "+5", "max_duration": "-0"}),
    "whole-as-decimal": ("*.Server.min_duration = 600000.0", {"min_duration": "600000.0"}),
    "hexadecimal": ("*.Server.min_duration = 0x927C0", {"min_duration": "0x927C0"}),
    "decimal-latency-of-single-stream": ("*.SingleStream.target_latency = 95.5", {"target_latency": "95.5"}),
    "tabs-and-blanks": (" \t*.Server.target_qps\t=   12 \t", {"target_qps": "12"}),
    "windows": ("*.Server.target_qps = 12\r\n*.Server.min_duration = 5\r\n", {"target_qps": "12", "min_duration": "5"}),
    "comments": ("# one # two\n\n*.Server.target_qps = 12\n#\n##\n#three", {"target_qps": "12"}),
    "commented-out": ("#*.Server.target_qps = 12\n#*.Server.target_qps=12", {}),
    "comment-in-any-script": ("# µs – 中文 \u2028 \x0c \x00 *.Server.target_qps = 8\n", {}),
    "comment-in-latin-1": ("# r\udce9glage\n*.Server.target_qps = 8", {"target_qps": "8"}),
    "byte-order-mark-alone": ("\ufeff\n*.Server.target_qps = 8", {"target_qps": "8"}),
    "zero-latency-limit": ("*.Server.target_latency = 0", {"target_latency": "0"}),
    "largest-seed": (f"*.*.accuracy_log_rng_seed = {2**64 - 1}", {"accuracy_log_rng_seed": str(2**64 - 1)}),
    "set-again": ("*.Server.target_qps = 0\n*.Server.target_qps = 3", {"target_qps": "3"}),
    "not-in-force": ("*.Server.target_qps = 3\n*.*.target_qps = 0\n*.Offline.target_qps = 0", {"target_qps": "3"}),
    "empty": ("", {}),
}

# Lines without effect, and words of the note
PASSED_OVER = {
    "another-benchmark": ("resnet50.Offline.min_query_count = 500", "line 1 (for another benchmark, resnet50)"),
    "its-directory": ("bert-99.Offline.min_query_count = 1e3", "another benchmark, bert-99"),
    "another-variant": ("llama3_1-8b-edge.Offline.target_qps = 5", "another benchmark, llama3_1-8b-edge"),
    "its-directory-too": ("llama3.1-8b-edge.Offline.target_qps = 5", "another benchmark, llama3.1-8b-edge"),
    "scripts": ("*.*.test07_accuracy_threshold = 60.698", "scripts of MLCommons read test07_accuracy_threshold"),
    "another-scenario": ("*.Offline.coalesce_queries = 1", "reads coalesce_queries only for Server"),
    "in-mlperf.conf": ("*.Offline.target_latency_percentile = 90", "reads target_latency_percentile only for"),
    "same-seed": (f"*.*.qsl_rng_seed = {CURRENT_ROUND.seeds.qsl_rng_seed}", "does not read qsl_rng_seed here"),
    "same-count": ("*.Server.performance_sample_count = 13368", "does not read performance_sample_count here"),
    "set-again": ("*.*.max_duration = 0\n*.*.max_duration = 0", "line 1 (*.*.max_duration is set again)"),
    "together": (
        "bert.Offline.target_qps = 1\nbert.Server.target_qps = 1\n\nbert.*.mode = 2\n*.*.test05_qsl_rng_seed = 1",
        "lines 1 to 2, 4 (for another benchmark, bert); "
        "line 5 (only the scripts of MLCommons read test05_qsl_rng_seed)",
    ),
}


def judge(text: str, scenario: Scenario = "Server", key: str = KEY, *, audit: bool = False) -> CheckedConf:
    return check_conf(text, PATH, BENCHMARKS[key], scenario, audit=audit)


@pytest.mark.parametrize("name", REFUSED)
def test_each_invalid_line_is_refused_with_its_number(name: str) -> None:
    line, word, fix = REFUSED[name]
    with pytest.raises(InputError) as refused:
        judge(f"# comment\n\n*.*.max_duration = 0\n{line}\n").refuse()
    assert refused.value.message.startswith("some/user.conf:4: ")
    assert word in refused.value.message
    assert fix in refused.value.fix


@pytest.mark.parametrize("name", ACCEPTED)
def test_valid_lines_are_accepted_with_their_values(name: str) -> None:
    text, values = ACCEPTED[name]
    judged = judge(text)
    judged.refuse()
    of_scenario = [
        setting for setting in judged.settings if setting.scenario in ("*", "Server") or name.endswith("single-stream")
    ]
    assert values.items() <= {setting.key: setting.value for setting in reversed(of_scenario)}.items()
    assert bool(values) == bool(of_scenario)


@pytest.mark.parametrize("name", PASSED_OVER)
def test_lines_without_effect_are_reported_in_one_note(name: str) -> None:
    text, words = PASSED_OVER[name]
    judged = judge(text)
    judged.refuse()
    assert judged.note.startswith("some/user.conf: without effect on this run: ")
    assert judged.note.count("\n") == 0
    assert words in judged.note


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(InputError) as refused:
        judge("*.Server.target_qps=5\n*.*.min_duration = 1e3\n# fine\n*.*.nothing = 5\n").refuse()
    assert str(refused.value).count("\n  fix: ") == 3
    assert [line for line in str(refused.value).split("\n") if line.startswith("some/user.conf:")] == [
        "some/user.conf:1: LoadGen cannot read '*.Server.target_qps=5' and ignores the line",
        "some/user.conf:2: *.*.min_duration = 1e3: LoadGen reads 1",
        "some/user.conf:4: *.*.nothing = 5: LoadGen has no key 'nothing' and ignores the line",
    ]
    with pytest.raises(InputError, match=r"some/user\.conf: 480 more problems"):
        judge("*.*.nothing = 5\n" * 500).refuse()


def test_the_effect_of_a_line_depends_on_the_scenario() -> None:
    text = "*.*.target_latency = 95.5\nllama3.1-8b-edge.Offline.target_qps = 5\n"
    judge(text.splitlines()[0], "SingleStream", "llama3_1-8b-edge").refuse()
    with pytest.raises(InputError, match="LoadGen's name for this benchmark is llama3_1-8b-edge"):
        judge(text, "Offline", "llama3_1-8b-edge").refuse()
    for name in ("llama2-70b-99", "llama2-70b-99.9"):
        with pytest.raises(InputError, match=r"LoadGen's name for this benchmark is llama2-70b;"):
            judge(f"{name}.Server.target_qps = 5", key="llama2-70b").refuse()


def test_audit_config_lines_must_be_for_all_models() -> None:
    judged = judge("*.Server.mode = 2\nresnet50.Offline.min_query_count = 500\n", audit=True)
    judged.refuse()
    assert "line 2 (for another benchmark, resnet50)" in judged.note
    for model in (KEY, "llama3.1-8b"):
        with pytest.raises(InputError, match="only lines for the model \\*") as refused:
            judge(f"{model}.Server.min_query_count = 500", audit=True).refuse()
        assert refused.value.fix == "write `*.Server.min_query_count = 500`"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_text_in_another_encoding_is_refused(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "user.conf").write_bytes("*.Server.target_qps = 2\n".encode(encoding))
    with pytest.raises(InputError, match=rf"user\.conf:1: {encoding[:6].upper()} text") as refused:
        read_conf_text(tmp_path / "user.conf", "--user-conf")
    assert "UTF-8" in refused.value.fix
    with pytest.raises(InputError, match="--audit-conf"):
        read_conf_text(tmp_path / "none.config", "--audit-conf")


def test_a_large_file_is_checked_in_linear_time() -> None:
    lines = "*.*.min_duration = 1e3\n*.Server.target_qps = 5\nbert.*.mode = 2\n*.*.nothing = 5\n" * 10_000
    judged = judge(decode_conf(lines.encode()))
    assert len(judged.problems) == 20_000
    assert len(judged.note) < 1_000
