"""A server of the tests that computes for a while, and a campaign against it.

`python -m tests.support.http_campaign PORT [--after S] [--requests N]` serves: it listens after some seconds, and ends
with status 7 at the request after N.
"""

import argparse
import asyncio
import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from runs.errors import ExitCode
from tests.conftest import ROOT
from tests.support import server_dialects as speak
from tests.support import warm
from tests.support.http_server import HttpServer, Reply, Step, json_reply, serving
from tests.support.small_tokenizer import make_tokenizer

COMPUTING_S = 0.3  # before the first id, so that a rate is the server's and not the machine's
TOKENS_S = 0.3  # before the others: two reads, on a busy machine too
CONFIG = {
    "benchmark": "llama3.1-8b", "division": "network", "engine": "endpoint", "api_connections": 256,
    "scenarios": {"Offline": {"audits": ["TEST06", "output_caching"]}, "Server": {}},
}  # fmt: skip
USER_CONF = """
*.Offline.min_duration = 200
*.Offline.min_query_count = 64
*.Offline.target_qps = 50
*.Server.target_qps = 100
*.Server.min_duration = 5000
"""


class Computing:
    """Speaks vLLM's words after a while.

    Args:
        seconds: before the first id.
        tokens_s: before the others.
        counts: whether it tells what it takes from a cache.
        keeps: whether it keeps answers and gives them again at once, as a box before the server might.
    """

    def __init__(
        self, seconds: float = COMPUTING_S, tokens_s: float = TOKENS_S, *, counts: bool = True, keeps: bool = False
    ) -> None:
        self._seconds = seconds
        self._tokens_s = tokens_s
        self._counts = counts
        self._keeps = keeps
        self._kept: set[str] = set()

    def __call__(self, body: dict[str, Any]) -> Reply:
        reply = speak.vllm(body)
        steps = [self._step(step) for step in reply.steps]
        digest = hashlib.sha256(json.dumps({**body, "request_id": ""}).encode()).hexdigest()
        waits: Iterable[Step] = (
            [] if digest in self._kept else [self._seconds + (0 if body["stream"] else self._tokens_s)]
        )
        if self._keeps:
            self._kept.add(digest)
        return Reply([*waits, *steps], content_type=reply.content_type)

    def _step(self, step: Step) -> Step:
        if isinstance(step, float):
            return self._tokens_s
        if self._counts or not isinstance(step, bytes) or b"prompt_tokens_details" not in step:
            return step

        def forget(content: dict[str, Any]) -> None:
            del content["usage"]["prompt_tokens_details"]

        if step.startswith(b"data: "):
            return speak.changed(step, forget)
        content = json.loads(step)
        forget(content)
        (made,) = json_reply(content).steps
        return made


def make_model(folder: Path) -> Path:
    """A model's folder: what prompts are tokenised and answers decoded with."""
    model = make_tokenizer(folder)
    config = {"vocab_size": 258, "max_position_embeddings": 100_000, "architectures": ["LlamaForCausalLM"]}
    (model / "config.json").write_text(json.dumps(config))
    (model / "generation_config.json").write_text(json.dumps({"bos_token_id": 0, "eos_token_id": 1}))
    return model


def run_campaign(root: Path) -> None:
    """A campaign of the network division into `root/campaign`, with a server that does not count what it takes from a
    cache."""
    root.mkdir()
    (root / "user.conf").write_text(USER_CONF)
    (root / "declared.yaml").write_text((ROOT / "configs" / "endpoint-declaration.yaml").read_text())
    with serving(HttpServer("/v1/completions", Computing(tokens_s=1.0, counts=False), "vllm")) as server:
        asked = CONFIG | {
            "api_server": server.url, "api_declaration": str(root / "declared.yaml"),
            "model_path": str(make_model(root / "model")), "user_conf": str(root / "user.conf"),
            "output_log_dir": str(root / "campaign"),
        }  # fmt: skip
        (root / "campaign.yaml").write_text(json.dumps(asked))
        code, stdout, stderr = warm.run(["campaign", "--config", root / "campaign.yaml"], root)
    if code not in (ExitCode.OK, ExitCode.NEGATIVE):
        raise SystemExit(f"the campaign over HTTP ended with {code}\n{stdout}{stderr}")
    (root / "campaign" / "report.html").unlink()


async def _serve(port: int, after_s: float, requests: int | None) -> None:
    speaks = Computing(0.0, tokens_s=1.0)

    def answer(body: dict[str, Any]) -> Reply:
        if requests is not None and len(server.requests) > requests:
            print("out of requests", flush=True)
            os._exit(7)
        return speaks(body)

    await asyncio.sleep(after_s)
    async with HttpServer("/v1/completions", answer, "vllm", port=port) as server:
        print(f"listens on {port}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--after", type=float, default=0.0)
    parser.add_argument("--requests", type=int)
    asked = parser.parse_args()
    asyncio.run(_serve(asked.port, asked.after, asked.requests))
