"""The commands: each is the object of its name in the module of its name."""

# Name and first sentence of its help, so that the list of commands imports none of them.
COMMANDS = {
    "anchor": "Fix the statements (seal.json) of finished legs in time, so that later changes are detected.",
    "audit": "Run an audit's legs through LoadGen and judge them, or judge two existing runs (--ref, --run).",
    "campaign": "Run every leg that a submission needs, from one YAML file: performance, accuracy and audits of each "
    "scenario.",
    "check": "Check a submission tree before it is uploaded.",
    "doctor": "Report what is installed, which engine, model and data set are usable, and what could be official.",
    "gate": "Judge the declared technique of a result: whether it is registered, agrees with the engine's own "
    "record, and passes its quality evaluation when derived again.",
    "init": "Write commented files for this machine, ready for editing: run.yaml, user.conf, campaign.yaml and "
    "system.yaml.",
    "quantize": "Quantise a model with the benchmark's calibration data; write weights, recipe.yaml and "
    "calibration.md.",
    "report": "Write one HTML page about the legs, campaigns, tunes and MLPerf Endpoints runs in DIR.",
    "results": "List the results of the legs in DIR (default: ./output), one line per leg.",
    "run": "Run one LoadGen leg: performance, or accuracy with --accuracy.",
    "signoff": "Sign off results from their raw files alone: PASS, FLAG or FAIL, with every reason.",
    "status": "Show legs, campaigns, tunes and audits: state, phase, progress and rates, or when and why they ended.",
    "store": "Keep results in a SQLite file, query and compare them.",
    "submit": "Build a submission tree from runs.",
    "tune": "Find the highest target_qps that is VALID in Server or Interactive; for Offline, that of a full run.",
    "verify": "Judge results from their logs alone; write verify_performance.txt and verify_performance.json "
    "beside legs of this harness, or to --output.",
}
