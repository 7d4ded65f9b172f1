"""Text to ids and ids to text: tokenizers, chat templates, detokenizers, stop strings."""
