"""Rules on texts of scores and audits: failures, impossible scores, contradictions, and paths of other results."""

import re
from collections.abc import Iterator
from pathlib import Path

from compliance.accuracy.accuracy_text import stated_score
from compliance.accuracy.evaluation_text import (
    TextFault,
    datasets_in,
    numbers_in,
    scored_samples,
    stated_failures,
    text_contradictions,
)
from compliance.judge.rule import OURS, Rank, decides
from compliance.judge.verdict import Finding, compared
from compliance.results.run_claim import RunClaim
from compliance.trees.audits import AUDIT_TEXTS, FALLBACK
from compliance.trees.findings import is_regular, read_tree_text, value_of
from compliance.trees.scenario_directory import ScenarioDirectory
from runs.benchmark import SCENARIOS
from runs.rounds import model_of

# Scores that are lengths, distances or entropies. All other scores are at most 1, or 100 in percent.
_UNBOUNDED = frozenset({"GEN_LEN", "TOKENS_PER_SAMPLE", "FID_SCORE", "DLRM_NE"})
# Highest plausible score as a multiple of the lowest allowed score. The highest of 3,300 closed scores of v4.1, v5.1
# and v6.0 have half of this excess (DICE 1.065, mAP 1.047, ROUGE2 1.037, AUC 1.009), except 1.46 on a part of a
# dataset.
REACH = 1.1
_REACH = {"DICE": 1.15, "AUC": 1.02, "F1": 1.02, "acc": 1.025, "ACCURACY": 1.03}
_DATASET = "gpqa_diamond"  # [mlperf] compliance/TEST07/README.md, acc_eval_compliance_gpqa.parquet
_FOLDER = re.compile(r"(?<=/)[^/\s'\",:]+(?=/)")
_SCENARIOS = frozenset(name.lower() for name in (*SCENARIOS, "MultiStream"))


@decides(
    "tree",
    ("accuracy-failure", "warning", OURS, "failure reported in a text file with scores",
     "correct the evaluation, and write the text file again"),
    ("accuracy-numbers", "error", OURS, "numbers of a text file with scores, compared with each other",
     "write the text file from the run's own log"),
    ("accuracy-range", "error", OURS, "score", "write accuracy.txt from the run's own log"),
    ("accuracy-reach", "warning", OURS, "score, compared with the score of the reference model",
     "score the complete dataset with the benchmark's own evaluation"),
    also=("accuracy-samples",),
    needs=("text",),
    rank=Rank.LIMITS,
)  # fmt: skip
def check_scores(directory: ScenarioDirectory) -> Iterator[Finding]:
    """Check the scores in accuracy.txt and in the texts of audit directories."""
    path = directory.accuracy.dir.accuracy_text
    for text_path in _texts(directory):
        text = _text_of(text_path)
        # The rule audit-verdict reports failures in other texts.
        for fault in () if text_path.name.startswith("verify_") else stated_failures(text):
            yield compared("accuracy-failure", False, *fault[:2], text_path, decided_by=[fault.key])
        for fault in text_contradictions(text):
            yield compared("accuracy-numbers", False, *fault[:2], text_path, decided_by=[fault.key])
    text = _text_of(path)
    for rule, fault in _scores(directory.claim, text):
        yield compared(rule, False, *fault[:2], path, decided_by=[fault.key])
    path07 = directory.audit("TEST07") / AUDIT_TEXTS["TEST07"][0]
    for rule, fault in _test07(directory.claim, _text_of(path07)):
        yield compared(rule, False, *fault[:2], path07, severity="warning", decided_by=[fault.key])
    samples = directory.claim.accuracy_samples
    for name, count in scored_samples(text):
        if count != samples and name != "gen_num":  # rule accuracy-samples reports gen_num as an error
            stated, wanted = f"{name} is {count:,}", f"{samples:,}"
            yield compared("accuracy-samples", False, stated, wanted, path, severity="warning", decided_by=[name])


def _test07(claim: RunClaim, text: str) -> Iterator[tuple[str, TextFault]]:
    """Yield datasets that TEST07 does not use, and a score of TEST07 that is too low or too high."""
    if unused := [name for name in datasets_in(text) if name != _DATASET]:
        yield "audit-numbers", TextFault(f"scores of {', '.join(unused)}", f"scores of {_DATASET}", unused[0])
    settings, score = claim.entry.audit_settings.get("TEST07", {}), numbers_in(text)
    threshold = settings.get("test07_accuracy_threshold")
    if threshold and (value := score.get("exact_match", 0.0)) > REACH * threshold:
        yield (
            "accuracy-reach",
            TextFault(f"exact_match is {value:.10g}", f"at most {REACH * threshold:.10g}", "exact_match"),
        )


def scores_in(path: Path) -> dict[str, float]:
    """The numbers of an accuracy.txt by name."""
    return numbers_in(_text_of(path))


def _scores(claim: RunClaim, text: str) -> Iterator[tuple[str, TextFault]]:
    """Yield scores that no system with the benchmark's model can reach. A score is a share or a percentage."""
    lines = text.splitlines()
    for score, limits in claim.targets.items():
        if score in _UNBOUNDED or not limits.low:
            continue
        for value in stated_score(lines, score, is_single=False).values:
            low = limits.low * 100 if value > 1 >= limits.low else limits.low
            stated = f"{score} is {value:.10g}"
            if value > 100:
                yield "accuracy-range", TextFault(stated, "at most 100", score)
            elif claim.is_open:
                continue
            elif value > (most := _REACH.get(score, REACH) * low):
                yield "accuracy-reach", TextFault(stated, f"at most {most:.10g}", score)
            # The official checker accepts such a score, because it compares a percentage with a share.
            elif value < low != limits.low:
                yield "accuracy-reach", TextFault(stated, f"at least {low:.10g} (percent), or at most 1 (share)", score)


@decides(
    "tree",
    ("text-place", "warning", OURS, "path in a text, compared with the benchmark and scenario of the result",
     "submit the text of this result's own runs"),
    rank=Rank.COPIES,
)  # fmt: skip
def check_places(directory: ScenarioDirectory) -> Iterator[Finding]:
    """Compare paths in texts with the benchmark and scenario of the result. Names of systems may differ."""
    claim = directory.claim
    names = {name.lower(): model_of(entry) for name, entry in directory.tree.round.table.directories.items()}
    scenarios = {claim.scenario.lower(), *(run.scenario.lower() for run in directory.identities)}
    for path in _texts(directory):
        folders = {folder.lower() for folder in _FOLDER.findall(_text_of(path))}
        for named_parts, allowed in ((folders & _SCENARIOS, scenarios), (folders & set(names), {claim.entry.model})):
            named = {names.get(part, part) for part in named_parts}
            if named and not named & allowed:
                yield compared("text-place", False, ", ".join(sorted(named_parts)), " or ".join(sorted(allowed)), path)


def _texts(directory: ScenarioDirectory) -> Iterator[Path]:
    yield directory.accuracy.dir.accuracy_text
    for test in directory.audits:
        folder = directory.audit(test)
        yield from (folder / name for name in AUDIT_TEXTS.get(test, ()))
        yield from (folder / "accuracy" / name for name in FALLBACK)


def _text_of(path: Path) -> str:
    """Read a text. Return an empty text if it is unreadable; other checks report this."""
    return (value_of(read_tree_text(path, "tree-unreadable")) if is_regular(path) else None) or ""
