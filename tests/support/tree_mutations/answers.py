"""What was answered: accuracy.txt and the accuracy log, cut as the official tool cuts it."""

from pathlib import Path

from compliance.submission.tree import Tree
from tests.support.tree_mutations.registry import accuracy, edit, edit_text, mutation, removal


def _text(tree: Tree) -> Path:
    return accuracy(tree).accuracy_text


removal("no_accuracy_text", "accuracy-text", _text)
edit("score_left_out", "accuracy-text", file=_text, old="'rougeLsum'", new="'rouge_sum'")
edit("too_many_characters", "accuracy-target", file=_text, old="'gen_len': ", new="'gen_len': 1")
edit("other_number_of_predictions", "accuracy-samples", file=_text, old="'gen_num': ", new="'gen_num': 1")
edit("no_hash_line", "accuracy-hash", file=_text, old="\nhash=", new="\nsha=")
edit("hash_of_another_length", "accuracy-hash", file=_text, old="\nhash=", new="\nhash=ab")


@mutation("accuracy-text")
def numpy_number(tree: Tree) -> Path:
    path = _text(tree)
    at = path.read_text().index("'gen_len': ") + len("'gen_len': ")
    digits = path.read_text()[at:].split(",")[0]
    return edit_text(path, f"'gen_len': {digits}", f"'gen_len': np.int64({digits})")


@mutation("accuracy-target")
def rouge_below_its_target(tree: Tree) -> Path:
    path = _text(tree)
    at = path.read_text().index("'rouge2': '")
    old = path.read_text()[at : at + 13]
    return edit_text(path, old, "'rouge2': '11")


@mutation("accuracy-size")
def accuracy_log_not_truncated(tree: Tree) -> Path:
    path = accuracy(tree).accuracy_log
    path.write_bytes(b"[" + b'{ "seq_id" : 0, "qsl_idx" : 0, "data" : "00000000" },\n' * 500 + b"]")
    return path


@mutation("accuracy-shape")
def accuracy_log_cut_elsewhere(tree: Tree) -> Path:
    path = accuracy(tree).accuracy_log
    path.write_bytes(path.read_bytes()[100:])
    return path


@mutation("log-order")
def answers_of_another_run(tree: Tree) -> Path:
    """Another sample index, as long as the one that was there."""
    path = accuracy(tree).accuracy_log
    content = path.read_bytes()
    start = content.index(b'"qsl_idx" : ') + len(b'"qsl_idx" : ')
    end = content.index(b",", start)
    other = (int(content[start:end]) + 1) % 10 ** (end - start)
    path.write_bytes(content[:start] + str(other).rjust(end - start).encode() + content[end:])
    return path
