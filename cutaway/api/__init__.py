"""The vendor API: what OpenAI's clients say over HTTP, in the words of ``cutaway.types``, and back.

``openai``, ``openai_reply`` and ``openai_error`` translate, and so do ``completion_call``, ``completion_reply``,
``tokenize`` and ``render``; they are pure. The rest of the package is the server around them. It knows an engine only
as an ``EngineClient``.
"""
