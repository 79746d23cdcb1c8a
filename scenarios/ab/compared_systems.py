"""The systems of a comparison: their facts, and the start of engines and servers for a turn."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from runs.bench.bench_record import Fact
from runs.errors import HarnessError
from runs.record.fingerprint import flat_facts
from scenarios.ab.ab_options import Ab, ComparedSystem
from scenarios.launch.parent import engine_keeper
from scenarios.launch.run_config import make_config
from scenarios.served_commands import SERVER_LOG
from sut.http.address import Access, addresses
from sut.http.server import learn
from sut.http.started_server import StartedServer

if TYPE_CHECKING:
    from sut.replicas.kept_engine import EngineKeeper

_SECRET = frozenset({"api_key_env", "header", "extra_body"})
_OF_ALL = frozenset({"api_server", "sampling_arg", "stall_timeout_s"})  # equal in all systems, or no fact of a system


def facts_of_system(system: ComparedSystem) -> dict[str, Fact]:
    """Return what a running server reports about itself, or the options of an engine."""
    values = system.bench.values
    facts: dict[str, Fact] = {}
    for name, value in values.items():
        if name not in _SECRET | _OF_ALL:
            facts |= _facts(name, value)
    if system.serve is None and "api_server" in values:
        facts |= _reported(system)
    return facts


def _reported(system: ComparedSystem) -> dict[str, Fact]:
    values = system.bench.values
    address = addresses(values["api_server"])[0]
    with contextlib.suppress(HarnessError):
        learned = asyncio.run(learn(address, Access.of(values), values.get("api_model_name")))
        return _facts("server", learned.lasting())
    return {}


def _facts(name: str, value: Any) -> dict[str, Fact]:
    """Return a value, or the nested fields of a dictionary, as facts with dotted names."""
    return {
        key: fact if isinstance(fact, str | int | float | bool) or fact is None else str(fact)
        for key, fact in flat_facts(name, value).items()
    }


def shares_machine(systems: Sequence[ComparedSystem]) -> bool:
    """Return whether multiple systems are servers on this machine."""
    local = [addresses(system.bench.values["api_server"])[0].is_here() for system in systems]
    return sum(local) > 1


@contextlib.contextmanager
def running_system(
    ab: Ab, system: ComparedSystem, say: Callable[[str], None]
) -> Iterator[tuple["EngineKeeper | None", dict[str, Fact]]]:
    """Start a system for a turn, and stop it at the end. A running server is left as it is.

    Yields:
        The keeper of an engine, and the facts that a started server reports.
    """
    values = system.bench.values
    folder = ab.folder / system.name
    folder.mkdir(parents=True, exist_ok=True)
    if system.serve is not None:
        address = addresses(values["api_server"])[0]
        server = StartedServer(system.serve, address, Access.of(values), folder / SERVER_LOG)
        with server.running(make_config({**values, "scenario": "Server"}).engine_start_timeout_s):
            yield None, _reported(system)
        return
    config = make_config({**values, "scenario": "Server"})
    with engine_keeper(config, folder) as keeper:
        yield keeper, {}
