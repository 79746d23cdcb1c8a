"""(e) Accuracy scoring against the reference procedure, on one log and with equal scores.

As a program, `python -m tools.peers.scoring ours|reference FOLDER` scores the log in FOLDER.
"""

import json
import sys
import time
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from rouge_score.rouge_scorer import RougeScorer

from compliance.accuracy.metrics import ROUGE, ROUGE_NAMES, Scores
from compliance.accuracy.punkt import sentence_splitter
from compliance.accuracy.scores import score_accuracy_log
from qsl.tokenizers import Tokenizer, load_tokenizer
from runs.errors import ExecutionError
from runs.loadgen.accuracy_log import read_accuracy_log

from .report import PeerPart, at_most
from .sizes import Sizes
from .support.models import TINY, make_llama, make_texts
from .support.programs import measure

LOG, REFERENCES, MODEL = "accuracy_log.json", "references.json", "model"


def run(work: Path, sizes: Sizes) -> PeerPart:
    """Write a log, score it in both ways, and compare the scores to the last digit."""
    part = PeerPart("e", f"accuracy scoring of {sizes.scored_samples:,} samples against the reference procedure")
    _make_log(work, sizes.scored_samples)
    seconds: dict[str, list[float]] = {"reference": [], "ours": []}
    scores = {}
    for side, runs in seconds.items():
        measured = measure("scoring", side, work, log=work / f"{side}.log")
        runs.append(measured["seconds"])
        scores[side] = measured["scores"]
    if scores["ours"] != scores["reference"]:
        raise ExecutionError(f"the scores differ: {scores}", f"see {work}")
    own_figure = part.add("ours", "s", seconds["ours"])
    reference = part.add("reference procedure", "s", seconds["reference"])
    part.add_ratio("ours ÷ reference", own_figure, reference, at_most(0.6))
    part.notes.append(
        f"scores equal to the last digit: {scores['ours']}. From the log's bytes to the scores, start of worker "
        "processes included; tokenizer already loaded. The reference procedure: json, the tokenizer's decode, NLTK's "
        "sentence splitter, rouge_score with the Porter stemmer, one process."
    )
    return part


def _make_log(folder: Path, count: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = load_tokenizer(str(make_llama(folder / MODEL, TINY)))
    predictions, references = make_texts(count)
    entries = [
        {"seq_id": number, "qsl_idx": number, "data": array("i", ids).tobytes().hex().upper(), "token_count": len(ids)}
        for number, ids in enumerate(tokenizer.encode_batch(predictions))
    ]
    (folder / LOG).write_bytes(orjson.dumps(entries))
    (folder / REFERENCES).write_bytes(orjson.dumps(references))


def score_as_reference(log: Path, references: list[str], tokenizer: Tokenizer) -> Scores:
    """Score like the reference evaluation, in one process."""
    entries: dict[int, dict[str, Any]] = {}
    for entry in json.loads(log.read_text()):
        entries.setdefault(entry["qsl_idx"], entry)
    ids = [np.frombuffer(bytes.fromhex(entry["data"]), np.int32) for entry in entries.values()]
    split = sentence_splitter()
    predictions = ["\n".join(split(text.strip())) for text in tokenizer.batch_decode(ids)]
    wanted = ["\n".join(split(references[index].strip())) for index in entries]
    scorer = RougeScorer(list(ROUGE_NAMES), use_stemmer=True)
    scored = [scorer.score(reference, text) for reference, text in zip(wanted, predictions, strict=True)]
    means = {
        name: float(np.round(np.mean([scores[name].fmeasure for scores in scored]) * 100, 4)) for name in ROUGE_NAMES
    }
    return {**means, "gen_len": sum(map(len, predictions)), "gen_num": len(predictions)}


def main() -> None:
    """Score a log once, from its bytes to the scores."""
    side, folder = sys.argv[1], Path(sys.argv[2])
    references = orjson.loads((folder / REFERENCES).read_bytes())
    tokenizer = load_tokenizer(str(folder / MODEL))
    started = time.perf_counter()
    if side == "ours":
        scores = score_accuracy_log(ROUGE, read_accuracy_log(folder / LOG), references, tokenizer.batch_decode)
    else:
        scores = score_as_reference(folder / LOG, references, tokenizer)
    print(orjson.dumps({"seconds": time.perf_counter() - started, "scores": scores}).decode(), flush=True)


if __name__ == "__main__":
    main()
