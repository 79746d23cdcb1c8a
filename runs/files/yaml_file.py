"""Reading users' YAML files. A duplicate key is an error, and every key has its line."""

from pathlib import Path
from typing import Any

from runs.errors import InputError
from runs.files.reading import MAX_YAML_BYTES, read_whole


def read_yaml(path: Path, option: str) -> dict[str, Any]:
    """Return the keys and values of a YAML file; keys are `YamlKey`s. An empty file has no keys.

    Args:
        option: option that named the file, for messages.

    Raises:
        InputError: If the file is unreadable, not YAML, not a mapping, has a key twice, or is too large with all
            aliases replaced.
    """
    import yaml

    from runs.files.yaml_loader import Loader

    content = read_whole(path, "give a readable YAML file", max_bytes=MAX_YAML_BYTES, option=option)
    loader = None
    try:
        loader = Loader(content.decode())
        loader.path = path
        value = loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = " ".join(filter(None, (error.context, error.problem)))
        raise InputError(f"{place} is not YAML: {problem}", "correct this line or the line before it") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        why = "too deeply nested" if isinstance(error, RecursionError) else str(error)
        raise InputError(f"{option} {path} is not YAML: {why:.200}".lstrip(), "correct the file") from error
    finally:
        if loader is not None:
            loader.dispose()
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InputError(
            f"{option} {path}: expected keys and values, found {type(value).__name__}",
            "compare the file with the examples in configs/",
        )
    return value
