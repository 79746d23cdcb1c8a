"""Several engines behind one LoadGen, queries held back, and a vLLM by its own log."""

from tests.untrusted.tampering import ACCURACY, BOTH, values

REPLICAS, HELD_BACK, VLLM = "Server --replicas 2", "Server --admission shortest", "vllm"

values(
    {
        f"replica-{name}": {f"replicas.1.{field}": value}
        for name, field, value in (("with-other-weights", "weights_sha256", {"model.safetensors": "0" * 64}),)
    }
    | {
        "replicas-on-a-node-that-there-is-not": {"plan.replicas.places.1.node": 3},
    },
    "manifest.json",
    BOTH,
    REPLICAS,
)
values(
    {
        "order-that-there-is-not": {"plan.admission.policy": "magic", "asked.admission": "magic"},
        "order-left-out": {"plan.admission": {}},
    },
    "manifest.json",
    BOTH,
    HELD_BACK,
)
values(
    {"held-back-in-one-leg": {"plan.admission": None, "asked.admission": "off"}},
    "manifest.json",
    ACCURACY,
    HELD_BACK,
    by="",
)
_CONFIGURATION = "engine.configuration"
values(
    {
        "vllm-without-a-batch": {f"{_CONFIGURATION}.max_num_seqs": ...},
    },
    "manifest.json",
    BOTH,
    VLLM,
)
