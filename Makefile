# The two commands of the README, and what developers use. Everything happens in .venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: help demo test test-slow bench check-real lint types check clean

help:            ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/'

demo: $(VENV)/run.stamp    ## the same load evenly and in pulses against the simulated server, side by side
	@$(BIN)/python -m experiments demo

test: $(VENV)/dev.stamp    ## the fast tests
	$(BIN)/python -m pytest -q -m "not slow" -n 3 --dist loadfile --no-loadscope-reorder

test-slow: $(VENV)/dev.stamp    ## end to end: processes, the demo
	$(BIN)/python -m pytest -q -m slow --timeout 600

# the Pythons of other load generators, where they are installed: make bench GUIDELLM=/path/to/python
PEERS = $(if $(GUIDELLM),--guidellm $(GUIDELLM)) $(if $(AIPERF),--aiperf $(AIPERF)) \
  $(if $(INFERENCE_PERF),--inference-perf $(INFERENCE_PERF)) $(if $(AIOHTTP_LOOP),--aiohttp-loop $(AIOHTTP_LOOP))

bench: $(VENV)/run.stamp   ## how true and how cheap the load generator is here; beside others: see bench/README.md
ifeq ($(strip $(PEERS)),)
	$(BIN)/python -m bench.accuracy
else
	$(BIN)/python -m bench.side_by_side $(PEERS) $(BENCH)
endif

check-real: $(VENV)/run.stamp   ## our figures against a real server's own: vLLM on the CPU (3 GB into build/real, 6 minutes)
	$(BIN)/python -m bench.check_real $(REAL)

lint: $(VENV)/dev.stamp    ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev.stamp   ## mypy, strict
	$(BIN)/mypy

check: lint types test     ## everything that the fast stage of CI checks

clean:           ## remove the environment and caches (runs/ stays)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else 1)' || { \
	  echo "This needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) --version 2>&1)." \
	       "Name a newer one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "No virtual environment could be made. On Debian or Ubuntu: apt install python3-venv" >&2; exit 1; }

$(VENV)/run.stamp: requirements.txt | $(BIN)/python
	@echo "Installing what a run needs into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

$(VENV)/dev.stamp: requirements.txt requirements-dev.txt | $(BIN)/python
	@echo "Installing what a run and the tests need into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@ $(VENV)/run.stamp
