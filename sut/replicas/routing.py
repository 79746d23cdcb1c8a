"""Which replica a query goes to: a policy is what a query weighs while it is open, and the lightest replica gets it.

    open         1: the fewest open queries
    tokens       the prompt's tokens until the first token, then 1: the fewest tokens that wait to be computed
    prefill      1, and PREFILL_WEIGHT more until the first token, as prompts that wait hold up everything behind them
    round-robin  one after the other, whatever they do; for comparison

Among equals the one whose turn is longest ago. Where no first token is seen (Offline), what waits for it weighs until
the answer.
"""

from collections.abc import Callable

from runs.record.manifest import RoutingPolicy
from sut.engine import Request

WORTH_A_TRY: tuple[RoutingPolicy, ...] = ("open", "tokens", "prefill")
PREFILL_WEIGHT = 8  # AMD's harness for MLPerf Inference v6.1 uses 8

_UNTIL_FIRST_TOKEN: dict[RoutingPolicy, Callable[[Request], int]] = {
    "open": lambda _: 0,
    "tokens": lambda request: len(request.prompt_ids),
    "prefill": lambda _: PREFILL_WEIGHT,
    "round-robin": lambda _: 0,
}


class Routing:
    """Weighs what is open at each replica.

    Args:
        policy: see the module.
        replicas: how many.
    """

    def __init__(self, policy: RoutingPolicy, replicas: int) -> None:
        self._until_first_token = _UNTIL_FIRST_TOKEN[policy]
        self._until_answer = 0 if policy == "round-robin" else 1
        self._weights = [0] * replicas
        self._next = 0
        self._waiting: dict[int, int] = {}  # tag → what it weighs until its first token

    def choose(self, tag: int, request: Request) -> int:
        """The replica for a query, which weighs on it from now on."""
        weights = self._weights
        lightest = min(weights)
        try:
            chosen = weights.index(lightest, self._next)
        except ValueError:  # all of them lie before
            chosen = weights.index(lightest)
        self._next = (chosen + 1) % len(weights)
        waiting = self._until_first_token(request)
        if waiting:
            self._waiting[tag] = waiting
        weights[chosen] += self._until_answer + waiting
        return chosen

    def first_token(self, replica: int, tag: int) -> None:
        self._weights[replica] -= self._waiting.pop(tag, 0)

    def answered(self, replica: int, tag: int) -> None:
        self._weights[replica] -= self._until_answer + self._waiting.pop(tag, 0)
