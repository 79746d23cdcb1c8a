"""The sources of LoadGen's builds, compared by the hashes that LoadGen logs."""

import hashlib
from typing import NamedTuple

import orjson

from runs.loadgen.detail_log import DetailLog

NO_GIT = "NA"  # revision and Git status of a build outside a Git checkout
_COMPILED, _GENERATED = (".cc", ".h", ".conf"), "/mlperf_conf.h"  # the build generates it from mlperf.conf


class LoadgenSources(NamedTuple):
    """The sources of some builds of LoadGen."""

    digest: str  # SHA-256 of the compiled files in `loadgen_file_sha1`, as JSON with sorted keys
    versions: str
    revisions: str = ""  # revisions with these sources; empty: all revisions of the versions


# Only the compiled files are equal in the logs of a wheel and of a build from the source distribution. Revisions of
# earlier versions: all logs of the published rounds v4.1 and v5.1, of which six have other sources than all other logs
# of their revision. [mlcommons/inference_results: the revision of LoadGen that its log names]
SOURCES = (
    LoadgenSources(
        "be3574e28faab6f23394ea32f4929a5ceaef9d6439ebffb4ba4f0bcf80b8fac7",
        "4.0",
        "4a77003610 53f6475910 763883b1ae 9e2c9f642e c62fc116d2 f43c24c5a5",
    ),
    LoadgenSources("00584479410b2338932bba63c296936a81310a79c00b7a01069bbb78f3c96a8e", "4.0", "5357304f0c"),
    LoadgenSources("2ab9ad0326fde15f240cba9e27154de2594980feae102e322ca4eb4f0779f22b", "4.0", "486a629ea4 7fc059bf91"),
    LoadgenSources(
        "d6c625285d0785f8745f2edbcc604854aff412ab892b94c7316f2fdb2d2b9725",
        "4.0 4.1",
        "019f9ac3e6 03657abe70 1c4cf2759e 2814499631 2ed9555be0 a248595cf5 c3c68ee618 c60103b05a c83565d85d e34bdc6e82",
    ),
    LoadgenSources("bad6ec40b1b7b4754db16c9c02124c416892d5fa0fdd42fc4986ec4a101cb3f0", "4.1", "379ee5345a 3fb6c3e1f6"),
    LoadgenSources("2b69c7e024488dc90103373b7e2e233f4d1945c98fa284113aa40fe24fbebebd", "5.0.15", "a09ef11160"),
    LoadgenSources(
        "5317bc8747a4a0bac41c79a98a75f086906ba422871e36c0f481704ac5ca6586",
        "5.0.21 5.0.22 5.1.0",
        "0910c6e300 3cebd5ee48 e9830361b6 fdac4dcc0b",
    ),
    LoadgenSources("26dd959a4007588cf883b73e0c1120593e2c7f0fb67bc841687162d916baf9d8", "5.0.23", "20628f046f"),
    LoadgenSources(
        "2a89abe8f1b78ae52267c6a6eaf76472a7ac7e5b2d82ac5b2545c81e518c928b", "5.0.24", "24767db549 547aec56ae"
    ),
    LoadgenSources(
        "3efe5e03b385aa3cb04265f68bd91b0741bae731417cdbcc103bde5d220de470",
        "5.0.25 5.1.0",
        "01bc11a436 091d51f041 1bc3e998cb 50de99161e 5232291860 6481ff4f8a 6ad8e26f92 95579145a4 "
        "9a1990e5d1 a61df8bff1 b9ed3c7fec c57507b122 d82d7d42ae ff0eb0aaeb",
    ),
    LoadgenSources("7e49ebb5ad123c1cdb33b4fc487472d50545189f1826d47f8c398f24c2789d82", "6.0.17"),
)


def unchanged_sources(detail: DetailLog) -> bool | None:
    """Return whether a log has the source hashes of its LoadGen; None for an unknown revision with unknown hashes."""
    version, _, revision = str(detail.get("loadgen_version")).partition(" @ ")
    digest = _digest(detail.get("loadgen_file_sha1"))
    builds = [sources for sources in SOURCES if version in sources.versions.split()]
    required = {build.digest for build in builds if not build.revisions or revision in build.revisions.split()}
    if required:
        return digest in required
    return True if digest in {build.digest for build in builds} else None


def source_change(detail: DetailLog) -> str:
    """Return how LoadGen was changed before it was built; empty if no change is visible."""
    status = detail.get("loadgen_git_status_message")
    if status not in (None, "", NO_GIT):
        return "LoadGen was built from changed sources"
    if unchanged_sources(detail) is False:
        return f"the hashes in the log differ from the sources of LoadGen {detail.get('loadgen_version')}"
    return ""


def _digest(files: object) -> str | None:
    if not isinstance(files, dict):
        return None
    compiled = {name: sha1 for name, sha1 in files.items() if name.endswith(_COMPILED) and name != _GENERATED}
    return hashlib.sha256(orjson.dumps(compiled, option=orjson.OPT_SORT_KEYS)).hexdigest()
