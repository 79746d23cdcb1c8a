"""What a round of MLPerf Endpoints asks of one point of a curve, which is one run folder.

The numbers stand in configs/rounds/endpoints/, each with its source. What the published rules do not say of a model is
not judged, and so is what a point does not show by itself (which points a curve has, steady state, power).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from compliance.accuracy.scores import score_texts
from compliance.endpoints.load import Load, read_load
from compliance.finding import RERUN, Finding, applied, decides, note
from qsl.dataset_file import parse_rows, read_bytes
from runs.endpoints.folder import PERFORMANCE, EndpointsRun
from runs.errors import InputError
from runs.reading import read_object
from runs.round_table import TABLES

NEWEST = "v1.0"
ACCURACY = "accuracy/accuracy_results.json"
ROUGE_DECIMALS = 4  # of the client, whose procedure is that of the reference
_ENDPOINTS = "[endpoints]"
_FIX = "take the unchanged file of the client's run folder"


@cache
def round_rules(name: str = NEWEST) -> dict[str, Any]:
    """The table of a round.

    Raises:
        InputError: there is none of that name.
    """
    known = sorted(path.stem for path in (TABLES / "endpoints").glob("v*.json"))
    if name not in known:
        raise InputError(f"{name!r} is no round of MLPerf Endpoints", f"give one of {', '.join(known)}")
    table: dict[str, Any] = orjson.loads((TABLES / "endpoints" / f"{name}.json").read_bytes())
    return table


@dataclass
class Point:
    """A run folder, held to a round."""

    run: EndpointsRun
    load: Load
    rules: dict[str, Any]
    not_judged: list[str] = field(default_factory=list)

    @property
    def model(self) -> tuple[str, dict[str, Any]] | None:
        """The benchmark's name and what is asked of it, by the last part of the model's name."""
        said = self.load.config.model_params.name.rstrip("/").rpartition("/")[2].lower()
        return next(((name, one) for name, one in self.rules["models"].items() if said in one["names"]), None)

    @property
    def concurrency(self) -> int | None:
        """None: an Offline point."""
        pattern = self.load.config.settings.load_pattern
        return pattern.target_concurrency if pattern.type == "concurrency" else None

    def leave(self, what: str) -> None:
        self.not_judged.append(what)


def judge_point(
    run: EndpointsRun, round_name: str = NEWEST, dataset_path: Path | None = None
) -> tuple[list[Finding], list[str]]:
    """Every rule of a round on one folder; and what was not judged."""
    load = read_load(run)
    if load is None:
        return [], ["every rule: the folder has no measured phase"]
    point = Point(run, load, round_rules(round_name))
    findings = [*_asked(point), *_measured(point), *_accuracy(point)]
    if dataset_path is not None:
        findings += rescored(run, dataset_path)
    return findings, point.not_judged


@decides(
    "official",
    ("endpoints-rule-model", "error", f"{_ENDPOINTS} §3.2", "the model is the round's", "run a model of the round"),
    ("endpoints-rule-pattern", "error", f"{_ENDPOINTS} §6.1", "a point has a fixed concurrency, or all samples at once",
     "set load_pattern to concurrency; a curve has one Offline point"),
    ("endpoints-rule-dataset", "error", f"{_ENDPOINTS} §2.9.1", "the data set is the benchmark's", "use that one"),
    ("endpoints-rule-sampling", "error", f"{_ENDPOINTS} §2.9.1", "sampling is the benchmark's", "set model_params so"),
    ("endpoints-rule-seeds", "error", f"{_ENDPOINTS} §4.6", "the seeds are those of a published set",
     "set both seeds to those of one set"),
    ("endpoints-rule-streaming", "error", f"{_ENDPOINTS} §4.1", "a point with a concurrency streams",
     "set model_params.streaming to on"),
    ("endpoints-rule-warm-up", "error", f"{_ENDPOINTS} §6.3.1", "warm-up takes no sample of the performance data",
     "set warmup.salt: the client warms up with the performance data"),
)  # fmt: skip
def _asked(point: Point) -> Iterator[Finding]:
    """What config.yaml asks for."""
    config, path = point.load.config, point.run.path("config.yaml")
    name, known = config.model_params.name, point.model
    yield applied("endpoints-rule-model", "", known is not None, name, ", ".join(point.rules["models"]), path)
    pattern, runtime = config.settings.load_pattern.type, config.settings.runtime
    agentic = known is not None and known[1].get("agentic", False)
    right = pattern in (("agentic_inference",) if agentic else ("concurrency", "max_throughput"))
    wanted = "agentic_inference" if agentic else "concurrency, or max_throughput for the Offline point"
    yield applied("endpoints-rule-pattern", "load_pattern", right, pattern, wanted, path)
    asked = {} if known is None else known[1]
    if "dataset" in asked:
        named = [one.get("name") for one in point.run.raw_config.get("datasets", []) if isinstance(one, dict)]
        rows = point.load.size[0]
        right = asked["dataset"] in named and rows == asked["rows"]
        said = f"{', '.join(map(str, named))}, {rows} rows"
        yield applied("endpoints-rule-dataset", "", right, said, f"{asked['dataset']}, {asked['rows']:,} rows", path)
    else:
        point.leave("data set: the published rules name none for this model")
    if "sampling" in asked:
        raw = point.run.raw_config.get("model_params") or {}
        found = {key: raw.get(key) for key in asked["sampling"]}
        yield applied(
            "endpoints-rule-sampling", "", found == asked["sampling"], f"{found}", f"{asked['sampling']}", path
        )
    else:
        point.leave("sampling and output limits: the published rules name none for this model")
    seeds = {key: getattr(runtime, key) for key in ("scheduler_random_seed", "dataloader_random_seed")}
    sets = point.rules["seed_sets"]
    yield applied(
        "endpoints-rule-seeds", "", seeds in sets.values(), f"{seeds}", " or ".join(f"set {one}" for one in sets), path
    )
    if point.concurrency is not None:
        yield applied(
            "endpoints-rule-streaming", "", config.streaming is True, str(config.model_params.streaming), "on", path
        )
    warm_up = config.settings.warmup
    salted = not warm_up.enabled or warm_up.salt
    yield applied("endpoints-rule-warm-up", "", salted, "salted or none" if salted else "not salted", "a salt", path)


@decides(
    "official",
    ("endpoints-rule-failures", "error", f"{_ENDPOINTS} §9.1", "no sample failed", RERUN),
    ("endpoints-rule-samples", "error", f"{_ENDPOINTS} §6.4", "samples are whole passes over the data set",
     "set n_samples_to_issue to a multiple of its rows"),
    ("endpoints-rule-duration", "warning", f"{_ENDPOINTS} §6.2", "a point lasts as long as its concurrency asks for",
     "issue more passes"),
    ("endpoints-rule-tpot", "error", f"{_ENDPOINTS} §9.1", "the P90 of TPOT is above 0", "stream, with a tokenizer"),
)  # fmt: skip
def _measured(point: Point) -> Iterator[Finding]:
    """What was measured."""
    load, place = point.load, point.load.place
    failed = int(load.events.failed[load.rows].sum())
    yield applied("endpoints-rule-failures", "samples that failed", not failed, f"{failed}", "0", place)
    rows, sent = load.size[0], len(load.rows)
    if rows is None:
        point.leave("samples: the data set's size is not known")
    else:
        said = f"{sent} of {rows} rows"
        yield applied("endpoints-rule-samples", "", sent % rows == 0, said, f"a multiple of {rows}", place)
    duration_s = (load.end_ns - load.start_ns) / 1e9
    low = (point.concurrency or 0) <= point.rules["points"]["ultra_low"] and point.concurrency is not None
    least = point.rules["min_duration_s"]["ultra_low" if low else "above"]
    if point.concurrency is None:
        point.leave("duration: the published rules name none for the Offline point")
    else:
        yield applied("endpoints-rule-duration", "", duration_s >= least, f"{duration_s:.1f} s", f"{least} s", place)
        summary = point.run.summary
        p90 = None if summary is None else summary.tpot.percentiles.get("90.0")
        said = "none" if p90 is None else f"{p90 / 1e6:.3f} ms"
        yield applied("endpoints-rule-tpot", "", p90 is not None and p90 > 0, said, "above 0", place)
    point.leave("steady state and power: the client writes neither")


@decides(
    "official",
    ("endpoints-rule-accuracy", "error", f"{_ENDPOINTS} §4.3", "the accuracy meets the benchmark's targets",
     "correct the model or its sampling; run again with an accuracy data set"),
    ("endpoints-rule-accuracy-there", "note", f"{_ENDPOINTS} §4.3", "four points and the Offline one have one",
     "add the benchmark's data set with type accuracy"),
)  # fmt: skip
def _accuracy(point: Point) -> Iterator[Finding]:
    entries = accuracy_entries(point.run)
    path = point.run.path(ACCURACY)
    if not entries:
        yield note("endpoints-rule-accuracy-there", f"there is no {ACCURACY}", path)
        return
    asked = {} if point.model is None else point.model[1]
    if "targets" not in asked:
        point.leave("accuracy: the published rules name no target for this model")
        return
    for name, entry in entries.items():
        count = entry.get("num_samples", entry.get("unit_samples"))
        enough = isinstance(count, int) and count >= asked["accuracy_samples"]
        text = f"{name}: samples scored"
        yield applied("endpoints-rule-accuracy", text, enough, f"{count}", f"{asked['accuracy_samples']}", path)
        scores = scores_of(entry)
        for score, (low, high) in asked["targets"].items():
            found = scores.get(score, scores.get("score") if len(asked["targets"]) == 1 else None)
            if found is None:
                point.leave(f"accuracy: {name} has no {score}")
                continue
            right = found >= low and (high is None or found <= high)
            limit = f"at least {low:g}" + ("" if high is None else f", at most {high:g}")
            yield applied("endpoints-rule-accuracy", f"{name}: {score}", right, f"{found:g}", limit, path)


def accuracy_entries(run: EndpointsRun) -> dict[str, dict[str, Any]]:
    """The scores of each data set, by its name; without those of the measured phase."""
    if not run.has(ACCURACY):
        return {}
    content = read_object(run.path(ACCURACY), _FIX, within=run.root).get("accuracy_scores")
    entries = content if isinstance(content, list) else []
    found = [one for one in entries if isinstance(one, dict) and isinstance(one.get("dataset_name"), str)]
    return {one["dataset_name"]: one for one in found if one.get("dataset_type") != PERFORMANCE}


def scores_of(entry: dict[str, Any]) -> dict[str, float]:
    """The numbers of an entry; one without a name is `score`."""
    said = entry.get("score")
    named = said if isinstance(said, dict) else {"score": said}
    texts = {str(name): str(value) for name, value in named.items()}
    return {name: float(text) for name, text in texts.items() if re.fullmatch(r"\d{1,15}(\.\d{1,20})?", text)}


@decides(
    "contradiction",
    ("endpoints-accuracy", "error", _ENDPOINTS, "the scores follow from the answers", _FIX),
)  # fmt: skip
def rescored(run: EndpointsRun, dataset_path: Path) -> Iterator[Finding]:
    """ROUGE of the logged answers against the data set's references, as the client's own scorer computes it.

    Raises:
        InputError: the data set has no such rows.
    """
    events, indices = run.events, run.indices or {}
    for one in run.raw_config.get("datasets", []):
        how = one.get("accuracy_config") if isinstance(one, dict) else None
        if not isinstance(how, dict) or how.get("eval_method") != "rouge" or events is None:
            continue
        name, column = str(one.get("name")), str(how.get("ground_truth") or "ground_truth")
        rows = parse_rows(read_bytes(dataset_path), dataset_path, (column,))
        place = {events.rows[uuid]: index for uuid, index in indices.get(name, {}).items() if uuid in events.rows}
        if not place:
            continue
        if max(place.values()) >= len(rows):
            raise InputError(
                f"{dataset_path} has {len(rows)} rows, and the run asked for row {max(place.values())}", _FIX
            )
        pairs = [(answer.text, str(rows[place[row]].get(column))) for row, answer in events.answers() if row in place]
        scores = score_texts([text for text, _ in pairs], [reference for _, reference in pairs])
        for score, reported in scores_of(accuracy_entries(run).get(name, {})).items():
            if score in scores:
                right = round(reported, ROUGE_DECIMALS) == round(scores[score], ROUGE_DECIMALS)
                text = f"{name}: {score} of {len(pairs)} answers"
                path = run.path(ACCURACY)
                yield applied("endpoints-accuracy", text, right, f"{reported:g}", f"{scores[score]:g}", path)
