PYTHON ?= python3

.DEFAULT_GOAL := help
.PHONY: help install lint types docs licenses audit test test-fast engines demo bench nightly

help:  ## Show the commands.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install:  ## Install the platform and what its tests and benchmarks need.
	$(PYTHON) -m pip install -e '.[test,docs,dev]'

lint:  ## Check style and format.
	ruff check
	ruff format --check

types:  ## Check types.
	mypy

docs:  ## Build the site of docs/ into build/site, and check its links.
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict

licenses:  ## List the licences of the installed libraries.
	pip-licenses --order=license

audit:  ## Look for known vulnerabilities of the installed libraries.
	pip-audit --local --skip-editable --vulnerability-service osv

test:  ## Run all tests (Java 17 or later, and the Spanner emulator).
	pytest

test-fast:  ## Run the tests that need neither Spark nor the emulator.
	pytest -m 'not integration'

engines:  ## Read every cut with Trino and Flink (Maven, 0.8 GB of jars, TRINO_JAVA_HOME names a JDK 25).
	pytest -n0 cdc_platform_tests/test_engines.py

demo:  ## Start the demo with its UI.
	cdc-platform demo

bench:  ## Run most benchmarks once (many hours; docs/benchmarks.md has the single commands, and the others).
	@for name in decode merge small_commits cycle growth partitions generations latency round_trips copy datastream unavailable log_length dashboard traffic soak; do \
		$(PYTHON) -m benchmarks.$$name || exit 1; \
	done

# All of them run, also after one has found something.
NIGHTLY = "crash_points --processes 2 --minutes 55 --singly 0 --pairs 1 --checked-every 8" \
	"crash_points --processes 2 --failing full --minutes 15" \
	"crash_points --processes 2 --failing read_only --minutes 15" \
	"crash_points --processes 2 --failing broken --minutes 15" \
	"crash_points --processes 2 --failing refused --minutes 15" \
	"crash_points --processes 2 --overtaken published --minutes 30" \
	"crash_points --processes 2 --overtaken ordered --minutes 30" \
	"kill --during all --kills 25" "kill --source datastream --kills 10" "pauses --rate 10" \
	"storage --storage s3 --minutes 20 --share 0.01" \
	"storage --storage postgresql --minutes 20 --share 0.003" \
	"storage --storage rest --minutes 20 --share 0.05" "clocks --minutes 6" \
	"clocks --workload datastream_history --minutes 4" "clocks --workload debezium_enrich_files --minutes 4"

nightly:  ## Inject faults into pipelines (five to six hours; docs/reliability.md has two longer runs).
	@failed=; for run in $(NIGHTLY); do \
		echo "python -m benchmarks.$$run"; $(PYTHON) -m benchmarks.$$run || failed="$$failed\n$$run"; \
	done; [ -z "$$failed" ] || { printf "failed:$$failed\n"; exit 1; }
