"""An engine of your own, as a server that the harness measures without a change of its code.

Usage: python main.py --scenario Server --api-server http://127.0.0.1:8200 \
           --serve "python $PWD/examples/custom_engine.py 8200"

Replace `generate` with your engine. The server speaks the part of vLLM's API that the client uses: token IDs in, token
IDs out (docs/server-reference.md). To add an engine to the harness instead, see docs/extensions.md.
"""

import json
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "custom"


def generate(prompt_ids: list[int], max_tokens: int) -> Iterator[int]:
    """Yield the token IDs of the output. This engine repeats the prompt, up to its maximum length."""
    for place in range(max_tokens):
        time.sleep(0.002)
        yield prompt_ids[place % len(prompt_ids)]


def own_id(body: dict[str, Any]) -> str:
    """Return the ID of a response, which ends with the client's ID of the request."""
    return f"cmpl-{body.get('request_id', '')}"


def completion(body: dict[str, Any], ids: list[int], *, is_first: bool = False, ended: bool = False) -> dict[str, Any]:
    choice = {"index": 0, "text": "", "token_ids": ids, "finish_reason": "length" if ended else None}
    return {"id": own_id(body), "choices": [choice | ({"prompt_token_ids": body["prompt"]} if is_first else {})]}


def usage(body: dict[str, Any], count: int) -> dict[str, Any]:
    """Return the counts by which the client checks a response; `cached_tokens` are of a prefix cache."""
    counts = {"prompt_tokens": len(body["prompt"]), "completion_tokens": count}
    return {**counts, "total_tokens": sum(counts.values()), "prompt_tokens_details": {"cached_tokens": 0}}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path != "/v1/models":
            return self._json({"error": "not found"}, 404)
        return self._json({"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "vllm"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or "{}")
        if self.path != "/v1/completions":
            return self._json({"error": "not found"}, 404)
        if "prompt" not in body:
            return self._json({"error": "prompt is missing"}, 400)
        ids = generate(body["prompt"], body["max_tokens"])
        if not body["stream"]:
            token_ids = list(ids)
            return self._json(
                completion(body, token_ids, is_first=True, ended=True) | {"usage": usage(body, len(token_ids))}
            )
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        count = 0
        for token in ids:  # the first event carries the prompt, so that the client can compare it
            self._event(completion(body, [token], is_first=count == 0))
            count += 1
        self._event(completion(body, [], ended=True))
        self._event({"id": own_id(body), "choices": [], "usage": usage(body, count)})
        self._chunk(b"data: [DONE]\n\n")
        return self._chunk(b"")

    def _event(self, content: dict[str, Any]) -> None:
        self._chunk(b"data: " + json.dumps(content).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _json(self, content: dict[str, Any], status: int = 200) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *values: Any) -> None:
        """Write no line per request."""


class Server(ThreadingHTTPServer):
    request_queue_size = 2048  # connections that the client opens at once


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1].isdecimal():
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
