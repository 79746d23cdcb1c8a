import pytest

from tests.support.runs.punctual import punctual_issue

__all__ = ["punctual_issue"]


@pytest.fixture(autouse=True)
def on_time(punctual_issue: None) -> None:
    """Use runs whose queries were issued on time."""
