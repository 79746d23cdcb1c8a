"""Rules on the accuracy log: it has one response for each issued sample, and agrees with the request log."""

import hashlib
from collections.abc import Iterator, Sequence

from compliance.judge.rule import OURS, RERUN, check_of, decides
from compliance.judge.verdict import Finding, compared, stated
from compliance.results.run_evidence import RunEvidence, ids_unknown
from compliance.results.truncate import hash_in_accuracy_text
from runs.loadgen.accuracy_log import AccuracyEntry
from runs.loadgen.detail_log import DetailLog
from runs.loadgen.replay import expected_order, expected_samples
from runs.record.finished_run import ACCURACY as ACCURACY_MODE
from runs.record.finished_run import FinishedRun

_ID_BYTES = 4  # bytes per token ID that this harness gives to LoadGen


@decides(
    "contradiction",
    ("record-hash", "error", OURS, "SHA-256 of the accuracy log, compared with accuracy.txt",
     "restore all files of the run directory as they were when the run ended"),
    needs=("log", "responses"),
    also=("log-records", "record-answers"),
)  # fmt: skip
def whole_log(run: RunEvidence) -> Iterator[Finding]:
    """Compare an untruncated accuracy log with the request log and with the hash in accuracy.txt."""
    path, log, table, entries = run.dir.requests, run.dir.accuracy_log, run.requests, run.entries
    if table is not None and len(table) != len(entries):
        yield stated("log-records", f"{log.name} has {len(entries)} responses, {path.name} has {len(table)}", log, path)
    else:
        yield from as_recorded(run, entries)
    if run.manifest is not None and run.detail.uses_token_latencies:
        yield from _first_tokens(run, entries)
    stated_digest = hash_in_accuracy_text(run.stated_text or "", run.dir.accuracy_text)
    if stated_digest and stated_digest != (digest := run.hashes[log.name]):
        sentence = f"accuracy.txt has hash={stated_digest}, {log.name} has SHA-256 {digest}"
        yield stated("record-hash", sentence, run.dir.accuracy_text, log)


@decides("contradiction", needs=("log",), also=("log-order",))
def as_issued(run: RunEvidence) -> Iterator[Finding]:
    """Compare the logged samples and their order with the seeds, to find a log of another run."""
    path = run.dir.accuracy_log
    if problem := not_as_issued(run.detail, run.logged_issue):
        yield stated("log-order", f"{path.name} has {problem}", path, run.dir.detail)


def not_as_issued(detail: DetailLog, pairs: Sequence[tuple[int, int]]) -> str:
    """Return the first logged pair of seq_id and qsl_idx that the run did not issue, as text; empty if none."""
    expected = expected_samples(detail)
    if expected is None:  # Older versions of LoadGen do not log this number.
        return ""
    accuracy, streams = detail.mode == ACCURACY_MODE, detail.scenario == "MultiStream"
    # LoadGen fills up the last query of an accuracy run with samples from the start of the dataset.
    more = int(detail.effective("samples_per_query", 1)) - 1 if accuracy and streams else 0
    for seq, index in pairs:
        if seq >= expected + more or (accuracy and index >= expected):
            return f"seq_id {seq}, qsl_idx {index}; the run issued {expected} samples"
    order = expected_order(detail, expected)
    if order is None:
        return ""
    wrong = [(seq, index) for seq, index in pairs if seq < expected and int(order[seq]) != index]
    if not wrong:
        return ""
    seq, index = wrong[0]
    issued = f"the effective seeds require {int(order[seq])}"
    return f"qsl_idx {index} for seq_id {seq} ({len(wrong)} differ); {issued}"


@decides(
    "contradiction",
    ("log-records", "error", OURS, "LoadGen's numbers, compared with the request log", RERUN),
    ("record-answers", "error", OURS, "logged responses, compared with the request log",
     "restore all files of the run directory as they were when the run ended"),
)  # fmt: skip
def as_recorded(run: FinishedRun, entries: list[AccuracyEntry]) -> Iterator[Finding]:
    """Compare each logged response with its line in the request log, up to the first difference."""
    path, log, table = run.dir.requests, run.dir.accuracy_log, run.requests
    if table is None:
        return
    places = {int(seq): place for place, seq in enumerate(table.seq)}
    for entry in entries:
        place, seq_id = places.get(entry.seq_id), entry.seq_id
        if place is None:
            yield stated("log-records", f"seq_id {seq_id} has no line in {path.name}", log, path, seq_id=seq_id)
        elif (index := int(table.sample_index[place])) != entry.qsl_idx:
            logged, required = f"seq_id {seq_id} has qsl_idx {entry.qsl_idx}", f"{path.name} has {index}"
            yield stated("log-records", "", log, path, found=logged, required=required, seq_id=seq_id)
        elif table.output_sha256[place] != hashlib.sha256(entry.data).hexdigest():
            text = f"seq_id {seq_id}: the SHA-256 of the response differs from {path.name}"
            yield stated("record-answers", text, log, path, seq_id=seq_id)
        elif (tokens := int(table.output_tokens[place])) * _ID_BYTES != len(entry.data):
            logged, required = (
                f"seq_id {seq_id} has {len(entry.data)} bytes of token IDs",
                f"{tokens} tokens in {path.name}",
            )
            yield stated("record-answers", "", log, path, found=logged, required=required, seq_id=seq_id)
        else:
            continue
        return  # one difference is enough for the finding


def _first_tokens(run: FinishedRun, entries: list[AccuracyEntry]) -> Iterator[Finding]:
    """Check that LoadGen logged the correct first token of each response. In Offline, first tokens are not reported."""
    streams = run.detail.scenario != "Offline"
    wrong = [entry for entry in entries if (entry.token_data or b"") != (entry.data[:_ID_BYTES] if streams else b"")]
    if wrong:
        first_id = (wrong[0].token_data or b"")[:16].hex() or "nothing"
        text = (
            f"{len(wrong)} reported first tokens differ from their responses: {first_id} for seq_id {wrong[0].seq_id}"
        )
        yield stated("record-answers", text, run.dir.accuracy_log, seq_id=wrong[0].seq_id, count=len(wrong))


@decides(
    "result",
    ("accuracy-answers", "error", "[rules] accuracy mode", "responses per sample", RERUN),
    ("accuracy-token-counts", "error", "[loadgen]", "token counts of the logged responses", RERUN),
    needs=("log", "responses"),
)  # fmt: skip
def each_answered(run: RunEvidence) -> Iterator[Finding]:
    """Check that each sample has one response, and that its length is the logged token count."""
    path, expected, entries = run.dir.accuracy_log, expected_samples(run.detail), run.entries
    distinct = len({entry.qsl_idx for entry in entries})
    yield compared(
        "accuracy-answers",
        len(entries) == distinct == expected,
        f"{len(entries):,} responses to {distinct:,} samples",
        f"one response to each of {expected:,} samples",
        path,
        text="answers",
    )
    counted = [(entry, entry.token_count) for entry in entries if entry.token_count is not None]
    is_recorded = run.manifest is not None and run.detail.uses_token_latencies
    wrong = [entry for entry, count in counted if len(entry.data) not in (4 * count, 8 * count)]
    value = "all equal"
    if is_recorded and len(counted) < len(entries):
        wrong = [entry for entry in entries if entry.token_count is None]
        value = f"{len(wrong)} responses have no token count"
    elif wrong:
        value = (
            f"{len(wrong)} differ; seq_id {wrong[0].seq_id}: {wrong[0].token_count} tokens, "
            f"{len(wrong[0].data)} bytes of token IDs"
        )
    required = "number of token IDs in the response (4 or 8 bytes each)"
    yield compared("accuracy-token-counts", not wrong, value, required, path, text="token counts")


@decides(
    "official",
    ("accuracy-longest", "error", "[rules] generation settings", "output tokens of the longest response",
     "limit the output tokens to the maximum of the benchmark"),
    needs=("log", "responses"),
    applies=ids_unknown,
)  # fmt: skip
def within_limit(run: RunEvidence) -> Iterator[Finding]:
    """Compare the longest response with the maximum of the benchmark."""
    counts = [entry.token_count for entry in run.entries if entry.token_count is not None]
    if counts:
        most = run.benchmark.sampling["accuracy"].max_tokens
        passed, required = max(counts) <= most, f"at most {most}"
        value = f"{max(counts)} tokens"
        yield compared("accuracy-longest", passed, value, required, run.dir.accuracy_log, text="longest response")


ISSUED = check_of(as_issued)
OF_EACH = (each_answered, within_limit)
OF_RESPONSES = tuple(map(check_of, (whole_log, *OF_EACH)))
ACCURACY = (ISSUED, *OF_RESPONSES)
