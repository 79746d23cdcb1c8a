"""Numbers as text."""

import pytest

from runs.wording import four_digits


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.012345, "0.01235"), (12.3456, "12.35"), (999.96, "1,000"), (29_338.4, "29,338"), (1_234_567.0, "1,234,567")],
)
def test_large_numbers_are_written_without_an_exponent(value: float, text: str) -> None:
    assert four_digits(value) == text
