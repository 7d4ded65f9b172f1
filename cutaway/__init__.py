"""Cutaway: LLM inference, sawn open so that you see it work."""

__version__ = "0.1.0"
