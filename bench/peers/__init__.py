"""Cutaway and its peers side by side: ``python -m bench.peers``. Each peer is installed when it is missing."""
