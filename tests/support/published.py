"""Published result logs of other systems, of round v5.1: beside the repository, or where `make published` puts them."""

from qsl.cache import cache_dir
from tests.conftest import ROOT

_PLACES = (ROOT.parent / "shared" / "data" / "published", cache_dir() / "published-v5.1")
PUBLISHED = next((place for place in _PLACES if place.is_dir()), _PLACES[-1])
NOT_HERE = "no published logs are here: make published"
