"""The declaration of the operator of a run's servers, and its violations of the benchmark's rules."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from runs.benchmark import OfficialModel
from runs.record.engines.server_facts import without_ids
from runs.record.manifest import Manifest


class ServerDeclaration(BaseModel):
    """An operator's declaration of facts that requests do not show, valid for all servers of a run.

    Its fields have the names of vLLM's configuration, so rules can read both.
    """

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    dtype: str = Field(description="data type of the computation")
    weights: str = Field(description="source of the weights: Hugging Face ID and revision, or SHA-256 of the files")
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
        """Return the violations of the benchmark's rules."""
        reasons = []
        if self.enable_prefix_caching:
            reasons.append("declared: prefix caching across queries, which is forbidden (inference rules, caching)")
        if self.speculative and not official.speculative_decoding:
            reasons.append(
                f"declared: speculative decoding, which is not allowed for {official.name} (inference rules)"
            )
        return reasons


def request_reasons(options: Mapping[str, Any]) -> list[str]:
    """Return the reasons that the options of requests give."""
    reasons = []
    if names := options.get("header"):
        reasons.append(f"requests have headers that may change how the server computes: {', '.join(names)} (--header)")
    if options.get("extra_body"):
        fields = ", ".join(options.get("extra_fields") or ())
        reasons.append(f"requests have fields that the benchmark does not have: {fields} (--extra-body)")
    if options.get("insecure"):
        reasons.append("the certificate of the server is not verified (--insecure)")
    return reasons


def unofficial_servers(manifest: Manifest, official: OfficialModel) -> list[str]:
    """Return the violations of the benchmark's rules by the servers' declaration, their responses and their counts."""
    reasons = [why] if (why := without_ids(manifest)) else []
    reasons += request_reasons(manifest.plan.engine_options)
    try:
        declared = ServerDeclaration.model_validate(manifest.engine.configuration.get("declared"))
    except ValidationError:
        return [*reasons, "the operator's declaration of the server is missing"]
    reasons += declared.unofficial_reasons(official)
    reused = [max(client.cached_tokens, client.cached_tokens_by_metrics or 0) for client in manifest.observed.clients]
    reused.append(manifest.engine.configuration["probes"].get("cached_tokens_of_the_repeat") or 0)
    return reasons + ([f"{sum(reused):,} prompt tokens were taken from a cache"] if any(reused) else [])
