"""Probes before the timed run: requests whose responses show whether the server honors the benchmark's sampling.

A failed probe refuses the run. Probes cannot show the server's weights and precision.
"""

import asyncio
import itertools
import random
from typing import Any

from runs.errors import HarnessError, SetupError
from sut.engine import OneResponse, Request
from sut.http.client import Client
from sut.http.dialects import BodyTemplate
from sut.http.text import Texts

PROBE_SEED = 20_250_715
PROBE_TOKENS = 300  # longer than a cache block of any server: vLLM's blocks have 16 IDs, on CPUs 128
LOWEST_ID, HIGHEST_ID = 10, 250  # IDs that every vocabulary has, including the byte tokenizer's
PROBE_TIMEOUT_S = 120.0
FORCED_TOKENS = 4  # tokens in the probe of min_tokens
SHORT_TOKENS = 8
# Settings that no probe can check if the server sends text.
NOT_CHECKED = ["token IDs of prompts and responses", "vocabulary", "min_tokens at a stop token", "exchanged responses"]


async def probe(client: Client, tokens: int) -> dict[str, Any]:
    """Send the probes one after the other; their responses are checked like all responses.

    Returns:
        Facts for the manifest.

    Raises:
        SetupError: If the server refuses the benchmark's sampling, or does not honor it.
    """
    if client.texts is not None:
        return await _probe_text(client, client.texts, tokens)
    url, sampling = client.address.url, client.sampling
    chooser = random.Random(PROBE_SEED)
    prompt = [chooser.randrange(LOWEST_ID, HIGHEST_ID) for _ in range(tokens)]
    first = await _ask(client, prompt)
    again = await _ask(client, prompt)
    if sampling.temperature == 0 and first.ids != again.ids:
        both = zip(first.ids, again.ids, strict=False)
        same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], both))
        raise SetupError(
            f"server {url}: two greedy requests with one prompt returned different responses: only the first {same} "
            f"token IDs are equal (of {len(first.ids)} and {len(again.ids)})",
            "configure the server to decode greedily at temperature 0, so that equal requests have equal responses",
        )
    if (len(first.ids) == sampling.max_tokens) != (first.finish_reason == "length"):
        raise SetupError(
            f"server {url}: the response has {len(first.ids)} of at most {sampling.max_tokens} IDs, and finish reason "
            f"{first.finish_reason!r}",
            "configure the server to stop at max_tokens and to report the finish reason `length`",
        )
    least = await _show_min_tokens(client, prompt, first.ids)
    return {
        "prompt_tokens": len(prompt),
        "output_tokens": len(first.ids),
        "finish_reason": first.finish_reason,
        "greedy_twice_equal": first.ids == again.ids,
        "min_tokens_honoured": least,
        "cached_tokens_of_the_repeat": again.cached_tokens,
    }


async def _probe_text(client: Client, texts: Texts, tokens: int) -> dict[str, Any]:
    """Send a prompt twice to a server that sends text, and return what the responses show."""
    sampling = client.sampling
    prompt = texts.tokenizer.encode(" the" * tokens)[:tokens]
    first = await _ask(client, prompt)
    again = await _ask(client, prompt)
    return {
        "prompt_tokens": len(prompt),
        "output_tokens": len(first.ids),
        "finish_reason": first.finish_reason,
        "greedy_twice_equal": first.ids == again.ids,
        # Only a fixed length shows it.
        "min_tokens_honoured": first.finish_reason == "length" if sampling.min_tokens == sampling.max_tokens else None,
        "cached_tokens_of_the_repeat": again.cached_tokens,
        "not_checked": NOT_CHECKED,
    }


async def _show_min_tokens(client: Client, prompt: list[int], ids: list[int]) -> bool | None:
    """Send a probe whose first output token is a stop token, so that only `min_tokens` prevents an early end."""
    most = client.sampling.max_tokens
    least = max(FORCED_TOKENS, client.sampling.min_tokens)
    if not client.dialect.min_tokens_holds_stop_ids or most < least:
        return None
    longest = min(most, max(SHORT_TOKENS, least))
    sampling = client.sampling.model_copy(update={"min_tokens": least, "max_tokens": longest})
    template = client.template(sampling, stop_ids=(ids[0],))
    response = await _ask(client, prompt, template)
    if len(response.ids) < least:
        raise SetupError(
            f"server {client.address.url}: min_tokens {least} was requested, but the response has {len(response.ids)} "
            "token IDs",
            "use a server version that honors min_tokens",
        )
    return True


async def _ask(client: Client, prompt: list[int], template: BodyTemplate | None = None) -> OneResponse:
    response = OneResponse()
    client.submit(Request(response, prompt), template)
    limit_s = client.request_timeout_s or PROBE_TIMEOUT_S
    try:
        async with asyncio.timeout(limit_s):
            await response.done
    except TimeoutError as error:
        fix = f"read the error in {client.server_log}" if client.server_log else "give --request-timeout SECONDS"
        raise SetupError(
            f"server {client.address.url} did not respond to a request within {limit_s:g} s", fix
        ) from error
    except HarnessError as error:
        fix = "use a server that supports the sampling parameters of the benchmark (docs/servers.md)"
        raise SetupError(error.message, error.fix if client.texts else fix) from error
    return response
