"""The engine of a leg's plan."""

from runs.record.manifest import LegPlan
from sut.engine import Engine
from sut.engines import engine_kind
from sut.replicas.pool import ReplicaPool


def make_engine(plan: LegPlan) -> Engine:
    """An engine for a plan, not yet started: of its kind, or a pool of replicas of that kind.

    Raises:
        InputError, SetupError: see the message.
    """
    return engine_kind(plan.engine).make(plan) if plan.replicas is None else ReplicaPool(plan)
