"""A tiny Llama whose responses meet its stop IDs, and the greedy responses of transformers for comparisons."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from qsl.dataset import load_dataset
from qsl.embedded.articles import bundled_articles, bundled_dataset
from tests.support.engines.small_tokenizer import make_tiny_llama
from tests.support.official import SAMPLING

# Logits of the tiny model have a spread of 0.2. Float32 arithmetic in another order moves them by about 1e-6.
TIE = 1e-4
AT_A_TIME, PAD = 16, 0  # prompts
PROMPTS_FOR_STOP_IDS = 16
MORE_STOP_IDS = 3
MAX_ENDED = 13


@dataclass(frozen=True)
class GreedyResponse:
    """A greedy response: IDs, and the runner-up at each position with its distance in logits."""

    ids: list[int]
    runners_up: list[int]
    margins: list[float]

    def matches(self, ids: list[int]) -> bool:
        """Return True if the IDs are equal, or differ first at a tie within float32's accuracy."""
        if ids == self.ids:
            return True
        for mine, best, runner_up, margin in zip(ids, self.ids, self.runners_up, self.margins, strict=False):
            if mine != best:
                return mine == runner_up and margin < TIE
        return False  # one of them stopped and the other continued


def make_model_and_responses(folder: Path) -> None:
    """Write the model to `folder`/model, and its responses to the bundled articles to `folder`/responses.json.

    Llama-3.1 has multiple stop IDs in generation_config.json, so outputs vary in length. A random model never generates
    its end-of-text ID. The additional IDs occur in most of its responses, but not in all.
    """
    model = make_tiny_llama(folder / "model", [article.article for article in bundled_articles()])
    prompts = load_dataset(bundled_dataset(str(model))).prompts
    path = model / "generation_config.json"
    settings = json.loads(path.read_text())
    stops = _stop_ids([response.ids for response in _greedy(model, prompts[:PROMPTS_FOR_STOP_IDS])])
    path.write_text(json.dumps({**settings, "eos_token_id": [settings["eos_token_id"], *stops]}))
    responses = [asdict(response) for response in _greedy(model, prompts)]
    (folder / "answers.json").write_text(json.dumps(responses))


def read_responses(folder: Path) -> list[GreedyResponse]:
    """Return one response for each bundled article, in order."""
    return [GreedyResponse(**response) for response in json.loads((folder / "answers.json").read_text())]


def _stop_ids(responses: list[list[int]]) -> list[int]:
    opening = {token for ids in responses for token in ids[:4]}
    holders: dict[int, set[int]] = {}
    for number, ids in enumerate(responses):
        for token in set(ids) - opening:
            holders.setdefault(token, set()).add(number)
    stops: list[int] = []
    ended: set[int] = set()
    for _ in range(MORE_STOP_IDS):
        usable = [token for token in sorted(holders) if len(ended | holders[token]) <= MAX_ENDED]
        stops.append(max(usable, key=lambda token: len(ended | holders[token])))
        ended |= holders[stops[-1]]
    return stops


def _greedy(model_path: Path, prompts: list[list[int]]) -> list[GreedyResponse]:
    """Compute in float32, prompts of about one length at a time; the shorter ones are padded in front."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)  # the model is too small for two threads, which only wait for each other
    model = AutoModelForCausalLM.from_pretrained(str(model_path), dtype="float32")
    stops = model.generation_config.eos_token_id
    stops = {stops} if isinstance(stops, int) else set(stops)
    responses: dict[int, GreedyResponse] = {}
    order = sorted(range(len(prompts)), key=lambda number: len(prompts[number]))
    for start in range(0, len(order), AT_A_TIME):
        numbers = order[start : start + AT_A_TIME]
        longest = len(prompts[numbers[-1]])
        padding = [longest - len(prompts[number]) for number in numbers]
        output = model.generate(
            torch.tensor([[PAD] * pad + prompts[number] for pad, number in zip(padding, numbers, strict=True)]),
            attention_mask=torch.tensor([[0] * pad + [1] * (longest - pad) for pad in padding]),
            min_new_tokens=SAMPLING.min_tokens,
            max_new_tokens=SAMPLING.max_tokens,
            do_sample=False,
            return_dict_in_generate=True,
            output_scores=True,
            pad_token_id=PAD,
        )
        best = torch.stack(output.scores, dim=1).topk(2)
        margins, runners_up = best.values[..., 0] - best.values[..., 1], best.indices[..., 1]
        for row, number in enumerate(numbers):
            ids = output.sequences[row, longest:].tolist()
            length = next((place + 1 for place, token in enumerate(ids) if token in stops), len(ids))
            responses[number] = GreedyResponse(
                ids[:length], runners_up[row, :length].tolist(), margins[row, :length].tolist()
            )
    return [responses[number] for number in range(len(prompts))]
