"""External data of tests: published result logs of round v5.1, and a checkout of mlcommons/inference.

The logs are beside the repository, or where `make published` puts them. Tests that read them are in `make test-long`.
"""

import os
from typing import TypeVar

import pytest

from qsl.cache import cache_dir
from tests.conftest import ROOT

_PLACES = (ROOT.parent / "shared" / "data" / "published", cache_dir() / "published-v5.1")
PUBLISHED = next((place for place in _PLACES if place.is_dir()), _PLACES[-1])
PUBLISHED_MARKS = [
    pytest.mark.long,
    pytest.mark.skipif(not PUBLISHED.is_dir(), reason="no published logs are here: make published"),
]
CHECKOUT = os.environ.get("MLPERF_INFERENCE", "")
_NO_CHECKOUT = pytest.mark.skipif(not CHECKOUT, reason="MLPERF_INFERENCE names no checkout of mlcommons/inference")
Test = TypeVar("Test")


def needs_published(test: Test) -> Test:
    for mark in PUBLISHED_MARKS:
        test = mark(test)
    return test


def needs_checkout(test: Test) -> Test:
    marked: Test = pytest.mark.long(_NO_CHECKOUT(test))
    return marked
