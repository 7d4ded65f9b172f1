"""The vendor API: what OpenAI's and Anthropic's clients say over HTTP, in the words of ``cutaway.types``, and back.

For each vendor three modules translate: requests, replies and errors. ``completion_call``, ``completion_reply``,
``tokenize`` and ``render`` do so for prompts that are no conversations. They are pure, and so is what they share. The
rest of the package is the server around them. It knows an engine only as an ``EngineClient``.
"""
