"""A program with the command line and the files of the MLPerf Endpoints client, which asks no server.

    python -m tests.support.mlperf_endpoints.stub_client benchmark from-config --config FILE [--mode both]
    python -m tests.support.mlperf_endpoints.stub_client validate-yaml --config FILE

It simulates a server with some slots and a fixed service time, in its own time. The file that STUB_SERVER names has the
server: the fields of `StubServer`. All tokens are bytes, as with the tokenizer `bytes`.
"""

import heapq
import json
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from compliance.mlperf_endpoints.derive import Metrics, derive_metrics, summary_of
from compliance.mlperf_endpoints.load import replayed_order
from compliance.mlperf_endpoints.summary_comparison import _SECTIONS as SECTIONS
from compliance.mlperf_endpoints.summary_comparison import _report_of
from qsl.tokenizers import load_tokenizer
from runs.mlperf_endpoints.events import Events
from runs.mlperf_endpoints.folder import Summary
from runs.mlperf_endpoints.layout import CONFIG, EVENTS, REPORT, SAMPLES, SNAPSHOT, SUMMARY

SERVER = "STUB_SERVER"
RESPONSE = ("First ", "piece and the later pieces")
START_NS = 10**12


@dataclass
class StubServer:
    """The simulated server, and what goes wrong."""

    slots: int = 40
    service_s: float = 0.5
    score: float = 1.0  # accuracy
    failed: dict[str, int] = field(default_factory=dict)  # concurrency → failed samples
    failed_once: dict[str, int] = field(default_factory=dict)  # the same, until a file marks the failure
    hangs_at: int = 0  # concurrency at which the client waits forever
    git_sha: str | None = "5606359000000000000000000000000000000000"
    refuses: list[str] = field(default_factory=list)  # sections of the settings that this release does not know


def main(arguments: list[str]) -> int:
    """Run one command of the client."""
    config = yaml.safe_load(Path(arguments[arguments.index("--config") + 1]).read_text())
    path = Path(os.environ[SERVER])
    server = StubServer(**json.loads(path.read_text()))
    if unknown := sorted(set(config["settings"]) & set(server.refuses)):
        print(f"Validation failed: settings.{unknown[0]}: unknown key")
        return 1
    if arguments[0] == "validate-yaml":
        return 0
    _run(config, server, "both" in arguments, path)
    return 0


def _run(config: dict[str, Any], server: StubServer, with_accuracy: bool, path: Path) -> None:
    folder = Path(config["report_dir"])
    runtime, pattern = config["settings"]["runtime"], config["settings"]["load_pattern"]
    count = runtime["n_samples_to_issue"]
    concurrency = pattern.get("target_concurrency") or count
    prompts = [json.loads(line)["prompt"] for line in Path(config["datasets"][0]["path"]).read_text().splitlines()]
    order = replayed_order(runtime["dataloader_random_seed"], len(prompts), count).tolist()
    failed = server.failed.get(str(concurrency), 0)
    mark = path.with_name(f"failed-{concurrency}")
    if str(concurrency) in server.failed_once and not mark.exists():
        failed = server.failed_once[str(concurrency)]
        mark.touch()
    _write_config(config, folder)
    events = _simulated([prompts[row] for row in order], concurrency, server, failed)
    if with_accuracy:
        last_ns = events[-1]["timestamp_ns"]
        events += [
            event
            for row, prompt in enumerate(prompts)
            for event in _sample_events(f"acc{row}", prompt, last_ns + row * 1000, last_ns + row * 1000 + 1, 500, False)
        ]
    events.append(_event("session.ended", events[-1]["timestamp_ns"] + 1000))
    lines = [json.dumps(event) + "\n" for event in events]
    hangs = server.hangs_at == concurrency
    (folder / EVENTS).write_text("".join(lines[: len(lines) // 2] if hangs else lines))
    with (folder / EVENTS).open():  # the harness finds the log among the open files
        while hangs:
            time.sleep(0.1)
    phases = {"performance": {f"perf{place}": row for place, row in enumerate(order)}}
    if with_accuracy:
        phases["scored"] = {f"acc{row}": row for row in range(len(prompts))}
        _write_scores(folder, server.score, len(prompts))
    _write_json(folder / SAMPLES, phases)
    _write_report(folder, server, config)


def _write_config(config: dict[str, Any], folder: Path) -> None:
    names = [{"name": Path(dataset["path"]).stem, "type": "performance"} | dataset for dataset in config["datasets"]]
    content = config | {"version": "1.0", "datasets": names}
    (folder / CONFIG).write_text(yaml.safe_dump(content, sort_keys=False))


def _event(kind: str, now_ns: int, uuid: str = "", data: Any = None, **others: Any) -> dict[str, Any]:
    return {"event_type": kind, "timestamp_ns": now_ns, "sample_uuid": uuid, "data": data, **others}


def _sample_events(
    uuid: str, prompt: str, issue_ns: int, start_ns: int, service_ns: int, fails: bool
) -> list[dict[str, Any]]:
    end_ns = start_ns + service_ns
    text = None if fails else ["TextModelOutput", list(RESPONSE)]
    return [
        _event("sample.issued", issue_ns, uuid, ["PromptData", prompt]),
        *([_event("error.generic", end_ns, uuid)] if fails else
          [_event("sample.recv_first", start_ns + service_ns // 10, uuid)]),
        _event("sample.complete", end_ns, uuid, text, finish_reason=None if fails else "stop", worker_id=0),
    ]  # fmt: skip


def _simulated(prompts: list[str], concurrency: int, server: StubServer, failed: int) -> list[dict[str, Any]]:
    """Return the events of a closed loop with this many open samples."""
    service_ns, events = round(server.service_s * 1e9), []
    begin_ns = START_NS + 1000
    free = [begin_ns] * server.slots
    open_ns = [begin_ns + place for place in range(concurrency)]
    heapq.heapify(free)
    heapq.heapify(open_ns)
    for place, prompt in enumerate(prompts):
        issue_ns = heapq.heappop(open_ns) + 100
        start_ns = max(heapq.heappop(free), issue_ns + 100)
        own_ns = service_ns + 7919 * (place % 89)
        heapq.heappush(free, start_ns + own_ns)
        heapq.heappush(open_ns, start_ns + own_ns)
        events += _sample_events(f"perf{place}", prompt, issue_ns, start_ns, own_ns, place < failed)
    order = {"sample.complete": 0}
    events.sort(key=lambda event: (event["timestamp_ns"], order.get(event["event_type"], 1)))
    last_ns = events[-1]["timestamp_ns"] + 1000
    return [
        _event("session.started", START_NS), _event("session.start_performance_tracking", begin_ns), *events,
        _event("session.stop_performance_tracking", last_ns),
    ]  # fmt: skip


def _write_scores(folder: Path, score: float, count: int) -> None:
    entry = {
        "dataset_name": "scored", "score": score, "unit_samples": count, "num_repeats": 1, "total_samples": count,
        "complete": True, "dataset_type": "accuracy", "response_counts": {"issued": count, "scored": count},
    }  # fmt: skip
    path = folder / "accuracy" / "accuracy_results.json"
    path.parent.mkdir()
    _write_json(path, {"accuracy_scores": [entry]})


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content))


def _write_report(folder: Path, server: StubServer, config: dict[str, Any]) -> None:
    from compliance.mlperf_endpoints.derive import count_tokens

    events = Events(folder / EVENTS)
    tokens = count_tokens(events, load_tokenizer("bytes"))
    metrics: Metrics = derive_metrics(events, streaming=True, early_stopping=True, tokens=tokens)
    state: dict[str, Any] = {"state": "complete", "complete": True, "version": "0.1.0", "git_sha": server.git_sha}
    settings, runtime = config["settings"], config["settings"]["runtime"]
    seeds = {name: runtime[name] for name in ("scheduler_random_seed", "dataloader_random_seed")}
    state["run_config"] = {"load_pattern": settings["load_pattern"], "warmup": settings["warmup"], **seeds}
    (folder / SUMMARY).parent.mkdir(exist_ok=True)
    (folder / SNAPSHOT).parent.mkdir(exist_ok=True)
    _write_json(folder / SUMMARY, state | summary_of(metrics, windowed=False))
    series = [
        {"type": "series" if isinstance(value, dict) else "counter", "name": name}
        | (value if isinstance(value, dict) else {"value": value})
        for name, value in metrics.items()
    ]
    span_s = (events.last_ns - events.started_ns) / 1e9
    _write_json(
        folder / SNAPSHOT,
        {"counter": int(span_s / 0.25) + 1, "timestamp_ns": events.last_ns + 10**8, "state": "complete",
         "n_pending_tasks": 0, "metrics": series},
    )  # fmt: skip
    summary = Summary.model_validate_json((folder / SUMMARY).read_bytes())
    lines = list(_report_of(summary))
    start = lines.index("TTFT:")
    parts = ("Histogram:", "Percentiles:", "Early-stopping:")
    body = [line if line.rstrip(":") in SECTIONS else f"\n  {line}" if line in parts else f"    {line}"
            for line in lines[start:]]  # fmt: skip
    text = "\n".join(["--- Summary ---", *lines[:start], "--- Latency Breakdowns ---", *body])
    (folder / REPORT).write_text(text + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
