"""Measuring an engine in this process, and any server from outside. The definitions are pure; see ``metrics``."""
