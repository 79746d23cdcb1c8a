"""How long the stages of an engine's start took, kept in the cache folder to be shown at the next one.

What cannot be read or written is passed over.
"""

import contextlib
import hashlib
from pathlib import Path

import orjson

from qsl.cache import cache_dir
from runs.errors import HarnessError
from runs.files import write_json
from runs.record.manifest import LegPlan

MOST_STARTS = 200  # that are kept

Stages = dict[str, float]  # seconds, by the stage's name


def recall(plan: LegPlan) -> Stages:
    """The stages of the last start of this engine with this model and these options; empty when there was none."""
    with contextlib.suppress(OSError, HarnessError, ValueError, RuntimeError):
        return {str(name): float(seconds) for name, seconds in _read(_path()).get(_key(plan), {}).items()}
    return {}


def remember(plan: LegPlan, stages: Stages) -> None:
    """Keep the stages of a start."""
    with contextlib.suppress(OSError, HarnessError, ValueError, RuntimeError):
        path, key = _path(), _key(plan)
        known = _read(path)
        known.pop(key, None)
        write_json(path, dict(list({**known, key: stages}.items())[-MOST_STARTS:]))


def _path() -> Path:
    return cache_dir() / "start-times.json"


def _read(path: Path) -> dict[str, Stages]:
    try:
        found = orjson.loads(path.read_bytes())
    except (FileNotFoundError, orjson.JSONDecodeError):
        return {}
    return found if isinstance(found, dict) and all(isinstance(value, dict) for value in found.values()) else {}


def _key(plan: LegPlan) -> str:
    facts = [plan.engine, plan.model_path, plan.engine_options, plan.environment]
    return hashlib.sha256(orjson.dumps(facts, option=orjson.OPT_SORT_KEYS, default=str)).hexdigest()[:16]
