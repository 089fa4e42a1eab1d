# make plan    plans the shipped example config
# make test    runs every check
# make trace   checks the memory model against the libraries' own code (installs torch, 2 GB)
# make docs    regenerates the output shown in the READMEs
# make messages  collects the sentences to translate and compiles the translations
#
# Needs make and Python 3.11 or newer, nothing else; everything goes into .venv.

IS_NEW_ENOUGH = 'import sys; sys.exit(sys.version_info < (3, 11))'
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
            $$p -c $(IS_NEW_ENOUGH) 2>/dev/null && echo $$p && break; done)
BIN = .venv/bin

CONFIG ?= src/finefit/examples/llama3_8b_qlora.yaml
FLAGS ?= --gpu "RTX 4090" --samples 52000 --mean-length 180

.PHONY: plan test trace trace-tests trace-parity docs messages

plan: .venv/installed
	$(BIN)/finefit plan $(CONFIG) $(FLAGS)

test: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest --cov

trace: .venv-trace/installed
	$(MAKE) --jobs=2 --output-sync=target trace-tests trace-parity

trace-tests:
	.venv-trace/bin/python -m pytest -q tests/lab

trace-parity:
	.venv-trace/bin/python -m benchmarks.trace --quick

docs: .venv/installed-dev
	$(BIN)/python -m scripts.docs

messages: .venv/installed-dev
	$(BIN)/python -m scripts.messages

.venv/installed: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

.venv/installed-dev: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch $@ .venv/installed

.venv-trace/installed: pyproject.toml
	$(PYTHON) -m venv .venv-trace
	.venv-trace/bin/python -m pip install --quiet --disable-pip-version-check -e ".[trace,dev]"
	@touch $@

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "finefit needs Python 3.11 or newer: make PYTHON=/path/to/python"; exit 1; }
	$(PYTHON) -m venv .venv
