"""Run uv with the package sources that pip is configured to use: `python scripts/run_uv.py pip install …`.

uv ignores pip's settings. `scripts/setup.sh` and `scripts/lock.sh` call uv through this file, with Python 3.11 or newer
and pip. Exit code 127: uv is missing, or older than pyproject.toml requires.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[1]
NOT_FOUND = 127  # exit code of a shell for a missing command

# Variable of uv → its older name, and the equivalent keys of uv.toml. The user's choice overrides pip's settings.
_SAME: dict[str, tuple[str, set[str]]] = {
    "UV_DEFAULT_INDEX": ("UV_INDEX_URL", {"index", "index-url"}),
    "UV_INDEX": ("UV_EXTRA_INDEX_URL", {"index", "extra-index-url"}),
    "UV_INDEX_STRATEGY": ("", {"index-strategy"}),
    "UV_FIND_LINKS": ("", {"find-links"}),
    "UV_INSECURE_HOST": ("", {"allow-insecure-host"}),
}


def pip_settings(listing: str) -> dict[str, str]:
    """Return the settings of `pip install` in the output of `pip config list`, by key."""
    settings: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in listing.splitlines():
        if match := re.fullmatch(r"(global|install|:env:)\.([\w-]+)=(.+)", line):
            section, key, value = match.groups()
            settings[section][key] = str(ast.literal_eval(value)).strip()
    merged = settings["global"] | settings["install"] | settings[":env:"]
    return {key: value for key, value in merged.items() if value}


def uv_settings(pip: Mapping[str, str]) -> dict[str, str]:
    """Return pip's settings as variables of uv.

    pip's constraints are omitted, because a lock already fixes the versions.
    """
    indexes = list(_existing(pip.get("extra-index-url", "").split()))
    proxy = pip.get("proxy", "")
    if proxy and "://" not in proxy:
        proxy = f"http://{proxy}"
    timeout = pip.get("timeout") or pip.get("default-timeout") or ""
    cert = pip.get("cert", "")
    settings = {
        "UV_DEFAULT_INDEX": pip.get("index-url", ""),
        "UV_INDEX": " ".join(indexes),
        # pip uses the best version of all indexes. By default, uv uses the first index with the package.
        "UV_INDEX_STRATEGY": "unsafe-best-match" if indexes else "",
        "UV_FIND_LINKS": ",".join(link.replace(",", "%2C") for link in _existing(pip.get("find-links", "").split())),
        "UV_INSECURE_HOST": " ".join(pip.get("trusted-host", "").split()),
        "UV_HTTP_TIMEOUT": timeout.partition(".")[0],
        "SSL_CERT_DIR" if Path(cert).is_dir() else "SSL_CERT_FILE": cert,
        "SSL_CLIENT_CERT": pip.get("client-cert", ""),
        "HTTP_PROXY": proxy,
        "HTTPS_PROXY": proxy,
    }
    return {name: value for name, value in settings.items() if value}


def environment(listing: str, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for uv: the user's environment, and pip's settings that it and uv.toml do not set."""
    keys = _configured_keys(variables)
    translated = {
        name: value
        for name, value in uv_settings(pip_settings(listing)).items()
        if not _chosen(name, variables) and not keys & _SAME.get(name, ("", set()))[1]
    }
    return {**variables, **translated}


def without_index(listing: str, variables: Mapping[str, str]) -> bool:
    """Return whether uv needs an option for offline use: pip uses no index, and uv has no index of its own."""
    is_off = pip_settings(listing).get("no-index", "").lower() in {"1", "true", "yes", "on", "y", "t"}
    names = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL")
    return is_off and not any(variables.get(name) for name in names)


def find_uv() -> str | None:
    """Return the path of the uv on PATH or in the directory of this Python, if it is as new as pyproject.toml "
    "requires."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    oldest = _numbers(project["tool"]["uv"]["required-version"])
    for path in (shutil.which("uv"), shutil.which("uv", path=str(Path(sys.executable).parent))):
        if path:
            version = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
            if version.returncode == 0 and _numbers(version.stdout) >= oldest:
                return path
    return None


def main(arguments: list[str]) -> NoReturn:
    """Replace this process with uv."""
    uv = find_uv()
    if uv is None:
        sys.exit(NOT_FOUND)
    variables = dict(os.environ)
    completed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        capture_output=True, text=True, check=False, env={**variables, "PIP_QUIET": "0", "PIP_VERBOSE": "0"},
    )  # fmt: skip
    settings = environment(completed.stdout, variables)
    if not _chosen("UV_LINK_MODE", variables) and not _can_link(uv):
        settings["UV_LINK_MODE"] = "copy"  # uv's own fallback, without its warning
    if arguments[:1] == ["pip"] and without_index(completed.stdout, variables):
        arguments = [*arguments[:2], "--no-index", *arguments[2:]]
    os.execve(uv, [uv, *arguments], settings)


def _chosen(name: str, variables: Mapping[str, str]) -> bool:
    """Return whether the user's environment sets a variable. For uv and pip, an empty value means "none"."""
    return any(variable in variables for variable in (name, name.lower(), _SAME.get(name, ("", set()))[0]) if variable)


def _existing(places: Iterable[str]) -> Iterator[str]:
    """Yield URLs and existing folders; pip ignores missing folders with a warning, uv fails."""
    for place in places:
        url = urlsplit(place)
        path = Path(unquote(url.path) if url.scheme == "file" else place).expanduser()
        if url.scheme not in ("", "file"):
            yield place
        elif path.exists():
            yield path.absolute().as_uri()
        else:
            print(f"setup: {path}: does not exist, but is a package source in pip's settings", file=sys.stderr)


def _configured_keys(variables: Mapping[str, str]) -> set[str]:
    """Return the keys that uv's own configuration files set."""
    home = Path(variables.get("XDG_CONFIG_HOME") or Path(variables.get("HOME", "/")) / ".config")
    files = [Path("/etc/uv/uv.toml"), home / "uv" / "uv.toml"]
    if variables.get("UV_CONFIG_FILE"):
        files = [Path(variables["UV_CONFIG_FILE"])]
    keys: set[str] = set()
    for path in files if not variables.get("UV_NO_CONFIG") else []:
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue  # uv reports the fault.
        keys |= content.keys() | content.get("pip", {}).keys()
    return keys


def _can_link(uv: str) -> bool:
    """Return whether files of uv's cache can be hard-linked into this Python's environment."""
    cache_dir = subprocess.run([uv, "cache", "dir"], capture_output=True, text=True, check=False)
    cache = Path(cache_dir.stdout.strip())
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=cache) as source, tempfile.TemporaryDirectory(dir=sys.prefix) as target:
            os.link(source.name, Path(target) / "link")
    except OSError:
        return False
    return True


def _numbers(text: str) -> tuple[int, ...]:
    """Return the first version in a text as numbers."""
    match = re.search(r"\d+(\.\d+)*", text)
    return tuple(map(int, match[0].split("."))) if match else ()


if __name__ == "__main__":
    main(sys.argv[1:])
