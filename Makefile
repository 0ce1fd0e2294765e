# Two commands on a machine with Python 3.11+ and make:
#   make demo   a private treatment effect, from an empty folder to a summary table
#   make test   style, types and all tests
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo federation-demo test lint types unit benchmarks clean

demo: $(VENV)/.installed
	$(BIN)/python vignettes/quick_start.py

federation-demo: $(VENV)/.installed-federation
	$(BIN)/python -m dpeffects.federation.demo

test: lint types unit

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

unit: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -q -n 2

benchmarks: $(VENV)/.installed-dev
	for script in benchmarks/*.py; do $(BIN)/python $$script || exit 1; done

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "dpeffects needs Python 3.11 or newer; try: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	@touch $@

$(VENV)/.installed-federation: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable ".[federation]"
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
