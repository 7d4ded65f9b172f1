"""The shape of the repository: what starts without torch, how long files are, what documents promise."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cutaway.api import anthropic, completion_call, tokenize
from cutaway.api.completion_call import COMPLETION_FIELDS
from cutaway.api.openai import CHAT_FIELDS, EMPTY_IN_MESSAGES, SAYING_NOTHING, STREAM_FIELDS
from cutaway.api.tokenize import DETOKENIZE_FIELDS, TOKENIZE_FIELDS

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "cutaway"
FILES = sorted(PACKAGE.rglob("*.py"))
DOCUMENTS = ["README.md", "README.ko.md", "CONTRIBUTING.md", "docs/request.md", "docs/serve.md"]
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 50
MAX_CLASS_LINES = 250

# What starts fast, or is pure, imports none of the heavy packages; each in a fresh process.
LIGHT = {
    "cutaway": ["torch", "numpy", "rich", "tokenizers"],
    "cutaway.scheduler.scheduler": ["torch", "numpy", "asyncio"],
    "cutaway.engine.core": ["torch", "numpy"],
    "cutaway.engine.load": ["torch"],
    "cutaway.glass.stages": ["torch", "numpy"],
    "cutaway.text.load": ["torch", "numpy", "rich"],
    "cutaway.weights.checkpoint": ["torch", "numpy"],
    "cutaway.hub.resolve": ["torch", "numpy", "huggingface_hub"],
    "cutaway.cli.main": ["torch", "numpy", "rich", "tokenizers", "asyncio"],
    "cutaway.benchmark.metrics": ["torch", "numpy", "asyncio", "httpx2"],
    "cutaway.benchmark.load": ["torch", "numpy", "asyncio"],
    "cutaway.cli.bench": ["torch", "numpy", "rich", "httpx2", "matplotlib"],
    "cutaway.api.anthropic_reply": ["torch", "numpy", "asyncio", "fastapi"],
    "cutaway.api.openai_reply": ["torch", "numpy", "asyncio", "fastapi"],
    "cutaway.cli.serve": ["torch", "numpy", "rich", "fastapi", "starlette", "uvicorn"],
    "cutaway.cli.ask": ["torch", "numpy", "rich"],
    "cutaway.cli.tokenize": ["torch", "numpy", "rich"],
    "cutaway.cli.models": ["torch", "numpy", "rich", "tokenizers"],
}


@pytest.mark.parametrize("module", LIGHT)
def test_a_light_module_stays_light(module: str) -> None:
    code = f"import sys, {module}; print(*[name for name in {LIGHT[module]} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_functions_and_classes_stay_small(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert source.count("\n") <= MAX_FILE_LINES
    limits = {
        ast.FunctionDef: MAX_FUNCTION_LINES,
        ast.AsyncFunctionDef: MAX_FUNCTION_LINES,
        ast.ClassDef: MAX_CLASS_LINES,
    }
    for node in ast.walk(ast.parse(source)):
        if type(node) in limits:
            first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]  # type: ignore[attr-defined]
            assert node.end_lineno - first.lineno < limits[type(node)], node.name  # type: ignore[attr-defined]


def test_only_the_configuration_reads_the_environment() -> None:
    readers = [path.name for path in FILES if re.search(r"os\.environ|os\.getenv", path.read_text(encoding="utf-8"))]
    assert readers == ["config.py"]


def test_nothing_is_unpickled_or_evaluated() -> None:
    banned = {"pickle", "marshal", "shelve", "joblib", "eval", "exec", "torch.load"}
    found = []
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            elif isinstance(node, ast.Call):
                names = [ast.unparse(node.func)]
            found += [(path.name, name) for name in names if name in banned]
    assert found == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_that_a_document_names_exist(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    paths = re.findall(r"`((?:cutaway|tests|docs|bench|scripts)/[\w./-]+)`", text)
    missing = [name for name in links if not (ROOT / document).parent.joinpath(name).exists()]
    missing += [name for name in paths if not (ROOT / name).exists()]
    assert missing == []


def test_both_readmes_have_the_same_sections() -> None:
    english, korean = (
        re.findall(r"^(#+) ", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
        for name in ("README.md", "README.ko.md")
    )
    assert english == korean


def test_commands_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    for name in ("README.md", "README.ko.md", "CONTRIBUTING.md"):
        used = set(re.findall(r"\bmake ([a-z-]+)", (ROOT / name).read_text(encoding="utf-8")))
        assert used <= targets, name


def test_the_documentation_of_the_server_names_every_field_and_code() -> None:
    text = (ROOT / "docs" / "serve.md").read_text(encoding="utf-8")
    fields = {*CHAT_FIELDS, *SAYING_NOTHING, *STREAM_FIELDS, *EMPTY_IN_MESSAGES}
    section = text.partition("## Anthropic's API")[2]
    for_anthropic = {*anthropic.MESSAGE_FIELDS, *anthropic.SAYING_NOTHING, *anthropic.EMPTY_IN_BLOCKS}
    assert [name for name in sorted(for_anthropic) if f"`{name}`" not in section] == []
    fields |= {*COMPLETION_FIELDS, *completion_call.NOT_SUPPORTED}
    fields |= {*TOKENIZE_FIELDS, *DETOKENIZE_FIELDS, *tokenize.NOT_SUPPORTED}
    sources = [(PACKAGE / "api" / name).read_text(encoding="utf-8") for name in ("app.py", "prompt_routes.py")]
    routes = [route for source in sources for route in re.findall(r'@app\.\w+\("([^"]+)"', source)]
    assert len(routes) == 15
    names = fields | {route.replace("model_id:path", "id") for route in routes}
    assert [name for name in sorted(names) if f"{name}`" not in text] == []
