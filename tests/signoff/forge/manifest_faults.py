"""Faults in requests.jsonl, the request log, and in the responses that belong to it (see faults.py)."""

import random
from typing import Any

from runs.loadgen.detail_log import read_detail
from runs.loadgen.schedule import poisson_offsets_ns
from runs.loadgen.trace_log import read_trace
from runs.record.layout import RunDir
from tests.support.files.editing import change_responses, each_record, read_records, write_records

Json = dict[str, Any]
_SEED = 7  # seed of the random faults, constant in each back-test


def add_to_requests(run: RunDir, changes: list[Json]) -> None:
    """Add to fields of single requests. Each change has a `seq` and amounts by field."""
    by_seq = {change["seq"]: change for change in changes}

    def edit(record: Json) -> Json:
        change = by_seq.get(record["seq"], {})
        return record | {name: record[name] + amount for name, amount in change.items() if name != "seq"}

    each_record(run, edit)


def shift_requests(run: RunDir, by_ns: int) -> None:
    """Move all stamps later."""
    names = ("issue_ns", "first_token_ns", "complete_ns")
    each_record(run, lambda value: value | {name: value[name] + by_ns for name in names if value[name] is not None})


def stretch_requests(run: RunDir, factor: float) -> None:
    """Multiply all times after the first issue, as with a slower clock."""
    start_ns = min(record["issue_ns"] for record in read_records(run))
    names = ("issue_ns", "first_token_ns", "complete_ns")

    def edit(record: Json) -> Json:
        return record | {n: start_ns + int((record[n] - start_ns) * factor) for n in names if record[n] is not None}

    each_record(run, edit)


def shorten_requests(run: RunDir, factor: float) -> None:
    """Multiply each latency and time to first token. The issue times stay."""

    def edit(record: Json) -> Json:
        new = {n: record["issue_ns"] + int((record[n] - record["issue_ns"]) * factor) for n in ("complete_ns",)}
        if record["first_token_ns"] is not None:
            new["first_token_ns"] = record["issue_ns"] + int((record["first_token_ns"] - record["issue_ns"]) * factor)
        return record | new

    each_record(run, edit)


def swap_requests(run: RunDir, source: RunDir, seqs: list[int]) -> None:
    """Replace the records by those of another run."""
    source_records = {record["seq"]: record for record in read_records(source)}
    each_record(run, lambda record: source_records[record["seq"]] if record["seq"] in seqs else record)


def reorder_requests(run: RunDir) -> None:
    """Change the samples of requests to an order that the seeds do not give, with equal counts."""
    records = sorted(read_records(run), key=lambda record: record["seq"])
    indices = [record["sample_index"] for record in records]
    random.Random(_SEED).shuffle(indices)
    moved = [record | {"sample_index": index} for record, index in zip(records, indices, strict=True)]
    write_records(run, moved)


def regenerate_from_trace(run: RunDir) -> None:
    """Write the times of the trace into the record."""
    trace = read_trace(run.trace)
    assert trace is not None
    start_ns = min(record["issue_ns"] for record in read_records(run))
    places = {int(seq): place for place, seq in enumerate(trace.sample_seq)}
    origin_ns = int(start_ns - trace.scheduled_ns[0])

    def edit(record: Json) -> Json:
        place = places[record["seq"]]
        due_ns = origin_ns + int(trace.scheduled_ns[place])
        first_ns = record["first_token_ns"] and due_ns + int(trace.first_token_ns[place])
        done_ns = due_ns + int(trace.complete_ns[place])
        issued_ns = due_ns + int(trace.issue_delay_ns[place])
        return record | {"issue_ns": issued_ns, "first_token_ns": first_ns, "complete_ns": done_ns}

    each_record(run, edit)


def regenerate_from_percentiles(run: RunDir) -> None:
    """Draw latencies with the percentiles of LoadGen, at the recorded issue times."""
    values = read_detail(run.detail).values
    shares = (0.0, 0.5, 0.9, 0.95, 0.97, 0.99, 0.999)
    spelled = ("50.00", "90.00", "95.00", "97.00", "99.00", "99.90")
    latencies = [values["result_min_latency_ns"], *(values[f"result_{s}_percentile_latency_ns"] for s in spelled)]
    records = sorted(read_records(run), key=lambda record: record["seq"])
    count = len(records)
    drawn = [
        next(v for share, v in reversed(list(zip(shares, latencies, strict=True))) if i >= int(count * share))
        for i in range(count)
    ]
    drawn[-1] = values["result_max_latency_ns"]
    random.Random(_SEED).shuffle(drawn)
    made = []
    for record, latency_ns in zip(records, drawn, strict=True):
        done_ns = record["issue_ns"] + latency_ns
        first_ns = record["first_token_ns"]
        made.append(record | {"complete_ns": done_ns, "first_token_ns": first_ns and min(first_ns, done_ns)})
    write_records(run, made)


def regenerate_steady(run: RunDir) -> None:
    """Give each request the mean latency of LoadGen."""
    values = read_detail(run.detail).values
    mean_ns, first_ns = values["result_mean_latency_ns"], values.get("result_first_token_mean_latency_ns")

    def edit(row: Json) -> Json:
        first = row["issue_ns"] + first_ns if row["first_token_ns"] is not None and first_ns else row["first_token_ns"]
        return row | {"first_token_ns": first, "complete_ns": row["issue_ns"] + mean_ns}

    each_record(run, edit)


def invent_outputs(run: RunDir) -> None:
    """Replace the responses by others of the same lengths, in the record and in the accuracy log."""
    draw = random.Random(_SEED)
    made: dict[str, bytes] = {}

    def response(key: str, count: int) -> bytes:
        if key not in made:
            made[key] = b"".join(draw.randrange(32, 250).to_bytes(4, "little") for _ in range(count))
        return made[key]

    change_responses(run, response)


def invent_each_output(run: RunDir) -> None:
    """Give each request a new hash, also for repeated samples."""
    digests = random.Random(_SEED)
    each_record(run, lambda value: value | {"output_sha256": digests.randbytes(32).hex()})


def regenerate_on_schedule(run: RunDir) -> None:
    """Move the issue times exactly to LoadGen's Poisson schedule. The latencies stay."""
    detail = read_detail(run.detail)
    records = sorted(read_records(run), key=lambda record: record["seq"])
    qps = detail.number("effective_target_qps")
    offsets_ns = poisson_offsets_ns(detail.seeds.schedule_rng_seed, qps, len(records)).tolist()
    start_ns = records[0]["issue_ns"] - offsets_ns[0]
    made = []
    for record, offset_ns in zip(records, offsets_ns, strict=True):
        by_ns = start_ns + offset_ns - record["issue_ns"]
        made.append(record | {name: record[name] + by_ns for name in ("issue_ns", "first_token_ns", "complete_ns")})
    write_records(run, made)


def repeat_one_token(run: RunDir) -> None:
    """Replace each response by one repeated token, in the record and in the accuracy log."""
    change_responses(run, lambda _, count: (101).to_bytes(4, "little") * count)


def append_requests(run: RunDir, source: RunDir) -> None:
    """Append the records of another run, and number them on."""
    records = read_records(run)
    write_records(
        run,
        records + [record | {"seq": record["seq"] + len(records)} for record in read_records(source)],
    )
