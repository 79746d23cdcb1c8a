"""calibration.md: how a quantised model was made, which the closed division asks for. [inference_rules.adoc]"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePath

from qsl.model_files import CALIBRATION
from runs.errors import InputError
from runs.reading import read_whole
from runs.record.manifest import Manifest

Documents = Mapping[str, bytes]  # by path in documentation/

_AFTER = re.compile(rb"\|\s*after:[^|\n]*\|\s*([0-9a-f]{64})\b", re.IGNORECASE)  # in what `main.py quantize` writes
_CALIBRATION = re.compile("calibrat|quanti[sz]", re.IGNORECASE)  # in a name


def _hashes_of(manifest: Manifest) -> Mapping[str, str]:
    return manifest.model.sha256


def recorded(manifests: Iterable[Manifest]) -> dict[str, tuple[str, Path]]:
    """The calibration.md that lay beside the weights when the legs ran: its name in documentation/, which has the
    precision where it is not the first, with its SHA-256 and its place."""
    found: dict[str, tuple[str, Path]] = {}
    for manifest in manifests:
        digest = _hashes_of(manifest).get(CALIBRATION)
        if digest is None or any(digest == known for known, _ in found.values()):
            continue
        precision = manifest.model.weights.precision if manifest.model.weights else "unknown"
        name = CALIBRATION if not found else f"calibration-{precision}.md"
        found[name] = digest, Path(str(manifest.model.folder)) / CALIBRATION
    return found


def with_calibration(given: Documents, manifests: Iterable[Manifest]) -> Documents:
    """The documents, and what the legs' models have on record, where it is still there and not given otherwise."""
    found = dict(given)
    for name, (digest, path) in recorded(manifests).items():
        try:
            content = read_whole(path, "")
        except InputError:
            continue
        if hashlib.sha256(content).hexdigest() == digest:
            found.setdefault(name, content)
    return found


def lacking(documents: Documents, manifests: list[Manifest]) -> Iterator[str]:
    """Why the documents do not tell how the weights were quantised."""
    for name, (digest, path) in recorded(manifests).items():
        if hashlib.sha256(documents.get(name, b"")).hexdigest() != digest:
            yield f"documentation/{name} is not {path} as it was when the legs ran (SHA-256 {digest})"
    for name, content in documents.items():
        said = {digest.decode().lower() for digest in _AFTER.findall(content)}
        if said and not any(said <= set(_hashes_of(one).values()) for one in manifests):
            yield f"documentation/{name} tells of other weights than those that ran"
    quantised = {
        one.model.weights.precision
        for one in manifests
        if one.model.weights is not None and one.model.weights.quantized
    }
    told = any(tells_of_calibration(PurePath(name)) and content.strip() for name, content in documents.items())
    if quantised and not told:
        yield f"the weights are quantised ({', '.join(sorted(quantised))}), and no calibration document tells how"


def tells_of_calibration(path: PurePath) -> bool:
    """Whether a document calls itself one."""
    return _CALIBRATION.search(path.name) is not None
