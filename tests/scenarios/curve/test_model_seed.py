"""The model seed of the requests: the form that the servers accept."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from runs.errors import SetupError
from scenarios.curve.curve_config import load_curve
from scenarios.curve.model_seed import accepted_model_seed
from tests.scenarios.curve.conftest import CurveFiles
from tests.support.servers.http_server import HttpServer, ServerReply, serving

PUBLISHED = 9315206023656308754  # set A
SIGNED = PUBLISHED - 2**64


@contextmanager
def server_of(lowest: int, highest: int) -> Iterator[str]:
    """A server that accepts seeds in a range, and returns its URL."""

    def reply(body: dict[str, Any]) -> ServerReply:
        accepted = lowest <= body["seed"] <= highest
        return ServerReply([b"{}"]) if accepted else ServerReply([b"seed out of range"], status=400)

    with serving(HttpServer("/v1/chat/completions", reply, "test")) as server:
        yield server.url


@pytest.mark.parametrize(
    ("lowest", "highest", "seed"),
    [(-(2**63), 2**63 - 1, SIGNED), (0, 2**64 - 1, PUBLISHED)],
    ids=["signed", "unsigned"],
)
def test_the_seed_has_the_form_that_the_server_accepts(
    curve_files: CurveFiles, lowest: int, highest: int, seed: int
) -> None:
    with server_of(lowest, highest) as url:
        curve = load_curve(curve_files.write(server=url), None, is_rehearsal=True)
        assert accepted_model_seed(curve) == seed


def test_the_seed_has_the_form_that_all_servers_accept(curve_files: CurveFiles) -> None:
    with server_of(-(2**63), 2**64) as both, server_of(0, 2**64) as unsigned:
        curve = load_curve(curve_files.write(server=[both, unsigned]), None, is_rehearsal=True)
        assert accepted_model_seed(curve) == PUBLISHED


def test_a_server_that_accepts_no_form_of_the_seed_is_refused(curve_files: CurveFiles) -> None:
    with server_of(0, 2**31) as url:
        curve = load_curve(curve_files.write(server=url), None, is_rehearsal=True)
        with pytest.raises(SetupError, match=f"seed {PUBLISHED}: status 400: seed out of range"):
            accepted_model_seed(curve)


def test_an_api_without_seeds_has_none(curve_files: CurveFiles) -> None:
    curve = load_curve(curve_files.write(api_type="openai_completions"), None, is_rehearsal=True)
    assert accepted_model_seed(curve) is None
