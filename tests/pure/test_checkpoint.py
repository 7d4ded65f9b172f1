"""Opening a checkpoint: what it tells about itself without torch, and what is no checkpoint."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from model_bytes import (
    ARCHITECTURE,
    EVERYTHING_METADATA,
    EVERYTHING_TENSORS,
    F32,
    Q8_0,
    Tensor,
    Value,
    gguf_bytes,
    safetensors_bytes,
)

from cutaway.errors import CorruptFile, CutawayError, ModelError, UnknownModel, UnsupportedModel
from cutaway.weights.checkpoint import Checkpoint, open_checkpoint

CONFIG: dict[str, object] = {"model_type": "qwen2", "hidden_size": 8, "rope_scaling": {"factor": 4.0}}
WEIGHTS = {"model.norm.weight": ("F32", (8,), bytes(32)), "lm_head.weight": ("BF16", (4, 8), bytes(64))}


def write_gguf(path: Path, metadata: dict[str, Value] | None = None, tensors: dict[str, Tensor] | None = None) -> Path:
    path.write_bytes(gguf_bytes(metadata or EVERYTHING_METADATA, tensors or EVERYTHING_TENSORS))
    return path


def write_folder(folder: Path, config: object = CONFIG) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(safetensors_bytes(WEIGHTS))
    return folder


def test_a_gguf_file_tells_what_it_is(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf")
    checkpoint = open_checkpoint(path)
    assert (checkpoint.format, checkpoint.architecture, checkpoint.path) == ("gguf", "llama", path)
    assert checkpoint.num_bytes == path.stat().st_size
    assert checkpoint.metadata.integer("llama.block_count") == 2
    assert checkpoint.quantization == "Q8_0 + F16"


def test_a_folder_tells_what_it_is(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tiny")
    checkpoint = open_checkpoint(folder)
    assert (checkpoint.format, checkpoint.architecture, checkpoint.path) == ("safetensors", "qwen2", folder)
    assert checkpoint.num_bytes == (folder / "model.safetensors").stat().st_size
    assert checkpoint.metadata.number("rope_scaling.factor") == 4.0
    assert checkpoint.quantization == "BF16"


def test_quantization_counts_weights_of_matrices_and_leaves_out_traces(tmp_path: Path) -> None:
    tensors = {
        "big.weight": Tensor((64, 64), Q8_0),
        "bigger.weight": Tensor((100, 64), F32),
        "trace.weight": Tensor((1, 64), 1),
        "vector.weight": Tensor((9999,), F32),
    }
    assert open_checkpoint(write_gguf(tmp_path / "a.gguf", None, tensors)).quantization == "F32 + Q8_0"
    vocabulary = tmp_path / "vocabulary.gguf"
    vocabulary.write_bytes(gguf_bytes(ARCHITECTURE, {}))
    assert open_checkpoint(vocabulary).quantization == "no weights"


def fingerprints(*checkpoints: Checkpoint) -> int:
    return len({checkpoint.fingerprint for checkpoint in checkpoints})


def test_the_fingerprint_follows_the_content_and_not_the_place(tmp_path: Path) -> None:
    first = open_checkpoint(write_gguf(tmp_path / "first.gguf"))
    second = open_checkpoint(write_gguf(tmp_path / "second.gguf"))
    other = open_checkpoint(write_gguf(tmp_path / "other.gguf", {**EVERYTHING_METADATA, "more": Value(4, 1)}))
    longer_path = tmp_path / "longer.gguf"
    longer_path.write_bytes((tmp_path / "first.gguf").read_bytes() + b"x")
    assert fingerprints(first, second) == 1
    assert fingerprints(first, other, open_checkpoint(longer_path)) == 3
    folders = [write_folder(tmp_path / name) for name in ("a", "b")]
    changed = write_folder(tmp_path / "c", {**CONFIG, "hidden_size": 9})
    assert fingerprints(*map(open_checkpoint, folders)) == 1
    assert fingerprints(*map(open_checkpoint, (folders[0], changed))) == 2


def refused(path: Path, kind: type[CutawayError], word: str, hint: str = "") -> None:
    with pytest.raises(kind) as error:
        open_checkpoint(path)
    assert type(error.value) is kind
    assert word in error.value.message
    assert hint in error.value.hint
    assert error.value.hint


def test_what_is_no_model_is_refused_with_a_hint(tmp_path: Path) -> None:
    refused(tmp_path / "absent", UnknownModel, "no such file or folder")
    refused(Path("a\0b"), ModelError, "cannot be read")
    refused(tmp_path, UnknownModel, "no config.json")
    write_gguf(tmp_path / "tiny.gguf")
    refused(tmp_path, UnknownModel, "no config.json", hint="tiny.gguf")
    (tmp_path / "notes.txt").write_text("not a model")
    refused(tmp_path / "notes.txt", CorruptFile, "not a GGUF file")
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK\x03\x04")
    refused(tmp_path / "pytorch_model.bin", UnsupportedModel, "pickles", hint="safetensors")
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes(WEIGHTS))
    refused(tmp_path / "model.safetensors", UnknownModel, "alone", hint="folder")
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", ModelError, "not a regular file")


def test_a_gguf_file_without_an_architecture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorruptFile, match=r"no 'general\.architecture'"):
        open_checkpoint(write_gguf(tmp_path / "a.gguf", {"a": Value(4, 1)}))


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ([], "a JSON object is expected"),
        ({}, "no 'model_type'"),
        ({"model_type": 1}, "'model_type' must be text"),
        ({**CONFIG, "a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": {"i": 1}}}}}}}}}, "deeper"),
    ],
)
def test_a_bad_config_is_refused(tmp_path: Path, config: object, word: str) -> None:
    with pytest.raises(CorruptFile, match=r"config\.json") as error:
        open_checkpoint(write_folder(tmp_path / "tiny", config))
    assert word in error.value.message


def test_a_config_beyond_the_limit_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_folder(tmp_path / "tiny")
    monkeypatch.setattr("cutaway.weights.json_file.MAX_JSON_BYTES", 20)
    with pytest.raises(CorruptFile, match=r"config\.json: .* bytes are more than the limit of 20"):
        open_checkpoint(folder)


def test_weights_quantized_for_other_engines_are_refused_by_method(tmp_path: Path) -> None:
    config = {**CONFIG, "quantization_config": {"quant_method": "gptq", "bits": 4}}
    with pytest.raises(UnsupportedModel, match="'gptq'"):
        open_checkpoint(write_folder(tmp_path / "tiny", config))


def test_what_may_not_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_folder(tmp_path / "tiny")

    def deny(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    for function in ("open", "listdir", "stat"):
        with monkeypatch.context() as patch:
            patch.setattr(os, function, deny)
            refused(folder, ModelError, "Permission denied", hint="permissions")


def test_opening_a_checkpoint_loads_neither_torch_nor_numpy(tmp_path: Path) -> None:
    paths = [write_gguf(tmp_path / "tiny.gguf"), write_folder(tmp_path / "tiny")]
    program = (
        "import sys; from pathlib import Path\n"
        "from cutaway.weights.checkpoint import open_checkpoint\n"
        "for path in sys.argv[1:]: print(open_checkpoint(Path(path)).architecture)\n"
        "print(sorted({'torch', 'numpy', 'gguf', 'safetensors'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program, *map(str, paths)], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:3] == ["llama", "qwen2", "[]"]
