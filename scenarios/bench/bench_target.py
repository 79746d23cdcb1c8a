"""The model or server that a bench measures, from its options and those of its runs."""

import asyncio
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from qsl.embedded.default_model import DEFAULT_MODEL_NAME, ensure_default_model
from qsl.model_files import ModelFacts, facts_of, find_model
from qsl.tokenizers import BYTES
from runs.mistakes import Mistakes
from scenarios.bench.options import BenchOptions
from sut.engines import DEFAULT, KINDS
from sut.http.address import Access, addresses, route_at_end, with_route
from sut.http.dialects import DIALECTS, ROUTES
from sut.http.server import ModelCard, choose_dialect, read_card

SERVER_STALL_S = 60.0  # in Offline, a server without streaming that serves requests one by one is quiet for long
BACKENDS = {"chat": "openai-chat", "completions": "openai"}  # backend of another program → dialect
KEY_VARIABLE = "OPENAI_API_KEY"
_ADDRESS = re.compile(r"https?://|([\w.-]+|\[[\da-f:]+\]):\d+(/|$)")


@dataclass(frozen=True)
class BenchDraft:
    """A bench while its command line is checked."""

    options: BenchOptions
    typed: dict[str, Any]  # options of the bench as typed, wrong values too
    values: dict[str, Any]  # fields of RunConfig that all runs share
    mistakes: Mistakes
    notes: list[str]
    say: Callable[[str], None]  # called with a line before a slow step


def set_target(draft: BenchDraft, words: Sequence[str]) -> str:
    """Move the model or URL to the fields of a run; return the model or URL.

    Args:
        words: Models and URLs on the command line that belong to no option.
    """
    options, values, backend, mistakes = draft.options, draft.values, draft.options.backend, draft.mistakes
    servers = [word for word in words if _ADDRESS.match(word)]
    models = [word for word in words if word not in servers]
    models += [word for word in (values.pop("model_path", None), options.model) if word]
    if {"host", "port"} & draft.typed.keys():
        servers.append(f"{options.host or 'localhost'}:{options.port}")
    route = options.endpoint or ""
    if _ADDRESS.match(route):
        servers, route = [*servers, route], ""
    route = route and "/" + route.strip("/")
    servers += [values.pop("api_server")] if "api_server" in values else []
    urls = list(dict.fromkeys(word if "://" in word else f"http://{word}" for word in servers))
    if urls and options.model in models and not Path(options.model or "").is_dir():
        models.remove(options.model)  # this is the name of the model on the server, not a path
    models = list(dict.fromkeys(models))
    for targets, what in ((urls, "servers"), (models, "models")):
        if len(targets) > 1:
            mistakes.add(f"{', '.join(targets)}: {len(targets)} {what} given", "give one MODEL or URL")
    if models:
        values["model_path"] = models[0]
    if urls:
        values["api_server"] = urls[0]
        with mistakes.collected("--api-server", "URL"):
            values["api_server"] = with_route(urls[0], route)
        values.setdefault("stall_timeout_s", SERVER_STALL_S)
        if backend is not None:
            values.setdefault("api_dialect", BACKENDS.get(backend, backend))
        if options.model is not None:
            values.setdefault("api_model_name", options.model)
        own_key = any(name.lower() == "authorization" for name in values.get("header", ()))
        if os.environ.get(KEY_VARIABLE) and "api_key_env" not in values and not own_key:
            values["api_key_env"] = KEY_VARIABLE
            draft.notes.append(f"the API key of the server comes from {KEY_VARIABLE}")
    elif backend in KINDS:
        values.setdefault("engine", backend)
    elif backend or route:
        flag = f"--backend {backend}" if backend else f"--endpoint {route}"
        mistakes.add(f"{flag}: no server is given", "give the server's URL")
    if route and not route_at_end(route):
        mistakes.add(f"--endpoint {route}: unknown route", f"choose from {', '.join(ROUTES)}")
    if (dialect := values.get("api_dialect")) is not None and dialect not in DIALECTS:
        mistakes.add(f"--api-dialect {dialect}: unknown", f"choose from {', '.join(DIALECTS)}")
    if options.reset_cache and urls:
        what = "--reset-cache: a server's cache cannot be reset"
        mistakes.add(what, "remove --reset-cache; each run has new prompts")
    if options.tokenizer is not None and (urls or not models):
        values["model_path"] = options.tokenizer
    return str(values.get("api_server") or values.get("model_path") or DEFAULT_MODEL_NAME)


def find_bench_model(draft: BenchDraft) -> tuple[ModelFacts | None, str]:
    """Return the model's facts, and its tokenizer; an empty text after a mistake."""
    values, mistakes = draft.values, draft.mistakes
    with mistakes.collected("--model-path", "--tokenizer" if draft.options.tokenizer else "--model-path"):
        card = _card(values)
        if card is not None:
            values["api_model_name"] = card.id
            names = [name for name in (card.root, card.id) if name]
            local = next((name for name in names if Path(name).is_dir()), None)
            if "model_path" not in values and local is not None:
                values["model_path"] = local
            elif "model_path" not in values and not any(DEFAULT_MODEL_NAME in name for name in names):
                return _model_of_unknown_files(draft, card)
            tokenized = values.get("model_path", DEFAULT_MODEL_NAME)
            if tokenized != BYTES and not any(PurePath(name).name in tokenized for name in names):
                draft.notes.append(
                    f"the server serves model {', '.join(names)}, and the prompts are tokenized for {tokenized}: "
                    "check that both are the same model"
                )
        if values.get("model_path") == BYTES and values.get("api_server"):
            dialect = DIALECTS.get(values.get("api_dialect") or "")
            if dialect is not None and not dialect.sends_text:
                what = f"--model-path {BYTES}: server {values['api_server']} takes token IDs"
                mistakes.add(f"{what} (dialect {dialect.name})", "give the server's model with --tokenizer MODEL")
            return None, BYTES
        kind = KINDS.get(values.get("engine", DEFAULT))
        if "model_path" not in values and kind is not None and kind.own_model is not None:
            return None, kind.own_model
        folder, revision = find_model(values.get("model_path") or str(ensure_default_model(draft.say)))
        return facts_of(str(folder), folder, revision), draft.options.tokenizer or str(folder)
    return None, ""


def _card(values: dict[str, Any]) -> ModelCard | None:
    """Return the server's entry of its model; None without a server, or for a server that the runs start."""
    if not values.get("api_server") or values.get("serve"):
        return None
    access = Access.of(values)
    address = addresses(values["api_server"])[0]
    card = asyncio.run(read_card(address, access, values.get("api_model_name")))
    if values.get("api_dialect") in (None, *DIALECTS):
        dialect = asyncio.run(choose_dialect(address, access, card.owned_by, values.get("api_dialect")))
        values["api_dialect"] = dialect.name
    return card


def _model_of_unknown_files(draft: BenchDraft, card: ModelCard) -> tuple[None, str]:
    """Return the byte tokenizer for a server that sends text; other servers need the model's tokenizer."""
    dialect = DIALECTS.get(draft.values.get("api_dialect") or "")
    if dialect is None or not dialect.sends_text:
        fix = "give --tokenizer with the folder or hub ID of this model"
        draft.mistakes.add(f"{draft.values['api_server']}: the files of model {card.id} are unknown", fix)
        return None, ""
    draft.notes.append(
        f"the tokenizer of {card.id} is unknown: the lengths of prompts are characters, and the server counts the "
        "output tokens; give --tokenizer with its folder or hub ID"
    )
    draft.values["model_path"] = BYTES
    return None, BYTES
