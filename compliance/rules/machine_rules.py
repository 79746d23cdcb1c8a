"""What `doctor` looks at: a finding is an error where a leg could not start."""

from compliance.rules.rule import Rule, catalogue

_ROWS = (
    ("harness", "this program", "make setup"),
    ("host", "the machine", "choose another machine"),
    ("accelerator", "what vLLM may compute on", "install the vendor's tools"),
    ("LoadGen", "LoadGen's Python binding is installed", "make setup"),
    ("vLLM", "vLLM is installed, for what the machine has", "make setup"),
    ("package", "nothing is installed that breaks vLLM", "make clean setup"),
    ("model", "the model is whole", "name a whole model folder"),
    ("data-set", "the data set can be read", "make it with scripts/prepare_dataset.py"),
    ("cache", "where made files are kept", "set the variable of the cache"),
    ("server", "the server answers", "start the server, or correct its address"),
    ("client", "what the client can do", "choose a faster machine"),
    ("cluster", "the cluster can be reached", "start Ray"),
    ("node", "the node reaches this machine and has its harness", "install the same commit"),
)
MACHINE_RULES: dict[str, Rule] = catalogue(
    "machine", ((f"machine/{name}", "error", "[ours]", summary, fix) for name, summary, fix in _ROWS)
)
