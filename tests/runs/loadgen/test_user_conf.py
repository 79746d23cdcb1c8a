"""user.conf: every line that LoadGen would ignore, misread or stumble over is refused; the rest takes effect."""

from pathlib import Path

import pytest

from runs.errors import InputError
from runs.loadgen.detail_log import read_detail
from runs.loadgen.user_conf import (
    EMBEDDED_ONLY_KEYS,
    INTEGER_KEYS,
    REAL_KEYS,
    SCENARIO_KEYS,
    Setting,
    lookup,
    mismatches,
    read_conf,
    with_setting,
)
from tests.support.loadgen_runs import Runs
from tests.support.read_with_loadgen import read_all

KEY = "llama3_1-8b"

# A refused line, and words of the message that must name what is wrong with it.
REFUSED = {
    "no-blanks": ("*.Server.target_qps=10", "put spaces around the = sign"),
    "no-blank-before": ("*.Server.target_qps= 10", "put spaces around the = sign"),
    "no-equals": ("*.Server.target_qps 10", "model.scenario.key = value"),
    "no-value": ("*.Server.target_qps =", "model.scenario.key = value"),
    "two-values": ("*.Server.target_qps = 5 7", "cannot read"),
    "comment-without-blank": ("#comment", "put a space after the # sign"),
    "commented-out-line": ("#*.Server.target_qps = 10", "put a space after the # sign"),
    "comment-after-value": ("*.Server.target_qps = 10 # why", "a line of its own"),
    "comment-after-value-no-blank": ("*.Server.target_qps = 10 #why", "a line of its own"),
    "two-parts": ("Server.target_qps = 10", "model.scenario.key"),
    "four-parts": ("llama3.1-8b.Server.target_qps = 10", "model.scenario.key"),
    "unknown-model": ("llama3_1_8b.Server.target_qps = 10", "model 'llama3_1_8b'"),
    "unknown-scenario": ("*.Serve.target_qps = 10", "scenario 'Serve'"),
    "scenario-in-lower-case": ("*.server.target_qps = 10", "scenario 'server'"),
    "interactive": ("*.Interactive.target_qps = 10", "llama3_1-8b-interactive"),
    "unknown-key": ("*.Server.target_qsp = 10", "no key 'target_qsp'"),
    "key-of-another-scenario": ("*.SingleStream.target_qps = 10", "not for SingleStream"),
    "scientific": ("*.*.min_duration = 1e3", "min_duration = 1e3"),
    "scientific-real": ("*.Server.target_qps = 1e3", "target_qps = 1e3"),
    "octal": ("*.*.min_duration = 010", "min_duration = 010"),
    "octal-real": ("*.Server.target_qps = 010", "target_qps = 010"),
    "hexadecimal": ("*.*.min_duration = 0x10", "min_duration = 0x10"),
    "negative": ("*.*.min_duration = -1", "min_duration = -1"),
    "negative-real": ("*.Server.target_qps = -1.5", "target_qps = -1.5"),
    "decimal-for-integer": ("*.*.min_duration = 1.9", "min_duration = 1.9"),
    "plus-sign": ("*.*.min_duration = +5", "min_duration = +5"),
    "word": ("*.*.min_duration = long", "min_duration = long"),
    "not-a-number": ("*.Server.target_qps = nan", "target_qps = nan"),
    "endless": ("*.Server.target_qps = inf", "target_qps = inf"),
    "overflow": ("*.*.min_duration = 18446744073709551616", "too large"),
    "overflow-in-ns": ("*.*.min_duration = 18446744073709551", "too large"),
    "seed-overflow": ("*.*.accuracy_log_rng_seed = 18446744073709551616", "too large"),
    "no-rate": ("*.Server.target_qps = 0", "above 0"),
    "no-rate-real": ("*.Offline.target_qps = 0.0", "above 0"),
    "no-queries": ("*.*.min_query_count = 0", "above 0"),
    "no-latency": ("*.SingleStream.target_latency = 0", "above 0"),
    "no-latency-anywhere": ("*.*.target_latency = 0", "above 0"),
    "rate-without-end": ("*.Server.target_qps = 1000001", "at most 1,000,000"),
    "percentile-0": ("*.Server.target_latency_percentile = 0", "above 0"),
    "percentile-100": ("*.Server.target_latency_percentile = 100", "below 100"),
    "no-break-space": ("*.Server.target_qps\u00a0=\u00a010", "U+00A0"),
    "no-break-space-at-end": ("*.Server.target_qps = 10\u00a0", "U+00A0"),
    "byte-order-mark": ("\ufeff*.Server.target_qps = 10", "U+FEFF"),
    "control-character": ("*.Server.target_qps\x1c=\x1c10", "U+001C"),
    "lone-carriage-return": ("*.Server.target_qps = 10\r*.Server.min_duration = 10", "cannot read"),
    **{f"embedded-{key}": (f"*.*.{key} = 5", key) for key in sorted(EMBEDDED_ONLY_KEYS)},
}

ACCEPTED = {
    "plain": ("*.Server.target_qps = 12.5", {"target_qps": "12.5"}),
    "model": (f"{KEY}.Server.target_qps = 12", {"target_qps": "12"}),
    "tabs-and-blanks": (" \t*.Server.target_qps\t=   12 \t", {"target_qps": "12"}),
    "windows": ("*.Server.target_qps = 12\r\n*.Server.min_duration = 5\r\n", {"target_qps": "12", "min_duration": "5"}),
    "comment": ("# one # two\n\n*.Server.target_qps = 12\n#\n", {"target_qps": "12"}),
    "comment-in-any-script": ("# µs – 中文 \u2028 \x0c *.Server.target_qps = 8\n", {}),
    "zero-latency-limit": ("*.Server.target_latency = 0", {"target_latency": "0"}),
    "largest-seed": (f"*.*.accuracy_log_rng_seed = {2**64 - 1}", {"accuracy_log_rng_seed": str(2**64 - 1)}),
    "empty": ("", {}),
}


def parse(tmp_path: Path, text: str) -> tuple[Setting, ...]:
    path = tmp_path / "user.conf"
    path.write_bytes(text.encode())
    return read_conf(path)


@pytest.mark.parametrize("name", REFUSED)
def test_refused_line_is_named_with_its_number(name: str, tmp_path: Path) -> None:
    line, word = REFUSED[name]
    with pytest.raises(InputError) as refused:
        parse(tmp_path, f"# comment\n\n*.*.max_duration = 7\n{line}\n")
    assert str(refused.value).startswith(f"{tmp_path}/user.conf:4: ")
    assert word in str(refused.value)
    assert refused.value.fix


def test_duplicate_names_both_lines(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"user\.conf:3: \*\.Server\.target_qps is already set in line 1"):
        parse(tmp_path, "*.Server.target_qps = 1\n*.Offline.target_qps = 1\n*.Server.target_qps = 2\n")


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_text(name: str, tmp_path: Path) -> None:
    text, values = ACCEPTED[name]
    assert {setting.key: setting.value for setting in parse(tmp_path, text)} == values


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary.conf").write_bytes(b"\xff\xfe\x00*")
    with pytest.raises(InputError, match="not a text file"):
        read_conf(tmp_path / "binary.conf")
    with pytest.raises(InputError, match="--audit-conf"):
        read_conf(tmp_path / "none.config", "--audit-conf")


def test_lookup_order(tmp_path: Path) -> None:
    lines = [f"{part}.min_duration = {number}" for number, part in
             enumerate((f"{KEY}.Server", "*.Server", f"{KEY}.*", "*.*"), start=1)]  # fmt: skip
    for expected in ("1", "2", "3", "4"):
        settings = parse(tmp_path, "\n".join(reversed(lines)))
        assert lookup(settings, KEY, "Server", "min_duration") == expected
        del lines[0]
    settings = parse(tmp_path, "llama3_1-8b-edge.Server.min_duration = 1\n*.Offline.min_duration = 2")
    assert lookup(settings, KEY, "Server", "min_duration") is None


def test_with_setting_replaces_what_would_win_and_nothing_else(tmp_path: Path) -> None:
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
    changed = parse(tmp_path, with_setting(text, KEY, "Server", "target_qps", "7.5"))
    assert lookup(changed, KEY, "Server", "target_qps") == "7.5"
    assert [(setting.name, setting.value) for setting in changed] == [
        (f"{KEY}.*.target_qps", "3"),
        ("*.Offline.target_qps", "4"),
        ("*.Server.min_duration", "5"),
        (f"{KEY}.Server.target_qps", "7.5"),
    ]


# Against the real LoadGen -----------------------------------------------------------------------------------------

# Attribute of TestSettings, and what one unit of the key is there, where they are not the key itself and 1.
ATTRIBUTES: dict[str, tuple[str, float | str]] = {
    "mode": ("mode", "TestMode.AccuracyOnly"),
    "ttft_latency": ("ttft_latency", 1e6),
    "tpot_latency": ("tpot_latency", 1e6),
    "samples_per_query": ("multi_stream_samples_per_query", 1),
    "coalesce_queries": ("server_coalesce_queries", "flag"),
    "max_async_queries": ("server_max_async_queries", 1),
    "min_duration": ("min_duration_ms", 1),
    "max_duration": ("max_duration_ms", 1),
} | {
    key: (key, "flag")
    for key in ("use_token_latencies", "infer_token_latencies", "performance_issue_unique", "performance_issue_same",
                "sample_concatenate_permutation", "print_timestamps")
}  # fmt: skip
BY_SCENARIO: dict[tuple[str, str], tuple[str, float | str]] = {
    ("target_latency", "Server"): ("server_target_latency_ns", 1e6),
    ("target_latency", "SingleStream"): ("single_stream_expected_latency_ns", 1e6),
    ("target_latency", "MultiStream"): ("multi_stream_expected_latency_ns", 1e6),
    **{
        ("target_latency_percentile", scenario): (f"{name}_target_latency_percentile", 0.01)
        for scenario, name in (("Server", "server"), ("SingleStream", "single_stream"), ("MultiStream", "multi_stream"))
    },
    ("target_qps", "Server"): ("server_target_qps", 1),
    ("target_qps", "Offline"): ("offline_expected_qps", 1),
}
NOT_READ_WITHOUT = {
    "ttft_latency": "*.*.use_token_latencies = 1",
    "tpot_latency": "*.*.use_token_latencies = 1",
    "token_latency_scaling_factor": "*.*.infer_token_latencies = 1",
}


def test_each_accepted_key_takes_effect_in_loadgen(tmp_path: Path) -> None:
    wanted = []
    for key in sorted(INTEGER_KEYS | REAL_KEYS):
        for scenario in sorted(SCENARIO_KEYS.get(key, {"Server"})):
            attribute, unit = BY_SCENARIO.get((key, scenario)) or ATTRIBUTES.get(key, (key, 1))
            effect: object
            if isinstance(unit, str):
                value, effect = "1", True if unit == "flag" else unit
            else:
                value = "37.25" if key in REAL_KEYS else "37"
                effect = float(value) * unit
            lines = [f"*.{scenario}.{key} = {value}", *filter(None, [NOT_READ_WITHOUT.get(key)])]
            wanted.append(("\n".join(lines), scenario, attribute, effect))
    for text, *_ in wanted:
        assert parse(tmp_path, text)  # our grammar accepts it ...
    found = read_all([(text, KEY, scenario) for text, scenario, *_ in wanted])
    for (text, _, attribute, effect), (code, changed) in zip(wanted, found, strict=True):
        assert code == 0, text
        assert changed.get(attribute) == pytest.approx(effect), text  # ... and so does LoadGen


def test_loadgen_agrees_on_the_grammar() -> None:
    accepted = [text for text, _ in ACCEPTED.values()]
    for (code, _), text in zip(read_all([(text, KEY, "Server") for text in accepted]), accepted, strict=True):
        assert code == 0, text
    # What we refuse for LoadGen's sake really has no effect there, or another one than it says.
    ignored = ["no-blanks", "unknown-model", "scenario-in-lower-case", "interactive", "no-break-space", "two-parts",
               "byte-order-mark", "control-character", "embedded-qsl_rng_seed", "unknown-key"]  # fmt: skip
    rejected = ["comment-after-value", "no-equals", "word"]
    misread: dict[str, tuple[str, float]] = {
        "scientific": ("min_duration_ms", 1),
        "octal": ("min_duration_ms", 8),
        "hexadecimal": ("min_duration_ms", 16),
        "negative": ("min_duration_ms", 2**64 - 1),
        "two-values": ("server_target_qps", 7.0),
    }
    names = [*ignored, *rejected, *misread]
    effects = dict(zip(names, read_all([(REFUSED[name][0], KEY, "Server") for name in names]), strict=True))
    assert {name: effects[name] for name in ignored} == {name: (0, {}) for name in ignored}
    assert all(effects[name][0] != 0 and not effects[name][1] for name in rejected)
    for name, (attribute, value) in misread.items():
        assert effects[name][1][attribute] == value


def test_lookup_agrees_with_loadgen(tmp_path: Path) -> None:
    parts = [(KEY, "Server"), ("*", "Server"), (KEY, "*"), ("*", "*")]
    cases = []
    for bits in range(1, 16):
        chosen = [part for place, part in enumerate(parts) if bits >> place & 1]
        cases.append(
            "\n".join(f"{model}.{scenario}.min_duration = {len(model + scenario)}" for model, scenario in chosen)
        )
    for text, (code, changed) in zip(cases, read_all([(text, KEY, "Server") for text in cases]), strict=True):
        assert (code, str(changed["min_duration_ms"])) == (
            0,
            lookup(parse(tmp_path, text), KEY, "Server", "min_duration"),
        )


def test_what_the_log_has_instead_is_named_in_the_units_of_user_conf(tmp_path: Path, loadgen_runs: Runs) -> None:
    detail = read_detail(loadgen_runs["server"].detail)
    lines = parse(tmp_path, "*.Server.ttft_latency = 100\n*.Server.tpot_latency = 10000\n")
    (found,) = mismatches(lines, [KEY], detail, {"target_qps"})
    assert (found.key, found.logged) == ("ttft_latency", 60000.0)
