"""Run directories of the real MLPerf Endpoints client, created with a small server of the tests.

    python -m tests.support.mlperf_endpoints.endpoints_client CLIENT OUT [NAME…]
    python -m tests.support.mlperf_endpoints.endpoints_client pack OUT NAME…

CLIENT is the program `inference-endpoint` of an environment with the client. The tests read it from the variable
MLPERF_ENDPOINTS_CLIENT. OUT receives one directory for each NAME of `CASES` (all by default). `pack` writes directories
into `RECORDED`, which the tests use without a client. It shortens only report_dir.
"""

import asyncio
import contextlib
import dataclasses
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import yaml

from qsl.embedded.articles import bundled_articles
from tests.support.engines.small_tokenizer import make_tokenizer
from tests.support.servers.http_server import HttpServer, ServerReply, event, serving

PROGRAM = "MLPERF_ENDPOINTS_CLIENT"
RECORDED = Path(__file__).parents[2] / "compliance" / "mlperf_endpoints" / "folders.tar.xz"
ROWS = 24
WORDS = (6, 60)  # words of the shortest and the longest prompt


@dataclasses.dataclass
class Computer:
    """The server's host: it computes some prompts at a time, each for as long as its words and its response take."""

    slots: int = 4
    word_s: float = 0.0004
    piece_s: float = 0.002
    cold_s: float = 0.0  # added to the first responses
    caches: bool = False  # repeats an earlier response without computing
    dies_after: int | None = None  # responses
    answered: int = 0
    kept: set[str] = dataclasses.field(default_factory=set)
    server: HttpServer | None = None
    slot: asyncio.Semaphore | None = None

    def make_reply(self, body: dict[str, Any]) -> ServerReply:
        """Return a chat completion: the first words of the prompt, a third of its number."""
        prompt = body["messages"][-1]["content"]
        words = prompt.split()
        pieces = [f"{word} " for word in words[: max(2, len(words) // 3)]][: body["max_completion_tokens"]]
        if not body.get("stream"):
            return ServerReply(self._complete_response(prompt, pieces))
        return ServerReply(self._pieces(prompt, pieces), content_type="text/event-stream")

    @contextlib.asynccontextmanager
    async def _computed(self, prompt: str) -> AsyncIterator[float]:
        """Wait until this prompt is computed, and yield the seconds of each piece."""
        self.slot = self.slot or asyncio.Semaphore(self.slots)
        if self.dies_after is not None and self.answered >= self.dies_after:
            assert self.server is not None
            self.server._server.close()
            self.server.abort_all()
        if self.caches and prompt in self.kept:
            yield 0.0
        else:
            async with self.slot:
                cold_s = self.cold_s if self.answered < self.slots else 0.0
                await asyncio.sleep(cold_s + self.word_s * len(prompt.split()))
                yield self.piece_s
        self.kept.add(prompt)
        self.answered += 1

    async def _complete_response(self, prompt: str, pieces: list[str]) -> AsyncIterator[bytes]:
        async with self._computed(prompt) as piece_s:
            await asyncio.sleep(piece_s * len(pieces))
            message = {"role": "assistant", "content": "".join(pieces)}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
        yield json.dumps(
            {"id": "a", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        ).encode()

    async def _pieces(self, prompt: str, pieces: list[str]) -> AsyncIterator[bytes]:
        async with self._computed(prompt) as piece_s:
            for number, piece in enumerate(pieces):
                await asyncio.sleep(piece_s)
                last = "stop" if number == len(pieces) - 1 else None
                yield event({"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": last}]})
        yield b"data: [DONE]\n\n"


@dataclasses.dataclass(frozen=True)
class ClientCase:
    """One directory: the options of the client, and its server."""

    load: dict[str, Any]
    streaming: bool
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    runtime: dict[str, Any] = dataclasses.field(default_factory=dict)
    others: dict[str, Any] = dataclasses.field(default_factory=dict)
    server: dict[str, Any] = dataclasses.field(default_factory=dict)
    interrupt_s: float | None = None  # time of ^C to the client
    samples: int | None = None  # samples of the dataset
    accuracy: bool = False  # with an accuracy phase, scored by string_match, because ROUGE needs a hub
    tokenizer: bool = True


ACCURACY = {
    "name": "scored", "type": "accuracy", "path": "prompts.jsonl", "parser": {"prompt": "prompt"},
    "accuracy_config": {
        "eval_method": "string_match", "ground_truth": "highlights", "extractor": "identity_extractor",
    },
}  # fmt: skip
OFFLINE: dict[str, Any] = {"type": "max_throughput"}
POISSON: dict[str, Any] = {"type": "poisson", "target_qps": 30.0}
EIGHT: dict[str, Any] = {"type": "concurrency", "target_concurrency": 8}
WARM = {"warmup": {"enabled": True, "n_requests": 6, "drain": True}}
AUDIT = {"audit": {"test": "output_caching_test", "samples": ROWS, "sample_index": 0}}  # row 0 is the shortest
CLIENT: dict[str, Any] = {"num_workers": 1, "worker_initialization_timeout": 300.0}
SLOW = {"slots": 2, "word_s": 0.0006}
CASES = {
    "offline": ClientCase(OFFLINE, False),
    "offline-streaming": ClientCase(OFFLINE, True),
    "poisson": ClientCase(POISSON, True),
    "poisson-whole": ClientCase(POISSON, False),
    "poisson-native": ClientCase(POISSON | {"use_legacy_loadgen_qps_metrics": False}, True),
    "concurrency": ClientCase(EIGHT, True),
    "concurrency-whole": ClientCase(EIGHT, False),
    "one-at-a-time": ClientCase(EIGHT | {"target_concurrency": 1}, True),
    "warm-up": ClientCase(EIGHT, True, WARM),
    "warm-up-undrained": ClientCase(POISSON, True, {"warmup": {"enabled": True, "n_requests": 6}}),
    "warm-up-salted": ClientCase(OFFLINE, False, {"warmup": WARM["warmup"] | {"salt": True}}),
    "other-seeds": ClientCase(POISSON, True, runtime={"scheduler_random_seed": 7, "dataloader_random_seed": 99}),
    "few-rows": ClientCase(EIGHT, True, samples=10),
    "part-of-a-pass": ClientCase(POISSON, True, runtime={"n_samples_to_issue": 15}),
    "by-duration": ClientCase(POISSON, True, runtime={"n_samples_to_issue": None, "min_duration_ms": 1500}),
    "cut-by-time": ClientCase(POISSON, True, runtime={"n_samples_to_issue": 500, "max_duration_ms": 1500}),
    "undrained": ClientCase(
        OFFLINE, True, {"drain": {"performance_timeout_s": 0.4}}, server={"slots": 1, "piece_s": 0.01}
    ),
    "server-died": ClientCase(EIGHT, True, server={"dies_after": 20}),
    "server-died-poisson": ClientCase(POISSON, False, server={"dies_after": 20}),
    "interrupted": ClientCase(EIGHT, True, server=SLOW, interrupt_s=1.0, runtime={"n_samples_to_issue": 500}),
    "no-tokenizer": ClientCase(EIGHT, True, tokenizer=False),
    "no-early-stopping": ClientCase(EIGHT, True, {"early_stopping": {"enabled": False}}),
    "all-chunks": ClientCase(EIGHT, True, {"client": CLIENT | {"stream_all_chunks": True}}),
    "many-passes": ClientCase(EIGHT | {"target_concurrency": 16}, True, runtime={"n_samples_to_issue": 480}),
    "accuracy": ClientCase(EIGHT, True, accuracy=True),
    "audit-honest": ClientCase(OFFLINE, False, others=AUDIT),
    "audit-honest-concurrency": ClientCase(EIGHT, True, others=AUDIT),
    "audit-cold": ClientCase(
        EIGHT, True, others={"audit": AUDIT["audit"] | {"sample_index": 11, "only": True}}, server={"cold_s": 0.5}
    ),
    "audit-cached": ClientCase(OFFLINE, False, others=AUDIT, server={"caches": True}),
    "audit-cached-concurrency": ClientCase(EIGHT, True, others=AUDIT, server={"caches": True}),
}


def make(program: str, out: Path, name: str) -> Path:
    """Run the client. Return its directory, OUT/NAME."""
    case = CASES[name]
    out = out.resolve()
    work = out.parent / f".{out.name}-work"
    write_data(work / "prompts.jsonl")
    make_tokenizer(work / "model")
    computer = Computer(**case.server)
    computer.server = HttpServer("/v1/chat/completions", computer.make_reply, "test")
    with serving(computer.server) as server:
        config = configuration(case, server.url, out / name)
        path = work / f"{name}.yaml"
        path.write_text(yaml.safe_dump(config))
        log = work / f"{name}.log"
        with log.open("wb") as stream:
            command = [program, "benchmark", "from-config", "--config", str(path)]
            client = subprocess.Popen(
                command, cwd=work, stdout=stream, stderr=subprocess.STDOUT, env={**os.environ, "HF_HUB_OFFLINE": "1"}
            )
            if case.interrupt_s is not None:
                _interrupt(client, computer, case.interrupt_s)
            client.wait(600)
    print(f"{name}: exit code {client.returncode}")
    return out / name


def _interrupt(client: "subprocess.Popen[bytes]", computer: Computer, after_s: float) -> None:
    until = time.monotonic() + 120
    while not computer.answered and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(after_s)
    client.send_signal(signal.SIGINT)


def configuration(case: ClientCase, url: str, report_dir: Path) -> dict[str, Any]:
    """Return the client's configuration of a case."""
    runtime = {"min_duration_ms": 0, "n_samples_to_issue": 60, **case.runtime}
    data: dict[str, Any] = {"path": "prompts.jsonl", "parser": {"prompt": "prompt"}}
    if case.samples is not None:
        data["samples"] = case.samples
    return {
        "type": "offline" if case.load["type"] == "max_throughput" else "online",
        "model_params": {
            "name": "model" if case.tokenizer else "unknown", "temperature": 0.0, "top_p": 1.0, "max_new_tokens": 128,
            "streaming": "on" if case.streaming else "off",
        },
        "datasets": [data, *([ACCURACY] if case.accuracy else [])],
        "settings": {
            "runtime": {name: value for name, value in runtime.items() if value is not None},
            "load_pattern": case.load,
            "client": CLIENT,
            "service_ready_timeout_s": 300.0,
            **case.settings,
        },
        "endpoint_config": {"endpoints": [url]},
        "report_dir": str(report_dir),
        "enable_cpu_affinity": False,
        **case.others,
    }  # fmt: skip


def write_data(path: Path) -> None:
    """Write prompts of many lengths, the shortest first: the first words of the bundled articles."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shortest, longest = WORDS
    texts = [" ".join(article.article.split()) for article in bundled_articles()[:ROWS]]
    counts = [shortest + (longest - shortest) * place // (ROWS - 1) for place in range(ROWS)]
    rows = [" ".join(text.split()[:count]) for text, count in zip(texts, counts, strict=True)]
    # Half of a prompt is the reference of its response.
    dataset = [{"prompt": row, "highlights": row[: len(row) // 2]} for row in rows]
    path.write_text("".join(json.dumps(row) + "\n" for row in dataset))


def client_program() -> str | None:
    """Return the real client that the environment names."""
    return os.environ.get(PROGRAM)


def pack(out: Path, names: list[str]) -> None:
    """Write directories into the archive of the tests."""
    with tarfile.open(RECORDED, "w:xz", preset=9) as archive:
        for path in sorted(path for name in names for path in (out / name).rglob("*") if path.is_file()):
            content = path.read_bytes()
            if path.name == "config.yaml":
                content = content.replace(f"{out.resolve()}/".encode(), b"")
            member = tarfile.TarInfo(path.relative_to(out).as_posix())
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def unpack(folder: Path) -> Path:
    """Unpack the recorded directories."""
    with tarfile.open(RECORDED) as archive:
        archive.extractall(folder, filter="data")
    return folder


def main(arguments: list[str]) -> None:
    program, out, *names = arguments
    if program == "pack":
        pack(Path(out), names)
    else:
        for name in names or CASES:
            make(program, Path(out), name)


if __name__ == "__main__":
    main(sys.argv[1:])
