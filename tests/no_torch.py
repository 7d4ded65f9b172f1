"""A pytest plugin for the pure tier: torch cannot be imported, so whatever needs it fails."""

import sys

sys.modules["torch"] = None  # type: ignore[assignment]
