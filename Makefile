# Two commands for a newcomer: `make demo` and `make test`. Both set everything up themselves.
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
READY   = $(VENV)/.ready

.PHONY: demo test test-long check build clean

demo: $(READY)            ## pretrain a tiny XLNet on real text, then use it (about five minutes)
	$(BIN)/xlnet demo --output runs/demo

test: $(READY)            ## all tests but those that take minutes each
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "not long"

test-long: $(READY)       ## the tests that take minutes each: learning whole tasks by heart
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m long

check: $(READY)           ## style, types and the fast tests: run before each commit
	$(BIN)/ruff check .
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "not slow and not long"

build: $(READY)           ## wheel and sdist
	$(BIN)/pip install --quiet build
	$(BIN)/python -m build

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet "torch>=2.11,<2.14"
	$(BIN)/pip install --quiet -e ".[dev]"
	touch $(READY)

clean:                    ## what can be made again; trained models in runs/ stay
	rm -rf $(VENV) dist build src/*.egg-info
