"""Which replica a query goes to: the one with the lowest weight of open queries.

An open query weighs 1, and PREFILL_WEIGHT more until its first token, because prompts that wait hold up everything
behind them. Among equals the replica whose turn is longest ago. Where no first token is seen (Offline), a query keeps
its full weight until the answer.
"""

PREFILL_WEIGHT = 8  # AMD's harness for MLPerf Inference v6.1 uses 8


class Routing:
    """Weighs what is open at each replica.

    Args:
        replicas: how many.
    """

    def __init__(self, replicas: int) -> None:
        self._weights = [0] * replicas
        self._next = 0
        self._waiting: set[int] = set()  # tags of open queries without a first token

    def choose(self, tag: int) -> int:
        """The replica for a query, which weighs on it from now on."""
        weights = self._weights
        lightest = min(weights)
        try:
            chosen = weights.index(lightest, self._next)
        except ValueError:  # all of them lie before
            chosen = weights.index(lightest)
        self._next = (chosen + 1) % len(weights)
        self._waiting.add(tag)
        weights[chosen] += 1 + PREFILL_WEIGHT
        return chosen

    def first_token(self, replica: int, tag: int) -> None:
        if tag in self._waiting:
            self._waiting.remove(tag)
            self._weights[replica] -= PREFILL_WEIGHT

    def answered(self, replica: int, tag: int) -> None:
        self.first_token(replica, tag)
        self._weights[replica] -= 1
