"""Every scenario and mode through the front door with the real vLLM, each leg started as a user starts it."""

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from rouge_score import rouge_scorer

from compliance.report.leg_section import leg_section
from qsl.dataset import Dataset
from runs.benchmark import LOADGEN_SCENARIO, Scenario
from runs.benchmarks import default_benchmark
from runs.errors import ExitCode
from runs.loadgen.accuracy_log import AccuracyEntry, read_accuracy_log
from runs.record.observed import QueryTimes
from runs.rounds import CURRENT_ROUND
from tests.support.greedy import TIE, Answer
from tests.support.nltk_data import nltk_sentences
from tests.support.official import SAMPLING
from tests.vllm.conftest import FinishedLeg, leg_command, run_leg

pytestmark = [pytest.mark.vllm, pytest.mark.slow]


@dataclass(frozen=True)
class Spec:
    """A leg: its scenario and mode, its user.conf, and what else it is given."""

    scenario: Scenario
    accuracy: bool
    conf: str
    samples: int = 64
    arguments: tuple[str, ...] = ()


OFFLINE = "*.Offline.min_duration = 1000\n*.Offline.min_query_count = 1\n*.Offline.target_qps = 100\n"
# 459 queries are the fewest that early stopping accepts; INTERACTIVE makes fewer, so that it must be INVALID.
SERVER = "*.Server.min_duration = 1000\n*.Server.target_qps = 40\n*.Server.min_query_count = 459\n"
INTERACTIVE = "*.Server.min_duration = 1000\n*.Server.target_qps = 20\n"
SINGLE_STREAM = "*.SingleStream.min_duration = 100\n*.SingleStream.target_latency = 1000\n"
SINGLE_STREAM += "*.SingleStream.min_query_count = 1\n"
STATISTICS = ("--engine-arg", "disable_log_stats=false")
CACHING = ("--engine-arg", "enable_prefix_caching=true", *STATISTICS)

LEGS = {
    "offline": Spec("Offline", False, OFFLINE),
    "offline-accuracy": Spec("Offline", True, OFFLINE),
    "server": Spec("Server", False, SERVER),
    "server-accuracy": Spec("Server", True, SERVER),
    "single-stream": Spec("SingleStream", False, SINGLE_STREAM, arguments=STATISTICS),
    "single-stream-accuracy": Spec("SingleStream", True, SINGLE_STREAM, 16, ("--total-sample-count", "16")),
    "interactive-with-caching": Spec("Interactive", False, INTERACTIVE, arguments=CACHING),
    "interactive-accuracy": Spec("Interactive", True, SERVER),
}
PERFORMANCE = [name for name, spec in LEGS.items() if not spec.accuracy]
ACCURACY = [name for name, spec in LEGS.items() if spec.accuracy]
WITHOUT_CACHING = [name for name, spec in LEGS.items() if spec.arguments != CACHING]
# Interactive's limits are in its performance leg, LoadGen's Server in accuracy mode is in Server's.
LONG = "interactive-accuracy"


def each(names: Iterable[str]) -> pytest.MarkDecorator:
    marked = [pytest.param(name, marks=[pytest.mark.long] * (name == LONG)) for name in names]
    return pytest.mark.parametrize("name", marked)


class Legs:
    """Runs each leg at its first use."""

    def __init__(self, model: Path, folder: Path) -> None:
        self._model, self._folder = model, folder
        self._finished: dict[str, FinishedLeg] = {}

    def __getitem__(self, name: str) -> FinishedLeg:
        if name not in self._finished:
            spec, run_dir = LEGS[name], self._folder / name
            mode = ["--accuracy"] if spec.accuracy else []
            arguments = ["--scenario", spec.scenario, *mode, *spec.arguments]
            self._finished[name] = run_leg(leg_command(self._model, run_dir, spec.conf, arguments), run_dir)
        leg = self._finished[name]
        assert leg.exit_code in (ExitCode.OK, ExitCode.NEGATIVE), f"{name}: {leg}"
        return leg


@pytest.fixture(scope="module")
def legs(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Legs:
    return Legs(tiny_model, tmp_path_factory.mktemp("legs"))


def entries_of(leg: FinishedLeg) -> list[AccuracyEntry]:
    return read_accuracy_log(leg.run.accuracy_log)


def ids_of(data: bytes) -> list[int]:
    ids: list[int] = np.frombuffer(data, "<i4").tolist()
    return ids


# The verdict ---------------------------------------------------------------------------------------------------------


@each(LEGS)
def test_exit_code_and_result_agree(legs: Legs, name: str) -> None:
    leg = legs[name]
    good = {False: "VALID", True: "DONE"}[LEGS[name].accuracy]
    assert leg.result["verdict"] in (good, "INVALID")
    assert (leg.exit_code == ExitCode.OK) == (leg.result["verdict"] == good)
    assert bool(leg.result["reasons"]) == (leg.result["verdict"] == "INVALID")
    assert leg.manifest["exit_code"] == leg.exit_code
    assert leg.manifest["status"] == "finished"
    assert leg.manifest["error"] is None


@each(LEGS)
def test_no_two_records_of_a_leg_disagree(legs: Legs, name: str) -> None:
    result = legs[name].result
    assert result["disagreements"] == []
    assert result["counts"]["errors"] == 0


@each(PERFORMANCE)
def test_the_numbers_are_both_reported_and_derived(legs: Legs, name: str) -> None:
    result = legs[name].result
    assert result["derived_from"] == "requests"
    for source in ("reported", "derived"):
        # Under SingleStream LoadGen reports a latency; its samples/s is the inverse of it.
        rate = "samples_per_second_without_overhead" if LEGS[name].scenario == "SingleStream" else "samples_per_second"
        assert result[source][rate] > 0
        assert result[source]["tokens_per_second"] > 0
        assert result[source]["latency_ns"]["p99"] > 0


def test_few_server_queries_are_invalid_and_the_reason_says_how_many_are_needed(legs: Legs) -> None:
    leg = legs["interactive-with-caching"]
    assert leg.exit_code == ExitCode.NEGATIVE
    assert "459" in " ".join(leg.result["reasons"])
    assert "INVALID" in leg.stdout


@pytest.mark.parametrize("name", ["interactive-with-caching", "single-stream"])
def test_vllms_own_statistics_tell_prefill_from_decode(legs: Legs, name: str) -> None:
    leg = legs[name]
    times = QueryTimes(**leg.manifest["observed"]["engine"]["query_times"])
    assert times.queries == len(leg.requests)
    ours_s = float((leg.requests.complete_ns - leg.requests.issue_ns).sum()) / 1e9
    assert min(times.prefill_s, times.decode_s) > 0
    assert times.queued_s + times.prefill_s + times.decode_s < ours_s
    rows = dict(row for _, table in leg_section(leg.run.root, "leg", name, None).tables for row in table)
    assert all(rows[part].endswith(" ms a query") for part in ("waiting for vLLM", "prefill", "decode"))


# The samples ---------------------------------------------------------------------------------------------------------


@each(LEGS)
def test_every_sample_is_answered(legs: Legs, name: str) -> None:
    leg, spec = legs[name], LEGS[name]
    observed, counts, requests = leg.manifest["observed"], leg.result["counts"], leg.requests
    issued = observed["samples_issued"]
    assert issued == observed["samples_completed"] == len(requests) == counts["samples"] == counts["samples_expected"]
    assert set(requests.sample_index.tolist()) == set(range(spec.samples))
    assert issued % spec.samples == 0, "each sample equally often"
    assert requests.seq.tolist() == list(range(issued))


@each(LEGS)
def test_token_counts_keep_the_limits(legs: Legs, dataset: Dataset, name: str) -> None:
    requests = legs[name].requests
    assert requests.output_tokens.min() >= 2
    assert requests.output_tokens.max() == SAMPLING.max_tokens
    assert requests.output_tokens.min() < SAMPLING.max_tokens, "no answer ended at a stop id"
    prompts = [len(dataset.prompts[index]) for index in requests.sample_index]
    assert requests.prompt_tokens.tolist() == prompts
    at_limit = requests.output_tokens == SAMPLING.max_tokens
    assert all(reason == "stop" or full for reason, full in zip(requests.finish_reason, at_limit.tolist(), strict=True))


@each(LEGS)
def test_answers_are_those_of_greedy_decoding(legs: Legs, answers: list[Answer], name: str) -> None:
    """By hash, as performance legs keep no ids; answers with a tie on their way are left to the accuracy legs."""
    requests = legs[name].requests
    clear = {index for index, answer in enumerate(answers) if min(answer.margins) >= TIE}
    expected = {index: sha256(np.array(answers[index].ids, "<i4").tobytes()).hexdigest() for index in clear}
    compared = 0
    for index, digest in zip(requests.sample_index.tolist(), requests.output_sha256, strict=True):
        if index in clear:
            compared += 1
            assert digest == expected[index], f"sample {index}"
    assert compared >= len(requests) / 2


@each(LEGS)
def test_first_tokens_are_there_except_in_offline(legs: Legs, name: str) -> None:
    leg = legs[name]
    requests = leg.requests
    if LEGS[name].scenario == "Offline":
        assert (requests.first_token_ns == -1).all()
        return
    assert (requests.first_token_ns > requests.issue_ns).all()
    assert (requests.complete_ns > requests.first_token_ns).all()
    if not LEGS[name].accuracy:
        assert leg.result["reported"]["ttft_ns"]["p99"] > 0
        assert leg.result["reported"]["tpot_ns"]["p99"] > 0


def test_offline_reports_no_first_token_latency(legs: Legs) -> None:
    assert legs["offline"].result["reported"]["ttft_ns"] is None


# What was in force ---------------------------------------------------------------------------------------------------


@each(LEGS)
def test_loadgen_ran_what_was_asked(legs: Legs, name: str) -> None:
    leg, spec = legs[name], LEGS[name]
    assert leg.result["scenario"] == spec.scenario
    assert leg.result["loadgen_scenario"] == LOADGEN_SCENARIO[spec.scenario]
    assert leg.result["mode"] == ("AccuracyOnly" if spec.accuracy else "PerformanceOnly")
    assert leg.manifest["resolved"]["loadgen_key"] == default_benchmark(spec.scenario).loadgen_key
    seeds, in_force = CURRENT_ROUND.seeds, leg.result["in_force"]
    assert in_force["qsl_rng_seed"] == seeds.qsl_rng_seed
    assert in_force["sample_index_rng_seed"] == seeds.sample_index_rng_seed
    assert in_force["schedule_rng_seed"] == seeds.schedule_rng_seed


@pytest.mark.parametrize(
    ("name", "limits_ms"), [("server", (2000, 100)), ("interactive-with-caching", (500, 30)), ("offline", None)]
)
def test_the_limits_are_the_scenarios(legs: Legs, name: str, limits_ms: tuple[int, int] | None) -> None:
    in_force = legs[name].result["in_force"]
    found = in_force["ttft_limit_ns"], in_force["tpot_limit_ns"]
    assert found == (tuple(limit * 1_000_000 for limit in limits_ms) if limits_ms else (None, None))


@each(LEGS)
def test_engine_options_are_in_force(legs: Legs, name: str) -> None:
    manifest = legs[name].manifest
    engine, options = manifest["engine"], manifest["resolved"]["engine_options"]
    assert engine["name"] == "vllm"
    assert engine["in_force"] == engine["asked"] == {"model": manifest["resolved"]["model_path"], **options}
    assert manifest["resolved"]["sampling"] == vars(SAMPLING)


@each(WITHOUT_CACHING)
def test_nothing_is_cached_across_queries(legs: Legs, name: str) -> None:
    manifest = legs[name].manifest
    assert manifest["engine"]["prefix_caching"] is False
    assert manifest["engine"]["in_force"]["enable_prefix_caching"] is False
    assert manifest["observed"]["cached_prompt_tokens"] == 0


def test_prefix_caching_is_given_to_who_asks_and_makes_the_leg_unofficial(legs: Legs) -> None:
    leg = legs["interactive-with-caching"]
    assert leg.manifest["engine"]["prefix_caching"] is True
    assert leg.manifest["engine"]["in_force"]["enable_prefix_caching"] is True
    # Every article comes at least twice, so a cache must have been of use.
    assert len(leg.requests) >= 2 * 64
    assert leg.manifest["observed"]["cached_prompt_tokens"] > 0
    reasons = [reason for reason in leg.manifest["unofficial_reasons"] if "prefix caching" in reason]
    assert len(reasons) == 1
    assert reasons[0] in leg.stdout


@each(LEGS)
def test_a_try_out_is_never_official(legs: Legs, name: str) -> None:
    leg = legs[name]
    assert leg.manifest["official"] is False
    reasons = " ".join(leg.manifest["unofficial_reasons"])
    assert "bundled articles" in reasons
    assert "not Llama-3.1-8B" in reasons
    assert ("prefix caching" in reasons) == (name not in WITHOUT_CACHING)
    assert "not official" in leg.stdout


@each(LEGS)
def test_the_manifest_describes_model_and_data(legs: Legs, tiny_model: Path, dataset: Dataset, name: str) -> None:
    manifest = legs[name].manifest
    weights = tiny_model / "model.safetensors"
    assert manifest["model"]["sha256"]["model.safetensors"] == sha256(weights.read_bytes()).hexdigest()
    assert manifest["dataset"]["sha256"] == dataset.sha256
    assert manifest["dataset"]["rows_used"] == LEGS[name].samples


# Accuracy ------------------------------------------------------------------------------------------------------------


@each(ACCURACY)
def test_accuracy_legs_hold_every_sample_once(legs: Legs, name: str) -> None:
    leg, spec = legs[name], LEGS[name]
    entries = entries_of(leg)
    assert sorted(entry.qsl_idx for entry in entries) == list(range(spec.samples))
    assert leg.result["verdict"] == "DONE"
    assert leg.result["counts"]["accuracy_entries"] == spec.samples


@each(ACCURACY)
def test_loadgen_was_given_the_honest_ids_and_counts(legs: Legs, answers: list[Answer], name: str) -> None:
    requests = legs[name].requests
    for entry in entries_of(legs[name]):
        ids = ids_of(entry.data)
        assert entry.token_count == len(ids) == requests.output_tokens[entry.seq_id]
        assert entry.qsl_idx == requests.sample_index[entry.seq_id]
        assert sha256(entry.data).hexdigest() == requests.output_sha256[entry.seq_id]
        assert answers[entry.qsl_idx].matches(ids), f"sample {entry.qsl_idx}"
        if LEGS[name].scenario == "Offline":
            assert entry.token_data is None
        else:
            assert ids_of(entry.token_data or b"") == ids[:1]


@each(ACCURACY)
def test_accuracy_text_is_what_the_official_checker_looks_for(legs: Legs, name: str) -> None:
    leg = legs[name]
    text = leg.run.accuracy_text.read_text()
    record = orjson.loads(leg.run.accuracy_json.read_bytes())["scores"]
    for score in ("rouge1", "rouge2", "rougeL", "rougeLsum"):
        (found,) = re.findall(rf".*'{score}':\s+'?([\d.]+)'?.*", text)
        assert float(found) == record[score]
    (length,) = re.findall(r".*'gen_len':\s([\d.]+).*", text)
    assert int(length) == record["gen_len"]
    (line,) = [line for line in text.splitlines() if line.startswith("{")]
    literal = ast.literal_eval(line)  # plain numbers: NumPy's own would not parse
    assert literal["gen_num"] == LEGS[name].samples


@each(ACCURACY)
def test_scores_equal_the_reference_procedure(
    legs: Legs, dataset: Dataset, sentences: Callable[[str], list[str]], tiny_model: Path, name: str
) -> None:
    leg = legs[name]
    assert orjson.loads(leg.run.accuracy_json.read_bytes())["scores"] == reference_scores(
        leg, dataset.targets, sentences, tiny_model
    )


def reference_scores(
    leg: FinishedLeg, targets: list[str], sentences: Callable[[str], list[str]], model: Path
) -> dict[str, Any]:
    """The reference evaluation, from LoadGen's log to the scores, with none of our code."""
    from transformers import AutoTokenizer

    log = {entry["qsl_idx"]: entry["data"] for entry in orjson.loads(leg.run.accuracy_log.read_bytes())}
    ids = [np.frombuffer(bytes.fromhex(data), "<i4").tolist() for data in log.values()]
    texts = AutoTokenizer.from_pretrained(str(model)).batch_decode(ids, skip_special_tokens=True)
    predictions = ["\n".join(sentences(text.strip())) for text in texts]
    references = ["\n".join(sentences(targets[index].strip())) for index in log]
    names = ["rouge1", "rouge2", "rougeL", "rougeLsum"]
    scorer = rouge_scorer.RougeScorer(names, use_stemmer=True)
    pairs = zip(references, predictions, strict=True)
    scored = [scorer.score(reference, prediction) for reference, prediction in pairs]
    means = {name: round(float(np.mean([scores[name].fmeasure for scores in scored])) * 100, 4) for name in names}
    return {**means, "gen_len": sum(map(len, predictions)), "gen_num": len(predictions)}


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], list[str]]]:
    with nltk_sentences(tmp_path_factory.mktemp("nltk_data")) as split:
        yield split


@each(["server-accuracy", "interactive-accuracy"])
def test_all_scenarios_reach_the_same_scores(legs: Legs, name: str) -> None:
    """Greedy decoding does not depend on who else is being served (a tie might, and has not in this model)."""
    one, other = (
        orjson.loads(legs[leg].run.accuracy_json.read_bytes())["scores"] for leg in (name, "offline-accuracy")
    )
    for score in ("rouge1", "rouge2", "rougeL", "rougeLsum"):
        assert abs(one[score] - other[score]) <= 0.1


# Refused before an engine starts --------------------------------------------------------------------------------------


def test_an_unknown_engine_argument_is_bad_input(tiny_model: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    arguments = ["--scenario", "Offline", "--engine-arg", "nonsense=1"]
    leg = run_leg(leg_command(tiny_model, run_dir, OFFLINE, arguments), run_dir)
    assert leg.exit_code == ExitCode.BAD_INPUT, leg
    assert "nonsense" in leg.stderr
    assert "Traceback" not in leg.stdout + leg.stderr
    assert leg.manifest["error"]["exit_code"] == ExitCode.BAD_INPUT
    assert leg.claims() == []
    assert not leg.run.detail.exists(), "LoadGen was never started"


@pytest.mark.parametrize("argument", ["tensor_parallel_size=many", "data_parallel_size=0", "model=elsewhere"])
def test_values_that_the_plan_depends_on_are_checked_before_anything_starts(
    tiny_model: Path, tmp_path: Path, argument: str
) -> None:
    run_dir = tmp_path / "run"
    arguments = ["--scenario", "Offline", "--engine-arg", argument]
    leg = run_leg(leg_command(tiny_model, run_dir, OFFLINE, arguments), run_dir)
    assert leg.exit_code == ExitCode.BAD_INPUT, leg
    assert argument in leg.stderr
    assert "Traceback" not in leg.stderr
    assert not run_dir.exists()
