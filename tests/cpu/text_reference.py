"""The published tokenizers of the real models, to compare ours with.

Each is built from the tokens in the model's file, but by the rules of its published tokenizer:

- SmolLM2: its tokenizer.json cuts single digits and then with GPT-2's expression. What transformers makes of the GGUF
  file is no reference, since it leaves the digits out.
- Qwen2.5: ``Qwen2Tokenizer`` of transformers, which composes characters (NFC) first.
- Gemma 3: what transformers makes of the GGUF file, which restores the runs of spaces and the order of the merges.
"""

from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

SMOLLM2 = "smollm2-135m-instruct"
QWEN2 = "qwen2.5-coder-0.5b-instruct"
GEMMA3 = "gemma-3-270m"


def build_reference(name, metadata):
    """The published tokenizer of a built-in model, as an object of the tokenizers library."""
    return {SMOLLM2: _smollm2, QWEN2: _qwen2, GEMMA3: _gemma3}[name](metadata)


def read_tokens(metadata):
    tokens = metadata.strings("tokenizer.ggml.tokens")
    types = metadata.integers("tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ")) for merge in metadata.strings("tokenizer.ggml.merges", default=())]
    return {token: token_id for token_id, token in enumerate(tokens)}, types, merges


def _add(backend, vocab, types):
    for special in (True, False):
        backend.add_tokens(
            [
                AddedToken(token, special=special, normalized=False)
                for token, token_id in vocab.items()
                if types[token_id] == (3 if special else 4)
            ]
        )
    return backend


def _smollm2(metadata):
    vocab, types, merges = read_tokens(metadata)
    backend = Backend(models.BPE(vocab, merges))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    return _add(backend, vocab, types)


def _qwen2(metadata):
    from transformers.models.qwen2.tokenization_qwen2 import Qwen2Tokenizer

    vocab, types, merges = read_tokens(metadata)
    return _add(Qwen2Tokenizer(vocab=vocab, merges=merges).backend_tokenizer, vocab, types)


def _gemma3(metadata):
    from transformers.integrations.gguf.gguf_tokenizer_mapping import convert_gguf_tokenizer

    vocab, types, _ = read_tokens(metadata)
    scores = metadata.numbers("tokenizer.ggml.scores")
    tokens = {"tokenizer_type": "llama", "tokens": list(vocab), "token_type": types, "scores": scores}
    return convert_gguf_tokenizer("gemma3", tokens)[0]
