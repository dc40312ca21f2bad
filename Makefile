# Every command sets up what it needs first; that is free while pyproject.toml and the locks have not changed.
PYTHON := .venv/bin/python
# Files are given out in the order of tests/conftest.py, the long ones first; xdist would begin with the fullest.
PYTEST := $(PYTHON) -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder
# Every test runs on Sail, which starts in no time; what is about Spark's side of a seam then runs on Spark, in one process.
ON_SPARK = HEADRACE_ENGINE=spark $(PYTHON) -m pytest -m "spark and not (nightly or gpu or network)" $$(grep -rlwE --include='test_*.py' '(on|needs)_spark' tests)
ARGS ?=
SMALL ?=
# One benchmark after the other, also after one that fails; the last line says which did.
run-benchmarks = failed=; for file in $(patsubst %,benchmarks/bench_%.py,$(1)); do echo "== $$file"; $(PYTHON) $$file $(SMALL) || failed="$$failed $$file"; done; \
	if [ "$$failed" ]; then echo "$@: failed:$$failed"; exit 1; fi
# Where a machine's image sets it, every process of a run would compile all modules and all tests again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup setup-user setup-spark demo experiment test test-all lint format docs bench bench-blender bench-dedup bench-explore bench-filters bench-ingest bench-pipeline lock protos ui serve clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | LC_ALL=C sort -t: -k1,1 | sed -E 's/^([a-z-]+):.*## (.*)/make \1\t\2/' | expand -t 18

setup-user: ## install what users need into .venv, without the tools of tests and rare extras
	@setup/install.sh user

setup: ## install all packages into .venv
	@setup/install.sh

setup-spark: ## what runs on Spark need too: Java if there is none, jars
	@setup/install.sh spark

demo: setup-user ## build a lake from files on this machine, train on it over gRPC (ARGS= for headrace demo)
	@.venv/bin/headrace demo $(ARGS)

experiment: setup ## filtered against raw: twenty small models on texts of this machine, ten minutes (docs/feed/experiments.md)
	@$(PYTHON) examples/experiment.py

test: lint setup-spark ## all checks and the tests of the default tier (ARGS= for pytest)
	@$(if $(findstring tests/,$(ARGS)),$(PYTEST) $(ARGS),HEADRACE_ENGINE=sail $(PYTEST) $(ARGS); sail=$$?; $(ON_SPARK) $(ARGS) && exit $$sail)

test-all: lint setup-spark ## all checks and all tests on Spark, on Sail those of the nightly tier (ARGS= for pytest)
	@HEADRACE_ENGINE=spark $(PYTEST) -m "not gpu and not network" --hypothesis-profile=nightly -o faulthandler_timeout=3600 $(ARGS); spark=$$?; \
	HEADRACE_ENGINE=sail $(PYTEST) -m "nightly and not gpu and not network" -o faulthandler_timeout=3600 $(ARGS) && exit $$spark

lint: setup ## style, types and the layers between packages
	@$(PYTHON) -m ruff check --quiet .
	@$(PYTHON) -m ruff format --quiet --check . || { echo "make lint: files are not formatted; run: make format"; exit 1; }
	@$(PYTHON) -m mypy --no-error-summary
	@.venv/bin/lint-imports --no-logo > .venv/lint-imports.log || { cat .venv/lint-imports.log; exit 1; }

format: setup ## format the code and mend what ruff can mend
	@$(PYTHON) -m ruff check --quiet --fix . ; $(PYTHON) -m ruff format --quiet .

docs: setup ## the documentation as a site in site/; a broken link or a page that nothing leads to is an error
	@$(PYTHON) -m docs.pictures
	@NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --quiet --strict

bench: setup-spark ## the benchmarks, one table each (ARGS=text for bench_text.py alone, SMALL=--small for little data)
	@$(call run-benchmarks,$(or $(ARGS),$(patsubst benchmarks/bench_%.py,%,$(sort $(wildcard benchmarks/bench_*.py)))))

bench-blender: setup ## Blender: order, chains of updates, one stream beside raw gRPC, seeks, memory (ARGS= for --part, --peers)
	@$(PYTHON) benchmarks/bench_blender.py $(ARGS)

bench-pipeline: setup-spark ## files to packed windows, step by step: fixed seconds and seconds a MB (ARGS= for --sizes, --pieces)
	@$(PYTHON) benchmarks/bench_pipeline.py $(ARGS)

bench-filters: setup-spark ## scorers on Spark and one by one (ARGS= for --sizes); peers: each benchmarks/bench_filters_*.py says how
	@$(if $(ARGS),$(PYTHON) benchmarks/bench_filters.py $(ARGS),$(call run-benchmarks,filters $(addprefix filters_,heuristics models ngrams profanity personal contamination policies) clusters))

bench-ingest: setup-spark ## files, pages, web archives, git, archives, texts, scans, an API to rows (ARGS= for bench_ingest.py: --peer)
	@$(if $(ARGS),$(PYTHON) benchmarks/bench_ingest.py $(ARGS),$(call run-benchmarks,ingest $(addprefix ingest_,git texts ocr api archives)))

bench-dedup: setup-spark ## deduplication: quality against all pairs, speed, scale, kernels, features and other tools (ARGS= for --part)
	@$(if $(ARGS),$(PYTHON) benchmarks/bench_dedup.py $(ARGS),$(call run-benchmarks,dedup dedup_kernels dedup_features repositories))

bench-explore: setup ## the explorer in a browser: every page of 10 million planted rows, the index of 1 GB of text (ARGS= for --rows, --lake)
	@$(PYTHON) benchmarks/bench_explore.py $(ARGS)

lock: setup ## solve requirements.lock again after a change in pyproject.toml (ARGS=--upgrade for newer versions)
	@$(PYTHON) setup/lock.py $(ARGS)

protos: setup ## generate the Python of protos/ again
	@$(PYTHON) protos/generate.py

ui: setup-user ## Dagster on this lake, in the browser
	@.venv/bin/headrace ui $(ARGS)

serve: setup-user ## Blender on this lake
	@.venv/bin/headrace serve $(ARGS)

clean: ## remove the set-up and all caches; lakes stay
	@rm -rf .venv .uv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist site
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
