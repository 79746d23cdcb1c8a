"""LoadGen's configuration files: the harness and the installed LoadGen read the same files as the same settings."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from runs.benchmark import SCENARIOS, Scenario
from runs.benchmarks import BENCHMARKS
from runs.loadgen.conf_lines import (
    KEYS,
    SCENARIOS_OF,
    LineEffect,
    Setting,
    decode_conf,
    encode_conf,
    lines_of,
    lookup,
    stored_lines,
    with_setting,
)
from runs.loadgen.user_conf import check_conf
from tests.support.files.read_with_loadgen import Read, are_equal, loadgen_reader

KEY = "llama3_1-8b"
EDGE = "llama3_1-8b-edge"


@pytest.fixture(scope="module")
def read_with_loadgen() -> Iterator[Read]:
    with loadgen_reader() as reader:
        yield reader


# Attribute of TestSettings, and the value of one unit of the key, if they are not the key itself and 1.
ATTRIBUTES: dict[str, tuple[str, int]] = {
    "ttft_latency": ("ttft_latency", 10**6),
    "tpot_latency": ("tpot_latency", 10**6),
    "samples_per_query": ("multi_stream_samples_per_query", 1),
    "coalesce_queries": ("server_coalesce_queries", 1),
    "max_async_queries": ("server_max_async_queries", 1),
    "min_duration": ("min_duration_ms", 1),
    "max_duration": ("max_duration_ms", 1),
}
BY_SCENARIO: dict[tuple[str, str], tuple[str, float]] = {
    ("target_latency", "Server"): ("server_target_latency_ns", 10**6),
    ("target_latency", "SingleStream"): ("single_stream_expected_latency_ns", 1e6),
    ("target_latency", "MultiStream"): ("multi_stream_expected_latency_ns", 1e6),
    ("target_latency_percentile", "Server"): ("server_target_latency_percentile", 0.01),
    ("target_latency_percentile", "SingleStream"): ("single_stream_target_latency_percentile", 0.01),
    ("target_latency_percentile", "MultiStream"): ("multi_stream_target_latency_percentile", 0.01),
    ("target_qps", "Server"): ("server_target_qps", 1.0),
    ("target_qps", "Offline"): ("offline_expected_qps", 1.0),
}
MODES = ("SubmissionRun", "AccuracyOnly", "PerformanceOnly", "FindPeakPerformance")
ONLY_WITH = {"ttft_latency": "use_token_latencies", "tpot_latency": "use_token_latencies",
             "token_latency_scaling_factor": "infer_token_latencies"}  # fmt: skip


def expected_changes(content: bytes, model: str, scenario: str) -> tuple[int, dict[str, Any]]:
    """Return the code and the settings that LoadGen should set, by the reader of the harness."""
    text = decode_conf(content)
    if any(effect in (LineEffect.REJECTED, LineEffect.NO_NUMBER) for _, _, effect in lines_of(text)):
        return -22, {}
    lines, changes = stored_lines(text), dict[str, Any]()
    for key in KEYS:
        if key in ONLY_WITH and not lookup(lines, model, scenario, ONLY_WITH[key]):
            continue
        for of_scenario in SCENARIOS_OF.get(key, (scenario,)):
            number = lookup(lines, model, of_scenario, key)
            attribute, unit = BY_SCENARIO.get((key, of_scenario)) or ATTRIBUTES.get(key, (key, 1))
            if number is None or (key == "mode" and number >= len(MODES)):
                continue
            if key == "mode":
                changes[attribute] = f"TestMode.{MODES[int(number)]}"
            elif isinstance(unit, float):
                changes[attribute] = float(number) * unit
            elif key == "max_async_queries":  # int(…), then size_t
                changes[attribute] = ((int(number) + 2**31) % 2**32 - 2**31) % 2**64
            else:
                changes[attribute] = int(number) * unit % 2**64
    return 0, changes


def compare(read: Read, content: bytes, model: str, scenario: str) -> None:
    code, changes = expected_changes(content, model, scenario)
    untouched = read(b"", model, scenario)[1]
    read_code, read_values = read(content, model, scenario)
    assert (read_code, code) == (code, code), content
    for name, value in (untouched | changes).items():
        assert are_equal(read_values[name], value), (name, read_values[name], value, content)


# Fixed and random files -----------------------------------------------------------------------------------------------

NUMBERS = (
    "5", "+5", "-5", "-0", "0x10", "0X1f", "0x", "010", "08", "00", "007", ".9", "95.5", "600000.0", "5.", "1e3",
    "1E+3", "1e", "0x1p3", "0x.8", "0x.p1", "nan", "-nan(1)", "inf", "-INFINITY", "infi", "1e999", "0x1p99999",
    "18446744073709551615", "18446744073709551616", "-18446744073709551616", "0xffffffffffffffffff", "1_000", "1,000",
    "0b101", "\u0663", "1\x002", "\x00", "5L", "++5", "1.5.2", ".", "-", "e5", "0" * 40 + "7", "9" * 5000,
    "1" * 400 + ".5", "5\u00a0", "word", "#", "#5",
)  # fmt: skip
LINES = (
    b"",
    b"*.Server.target_qps = 12.5",
    b"*.Server.target_qps = 2\n*.Server.target_qps = 3\n",
    b"*.Server.target_qps = 2 # two\n",
    b"*.Server.target_qps = 2 #\n",
    b"*.Server.target_qps # = 2\n",
    b"*.Server.target_qps = 5 7\n",
    b"*.Server.target_qps = 5 = 7\n",
    b"*.Server.target_qps=2\n*.Server.target_qps =2\n",
    b"*.Server.target_qps= 2\n",
    b"*.Server.target_qps =\n*.Server.min_duration\n",
    b"*.Server.target_qps 2\n",
    b"#*.Server.target_qps = 2\n##\n#two\n",
    b"## two words\n",
    b"\xef\xbb\xbf*.Server.target_qps = 2\n",
    b"\xef\xbb\xbf# comment\n",
    b"\xef\xbb\xbf\n*.Server.target_qps = 2\n",
    b"# r\xe9glage \xa0 \xff\n*.Server.target_qps = 2\r\n",
    b"*.Server.target_qps\xa0=\xa02\n*.Server.target_qps\xc2\xa0=\xc2\xa02",
    b"*.Server.target_qps = 2\xa0\n",
    b"\t*.Server.target_qps\v=\f2\t \r\n",
    b"*.Server.target_qps = 2\r*.Server.min_duration = 5\r",
    b"# one\r*.Server.target_qps = 2\r",
    b"*.Server.target_qps\x1c=\x1c2\n",
    b"# \x00 *.Server.target_qps = 2\n*.Server.min_duration = 3\n",
    b"*.Server.target\x00_qps = 2\n",
    "*.Server.target_qps = 2\n".encode("utf-16"),
    b"*.Server.target_qps = 2\n" + b"# " + b"x" * 70_000 + b"\n*.Server.min_duration =" + b" " * 70_000 + b"7",
    b"Server.target_qps = 2\ntarget_qps = 2\nllama3.1-8b.Server.target_qps = 2\n*.Interactive.target_qps = 2\n",
    b"*.server.target_qps = 2\n*.Server.TARGET_QPS = 2\n*.Server.target_qps. = 2\n.Server.target_qps = 2\n",
    b"*.*.qsl_rng_seed = 5\n*.*.test05 = 1\n*.*.test07_accuracy_threshold = 60.698\n*.*.target_duration = 5\n",
    b"*.*.use_token_latencies = 1\n*.*.ttft_latency = 5\n*.*.tpot_latency = 18446744073710\n",
    b"*.*.ttft_latency = 5\n*.*.token_latency_scaling_factor = 5\n",
    b"*.*.infer_token_latencies = 1\n*.*.token_latency_scaling_factor = 5\n*.*.mode = 1\n",
    b"*.*.mode = 99\n*.*.target_latency = 95.5\n*.*.max_async_queries = 3000000000\n",
)  # fmt: skip


@pytest.mark.parametrize("scenario", ["Server", "SingleStream"])
def test_lines_are_read_as_by_loadgen(scenario: str, read_with_loadgen: Read) -> None:
    for content in LINES:
        compare(read_with_loadgen, content, KEY, scenario)


def test_numbers_are_read_as_by_loadgen(read_with_loadgen: Read) -> None:
    for number in NUMBERS:
        for key in ("min_duration", "target_qps", "performance_issue_same", "sample_concatenate_permutation"):
            compare(read_with_loadgen, f"*.Server.{key} = {number}\n".encode(), KEY, "Server")


def test_the_most_specific_line_applies_as_in_loadgen(read_with_loadgen: Read) -> None:
    places = [(KEY, "Server"), ("*", "Server"), (KEY, "*"), ("*", "*")]
    for bits in range(16):
        chosen = [place for number, place in enumerate(places) if bits >> number & 1]
        lines = [f"{model}.{scenario}.min_duration = {number}\n" for number, (model, scenario) in enumerate(chosen)]
        compare(read_with_loadgen, "".join(lines).encode(), KEY, "Server")


_numbers = st.one_of(
    st.sampled_from(NUMBERS),
    st.from_regex(r"[+-]?(0x|0)?[0-9a-f]{0,5}\.?[0-9]{0,3}([ep][+-]?[0-9]{1,3})?", fullmatch=True),
    st.integers(-10, 2**70).map(str),
    st.floats().map(str),
)
_names = st.tuples(
    st.sampled_from(["*", "*", KEY, EDGE, "llama2-70b", "llama3.1-8b", "nobody", ""]),
    st.sampled_from(["*", "Server", "Offline", "SingleStream", "MultiStream", "Interactive", "server"]),
    st.sampled_from([*KEYS, *KEYS, "qsl_rng_seed", "performance_sample_count", "test07_x", "target_qsp"]),
).map(".".join)
_blanks = st.sampled_from([" ", " ", " ", " ", "\t", "  ", "", "\v", "\f", "\u00a0", "\x1c", "\x00"])
_settings = st.builds(
    "{}{}{}{}{}{}{}".format,
    st.sampled_from(["", "", "", "", " ", "\t", "#", "# "]),
    _names,
    _blanks,
    st.sampled_from(["=", "=", "=", "=", "=", "==", ":", ""]),
    _blanks,
    _numbers,
    st.sampled_from(["", "", "", "", " ", " # why", " #why", " 5", "\u00a0"]),
)
_lines = st.one_of(_settings, _settings, _settings, st.text(max_size=20), st.just("# r\udce9glage"))
_ends = st.sampled_from(["\n", "\n", "\n", "\r\n", "\r", "\n\n"])
_files = st.builds(
    lambda head, lines, cut: encode_conf((head + "".join(map("".join, lines)))[: -1 if cut else None]),
    st.sampled_from(["", "", "", "", "\ufeff"]),
    st.lists(st.tuples(_lines, _ends), max_size=6),
    st.booleans(),
)


@settings(max_examples=400)
@given(_files, st.sampled_from([KEY, EDGE]), st.sampled_from(SCENARIOS))
@example(b"*.*.min_duration = 0x10\n*.Offline.target_qps = .9", KEY, "Offline")
def test_random_files_are_read_as_by_loadgen(
    read_with_loadgen: Read, content: bytes, key: str, scenario: Scenario
) -> None:
    of_loadgen = "Server" if scenario == "Interactive" else scenario
    compare(read_with_loadgen, content, key, of_loadgen)
    text = decode_conf(content)
    assert encode_conf(text) == content
    judged = check_conf(text, Path("user.conf"), BENCHMARKS[key], scenario)
    if judged.problems:
        return
    # An accepted file has the same effect without the omitted lines.
    assert read_with_loadgen(content, key, of_loadgen)[0] == 0
    stored = stored_lines(text)
    for name in KEYS:
        number = lookup(stored, key, of_loadgen, name)
        assert lookup(judged.settings, key, of_loadgen, name) == number
        assert number is None or 0 <= number <= 2**64


# A replaced value -----------------------------------------------------------------------------------------------------


def test_replacing_a_setting_changes_only_the_applied_line() -> None:
    text = "\n".join(
        [
            "# target_qps of *.Server.target_qps \x0c *.Server.target_qps = 9",
            "*.Server.target_qps = 1",
            f"{KEY}.Server.target_qps = 2",
            f"{KEY}.*.target_qps = 3",
            "*.Offline.target_qps = 4",
            "*.Server.min_duration = 5",
        ]
    )
    changed = stored_lines(with_setting(text, KEY, "Server", "target_qps", "7.5"))
    assert lookup(changed, KEY, "Server", "target_qps") == 7.5
    assert [(setting.name, setting.value) for setting in changed] == [
        (f"{KEY}.*.target_qps", "3"),
        ("*.Offline.target_qps", "4"),
        ("*.Server.min_duration", "5"),
        (f"{KEY}.Server.target_qps", "7.5"),
    ]
    assert changed[0] == Setting(2, KEY, "*", "target_qps", "3")
