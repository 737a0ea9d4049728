# The targets a newcomer needs. Everything installs into .venv; nothing else on the machine is touched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXTRAS := demo,lab,test,dev
STAMP := $(VENV)/.installed
SOURCES := $(shell find capkernel kernelspec -type f -not -name '*.pyc' 2>/dev/null) pyproject.toml requirements.lock README.md LICENSE
PYTEST := $(BIN)/pytest

.PHONY: help install demo lab test test-slow soak mutate lint bench lock clean

help:
	@echo "make demo    install, then run the tour notebook through the kernel"
	@echo "make lab     install, then open the tour in JupyterLab with the kernel chosen"
	@echo "make test    install, then run the tests (browser tests when Chromium is found)"
	@echo "make test-slow  the tests that take minutes: every process ended in every state"
	@echo "make soak    thousands of cells and refusals in one session: does any process grow?"
	@echo "make mutate  every rule of the checker switched off in turn: do the golden sessions notice?"
	@echo "make lint    ruff, mypy --strict, import contracts"
	@echo "make bench   run every benchmark of tests/bench and write docs/performance.md"
	@echo "make clean   remove what make created"

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "capkernel needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Use: make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "This Python has no venv module. On Debian and Ubuntu: apt install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip  # an old one misses new releases

# An ordinary, not an editable, install: an editable one would put this repository on the path of trusted processes.
$(STAMP): $(VENV)/bin/python $(SOURCES)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock ".[$(EXTRAS)]"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall .
	$(BIN)/capkernel install --sys-prefix
	@touch $(STAMP)

install: $(STAMP)

demo: $(STAMP)
	$(BIN)/capkernel run notebooks/tour.ipynb --out notebooks/tour.executed.ipynb

lab: $(STAMP)
	$(BIN)/capkernel lab notebooks/tour.ipynb

test: $(STAMP)
	$(PYTEST)

test-slow: $(STAMP)
	$(PYTEST) -m slow

soak: $(STAMP)
	$(BIN)/python tests/bench/soak.py

mutate: $(STAMP)
	$(BIN)/python tests/mutation/mutate.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)
	$(BIN)/python tests/bench/run_all.py

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .import_linter_cache dist build

# New exact versions for requirements.lock, from what pyproject.toml allows today.
lock:
	rm -rf $(VENV)-lock && $(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(VENV)-lock/bin/python -m pip install --quiet --disable-pip-version-check ".[$(EXTRAS)]"
	{ sed -n 1p requirements.lock; $(VENV)-lock/bin/python -m pip freeze --exclude capkernel; } > requirements.lock.new
	mv requirements.lock.new requirements.lock && rm -rf $(VENV)-lock
