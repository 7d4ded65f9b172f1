"""Which blocks hold which prefix, so that a later request need not compute it again.

A block's *digest* names all tokens from the beginning of the prompt to the block's end: SHA-256 over the digest of
the block before it and the block's own tokens. The first link is the digest of who asks (a salt that keeps tenants
apart) and of the model. Source of the scheme: vLLM's automatic prefix caching; that tokens are compared on a hit, and
that a miss is explained, is ours.

Owns names only, never who uses a block or whether it is free (``blocks``).
"""

import hashlib
from array import array
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

# How many digests of evicted blocks are remembered, for each block of the pool, to tell "evicted" from "never seen".
REMEMBERED_EVICTIONS_PER_BLOCK = 4


def root_digest(fingerprint: str, salt: str) -> bytes:
    """The link that every chain of a tenant begins with: only the same model and salt share blocks."""
    return hashlib.sha256(f"{len(fingerprint)}:{fingerprint}{salt}".encode()).digest()


def next_digest(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """The digest of a block with these tokens after the block of digest ``parent``."""
    return hashlib.sha256(parent + array("q", token_ids).tobytes()).digest()


@dataclass(frozen=True, slots=True)
class PublishedBlock:
    """A block whose content others may read.

    Attributes:
        block: the block.
        entry: its place in the prompt, the first block being 0.
        parent: digest of the block before it in the prompt.
        token_ids: its tokens, which a hit is compared with.
    """

    block: int
    entry: int
    parent: bytes
    token_ids: tuple[int, ...]


class PrefixIndex:
    """Digests to blocks and back. Invariant: both directions agree, and ``children`` lists exactly what is published.

    Args:
        num_blocks: of the pool, which bounds what is remembered.
    """

    def __init__(self, num_blocks: int) -> None:
        self._published: dict[bytes, PublishedBlock] = {}
        self._digests: dict[int, bytes] = {}
        self._children: dict[bytes, dict[bytes, None]] = {}
        self._beginnings: Counter[tuple[int, ...]] = Counter()  # of published first blocks, whoever asked
        self._evicted: OrderedDict[bytes, None] = OrderedDict()
        self._max_evicted = REMEMBERED_EVICTIONS_PER_BLOCK * num_blocks

    def __contains__(self, block: int) -> bool:
        return block in self._digests

    def __len__(self) -> int:
        return len(self._published)

    def find(self, digest: bytes, token_ids: Sequence[int]) -> int | None:
        """The block that holds this prefix, if one does."""
        published = self._published.get(digest)
        if published is None or published.token_ids != tuple(token_ids):
            return None
        return published.block

    def publish(self, block: int, entry: int, parent: bytes, digest: bytes, token_ids: tuple[int, ...]) -> None:
        """Let others find a computed block. The first block of a digest stays; later ones stay private."""
        if digest in self._published or block in self._digests:
            return
        self._published[digest] = PublishedBlock(block, entry, parent, token_ids)
        self._digests[block] = digest
        self._children.setdefault(parent, {})[digest] = None
        if not entry:
            self._beginnings[token_ids] += 1
        self._evicted.pop(digest, None)

    def evict(self, block: int) -> None:
        """Forget a block that gets another content."""
        digest = self._digests.pop(block)
        published = self._published.pop(digest)
        del self._children[published.parent][digest]
        if not self._children[published.parent]:
            del self._children[published.parent]
        if not published.entry:
            self._forget_beginning(published.token_ids)
        self._evicted[digest] = None
        if len(self._evicted) > self._max_evicted:
            self._evicted.popitem(last=False)

    def was_evicted(self, digest: bytes) -> bool:
        """Whether the block was here not long ago."""
        return digest in self._evicted

    def knows_beginning(self, token_ids: tuple[int, ...]) -> bool:
        """Whether some prompt, under whatever salt, begins with a block of these tokens."""
        return token_ids in self._beginnings

    def most_alike(self, parent: bytes, token_ids: Sequence[int]) -> int | None:
        """How many first tokens the block most like this one shares with it, of those after ``parent``."""
        siblings = (self._published[digest].token_ids for digest in self._children.get(parent, ()))
        return max((_num_equal(sibling, token_ids) for sibling in siblings), default=None)

    def check(self) -> None:
        """Assert the invariant."""
        beginnings = Counter(published.token_ids for published in self._published.values() if not published.entry)
        assert beginnings == self._beginnings
        assert {block: digest for digest, published in self._published.items() for block in [published.block]} == (
            self._digests
        )
        listed = [digest for children in self._children.values() for digest in children]
        assert sorted(listed) == sorted(self._published)
        assert len(self._evicted) <= self._max_evicted

    def _forget_beginning(self, token_ids: tuple[int, ...]) -> None:
        self._beginnings[token_ids] -= 1
        if not self._beginnings[token_ids]:
            del self._beginnings[token_ids]


def _num_equal(first: Sequence[int], second: Sequence[int]) -> int:
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count
