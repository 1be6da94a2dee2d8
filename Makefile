# Needs Python 3.11 (to 3.14) and make; everything else is fetched, pinned and checked.
.DEFAULT_GOAL := help
.PHONY: code tests scoreboard bench-capture bench-scale bench-connect bench-fresh bench-groups bench-load bench-refresh bench-replay bench-serve bench-start bench-verify bench-views demo test test-all test-root test-exhaustive unit properties integration notebooks soak downloads lint type imports docs pages check lock size wheel wheels ranges sanitize fuzz site help clean

BIN := .venv/bin
READY := .venv/.ready
# The same without the developers' tools: what a user runs.
RUNS := .venv/.runs
# Four test processes, each with servers of its own: most tests wait. Two of them have Spark.
JOBS ?= 4
PYTEST = $(BIN)/python -m pytest -n $(JOBS)
# As with examples: one order at every run, so that nobody's first run fails by chance. `test-all`
# looks further, with another order each time.
ORDER ?= --randomly-seed=20260101
# The folders of a target, or none where ARGS names a path.
PATHS = $(if $(filter tests/%,$(ARGS)),,$(1))
export PYTHON
# The tests start hundreds of processes, which should not compile the same modules again.
unexport PYTHONDONTWRITEBYTECODE

demo: $(RUNS) ## Run the whole line on real servers and real data (ARGS=--json for one JSON line)
	@$(BIN)/changelog demo $(ARGS)

# The checks take a core for a minute, which the first tests, starting their servers, leave idle.
test: downloads ## Checks, and the tests on real servers meanwhile; what CI runs
	@$(MAKE) --no-print-directory -j2 code tests

code: lint type imports ## Checks of the code: ruff, mypy, import-linter

tests: downloads ## The tests of `make test` without the checks
	@$(PYTEST) $(ORDER) -m "not matrix" $(ARGS)

test-root: downloads ## Those tests of `make test` that want root, or a compiler; CI runs them before, as root
	@$(PYTEST) $(ORDER) -n 0 -p no:cacheprovider -m "root and not matrix" $(ARGS) || test $$? = 5

test-all: lint type imports downloads ## The same and the long matrices of faults and versions
	@$(PYTEST) -m "not exhaustive" $(ARGS)

test-exhaustive: lint type imports downloads ## Every outage at every point too; more than an hour
	@$(PYTEST) $(ARGS)

unit: lint type imports ## Checks, unit and property tests; no servers (ARGS=tests/unit/test_docs.py: these alone)
	@$(PYTEST) $(ORDER) $(call PATHS,tests/unit tests/property) $(ARGS)

properties: $(READY) ## Property tests with many random examples (ARGS='-k batch'); what fails becomes an example
	@$(PYTEST) -m "hypothesis and not services and not spark" --hypothesis-profile=random $(ARGS)

integration: downloads ## Tests on real servers (ARGS=tests/integration/test_sink.py: these alone)
	@$(PYTEST) $(call PATHS,tests/integration tests/conformance) $(ARGS)

soak: downloads ## A storm of faults over the whole line (ARGS='--seed 7 --minutes 20'); last line is JSON
	@$(BIN)/python -m tests.soak $(ARGS)

notebooks: downloads ## Execute every notebook; ends with the seconds of each
	@$(BIN)/python -m pytest -n 0 --durations=0 --durations-min=1 tests/notebooks $(ARGS)

downloads: $(READY) ## Fetch what the servers and Spark need; a second run fetches nothing
	@$(BIN)/changelog stack fetch

bench-capture: downloads ## Measure capture beside its limits (ARGS='--runs 1'); last line is JSON
	@$(BIN)/python -m benchmarks.capture $(ARGS)

bench-refresh: downloads ## Measure refreshes beside rebuilds (ARGS='--rows 200000'); last line is JSON
	@$(BIN)/python -m benchmarks.refresh $(ARGS)

bench-groups: downloads ## Measure groups of tables beside one slot (ARGS='--rows 100000'); last line is JSON
	@$(BIN)/python -m benchmarks.groups $(ARGS)

bench-load: downloads ## Measure bulk loads beside COPY of the same rows in a file (ARGS='--rows 500000'); last line is JSON
	@$(BIN)/python -m benchmarks.load $(ARGS)

bench-replay: downloads ## Measure rebuilds beside their limit (ARGS='--sizes 1,5'); last line is JSON
	@$(BIN)/python -m benchmarks.replay $(ARGS)

bench-start: downloads ## Measure how soon a start says something (ARGS='--runs 3'); last line is JSON
	@$(BIN)/python -m benchmarks.start $(ARGS)

bench-connect: downloads ## Measure one task of a sink beside COPY (ARGS='--rows 100000'); last line is JSON
	@$(BIN)/python -m benchmarks.connect $(ARGS)

bench-serve: downloads ## Measure how soon another worker goes on where one was killed (ARGS='--runs 3'); last line is JSON
	@$(BIN)/python -m benchmarks.serve $(ARGS)

bench-fresh: downloads ## Measure how soon changes are visible in followed views; last line is JSON
	@$(BIN)/python -m benchmarks.fresh $(ARGS)

bench-scale: downloads ## Measure a follower beside refreshes by Spark, by size (ARGS='--rows 1000000'); last line is JSON
	@$(BIN)/python -m benchmarks.scale $(ARGS)

bench-verify: $(READY) ## Measure comparisons of copies beside COPY (ARGS='--peer DIR' for reladiff too); last line is JSON
	@$(BIN)/python -m benchmarks.verify $(ARGS)

scoreboard: downloads ## Which pipelines' copies equal their source (ARGS='--only ours,debezium'); last line is JSON
	@$(BIN)/python -m benchmarks.scoreboard $(ARGS)

bench-views: downloads ## Measure sinks beside what their servers take (ARGS='--rows 100000'); last line is JSON
	@$(BIN)/python -m benchmarks.views $(ARGS)

lint: $(READY) ## ruff: rules and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

type: $(READY) ## mypy, strict
	@$(BIN)/mypy

imports: $(READY) ## import-linter: who may import whom (.importlinter)
	@$(BIN)/lint-imports

docs: $(READY) ## Check the documents: paths, commands and help texts exist
	@$(BIN)/python -m pytest -q tests/unit/test_docs.py tests/unit/test_site.py tests/unit/test_repository.py

pages: $(READY) ## Write the pages that are made of the code anew: settings, SQL, commands, exit codes, metrics, records
	@$(BIN)/python -m tests.support.compared_signatures
	@$(BIN)/python -m views.verify.sql.functions > docs/sql.md.new && mv docs/sql.md.new docs/sql.md
	@$(BIN)/python -m changelog.reference > docs/configuration.md.new && mv docs/configuration.md.new docs/configuration.md
	@$(BIN)/python -m scripts.pages

site: pages .venv-site/.ready ## Build the site of docs/ in site/, every broken link an error; read it without a network
	@NO_MKDOCS_2_WARNING=true DISABLE_MKDOCS_2_WARNING=true .venv-site/bin/mkdocs build -q --strict $(ARGS)
	@echo "site/index.html"

check: lint type imports docs ## Every check that runs no code of ours against servers

size: ## Count the lines of Python by folder; last line is JSON
	@$(BIN)/python scripts/size.py

lock: $(READY) ## Write the lock files anew from pyproject.toml (ARGS=--upgrade for newer versions)
	@scripts/lock $(ARGS)

sanitize: $(READY) ## Tests of the native part on a library with sanitizers (ARGS='-x -k fold')
	@$(BIN)/python -m tests.sanitized $(ARGS)

fuzz: $(READY) ## Hostile bytes for C, beside Python (ARGS='--seed 7 --seconds 600 stream'); exit 2: no sanitizers
	@$(BIN)/python -m tests.fuzz $(ARGS)

wheel: $(READY) ## Build a wheel in dist/; its name says which machines can open its library
	@$(BIN)/python -m pip wheel -q --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/*.whl

wheels: $(READY) ## Build wheels for x86-64 and ARM in dist/, by a compiler that comes as a wheel
	@scripts/wheels

ranges: downloads ## Test the lowest and the newest versions that pyproject.toml allows (ARGS=lowest); a quarter of an hour
	@scripts/ranges $(ARGS)

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

clean: ## Remove caches and build results; keeps .venv and the data of .stack
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist site *.egg-info
	find changelog replay views tests -name __pycache__ -type d -prune -exec rm -rf {} +

SETUP := requirements-bootstrap.lock requirements-compiler.lock pyproject.toml scripts/setup scripts/pip_settings.py \
		changelog/native/build.py $(wildcard changelog/native/src/*.[ch])

$(READY): requirements.lock $(SETUP)
	@scripts/setup
	@touch $@ $(RUNS)

$(RUNS): requirements-run.lock $(SETUP)
	@if [ -e $(READY) ]; then $(MAKE) --no-print-directory $(READY); else scripts/setup requirements-run.lock; fi
	@touch $@

.venv-site/.ready: requirements-site.lock $(READY)
	@$(BIN)/uv venv -q --clear --python $(BIN)/python .venv-site
	@VIRTUAL_ENV=.venv-site $(BIN)/uv pip sync -q --require-hashes requirements-site.lock
	@touch $@
