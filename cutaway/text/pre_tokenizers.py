"""How texts are cut into words before byte pairs are merged, by the name that GGUF files give to each way.

Owns the table of ``tokenizer.ggml.pre``. Refuses to know vocabularies. The names and the order of the cuts are those
of llama.cpp (src/llama-vocab.cpp); the expressions are those of the tokenizers that the models were published with,
where the two are written differently. Each expression cuts what the one before it left over, and every character
stays: a part that no expression matches is a word too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Sequence, Split

from cutaway.errors import UnsupportedModel

# Each numeric character by itself; tokenizers has this built in.
DIGITS = r"\p{N}"

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_GLUED = r"[^\r\n\p{L}\p{N}]?"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_QWEN2 = rf"{_CONTRACTIONS}|{_GLUED}\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
_QWEN35 = rf"{_CONTRACTIONS}|{_GLUED}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
_LLAMA3 = rf"{_CONTRACTIONS}|{_GLUED}\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
_TEKKEN = rf"{_GLUED}{_UPPER}*{_LOWER}+|{_GLUED}{_UPPER}+{_LOWER}*|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
_GPT4O = (
    rf"{_GLUED}{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|{_GLUED}{_UPPER}+{_LOWER}*{_CONTRACTIONS}?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
)
_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}",
)
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", DIGITS)
_FALCON = (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]")
_DEFAULT = (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")


@dataclass(frozen=True, slots=True)
class PreTokenization:
    """What a name in the table stands for.

    Attributes:
        patterns: the expressions, in the order of application.
        nfc: the published tokenizer composes characters first (Unicode form NFC); llama.cpp leaves that out.
        ignore_merges: a word that is a token as a whole is not built from merges.
        add_bos: texts begin with BOS unless the file says otherwise.
    """

    patterns: tuple[str, ...]
    nfc: bool = False
    ignore_merges: bool = False
    add_bos: bool = False

    def build(self) -> PreTokenizer:
        """The object that cuts a text and spells the bytes of each word in the alphabet of byte-level vocabularies."""
        steps: list[PreTokenizer] = [
            Digits(individual_digits=True) if pattern == DIGITS else Split(Regex(pattern), "isolated")
            for pattern in self.patterns
        ]
        return Sequence([*steps, ByteLevel(add_prefix_space=False, use_regex=False)])


_LLAMA3_STYLE = PreTokenization((_LLAMA3,), ignore_merges=True, add_bos=True)

PRE_TOKENIZATIONS: Mapping[str, PreTokenization] = {
    **dict.fromkeys(("gpt-2", "phi-2", "jais", "trillion", "mellum", "exaone4"), PreTokenization((_GPT2,))),
    **dict.fromkeys(("mpt", "olmo"), PreTokenization((_GPT2,), nfc=True)),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"),
        PreTokenization((DIGITS, _GPT2)),
    ),
    "command-r": PreTokenization((DIGITS, _GPT2), nfc=True),
    # The last two took over Qwen's tokenizer; that they compose characters, too, is assumed.
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez"), PreTokenization((_QWEN2,), nfc=True)),
    **dict.fromkeys(("stablelm2", "hunyuan", "solar-open"), PreTokenization((_QWEN2,))),
    "qwen35": PreTokenization((_QWEN35,), nfc=True),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "pixtral", "lfm2", "falcon3", "falcon-h1"), _LLAMA3_STYLE),
    **dict.fromkeys(("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), PreTokenization((_LLAMA3,))),
    "tekken": PreTokenization((_TEKKEN,), ignore_merges=True, add_bos=True),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2"), PreTokenization((_GPT4O,))),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense", "joyai-llm"), PreTokenization(_DEEPSEEK3)),
    "deepseek-coder": PreTokenization(_DEEPSEEK_CODER),
    "falcon": PreTokenization(_FALCON),
    "default": PreTokenization(_DEFAULT),
}


def find_pre_tokenization(name: str) -> PreTokenization:
    """Look up a value of ``tokenizer.ggml.pre``.

    Raises:
        UnsupportedModel: the table does not have it; the nearest names that it has are given.
    """
    found = PRE_TOKENIZATIONS.get(name)
    if found is None:
        near = get_close_matches(name, PRE_TOKENIZATIONS, n=3, cutoff=0.4) or list(PRE_TOKENIZATIONS)[:3]
        raise UnsupportedModel(
            f"the pre-tokenizer {name[:60]!r} is not known; the nearest known ones are {', '.join(near)}",
            hint="guessing would give wrong token ids; use the model's safetensors folder with its tokenizer.json",
        )
    return found
