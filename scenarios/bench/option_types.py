"""Types of a bench's options: each parses a text as typed, or states the rule that the text violates."""

import math
import re
from typing import Annotated, TypeVar

from pydantic import BeforeValidator

from runs.bench.bench_record import Limits
from runs.loadgen.conf_lines import HIGHEST_QPS
from scenarios.bench.ladder import LoadStep
from scenarios.launch.run_config import LOWEST_QPS

MAX_COUNT = 999_999_999
MAX_LENGTH = 2**20  # tokens
_UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}
_LIMITS = {
    **dict.fromkeys(("ttft", "time_to_first_token"), "ttft"),
    **dict.fromkeys(("tpot", "inter_token_latency"), "tpot"),
    **dict.fromkeys(("e2el", "request_latency"), "e2el"),
}
NumberT = TypeVar("NumberT", int, float)


# Each function raises ValueError with the rule that a text violates.


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    if not 0 < value < math.inf:
        raise ValueError(f"{text!r} must be finite and above 0")
    return value


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text[:10]) <= MAX_COUNT:
        raise ValueError(f"{text!r} must be a whole number from 1 to {MAX_COUNT:,}")
    return int(text)


def _ascending(values: list[NumberT]) -> list[NumberT]:
    if len(set(values)) < len(values):
        raise ValueError("the list contains a value twice")
    return sorted(values)


def _concurrency(text: str) -> tuple[LoadStep, ...]:
    numbers = _ascending([_count(part.strip()) for part in text.split(",")])
    return tuple(LoadStep("concurrency", concurrency=number) for number in numbers)


def _rates(text: str) -> tuple[LoadStep, ...]:
    """Return the steps of `5,10`, of `25%,50%` after an Offline run, or of `inf`, the Offline run alone."""
    parts = [part.strip() for part in text.split(",")]
    if "inf" in parts:
        if len(parts) > 1:
            raise ValueError("inf is the Offline run alone and takes no other rates")
        return (LoadStep("offline"),)
    shares = [_number(part[:-1]) / 100 for part in parts if part.endswith("%")]
    qps = [_number(part) for part in parts if not part.endswith("%")]
    if shares and qps:
        raise ValueError("the list mixes rates and shares")
    if any(not LOWEST_QPS <= rate <= HIGHEST_QPS for rate in qps) or any(share > 10 for share in shares):
        raise ValueError(f"rates are from {LOWEST_QPS:g} to {HIGHEST_QPS:,.0f} queries/s, shares up to 1000%")
    if shares:
        return LoadStep("offline"), *(LoadStep("server", share=share) for share in _ascending(shares))
    return tuple(LoadStep("server", qps=rate) for rate in _ascending(qps))


def _seconds(text: object) -> float:
    match = re.fullmatch(r"([\d.]+) ?([a-z]*)", str(text).strip())
    if match is None or match[2] not in _UNITS:
        raise ValueError("must be a number of seconds, or a number with s, m or h")
    value = _number(match[1]) * _UNITS[match[2]]
    if not 1 <= value <= 86_400:
        raise ValueError("must be from 1 s to 24 h")
    return value


def _lengths(text: str) -> tuple[int, int]:
    low, _, high = text.replace(":", "-").partition("-")
    bounds = _count(low), _count(high or low)
    if bounds[1] > MAX_LENGTH:
        raise ValueError(f"must be at most {MAX_LENGTH:,} tokens")
    if bounds[0] > bounds[1]:
        raise ValueError(f"the lower end {bounds[0]:,} is above the upper end {bounds[1]:,}")
    return bounds


def _output_lengths(text: str) -> tuple[int, int]:
    bounds = _lengths(text)
    if bounds[0] < 2:  # LoadGen divides by the tokens after the first one
        raise ValueError("must be at least 2 tokens")
    return bounds


def _limits(text: str) -> Limits:
    """Return limits in ms from `ttft=2000,tpot=100` or `ttft:2000 tpot:100`; without a limit for `none`."""
    limits_ms: dict[str, float] = {}
    for part in [] if text == "none" else re.split(r"[,\s]+", text.strip()):
        name, _, value = part.replace(":", "=").partition("=")
        quantity = _LIMITS.get(name.lower())
        if quantity is None:
            raise ValueError(f"{name!r} is not a limit; limits are ttft, tpot and e2el (the whole latency), in ms")
        if quantity in limits_ms:
            raise ValueError(f"{quantity} is given twice")
        limits_ms[quantity] = _number(value)
    return Limits(**limits_ms)


ConcurrencySteps = Annotated[tuple[LoadStep, ...], BeforeValidator(_concurrency)]
RateSteps = Annotated[tuple[LoadStep, ...], BeforeValidator(_rates)]
DurationS = Annotated[float, BeforeValidator(_seconds)]
LengthRange = Annotated[tuple[int, int], BeforeValidator(_lengths)]  # lowest and highest number of tokens
OutputRange = Annotated[tuple[int, int], BeforeValidator(_output_lengths)]
LatencyLimits = Annotated[Limits, BeforeValidator(_limits)]
