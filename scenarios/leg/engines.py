"""The engine of a leg's plan."""

from functools import partial
from pathlib import Path

from qsl.byte_tokenizer import BOS_ID, EOS_ID, ByteTokenizer
from qsl.dataset import load_dataset
from runs.record.manifest import LegPlan
from sut.engine import Engine
from sut.engine_kind import TextFacts
from sut.engines import engine_kind
from sut.replicas.make import make_fleet


def make_engine(plan: LegPlan) -> Engine:
    """An engine for a plan, not yet started: of its kind, or a fleet of replicas of that kind.

    Raises:
        InputError, SetupError: see the message.
    """
    if plan.replicas is not None:
        return make_fleet(plan, plan.replicas)
    return engine_kind(plan.engine).make(plan, TextFacts(BOS_ID, EOS_ID, ord(" "), partial(_references, plan)))


def _references(plan: LegPlan) -> list[list[int]]:
    targets = load_dataset(Path(plan.dataset_path), count=plan.sample_count).targets
    return [ids[1:] for ids in ByteTokenizer().encode_batch(targets)]  # without BOS
