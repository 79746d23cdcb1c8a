"""The pace of a run that is in progress: the duration that follows from it, to compare with the planned duration."""

from runs.benchmark import Scenario

FEWEST = 3  # completed samples after the first one from which their rate counts


class DurationForecast:
    """A forecast of the duration of a run, from its heartbeats.

    The rate counts from the first completed sample, because the engine fills up before it.

    Args:
        expected: Number of samples that LoadGen will issue.
        planned_s: Planned time from the first query to the last response.
    """

    def __init__(self, scenario: Scenario, expected: int, planned_s: float) -> None:
        self._is_paced = scenario in ("Server", "Interactive")  # LoadGen issues by a schedule
        self._expected, self.planned_s = expected, planned_s
        self._first: tuple[float, int] | None = None

    def forecast_s(self, elapsed_s: float, issued: int, completed: int) -> float | None:
        """Return the expected duration of the run; None if too few samples are complete."""
        if completed and self._first is None:
            self._first = elapsed_s, completed
        first_s, completed_before = self._first or (elapsed_s, completed)
        done = completed - completed_before
        if done < FEWEST or elapsed_s <= first_s:
            return elapsed_s if elapsed_s > self.planned_s else None
        per_sample_s = (elapsed_s - first_s) / done
        if self._is_paced and issued < self._expected:
            # The schedule limits the rate so far. Only the queries that are open now are sure to take longer.
            return max(self.planned_s, elapsed_s + (issued - completed) * per_sample_s)
        return elapsed_s + (self._expected - completed) * per_sample_s
