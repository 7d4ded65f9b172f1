"""Draw docs/images from a real run: some stages of the tomato question, in each language. Needs the model."""

import asyncio
import io
import re
from pathlib import Path

from rich.console import Console

from cutaway.cli.ask import run_request
from cutaway.cli.session import open_session
from cutaway.config import DEFAULT_MODEL
from cutaway.engine.options import EngineOptions
from cutaway.glass.explain import draw_ledger, draw_stage
from cutaway.glass.stages import tell_stages
from cutaway.glass.words import LANGUAGES, load_words
from cutaway.types import Conversation, GenerationRequest, Message, Role, SamplingParams

TARGET = Path(__file__).parent.parent / "docs" / "images"
QUESTION = "Is a tomato a fruit?"
SHOWN_STAGES = (3, 9, 10, 11, 12)
# rich gives each text a length of one cell a character, which squeezes Korean to half its width.
WIDE_TEXT = re.compile(r'(<text [^>]*) textLength="[^"]*"([^>]*>[^<]*[\uac00-\ud7a3])')


def main() -> None:
    """Ask once, draw in every language."""
    request = GenerationRequest(
        "req_tomato",
        Conversation((Message(Role.USER, QUESTION, "question"),)),
        SamplingParams(temperature=0.8, top_k=40, top_p=0.95, seed=4),
        max_tokens=10,
        num_candidates=5,
    )
    with open_session(DEFAULT_MODEL, EngineOptions(max_running=2)) as session:
        (receipt,) = asyncio.run(run_request(session, request, QUESTION, print_text=False))
    for language in LANGUAGES:
        console = Console(record=True, width=104, file=io.StringIO())
        words = load_words(language)
        for stage in tell_stages(receipt, words):
            if stage.number in SHOWN_STAGES:
                console.print(draw_stage(stage, console.width))
        console.print(draw_ledger(receipt, words))
        name = "explain.svg" if language == "en" else f"explain.{language}.svg"
        drawn = console.export_svg(title=f'cutaway ask "{QUESTION}" --explain --lang {language}')
        (TARGET / name).write_text(WIDE_TEXT.sub(r"\1\2", drawn), encoding="utf-8")


if __name__ == "__main__":
    main()
