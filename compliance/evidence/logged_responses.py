"""The log of an accuracy run's responses: of the samples that the run issued, one each, as the request log has them."""

import hashlib
import re
from collections.abc import Iterator, Sequence

from compliance.evidence.run_evidence import RunEvidence
from compliance.evidence.truncate import hash_in_accuracy_text
from compliance.judge.check import check, decides
from compliance.judge.finding import Finding, compared, fail
from compliance.judge.rule import OURS, RERUN
from runs.loadgen.accuracy_log import AccuracyEntry
from runs.loadgen.detail_log import DetailLog
from runs.loadgen.replay import expected_order, expected_samples
from runs.reading import read_record
from runs.record.finished_run import ACCURACY as ACCURACY_MODE
from runs.record.finished_run import FinishedRun

_ISSUED = re.compile(rb'"seq_id"\s*:\s*(\d{1,9}),\s*"qsl_idx"\s*:\s*(\d{1,9})\s*[,}]')
_ID_BYTES = 4  # of an ID, as this harness gives it to LoadGen


@decides(
    "contradiction",
    ("record-hash", "error", OURS, "the files are those that the run left",
     "give the run's own files, all of them as it left them"),
    needs=("log", "responses"),
    also=("log-records", "record-answers"),
)  # fmt: skip
def whole_log(run: RunEvidence) -> Iterator[Finding]:
    """A log of which nothing was taken out, against the record and the hash in accuracy.txt."""
    path, log, table, entries = run.dir.requests, run.dir.accuracy_log, run.requests, run.entries
    if table is not None and len(table) != len(entries):
        yield fail("log-records", f"{log.name} holds {len(entries)} responses, {path.name} {len(table)}", log, path)
    else:
        yield from as_recorded(run, entries)
    if run.manifest is not None and run.detail.uses_token_latencies:
        yield from _first_tokens(run, entries)
    said = hash_in_accuracy_text(run.stated_text or "", run.dir.accuracy_text)
    if said and said != (found := run.hashes[log.name]):
        sentence = f"accuracy.txt has hash={said}, {log.name} has SHA-256 {found}"
        yield fail("record-hash", sentence, run.dir.accuracy_text, log)


@decides("contradiction", needs=("log",), also=("log-order",))
def as_issued(run: RunEvidence) -> Iterator[Finding]:
    """Are these the samples that this run's seeds issue, in that order? Tells the log of another run."""
    path = run.dir.accuracy_log
    if not run.absent("responses"):
        pairs = [(entry.seq_id, entry.qsl_idx) for entry in run.entries]
    else:
        pairs = issued_pairs(read_record(path, "give the accuracy log"))
    if said := not_as_issued(run.detail, pairs):
        yield fail("log-order", f"{path.name} has {said}", path, run.dir.detail)


def issued_pairs(log: bytes) -> list[tuple[int, int]]:
    """The (seq_id, qsl_idx) pairs of the entries in an accuracy log, which may be cut."""
    return [(int(seq), int(index)) for seq, index in _ISSUED.findall(log)]


def not_as_issued(detail: DetailLog, pairs: Sequence[tuple[int, int]]) -> str:
    """The first pair that the run of a detail log did not issue; empty where it issued all."""
    expected = expected_samples(detail) or 0
    accuracy, streams = detail.mode == ACCURACY_MODE, detail.scenario == "MultiStream"
    # LoadGen fills the last query of an accuracy run up with samples from the start of the dataset.
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
    issued = f"by the effective seeds the run issued {int(order[seq])}"
    return f"qsl_idx {index} for seq_id {seq} ({len(wrong)} differ); {issued}"


@decides(
    "contradiction",
    ("log-records", "error", OURS, "LoadGen's numbers follow from the request log", RERUN),
    ("record-answers", "error", OURS, "the logged responses are those of the request log",
     "give the run's own files, all of them as it left them"),
)  # fmt: skip
def as_recorded(run: FinishedRun, entries: list[AccuracyEntry]) -> Iterator[Finding]:
    """Each logged response against its line in the request log."""
    path, log, table = run.dir.requests, run.dir.accuracy_log, run.requests
    if table is None:
        return
    places = {int(seq): place for place, seq in enumerate(table.seq)}
    for entry in entries:
        place, seq_id = places.get(entry.seq_id), entry.seq_id
        if place is None:
            yield fail("log-records", f"seq_id {seq_id} has no line in {path.name}", log, path, seq_id=seq_id)
        elif (index := int(table.sample_index[place])) != entry.qsl_idx:
            text = f"seq_id {seq_id}: qsl_idx {entry.qsl_idx}, in {path.name} {index}"
            yield fail("log-records", text, log, path, seq_id=seq_id)
        elif table.output_sha256[place] != hashlib.sha256(entry.data).hexdigest():
            text = f"seq_id {seq_id}: the response is not the one whose SHA-256 stands in {path.name}"
            yield fail("record-answers", text, log, path, seq_id=seq_id)
        elif (tokens := int(table.output_tokens[place])) * _ID_BYTES != len(entry.data):
            text = f"seq_id {seq_id}: {len(entry.data)} bytes of IDs, in {path.name} {tokens} tokens"
            yield fail("record-answers", text, log, path, seq_id=seq_id)
        else:
            continue
        return  # one is enough


def _first_tokens(run: FinishedRun, entries: list[AccuracyEntry]) -> Iterator[Finding]:
    """In a run of ours, LoadGen logged each response's own first token before it; none in Offline."""
    told = run.detail.scenario != "Offline"
    wrong = [one for one in entries if (one.token_data or b"") != (one.data[:_ID_BYTES] if told else b"")]
    if wrong:
        found = (wrong[0].token_data or b"")[:16].hex() or "nothing"
        text = (
            f"{len(wrong)} first tokens are not those of their responses: of seq_id {wrong[0].seq_id} {found} was told"
        )
        yield fail("record-answers", text, run.dir.accuracy_log, seq_id=wrong[0].seq_id, count=len(wrong))


@decides(
    "result",
    ("accuracy-answers", "error", "[rules] accuracy mode", "every sample has one honest response", RERUN),
    ("accuracy-token-counts", "error", "[loadgen]", "each response has as many IDs as were counted", RERUN),
    needs=("log", "responses"),
)  # fmt: skip
@decides(
    "official",
    ("accuracy-longest", "error", "[rules] generation settings", "no response is longer than the benchmark generates",
     "generate at most that many tokens"),
)  # fmt: skip
def each_answered(run: RunEvidence) -> Iterator[Finding]:
    """Has each sample one response, of the length that was counted and allowed?"""
    path, expected, entries = run.dir.accuracy_log, expected_samples(run.detail), run.entries
    distinct = len({entry.qsl_idx for entry in entries})
    yield compared(
        "accuracy-answers",
        "answers",
        len(entries) == distinct == expected,
        f"{len(entries):,} responses to {distinct:,} samples",
        f"one to each of {expected:,} samples",
        path,
    )
    counted = [(entry, entry.token_count) for entry in entries if entry.token_count is not None]
    ours = run.manifest is not None and run.detail.uses_token_latencies
    wrong = [entry for entry, count in counted if len(entry.data) not in (4 * count, 8 * count)]
    found = "all equal"
    if ours and len(counted) < len(entries):
        wrong = [entry for entry in entries if entry.token_count is None]
        found = f"{len(wrong)} responses have none"
    elif wrong:
        found = (
            f"{len(wrong)} differ; seq_id {wrong[0].seq_id}: {wrong[0].token_count} tokens, "
            f"{len(wrong[0].data)} bytes of IDs"
        )
    required = "the number of ids in the response (4 or 8 bytes each)"
    yield compared("accuracy-token-counts", "token counts", not wrong, found, required, path)
    if counted:
        longest = max(count for _, count in counted)
        most = run.benchmark.sampling["accuracy"].max_tokens
        passed, required = longest <= most, f"at most {most}"
        yield compared("accuracy-longest", "longest response", passed, f"{longest} tokens", required, path)


ISSUED = check(as_issued)
OF_RESPONSES = tuple(map(check, (whole_log, each_answered)))
ACCURACY = (ISSUED, *OF_RESPONSES)
