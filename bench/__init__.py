"""Measurements of this machine. Each module prints JSON lines; none is a test."""
