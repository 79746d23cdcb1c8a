"""Publication cohorts of MLPerf Endpoints: two in each month, on its first and third Wednesday.

[mlcommons/endpoints_policies, endpoints_submission_rules.md §4.2, §4.6]
"""

import re
from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from typing import NamedTuple

_WEDNESDAY = 2  # date.weekday()
_COHORT = re.compile(r"(\d{4})-(0[1-9]|1[0-2])-C([01])")


class Cohort(NamedTuple):
    """A publication cohort, such as 2026-12-C0."""

    year: int
    month: int
    number: int  # 0 or 1

    def __str__(self) -> str:
        return f"{self.year:04}-{self.month:02}-C{self.number}"

    @property
    def next(self) -> "Cohort":
        if self.number == 0:
            return Cohort(self.year, self.month, 1)
        return Cohort(self.year + 1, 1, 0) if self.month == 12 else Cohort(self.year, self.month + 1, 0)

    def later(self, count: int) -> "Cohort":
        """Return the cohort that is this number of cohorts later."""
        return self if count == 0 else self.next.later(count - 1)

    def day(self, exceptions: Mapping[str, date] | None = None) -> date:
        """Return the day of publication.

        Args:
            exceptions: Days of cohorts that differ from the first or third Wednesday.
        """
        first = date(self.year, self.month, 1)
        usual = first + timedelta((_WEDNESDAY - first.weekday()) % 7 + 14 * self.number)
        return (exceptions or {}).get(str(self), usual)


def parse_cohort(text: object) -> Cohort | None:
    """Return the cohort with this name; None for another text."""
    match = _COHORT.fullmatch(text) if isinstance(text, str) else None
    return Cohort(*map(int, match.groups())) if match else None


def window(published: Cohort, count: int) -> tuple[Cohort, ...]:
    """Return a number of cohorts, from a first one."""
    return tuple(published.later(number) for number in range(count))


def cohorts_since(start: date, end: date, exceptions: Mapping[str, date] | None = None) -> Iterator[Cohort]:
    """Yield the cohorts that were published after a day, up to another day."""
    cohort = Cohort(start.year, start.month, 0)
    while (day := cohort.day(exceptions)) <= end:
        if day > start:
            yield cohort
        cohort = cohort.next
