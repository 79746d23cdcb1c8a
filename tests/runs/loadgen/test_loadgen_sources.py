"""The sources of LoadGen, by the hashes in a log."""

from collections.abc import Callable

import pytest

from compliance.results.loadgen_build import loadgen_sources
from compliance.results.run_evidence import RunEvidence
from runs.loadgen.detail_log import read_detail
from runs.loadgen.loadgen_sources import SOURCES, unchanged_sources
from runs.record.layout import RunDir
from tests.support.files.editing import edit_detail


@pytest.mark.parametrize(
    ("revision", "changed", "unchanged"),
    [
        ("d6147c7eb7", {}, True),
        ("NA", {"/README_BUILD.md": None, "/PKG-INFO": "0" * 40, "/setup.cfg": "0" * 40}, True),
        ("NA", {"/loadgen.cc": "0" * 40}, False),
        ("NA", {"/results.h": None}, False),
        ("NA", {"/mlperf.conf": "0" * 40}, False),
        ("NA", {"/more.cc": "0" * 40}, False),
    ],
)
def test_loadgen_sources_are_compared_by_their_hashes(
    copied_run: Callable[[str], RunDir], revision: str, changed: dict[str, str | None], unchanged: bool
) -> None:
    run = copied_run("offline")
    files = {**read_detail(run.detail).values["loadgen_file_sha1"], **changed}
    edit_detail(run, "loadgen_version", f"6.0.17 @ {revision}")
    edit_detail(run, "loadgen_file_sha1", {name: sha1 for name, sha1 in files.items() if sha1 is not None})
    assert unchanged_sources(read_detail(run.detail)) is unchanged


@pytest.mark.parametrize(
    ("version", "unchanged"),
    [("5.1.0 @ b9ed3c7fec", False), ("5.1.0 @ 1234567890", None), ("5.1.0 @ NA", None), ("7.0 @ 1234567890", None)],
)
def test_the_hashes_of_an_unknown_revision_are_not_judged(
    copied_run: Callable[[str], RunDir], version: str, unchanged: bool | None
) -> None:
    run = copied_run("offline")
    edit_detail(run, "loadgen_version", version)
    assert unchanged_sources(read_detail(run.detail)) is unchanged


def test_each_revision_has_one_digest() -> None:
    revisions = [revision for build in SOURCES for revision in build.revisions.split()]
    assert len(set(revisions)) == len(revisions)
    assert len({build.digest for build in SOURCES}) == len(SOURCES)


def test_a_git_status_shows_changed_sources(copied_run: Callable[[str], RunDir]) -> None:
    run = copied_run("offline")
    assert [finding.severity for finding in loadgen_sources(RunEvidence(run))] == ["pass"]
    edit_detail(run, "loadgen_git_status_message", "M loadgen.cc")
    assert [finding.severity for finding in loadgen_sources(RunEvidence(run))] == ["error"]
