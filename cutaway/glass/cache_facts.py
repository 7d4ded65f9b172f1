"""What a receipt says about the cache, in words: stage 9."""

from cutaway.glass.receipt import ModelFacts, Receipt
from cutaway.glass.words import Words


def tell_cache(receipt: Receipt, words: Words) -> str:
    """What the whole cache holds."""
    model = receipt.model
    return words.label(
        "cache_text",
        megabytes=f"{model.cache_bytes / 1e6:,.0f}",
        tokens=f"{model.cache_tokens:,}",
        requests=f"{model.cache_requests:,}",
        context=f"{model.context_length:,}",
    )


def describe_cache(model: ModelFacts) -> str:
    """What the whole cache holds, in a line for whoever starts an engine."""
    return (
        f"KV cache of {model.cache_bytes / 1e6:,.0f} MB: {model.cache_tokens:,} tokens, "
        f"{model.cache_requests:,} requests of {model.context_length:,}"
    )


def used_groups(receipt: Receipt) -> list[int]:
    """The groups of layers that the request had blocks of."""
    return sorted({change.group for step in receipt.steps for change in step.changes})


def tell_block_table(receipt: Receipt, words: Words, group: int) -> str:
    """The block table of a group of layers as the last step saw it, since the last preemption."""
    table: dict[int, int] = {}
    end = 0
    for step in receipt.steps:
        if step.start < end:
            table.clear()
        end = step.start + step.count
        for change in step.changes:
            if change.group == group:
                table |= dict(enumerate(change.blocks, change.first))
    blocks = [table[entry] for entry in sorted(table)]
    return words.label("block_table_text", blocks=blocks, size=receipt.model.block_size)


def tell_prefix(receipt: Receipt, words: Words) -> str:
    """What of the prompt was in the cache already, and why not more."""
    lookup = receipt.lookup
    if lookup is None:
        return words.label("unknown")
    cached, total = f"{lookup.num_cached:,}", f"{len(receipt.prompt.token_ids):,}"
    if lookup.fork_of is not None:
        return words.label("fork_text", cached=cached, total=total, parent=lookup.fork_of)
    miss = words.misses[lookup.miss.name.lower()].format(at=lookup.at)
    return words.label("prefix_text", cached=cached, total=total, miss=miss)
