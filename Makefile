# The two commands: `make up` (a live desk) and `make test` (every test). The rest is in `make help`.

.DEFAULT_GOAL := help
.PHONY: help up down build dashboard templates test test-rust test-client test-fleet test-chaos test-dialects test-mcp test-dashboard test-gce test-clouds test-conformance test-conformance-all test-k8s bench bench-scale lint fmt fuzz clean

CARGO ?= cargo

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 26

up: ## Set everything up, start a fleet and one desk; prints its address
	@scripts/setup run
	@$(MAKE) --no-print-directory build
	@target/release/hotdesk up

down: ## Stop what `make up` started
	@target/release/hotdesk down

build: dashboard ## Build the binary
	@$(CARGO) build --release --locked -p hotdesk

dashboard: ## Build the page that is embedded in the binary
	@scripts/dashboard

templates: ## Build the root file systems that tests and benchmarks use
	@target/release/hotdesk template build bare base code desktop

test: ## Set everything up and run every test
	@scripts/setup test
	@scripts/criu >/dev/null || true   # without it, running desks can't be forked, and the tests of that say so
	@scripts/s3 setup
	@$(MAKE) --no-print-directory dashboard
	@# Everything at once: the same choice of features as the tests have, so nothing is built twice.
	@$(CARGO) build --release --locked --workspace --all-targets
	@$(MAKE) --no-print-directory templates
	@$(MAKE) --no-print-directory test-rust
	@$(MAKE) --no-print-directory test-client
	@$(MAKE) --no-print-directory test-fleet
	@scripts/together "test-dialects test-mcp test-dashboard" "test-gce test-clouds"
	@$(MAKE) --no-print-directory test-conformance

test-rust: ## Unit and integration tests
	@scripts/test-rust

test-client: ## OSWorld's own client from PyPI against a desk
	@scripts/test-client

test-fleet: ## A whole fleet from outside: life, API, keys, chaos, OSWorld's DesktopEnv
	@scripts/test-fleet

test-chaos: ## Two minutes of kill -9 instead of half a minute
	@HOTDESK_CHAOS_SECONDS=120 scripts/test-fleet test_chaos.py

test-dialects: ## Daytona's and E2B's SDKs from PyPI, as they are, on a fleet
	@scripts/test-dialects

test-mcp: ## The MCP client from PyPI, and computer-use models' actions, on a fleet
	@scripts/test-mcp

test-dashboard: ## The dashboard in a real browser; pictures of its pages end up in target/dashboard-shots
	@scripts/test-dashboard

test-gce: ## Desks at Google, against a stand-in made from Google's description of its API
	@scripts/test-gce

test-clouds: ## Desks at Daytona and E2B, against servers made from their own descriptions
	@scripts/test-clouds

test-conformance: ## The conformance suites, where they are at hand
	@scripts/test-conformance

test-conformance-all: ## The same with older SDKs, timers of minutes and images that are built: an hour
	@HOTDESK_CONFORMANCE_LONG=1 scripts/test-conformance
	@SDK=2.20.3 scripts/test-e2b

test-k8s: ## Real desks on three nodes of a cluster of our own, one of them killed; the scale run in small (root; builds Kubernetes once)
	@scripts/setup kubernetes
	@$(CARGO) build --release --locked --workspace --examples --bins
	@scripts/kubernetes build
	@target/release/hotdesk template build bare
	$(CARGO) test --release --locked --workspace --lib kubernetes
	@scripts/test-kubernetes

bench: dashboard ## Run us and the plain Python way side by side; prints medians and ratios
	@scripts/setup bench
	@$(CARGO) build --release --locked -p hotdesk -p hotdesk-bench
	@bench/run $(BENCH)
	@$(MAKE) --no-print-directory templates
	@bench/fleet $(BENCH_FLEET)
	@bench/disk $(BENCH_DISK)
	@bench/vm
	@bench/view
	@bench/dialects $(BENCH_DIALECTS)

bench-scale: ## 5,000 desks on simulated nodes through a fleet, with losses; draws docs/scale.svg (root; 5 minutes)
	@scripts/setup kubernetes
	@$(CARGO) build --release --locked --workspace --examples --bins
	@scripts/kubernetes build
	@PYTHONPATH=python $$(scripts/python-env tests/fleet) tests/kubernetes/scale.py --out docs/scale.json $(BENCH_SCALE)
	@tests/kubernetes/plot.py docs/scale.json docs/scale.svg docs/scale.md

lint: ## Formatting, clippy, licences
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --locked --workspace --all-targets -- -D warnings
	@scripts/deny

fmt: ## Format the code
	$(CARGO) fmt --all

fuzz: ## Fuzz each entrance for a minute (needs a nightly toolchain and cargo-fuzz)
	@scripts/fuzz

clean: ## Remove what was built
	$(CARGO) clean
