"""``cutaway tokenize``: a text as a model reads it."""

import json

import click

from cutaway.cli.model import find_model, model_option
from cutaway.cli.output import show, tell
from cutaway.cli.prompt import read_prompt
from cutaway.printable import quote
from cutaway.text.load_tokenizer import load_tokenizer
from cutaway.text.tokenizer import Tokenizer
from cutaway.weights.checkpoint import open_checkpoint


@click.command()
@click.argument("text", required=False)
@model_option
@click.option("--plain", is_flag=True, help="Read control tokens such as <|im_end|> as plain text, as in a message.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def tokenize(text: str | None, model: str, plain: bool, as_json: bool) -> None:
    """Show the tokens of TEXT: ids, pieces, bytes, and which are special.

    Without TEXT, or with -, read standard input.
    """
    text = read_prompt(text)
    tokenizer = load_tokenizer(open_checkpoint(find_model(model).path))
    encoding = tokenizer.encode(tokenizer.escape(text) if plain else text)
    if as_json:
        tokens = [_describe(tokenizer, token_id) for token_id in encoding.token_ids]
        click.echo(json.dumps({"model": model, "num_tokens": len(tokens), "tokens": tokens}, ensure_ascii=False))
        return
    show(f"{'#':>5} {'id':>8}  {'piece':20} {'text':20} bytes")
    for index, token_id in enumerate(encoding.token_ids):
        content = tokenizer.token_bytes(token_id)
        shown = quote(content)
        mark = "  special" if tokenizer.is_special(token_id) else ""
        show(f"{index:5d} {token_id:8d}  {tokenizer.piece(token_id):20} {shown:20} {content.hex(' ')}{mark}")
    tell(f"{len(encoding.token_ids):,} tokens")


def _describe(tokenizer: Tokenizer, token_id: int) -> dict[str, object]:
    content = tokenizer.token_bytes(token_id)
    return {
        "id": token_id,
        "piece": tokenizer.piece(token_id),
        "text": content.decode("utf-8", "replace"),
        "bytes": list(content),
        "special": tokenizer.is_special(token_id),
    }
