# Every job of this project. `make` alone lists them. All that a job needs first is Python 3.11 or
# newer, make and git: the environment is made when a job asks for it, and kept in .venv.
# (Written for GNU make 3.81 and later, which is what macOS has.)

PYTHON ?= python3
# TORCH=cpu: on Linux, take the build of torch for CPUs, which spares several gigabytes.
TORCH ?=
JOBS ?= 2
PORT ?= 8000

VENV := .venv
COLAB := .venv-colab
RUN := $(VENV)/bin/python
NOTEBOOKS := $(RUN) book/_scripts/notebooks.py
COMMA := ,
# A file of tests goes to one process, for what its tests share; in order, the longest comes first.
SHARE := --dist loadfile --no-loadscope-reorder
# With the browser, one process more: it waits much of the time.
PROCESSES := $(shell expr $(JOBS) + 1)
# Tests compile thousands of small programs, each of which runs once. Without XLA's newest generator
# of code that takes half the time. What a reader's figures rest on has it, in a command of its own.
QUICKLY := XLA_FLAGS="$$XLA_FLAGS --xla_cpu_use_fusion_emitters=false"

# Tests that compute, and so depend on a processor's rounding.
NUMERIC = $(shell grep -lE '^(from|import) (both|jax|numpy|torch)' tests/test_*.py)

# What Colab's profile leaves out.
SOME := not book and not slow

# Jobs share the environments and the notebooks: one after the other, also with make -j.
.NOTPARALLEL:

.PHONY: help
help:  ## List the jobs (this list)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# ---- Reading and running ------------------------------------------------------------------------

.PHONY: book serve lab
book: $(VENV)/installed  ## Build the book, warnings as errors, and say where to open it
	$(VENV)/bin/jupyter-book build -W -n --keep-going .
	@echo "The book is ready: open _build/html/index.html in a browser, or type: make serve"

serve: book  ## Build the book and serve it on this machine (PORT=8000)
	@echo "Open http://localhost:$(PORT) and press Ctrl-C here to stop."
	@$(RUN) -m http.server --bind 127.0.0.1 --directory _build/html $(PORT)

lab: $(VENV)/installed  ## Open the chapters in JupyterLab, to run them yourself
	$(RUN) -m jupyterlab notebooks

# ---- Tests --------------------------------------------------------------------------------------

.PHONY: test check test-colab newcomer bench
# Each command runs even if one before it fails: one call shows all that is wrong.
test: $(VENV)/installed  ## Run all tests: the package, the book, each notebook and its outputs
	@status=0; \
	$(QUICKLY) $(RUN) -m pytest -n $(PROCESSES) $(SHARE) -m "not reader" || status=1; \
	$(RUN) -m pytest -n $(JOBS) $(SHARE) -m reader || status=1; \
	$(NOTEBOOKS) test -j $(JOBS) || status=1; \
	exit $$status

check: $(VENV)/installed  ## Run what concerns one file, chapter, module or test (FILE=gpt)
	@$(RUN) book/_scripts/check.py "$(FILE)"

test-colab: $(COLAB)/installed  ## Run the tests of the package and the notebooks with Colab's releases
	@status=0; \
	$(QUICKLY) $(COLAB)/bin/python -m pytest -n $(JOBS) $(SHARE) -m "$(SOME) and not reader" || status=1; \
	$(COLAB)/bin/python -m pytest -n $(JOBS) $(SHARE) -m "$(SOME) and reader" || status=1; \
	$(COLAB)/bin/python book/_scripts/notebooks.py test --twice -j $(JOBS) || status=1; \
	exit $$status

.PHONY: test-portable
test-portable: $(VENV)/installed  ## Run all that computes as on two older processors, cells twice
	@status=0; \
	for processor in avx2 avx; do \
	  as_on="$(RUN) book/_scripts/as_on.py $$processor"; \
	  $$as_on $(RUN) -m pytest -n $(JOBS) $(SHARE) -m "not book" $(NUMERIC) || status=1; \
	  $$as_on $(NOTEBOOKS) test --twice -j $(JOBS) || status=1; \
	done; \
	exit $$status

newcomer: $(VENV)/installed  ## Run every notebook as a newcomer in Colab, with times and memory
	$(RUN) book/_scripts/newcomer.py

bench: $(VENV)/installed  ## Measure the speeds and the memory that the package promises
	$(RUN) book/_scripts/bench.py

# ---- Changing the book --------------------------------------------------------------------------

.PHONY: listings notebooks record ledger stand-in lint lint-check lock clean
listings: $(VENV)/installed  ## Rewrite the listing cells of the chapters from the package
	$(NOTEBOOKS) listings

notebooks: $(VENV)/installed  ## Make all notebooks anew from their texts and execute them
	$(NOTEBOOKS) run -j $(JOBS)

record: $(VENV)/installed  ## Run the full training runs that are not recorded yet (hours on a CPU)
	$(RUN) book/_scripts/record.py

ledger: $(VENV)/installed  ## Compute the published figures again and write the ledger's values
	$(RUN) book/_scripts/ledger.py

stand-in: $(VENV)/installed  ## Train the small GPT-2 that comes with the package (minutes)
	$(RUN) book/_scripts/stand_in.py

lint: $(VENV)/installed  ## Format code and notebooks, mend what can be mended, report the rest
	@status=0; \
	$(RUN) -m ruff format . || status=1; \
	$(RUN) -m ruff check --fix . || status=1; \
	$(NOTEBOOKS) format || status=1; \
	$(NOTEBOOKS) check || status=1; \
	exit $$status

lint-check: $(VENV)/installed  ## Report what `make lint` would change, and change nothing
	@status=0; \
	$(RUN) -m ruff format --check . || status=1; \
	$(RUN) -m ruff check . || status=1; \
	$(NOTEBOOKS) check || status=1; \
	exit $$status

lock: $(VENV)/installed  ## Write both lock files anew, with the newest releases that fit
	$(RUN) book/_scripts/lock.py

clean:  ## Remove the built book and caches, and keep the environments
	rm -rf _build dist .pytest_cache .ruff_cache .hypothesis
	find book d2lgpt notebooks tests -name __pycache__ -prune -exec rm -rf {} +
	find book notebooks -name .ipynb_checkpoints -prune -exec rm -rf {} +

# ---- Environments -------------------------------------------------------------------------------

OLD := make: Python 3.11 or newer is needed: install it, and name it if it is not python3, \
  as in `make book PYTHON=python3.13`.

# $(call install,FOLDER,LOCK FILE,EXTRAS). The lock file first, word by word (--no-deps: some of it
# would ask for releases of long ago); then this package, with what only some systems need.
define install
	@test -x $(1)/bin/pip || $(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || \
	  { echo '$(OLD)' >&2; exit 1; }
	@echo "Setting up $(1) from $(2): minutes the first time, seconds after that."
	@test -x $(1)/bin/pip || $(PYTHON) -m venv $(1)
	$(if $(TORCH),$(1)/bin/python -m pip install uv)
	$(if $(TORCH),$(1)/bin/python -m uv pip install --python $(1) --torch-backend $(TORCH) `grep ^torch== $(2)`)
	$(1)/bin/python -m pip install --no-deps -r $(2)
	$(1)/bin/python -m pip install --no-build-isolation -c $(2) -e ".[$(3)]"
	@touch $(1)/installed
endef

# Made again when a lock file or a requirement changes; until then it costs nothing.
$(VENV)/installed: requirements.lock pyproject.toml
	$(call install,$(VENV),requirements.lock,dev)

$(COLAB)/installed: requirements-colab.lock pyproject.toml
	$(call install,$(COLAB),requirements-colab.lock,torch$(COMMA)jax$(COMMA)test)
