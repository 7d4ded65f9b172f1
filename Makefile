# Two commands do everything on a fresh machine: `make ask Q="Is a tomato a fruit?"` and `make test`.
# Both build the virtual environment first, from the versions in requirements.lock.

PYTHON ?= python3
PIP_ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
export QUESTION = $(value Q)

.PHONY: help ask chat test test-pure check format bench bench-instructions bench-peers docs illustrations clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort

$(VENV)/run.stamp: pyproject.toml requirements.lock hatch_build.py $(wildcard cutaway/kernels/cpp/*)
	$(PYTHON) -m venv $(VENV)
	@echo "installing torch and others: 0.2 GB or more, once"
	$(BIN)/pip install --quiet --disable-pip-version-check $(PIP_ARGS) --constraint requirements.lock --editable .
	touch $@

$(VENV)/dev.stamp: $(VENV)/run.stamp
	$(BIN)/pip install --quiet --disable-pip-version-check $(PIP_ARGS) --constraint requirements.lock --editable '.[dev]'
	touch $@

ask: $(VENV)/run.stamp ## Answer a question: make ask Q="Is a tomato a fruit?"
	@$(BIN)/cutaway ask -- "$$QUESTION"

chat: $(VENV)/run.stamp ## Talk in the terminal
	@$(BIN)/cutaway chat

test: test-pure ## Run every test, fast ones first
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder tests/arch tests/cpu tests/api

test-pure: $(VENV)/dev.stamp ## Run the tests that need neither torch nor a model
	PYTHONPATH=tests $(BIN)/python -m pytest -p no_torch tests/pure

check: $(VENV)/dev.stamp ## Check format, lint, types, imports and generated documents
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m scripts.cli_reference --check
	$(BIN)/python -m pytest --quiet tests/arch

format: $(VENV)/dev.stamp ## Format and mend what can be mended by itself
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/dev.stamp ## Generate the documents that are made from the code
	$(BIN)/python -m scripts.cli_reference

illustrations: $(VENV)/dev.stamp ## Draw docs/images from a real run
	$(BIN)/python -m scripts.illustrations

bench: $(VENV)/dev.stamp ## Measure this machine; prints JSON lines
	$(BIN)/python -m bench.startup
	$(BIN)/python -m bench.reference
	$(BIN)/python -m bench.serving
	$(BIN)/python -m bench.http
	$(BIN)/python -m bench.kernels

bench-instructions: $(VENV)/dev.stamp ## Compare the instructions of the native kernels with those on record; needs valgrind
	$(BIN)/python -m bench.instructions

bench-peers: $(VENV)/dev.stamp ## Measure this machine beside llama.cpp, vLLM and transformers; installs them, about an hour
	$(BIN)/python -m bench.perplexity
	$(BIN)/python -m bench.peers

clean: ## Remove the virtual environment and every cache inside the checkout
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
