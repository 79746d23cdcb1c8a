"""Files of other legs, scores that nobody scored, and forgeries that agree over several files."""

import shutil

from runs.record.layout import RunDir
from tests.honest.pair import Pair
from tests.signoff.forge.faults import set_detail, set_manifest, set_summary, take
from tests.signoff.forge.rebuilt_faults import rebuild
from tests.signoff.forge.record_faults import each_record
from tests.untrusted.tampering import tampering


@tampering()
def legs_exchanged(pair: Pair) -> None:
    """The accuracy leg's record beside the performance leg's logs."""
    take(pair.performance, pair.accuracy, "manifest.json", "requests.jsonl", "progress.json")


@tampering()
def user_conf_of_another_rate(pair: Pair) -> None:
    """The configuration that is submitted is not the one that LoadGen ran with."""
    text = pair.performance.user_conf.read_text()
    pair.performance.user_conf.write_text(text.replace("*.Server.target_qps = 400", "*.Server.target_qps = 4000"))


@tampering()
def user_conf_of_a_shorter_run(pair: Pair) -> None:
    text = pair.performance.user_conf.read_text()
    pair.performance.user_conf.write_text(text.replace("*.Server.min_duration = 1500", "*.Server.min_duration = 15"))


@tampering()
def user_conf_emptied(pair: Pair) -> None:
    pair.performance.user_conf.write_text("")


@tampering(covered=False, sealed=False)
def seal_of_the_other_leg(pair: Pair) -> None:
    shutil.copy(pair.accuracy.seal, pair.performance.seal)


# Scores ---------------------------------------------------------------------------------------------------------------


def _raised(run: RunDir) -> None:
    run.accuracy_text.write_text(run.accuracy_text.read_text().replace("'rouge1': ", "'rouge1': 4"))
    if run.accuracy_json.is_file():
        run.accuracy_json.unlink()


@tampering("Offline")
def scores_raised_and_the_data_set_gone(pair: Pair) -> None:
    for run in pair.legs:
        set_manifest(run, "plan.dataset_path", "/data/cnn_eval.json")
        set_manifest(run, "plan.dataset_sha256", "0" * 64)
    _raised(pair.accuracy)


@tampering("Offline")
def scores_raised_and_the_model_gone(pair: Pair) -> None:
    for run in pair.legs:
        set_manifest(run, "plan.model_path", "/data/model")
    _raised(pair.accuracy)


@tampering("Offline")
def scores_raised_and_the_log_cut(pair: Pair) -> None:
    """As the official tool cuts it, with a hash that fits what it says."""
    _raised(pair.accuracy)
    content = pair.accuracy.accuracy_log.read_bytes()
    pair.accuracy.accuracy_log.write_bytes(content[:4096] + b"\n\n...\n\n" + content[-4096:])


@tampering("Offline")
def scores_raised(pair: Pair) -> None:
    _raised(pair.accuracy)


@tampering("Offline")
def accuracy_text_with_two_scores(pair: Pair) -> None:
    text = pair.accuracy.accuracy_text
    text.write_text(text.read_text() + "{'rouge1': 44.4, 'rouge2': 22.2, 'rougeL': 28.1}\n")


# Forgeries that agree -------------------------------------------------------------------------------------------------


@tampering("Offline")
def longer_outputs(pair: Pair) -> None:
    """A tenth more tokens a second, in record, heartbeat and LoadGen's results."""
    run = pair.performance
    each_record(run, lambda one: one | {"output_tokens": min(128, one["output_tokens"] + 9)})
    rebuild(run, 1)


@tampering()
def a_higher_rate_in_log_summary_and_settings(pair: Pair) -> None:
    run = pair.performance
    for key in ("effective_target_qps", "requested_server_target_qps"):
        set_detail(run, key, 440.0)
    set_summary(run, "target_qps", "440")


@tampering()
def prompts_of_another_length(pair: Pair) -> None:
    each_record(pair.performance, lambda one: one | {"prompt_tokens": 900})


@tampering()
def half_of_the_answers_invented(pair: Pair) -> None:
    run = pair.performance
    each_record(run, lambda one: one | {"output_sha256": "ab" * 32} if one["seq"] % 2 else one)


@tampering()
def official_after_all(pair: Pair) -> None:
    for run in pair.legs:
        set_manifest(run, "official", True)
        set_manifest(run, "unofficial_reasons", [])
