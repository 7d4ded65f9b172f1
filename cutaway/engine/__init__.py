"""The loop that joins scheduler, executor and text, and the client's view of it."""
