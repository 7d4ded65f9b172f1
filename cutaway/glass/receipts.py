"""The receipts of requests that have finished, a bounded number of them."""

from cutaway.glass.receipt import Receipt

# More than one request can have copies, since all of them may end in one step.
MAX_RECEIPTS = 256


class Receipts:
    """Keeps the newest receipts.

    Args:
        max_kept: the oldest go first.
    """

    def __init__(self, max_kept: int = MAX_RECEIPTS) -> None:
        self.max_kept = max_kept
        self._kept: dict[str, Receipt] = {}

    def put(self, receipt: Receipt) -> None:
        """Keep a receipt."""
        self._kept.pop(receipt.request_id, None)  # one that is kept anew is the newest
        self._kept[receipt.request_id] = receipt
        while len(self._kept) > self.max_kept:
            del self._kept[next(iter(self._kept))]

    def forget(self, request_id: str) -> None:
        """Drop the receipt of a request: another one has its id now."""
        self._kept.pop(request_id, None)

    def get(self, request_id: str) -> Receipt | None:
        """The receipt of a request, if it is still kept."""
        return self._kept.get(request_id)
