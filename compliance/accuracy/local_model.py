"""Models that verification needs, found on this machine: judging files never goes to the network."""

from pathlib import Path

from qsl.tokenizers import BYTES
from runs.errors import InputError


def local_model(name: str, revision: str | None = None) -> str:
    """Where a model's tokenizer lies: a folder as it is named, a hub id in the hub's local cache.

    Args:
        name: a model folder, a hub id of the form org/name, or "bytes" for the byte tokenizer.
        revision: of a hub id, the commit that the leg used; None: the one that the cache has as its main branch.

    Returns:
        The folder, or "bytes".

    Raises:
        InputError: there is no such folder, and no such model in the cache.
    """
    if name == BYTES or Path(name).is_dir():
        return name
    if Path(name).exists() or name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise InputError(
            f"model folder {name} does not exist", "name the folder of the model that the leg used: --model-path DIR"
        )
    from huggingface_hub import snapshot_download  # slow to import, and rarely needed

    try:
        return str(snapshot_download(name, revision=revision, local_files_only=True))
    except Exception as error:  # the hub's client raises a dozen unrelated kinds
        commit, option = (f" at revision {revision}", f" --revision {revision}") if revision else ("", "")
        raise InputError(
            f"model {name}{commit} is neither a folder here nor in the local hub cache; to verify, nothing is fetched",
            f"fetch it first (hf download {name}{option}), or name a folder with its tokenizer: --model-path DIR",
        ) from error
