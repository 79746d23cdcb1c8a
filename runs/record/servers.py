"""What a leg's record says of the servers that answered it, and the declaration of what nobody outside can see of
them."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from runs.benchmark import OfficialModel
from runs.errors import InputError
from runs.record.manifest import Manifest
from runs.record.observed import ServerClient
from runs.yaml_file import read_yaml

# By its own count a server may have made a little less than came: counters are not told at once.
COUNTED_SHARE = 0.95


class ServerDeclaration(BaseModel):
    """What nobody outside can see of a server, as its operator declares it; several that serve one leg are alike.

    The record calls it declared, never observed. The names are those that vLLM's engine has on record, so that the
    mechanisms' rules read both.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    dtype: str = Field(description="data type that is computed in")
    weights: str = Field(description="where the weights come from: hub id and revision, or SHA-256 of the files")
    quantization: str | None = Field(description="of the weights; null for none")
    kv_cache_dtype: str = Field(description="data type of the key-value cache")
    enable_prefix_caching: bool = Field(description="whether prompts are reused across queries")
    speculative: bool = Field(description="whether tokens are drafted")
    max_num_seqs: int | None = Field(default=None, ge=1, description="requests computed at a time")
    max_num_batched_tokens: int | None = Field(default=None, ge=1, description="tokens of a step")
    tensor_parallel_size: int = Field(default=1, ge=1)
    data_parallel_size: int = Field(default=1, ge=1)
    accelerators: list[str] = Field(default_factory=list, description="of one server, a name each")
    notes: str = ""

    def unofficial_reasons(self, official: OfficialModel) -> list[str]:
        """What of it the benchmark's rules do not allow."""
        reasons = []
        if self.enable_prefix_caching:
            reasons.append("declared: prefix caching across queries, which is forbidden (inference rules, caching)")
        if self.speculative and not official.speculative_decoding:
            reasons.append(
                f"declared: speculative decoding, which is not allowed for {official.name} (inference rules)"
            )
        return reasons


def read_declaration(path: Path) -> ServerDeclaration:
    """Read `--api-declaration`.

    Raises:
        InputError: not readable, not YAML, or fields that are missing, unknown or of another type.
    """
    fix = "write it as configs/endpoint-declaration.yaml is written"
    try:
        return ServerDeclaration.model_validate(read_yaml(path, "--api-declaration"))
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, problem['loc'])) or 'the file'}: {problem['msg']}" for problem in error.errors()
        ]
        raise InputError(f"--api-declaration {path}: {'; '.join(problems)}", fix) from error


def reuse_unobserved(manifest: Manifest) -> bool:
    """Whether a server answered that did not count the prompt tokens that it took from a cache, or something before it
    that the server's own count of tokens made knows nothing of."""
    return any(not client.counts_reuse or _made_elsewhere(client) for client in manifest.observed.clients)


def _made_elsewhere(client: ServerClient) -> bool:
    made = client.tokens_by_metrics
    return made is not None and made < COUNTED_SHARE * client.tokens_that_came


def any_server_remote(manifest: Manifest) -> bool:
    """Whether a server answered from another machine than LoadGen's, which is the one that the manifest describes."""
    return any(not client.on_this_machine for client in manifest.observed.clients)


def all_servers_remote(manifest: Manifest) -> bool:
    """Whether every server was on another machine; an absent record is none of that."""
    found = manifest.observed.clients
    return bool(found) and not any(client.on_this_machine for client in found)


def unofficial_servers(manifest: Manifest, official: OfficialModel) -> list[str]:
    """Why what is declared of the servers, and what they counted, is not what the benchmark's rules allow."""
    try:
        declared = ServerDeclaration.model_validate(manifest.engine.configuration.get("declared"))
    except ValidationError:
        return ["nobody declares what the server computes with"]
    reasons = declared.unofficial_reasons(official)
    reused = [max(client.cached_tokens, client.cached_tokens_by_metrics or 0) for client in manifest.observed.clients]
    reused.append(manifest.engine.configuration["probes"].get("cached_tokens_of_the_repeat") or 0)
    return reasons + ([f"{sum(reused):,} prompt tokens were taken from a cache"] if any(reused) else [])
