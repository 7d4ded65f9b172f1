"""A model in the format of Hugging Face, with its own tokenizer and several files of weights, end to end."""

import json
from pathlib import Path

import pytest
import torch
from conftest import CutawayCommand
from standins import COMMIT, HubSite
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer
from transformers import LlamaConfig, LlamaForCausalLM

SPECIAL = ["<|begin|>", "<|end|>"]
TEMPLATE = "{% for message in messages %}<|begin|>{{ message.role }}\n{{ message.content }}<|end|>{% endfor %}<|begin|>"
QUESTION = "Is a tomato a fruit?"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random llama with a small byte-level vocabulary."""
    folder = tmp_path_factory.mktemp("tiny")
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=300, special_tokens=SPECIAL, initial_alphabet=ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator([QUESTION, "A tomato is a fruit. user system assistant"], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>", "chat_template": TEMPLATE}))
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        bos_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=False,
        initializer_range=0.5,  # logits far enough apart to be the same on every machine
    )
    LlamaForCausalLM(config).float().save_pretrained(folder, max_shard_size="40KB")
    return folder


def ask(command: CutawayCommand, model: str, **env: str) -> dict[str, object]:
    done = command(
        *("ask", "-m", model, QUESTION, "--json", "--max-tokens", "16", "--dtype", "float32"), env=dict(env), check=True
    )
    return json.loads(done.stdout)


def reference(folder: Path, prompt: list[int], num_tokens: int) -> list[int]:
    """What transformers generates."""
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    output = model.generate(torch.tensor([prompt]), max_new_tokens=num_tokens, do_sample=False, pad_token_id=1)
    return output[0, len(prompt) :].tolist()


def test_a_folder_and_the_same_files_on_the_hub_give_the_same_answer(
    cutaway_command: CutawayCommand, hub_site: HubSite, folder: Path
) -> None:
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 1
    local = ask(cutaway_command, str(folder))
    text = f"<|begin|>user\n{QUESTION}<|end|><|begin|>"
    assert local["prompt_token_ids"] == Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids
    assert local["token_ids"] == reference(folder, local["prompt_token_ids"], 16)
    hub_site.publish("org/tiny", {path.name: path.read_bytes() for path in folder.iterdir()})
    fetched = ask(cutaway_command, "hf:org/tiny", HF_ENDPOINT=hub_site.url, HF_HUB_DISABLE_XET="1")
    assert fetched["model"] == "hf:org/tiny"
    assert fetched["prompt_token_ids"] == local["prompt_token_ids"]
    assert fetched["token_ids"] == local["token_ids"]
    for path in shards:
        assert hub_site.asked(f"/org/tiny/resolve/{COMMIT}/{path.name}") == 1


def test_native_kernels_say_which_weights_they_cannot_run(cutaway_command: CutawayCommand, folder: Path) -> None:
    done = cutaway_command("ask", "-m", str(folder), QUESTION, "--kernels", "native")
    assert done.rc == 2
    assert "kernels: native kernels cannot run this model: " in done.stderr
    assert "hint: --kernels reference" in done.stderr
