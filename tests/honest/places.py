"""Places in which an honest result lies, and how its files came there. Each row moves or adds files of a copy.

A variation returns where the result lies afterwards, None where it stayed.
"""

import os
import shutil
from pathlib import Path

import pytest

from tests.honest.pair import Pair, Variation, varied

PLACES: dict[str, Variation] = {}


def _to(*parts: str) -> Variation:
    def variation(pair: Pair) -> Path:
        target = pair.root.parent.joinpath(*parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        return Path(shutil.move(pair.root, target))

    return variation


for _name, _parts in {
    "moved": ("archive", "2026", "result"),
    "name-with-spaces": ("my results (final)", "result 1"),
    "name-in-another-script": ("результаты", "結果-é"),
    "name-in-capitals": ("RESULT",),
    "name-with-brackets": ("[b]{x}", "result*1?"),
    "name-with-a-dash": ("-x", "--result"),
    "long-name": ("a" * 200, "b" * 200),
    "long-path": ("a" * 200,) * 15,
    "name-with-line-breaks": ("a\nb", "c\td\r"),
    "name-in-two-unicode-forms": ("re\u0301sultat", "r\u00e9sultat"),
    "name-of-a-shell": ("$HOME", "~; `true` && %s"),
    "hidden": (".cache", ".result"),
}.items():
    PLACES[_name] = _to(*_parts)


@varied(PLACES, "through-a-link")
def _through_a_link(pair: Pair) -> Path:
    link = pair.root.with_name("link")
    link.symlink_to(pair.root.name)
    return link


@varied(PLACES, "legs-are-links")
def _legs_are_links(pair: Pair) -> None:
    elsewhere = pair.root.with_name("big-disk")
    shutil.move(pair.accuracy.root, elsewhere)
    pair.accuracy.root.symlink_to(elsewhere)


@varied(PLACES, "times-and-modes-of-files-lost")
def _metadata_lost(pair: Pair) -> None:
    """As a disk of another system shows them, or as they are copied there."""
    for path in (*pair.root.rglob("*"), pair.root):
        path.chmod(0o777)
        os.utime(path, (0, 0))


@varied(PLACES, "read-only")
def _read_only(pair: Pair) -> None:
    for path in (*pair.root.rglob("*"), pair.root):
        path.chmod(0o555 if path.is_dir() else 0o444)


@varied(PLACES, "files-of-a-desktop")
def _desktop(pair: Pair) -> None:
    for run in pair.legs:
        for name in (".DS_Store", "Thumbs.db", "._manifest.json", "manifest.json~", ".nfs0001"):
            (run.root / name).write_bytes(b"\0\1\2")


@varied(PLACES, "notes-beside")
def _notes(pair: Pair) -> None:
    (pair.performance.root / "NOTES.md").write_text("looked at by Ada\n")
    (pair.root / "report.html").write_text("<html></html>")


@varied(PLACES, "verified-before")
def _verified_before(pair: Pair) -> None:
    for run in pair.legs:
        (run.root / "verify_performance.txt").write_text("TEST PASS\n")
        (run.root / "verify_performance.json").write_text("{}\n")


@varied(PLACES, "an-older-verdict-elsewhere")
def _older(pair: Pair) -> None:
    (pair.root / "audit_verdict.json").write_text('{"verdict": "FAIL"}')


def _archived(form: str) -> Variation:
    """Unpacked elsewhere: a zip file keeps no modes, and times to two seconds in a zone of its own."""

    def variation(pair: Pair) -> Path:
        archive = shutil.make_archive(str(pair.root.with_name("archive")), form, pair.root)
        target = pair.root.with_name("restored")
        shutil.unpack_archive(archive, target, **({} if form == "zip" else {"filter": "data"}))
        return target

    return variation


PLACES["restored-from-an-archive"] = _archived("gztar")
PLACES["restored-from-a-zip-file"] = _archived("zip")


@varied(PLACES, "notes-in-the-leg")
def _notes_in_folders(pair: Pair) -> None:
    """Profiles, core dumps and notebooks that somebody left beside the logs."""
    for run in pair.legs:
        (run.root / "profile").mkdir()
        (run.root / "profile" / "trace.json").write_text("{}")
        with (run.root / "core.1234").open("wb") as stream:
            stream.truncate(3 << 30)
        (run.root / "notes.ipynb").write_text("[")


@varied(PLACES, "name-of-no-text")
def _bytes_name(pair: Pair) -> Path:
    target = Path(os.fsdecode(os.fsencode(pair.root.parent) + b"/r\xe9sultat"))
    return Path(shutil.move(pair.root, target))


@varied(PLACES, "names-that-differ-in-case-alone")
def _case(pair: Pair) -> None:
    """A second copy, which would be the same one on a disk that knows no case."""
    shutil.copytree(pair.root, pair.root.with_name(pair.root.name.upper()))
    (pair.performance.root / "Manifest.json").write_text("{}")


@varied(PLACES, "of-another-user")
def _other_user(pair: Pair) -> None:
    if os.geteuid():
        pytest.skip("only root gives files away")
    for path in (*pair.root.rglob("*"), pair.root):
        os.chown(path, 65534, 65534)
