"""Chat templates under limits: each has a name in the error, and nothing outlives or escapes it."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cutaway.errors import CorruptFile, TemplateError
from cutaway.text import renderer as renderer_module
from cutaway.text import template as template_module
from cutaway.text.renderer import Renderer
from cutaway.text.template import MAX_SOURCE_CHARS, ChatTemplate

HI = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def renderer():
    renderer = Renderer()
    yield renderer
    renderer.close()


@pytest.fixture
def render(renderer):
    return lambda source, messages=HI, **variables: ChatTemplate(source, variables, renderer=renderer).render(messages)


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "limit of 101,002 steps"),
        ("{% for i in range(10000000) %}x{% endfor %}", "range has too many elements"),
        ("{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", "steps"),
        ("{% for i in range(3000) %}{{ 'x' * 1000 }}{% endfor %}", "3,000,000 characters.*limit of 1,000,008"),
        ("{{ 'x' * 1000000000 }}", "limit of 101,002 steps"),
        ("{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}", "too deeply"),
        ("{% if true %}" * 3000 + "{% endif %}" * 3000, "too deeply"),
        ("{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "too deeply"),
        ("{{ " + "[" * 100_000, "too deeply"),
        (
            "{% set ns = namespace(l=[]) %}{% for i in range(3000) %}{% set ns.l = [ns.l] %}{% endfor %}"
            "{{ ns.l | tojson }}",
            "too deeply",
        ),
        ("{{ strftime_now('%Y' * 101) }}", "date format of 202 characters is longer than 200"),
    ],
)
def test_a_template_runs_into_a_limit_that_is_named(render, source, complaint):
    with pytest.raises(TemplateError, match=complaint) as caught:
        render(source)
    assert caught.value.hint
    assert render("{{ messages[0].content }}") == "hi"


@pytest.mark.parametrize(
    "source",
    [
        # Each of these would end or fill up the process that runs it.
        "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
        "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns | tojson }}",
        "{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns.a | string | length }}",
        "{{ '{:100000000000}'.format(3) | length }}",
        "{{ messages | tojson(indent=100000000000) | length }}",
    ],
)
def test_a_template_that_breaks_its_process_breaks_nothing_else(render, monkeypatch, source):
    monkeypatch.setattr(template_module, "BASE_SECONDS", 30.0)
    with pytest.raises(TemplateError):
        render(source)
    assert render("{{ messages[0].content }}") == "hi"


def test_a_template_that_does_not_end_is_ended(render, monkeypatch):
    monkeypatch.setattr(template_module, "BASE_SECONDS", 0.2)
    with pytest.raises(TemplateError, match=r"did not end within its limit of 0\.2\d* seconds") as caught:
        render("{{ [1] * 100000000 }}")
    assert caught.value.hint
    monkeypatch.undo()
    assert render("{{ messages[0].content }}") == "hi"


def test_limits_grow_with_the_messages(render):
    messages = [{"role": "user", "content": "tomato " * 20_000}] * 20
    text = render("{% for message in messages %}{{ message.content | trim }}|{% endfor %}", messages)
    assert text == ("tomato " * 20_000).strip().join(["", *["|"] * 19, "|"])


def test_a_long_source_is_refused():
    with pytest.raises(TemplateError, match=f"{MAX_SOURCE_CHARS + 1:,} characters.*{MAX_SOURCE_CHARS:,}"):
        ChatTemplate("x" * (MAX_SOURCE_CHARS + 1), {})


def test_a_source_that_is_no_text_is_refused():
    with pytest.raises(CorruptFile, match="surrogate"):
        ChatTemplate("\ud800", {})


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("{{ 'x", "not valid in line 1: unexpected end of string"),
        ("a\n\n{% unknown %}", "not valid in line 3: unknown statement unknown"),
        ("{{ 'a' + 1 }}", "failed in line 1"),
        ("{{ messages[7]['role'] }}", r"failed in line 1: `messages\[7\]` is undefined"),
        ("{{ x | frobnicate }}", "filter frobnicate is unknown"),
        ("{{ strftime_now(1) }}", "failed"),
        ("{{ raise_exception('Roles must alternate!') }}", "does not take these messages: Roles must alternate!"),
        ("{{ raise_exception() }}", "does not take these messages"),
    ],
)
def test_what_went_wrong_is_said_in_one_line_without_a_stack_trace(render, source, complaint):
    with pytest.raises(TemplateError, match=complaint) as caught:
        render(source)
    assert caught.value.hint
    assert "\n" not in caught.value.message
    assert "Traceback" not in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "{% include '/etc/hostname' %}",
        "{% import 'os' as os %}",
        "{% extends 'base' %}",
        "{{ debug() }}",
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ raise_exception.__globals__['x'] }}",
        "{{ strftime_now.__self__.x }}",
        "{{ self.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__.os }}",
        "{{ lipsum.__globals__ }}",
        "{{ get_flashed_messages() }}",
        "{{ namespace.__init__.x }}",
    ],
)
def test_nothing_is_in_reach_of_a_template(render, source):
    with pytest.raises(TemplateError):
        render(source)


def test_the_functions_in_reach_are_these():
    program = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); import minijinja, render_process; seen = []\n"
        "class Environment(minijinja.Environment):\n"
        "    def render_str(self, *positional, **named): seen.extend(self.globals); return ''\n"
        "minijinja.Environment = Environment\n"
        "render_process.render({'now': '2026-01-01', 'fuel': 1, 'source': '', 'context': {}}); print(json.dumps(seen))"
    )
    folder = str(Path(renderer_module.__file__).parent)
    done = subprocess.run([sys.executable, "-c", program, folder], capture_output=True, text=True, check=True)
    expected = {"cycler", "dict", "joiner", "namespace", "raise_exception", "range", "strftime_now"}
    assert set(json.loads(done.stdout)) == expected


def test_a_killed_process_is_replaced(render, renderer):
    assert render("a") == "a"
    os.kill(renderer._child._process.pid, signal.SIGKILL)
    with pytest.raises(TemplateError, match="SIGKILL"):
        render("a")
    assert render("a") == "a"


def test_a_closed_renderer_starts_again():
    renderer = Renderer()
    template = ChatTemplate("{{ messages[0].content }}", {}, renderer=renderer)
    assert template.render(HI) == "hi"
    renderer.close()
    renderer.close()
    assert template.render(HI) == "hi"
    renderer.close()


def test_the_process_ends_with_its_owner():
    renderer = Renderer()
    process = renderer._child._process
    del renderer
    assert process.wait(timeout=30) == -signal.SIGKILL


def test_the_process_ends_when_the_program_is_killed():
    program = (
        "import os, signal; from cutaway.text.renderer import Renderer; renderer = Renderer()\n"
        "renderer.render({'source': '', 'context': {}, 'now': '2026-01-01', 'fuel': 9, 'max_output_chars': 9}, 30)\n"
        "print(renderer._child._process.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    child = int(done.stdout)
    for _ in range(300):
        if not Path(f"/proc/{child}").exists() or "(zombie)" in Path(f"/proc/{child}/status").read_text():
            return
        threading.Event().wait(0.1)
    pytest.fail(f"process {child} outlived its parent")


def test_an_interrupt_does_not_mix_up_answers(renderer, monkeypatch):
    class Interrupt(BaseException):
        pass

    child = renderer._child
    template = ChatTemplate("{{ messages[0].content }}", {}, renderer=renderer)
    assert template.render(HI) == "hi"
    talk = type(child)._talk

    def interrupted(self, job):
        talk(self, job)
        raise Interrupt

    monkeypatch.setattr(type(child), "_talk", interrupted)
    with pytest.raises(Interrupt):
        template.render([{"role": "user", "content": "first"}])
    monkeypatch.undo()
    assert template.render([{"role": "user", "content": "second"}]) == "second"


def test_threads_take_turns(render):
    texts = {}

    def work(name):
        texts[name] = [
            render("{{ messages[0].content }}", [{"role": "user", "content": f"{name}{at}"}]) for at in range(20)
        ]

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {name: [f"{name}{at}" for at in range(20)] for name in "abcd"}


def test_a_process_that_cannot_start_is_an_error_not_a_crash(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(TemplateError, match="cannot be started"):
        Renderer()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    template = ChatTemplate("", {}, renderer=Renderer())
    with pytest.raises(TemplateError, match="exit status 1"):
        template.render(HI)
