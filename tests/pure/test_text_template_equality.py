"""Templates render as in transformers, whose own renderer is the reference."""

from datetime import datetime

import chat_templates
import pytest
import transformers.utils.chat_template_utils as reference
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.errors import TemplateError
from cutaway.text.renderer import Renderer
from cutaway.text.template import ChatTemplate

NOW = datetime(2026, 3, 5, 13, 7)
VARIABLES = {"bos_token": "<s>", "eos_token": "</s>"}
TOOL = {"type": "function", "function": {"name": "wetter", "description": "Köln & <b>", "parameters": {"a": [1, None]}}}

# Python takes the separators U+001C to U+001F for white space when it strips a text; Unicode and Rust do not.
SEPARATORS = "\x1c\x1d\x1e\x1f"

contents = st.one_of(
    st.text(st.characters(exclude_characters=SEPARATORS, codec="utf-8"), max_size=30),
    st.lists(
        st.sampled_from(
            [
                " ",
                "\n",
                "hi",
                "<think>",
                "</think>",
                "<tool_response>",
                "</tool_response>",
                "{{ x }}",
                "{% if %}",
                "ä<&>",
                "'",
            ]
        ),
        max_size=8,
    ).map("".join),
)
conversations = st.lists(st.tuples(st.sampled_from(["user", "assistant", "system"]), contents), min_size=1, max_size=6)
alternating = st.lists(contents, min_size=1, max_size=6).map(
    lambda texts: [(("user", "assistant")[at % 2], text) for at, text in enumerate(texts)]
)


@pytest.fixture(scope="module")
def renderer():
    renderer = Renderer()
    yield renderer
    renderer.close()


def render_reference(monkeypatch, source, messages, **variables):
    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return NOW

    monkeypatch.setattr(reference, "datetime", Clock)
    rendered, _ = reference.render_jinja_template(
        conversations=[messages], chat_template=source, add_generation_prompt=True, **variables
    )
    return rendered[0]


def check(renderer, source, messages, **variables):
    """Both render the same, or both refuse."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        try:
            expected = render_reference(monkeypatch, source, messages, **VARIABLES, **variables)
        except Exception as error:  # whatever Jinja raises
            expected = error
    template = ChatTemplate(source, VARIABLES | variables, clock=lambda: NOW, renderer=renderer)
    if isinstance(expected, Exception):
        with pytest.raises(TemplateError):
            template.render(messages)
    else:
        assert template.render(messages) == expected


@pytest.mark.parametrize("name", chat_templates.ALL)
@settings(max_examples=60)
@given(turns=st.one_of(conversations, alternating))
def test_conversations_render_the_same(renderer, name, turns):
    check(renderer, chat_templates.ALL[name], [{"role": role, "content": content} for role, content in turns])


@pytest.mark.parametrize("name", chat_templates.ALL)
def test_an_ordinary_conversation_renders_the_same(renderer, name):
    roles = ("user", "assistant", "user") if name in ("mistral", "gemma") else ("system", "user", "assistant", "user")
    messages = [{"role": role, "content": f" {role} says\nhello  "} for role in roles]
    check(renderer, chat_templates.ALL[name], messages)
    check(renderer, chat_templates.ALL[name], messages[-1:])


@pytest.mark.parametrize("system", [True, False])
def test_tools_and_calls_render_the_same(renderer, system):
    call = {"name": "wetter", "arguments": {"ort": "Köln", "tage": [1, 2], "leer": {}}}
    messages = [
        *([{"role": "system", "content": "Kurz."}] if system else []),
        {"role": "user", "content": "Wie wird das Wetter?"},
        {"role": "assistant", "content": "", "tool_calls": [call, call]},
        {"role": "user", "content": "Und?"},
    ]
    check(renderer, chat_templates.TOOLS, messages, tools=[TOOL, TOOL])


@pytest.mark.parametrize("thinking", [True, False])
def test_variables_of_a_family_render_the_same(renderer, thinking):
    messages = [{"role": "user", "content": "hi"}]
    check(renderer, chat_templates.REASONING, messages, enable_thinking=thinking)


def test_the_date_comes_from_the_clock(renderer):
    template = ChatTemplate(chat_templates.LLAMA3, VARIABLES, clock=lambda: NOW, renderer=renderer)
    assert "Today Date: 05 Mar 2026\n" in template.render([{"role": "user", "content": "hi"}])


@pytest.mark.parametrize(
    "source",
    [
        "a\n{% if true %}\n  b\n{% endif %}\nc\n",
        "  {%- if true -%}  x  {%- endif -%}  y\n\n",
        "{# comment #}\n x {#- more -#} y",
        "{% raw %}{{ not }}{% endraw %}",
        "{{ '{{' }}{{ \"}}\" }}",
        "{%+ if true %} x{%+ endif %}",
        "tail\n\n",
        "",
    ],
)
def test_white_space_is_treated_the_same(renderer, source):
    check(renderer, source, [{"role": "user", "content": "hi"}])
