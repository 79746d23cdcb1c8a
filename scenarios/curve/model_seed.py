"""The model seed of a seed set in the requests of the client.

The chat API has a signed seed of 64 bits, and servers refuse larger ones. The seed of a set may need all 64 bits. The
requests then have the negative number with the same bits. A server with unsigned seeds refuses it, and receives the
published number.
"""

import asyncio
import json
from collections.abc import Iterator

from runs.errors import SetupError
from scenarios.curve.curve_config import CurveConfig
from sut.http.address import ServerAddress
from sut.http.dialects import DIALECTS
from sut.http.refusals import is_success, response_problem
from sut.http.server import ask

BITS = 64
CHAT_API = "openai"  # the only API type whose requests have a seed, and the client's default
RESPONSE_TIMEOUT_S = 120.0  # the first request of a server may compile its model


def accepted_model_seed(curve: CurveConfig) -> int | None:
    """Return the model seed in the form that all servers accept; None if the requests of the API type have no seed.

    Raises:
        SetupError: If a server accepts no form.
    """
    if not sends_seed(curve):
        return None
    seed = curve.seed_set.seeds["model_seed"]
    for form in _forms(seed):
        problems = [_problem(curve, address, form) for address in curve.servers]
        if not any(problems):
            return form
    refused = next(text for text in problems if text)
    raise SetupError(
        f"model_seed {seed} of set {curve.seed_set.name}: {refused}",
        "repeat this request with curl, and correct the server",
    )


def sends_seed(curve: CurveConfig) -> bool:
    """Return whether the client's requests have a seed."""
    return curve.options.api_type in (None, CHAT_API)


def _forms(seed: int) -> Iterator[int]:
    """Yield the signed number with the bits of a seed, then the seed itself if it differs."""
    yield seed - (1 << BITS) if seed >= 1 << (BITS - 1) else seed
    if seed >= 1 << (BITS - 1):
        yield seed


def _problem(curve: CurveConfig, address: ServerAddress, seed: int) -> str:
    """Return why a server refuses a request with a seed; empty if it accepts the request."""
    path = DIALECTS["openai-chat"].path
    body = {
        "model": curve.options.model,
        "messages": [{"role": "user", "content": "1"}],
        "max_completion_tokens": 1,
        "seed": seed,
    }
    reply = asyncio.run(ask(address, curve.access, path, json.dumps(body).encode(), RESPONSE_TIMEOUT_S))
    if is_success(reply.status):
        return ""
    problem = response_problem(reply.status, reply.content.strip().split(b"\n")[0], reply.location)
    return f"server {address.url}, POST {path} with seed {seed}: {problem}"
