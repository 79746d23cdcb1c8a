"""A tiny Llama whose answers meet its stop ids, and transformers' greedy answers: what engines are compared with."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from qsl.dataset import load_dataset
from qsl.embedded.articles import bundled_articles, bundled_dataset
from tests.support.official import SAMPLING
from tests.support.small_tokenizer import make_tiny_llama

# Logits of the tiny model have a spread of 0.2; float32 arithmetic in another order moves them by about 1e-6.
TIE = 1e-4
AT_A_TIME, PAD = 16, 0  # prompts
PROMPTS_FOR_STOP_IDS = 16
MORE_STOP_IDS = 3
MOST_ENDED = 13


@dataclass(frozen=True)
class Answer:
    """A greedy answer: ids, and at each position the runner-up and how far behind it was (logits)."""

    ids: list[int]
    runners_up: list[int]
    margins: list[float]

    def matches(self, ids: list[int]) -> bool:
        """Identical, or parted at a position where both choices are equally good within float32's accuracy."""
        if ids == self.ids:
            return True
        for mine, own, other, margin in zip(ids, self.ids, self.runners_up, self.margins, strict=False):
            if mine != own:
                return mine == other and margin < TIE
        return False  # one stopped where the other went on


def make_model_and_answers(folder: Path) -> None:
    """The model in `folder`/model, and its answers to the bundled articles in `folder`/answers.json.

    Llama-3.1 has several stop ids in generation_config.json, so outputs vary in length. A random model never says its
    one end-of-text id; the further ones stand in most of its answers, but not in all.
    """
    model = make_tiny_llama(folder / "model", [article.article for article in bundled_articles()])
    prompts = load_dataset(bundled_dataset(str(model))).prompts
    path = model / "generation_config.json"
    settings = json.loads(path.read_text())
    stops = _stop_ids([answer.ids for answer in _greedy(model, prompts[:PROMPTS_FOR_STOP_IDS])])
    path.write_text(json.dumps({**settings, "eos_token_id": [settings["eos_token_id"], *stops]}))
    answers = [asdict(answer) for answer in _greedy(model, prompts)]
    (folder / "answers.json").write_text(json.dumps(answers))


def read_answers(folder: Path) -> list[Answer]:
    """One for each bundled article, in order."""
    return [Answer(**answer) for answer in json.loads((folder / "answers.json").read_text())]


def _stop_ids(answers: list[list[int]]) -> list[int]:
    opening = {token for ids in answers for token in ids[:4]}
    holders: dict[int, set[int]] = {}
    for number, ids in enumerate(answers):
        for token in set(ids) - opening:
            holders.setdefault(token, set()).add(number)
    stops: list[int] = []
    ended: set[int] = set()
    for _ in range(MORE_STOP_IDS):
        usable = [token for token in sorted(holders) if len(ended | holders[token]) <= MOST_ENDED]
        stops.append(max(usable, key=lambda token: len(ended | holders[token])))
        ended |= holders[stops[-1]]
    return stops


def _greedy(model_path: Path, prompts: list[list[int]]) -> list[Answer]:
    """In float32, some prompts of about one length at a time, the shorter ones padded in front."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)  # the model is far too small for two, which only wait for each other
    model = AutoModelForCausalLM.from_pretrained(str(model_path), dtype="float32")
    stops = model.generation_config.eos_token_id
    stops = {stops} if isinstance(stops, int) else set(stops)
    answers: dict[int, Answer] = {}
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
            answers[number] = Answer(ids[:length], runners_up[row, :length].tolist(), margins[row, :length].tolist())
    return [answers[number] for number in range(len(prompts))]
