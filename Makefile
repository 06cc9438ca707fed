# Two commands do all: `make bench` and `make test`. `make help` lists the rest.
GO       ?= go
VM       ?= auto
# Inputs, not seconds: at the end of a time Go's fuzzing engine now and then fails
# with "context deadline exceeded" (it compares two contexts of which one ends later).
FUZZTIME ?= 2000x
# Of one package: it ends a hang, on a machine with other work as well.
LIMIT    ?= 40m
RACEPKGS ?= ./...
OUT      ?= out
export GOFLAGS := -buildvcs=false $(GOFLAGS)

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: build deps test abi unit bench lint race nocgo cross test32 portable fuzz softroce softroce-selftest softroce-perf launchers clean help

SOFTROCE = SOFTROCE_CMD=$(1) tests/softroce/run


build: ## build every package, and the commands into bin/
	@mkdir -p bin
	$(GO) build ./...
	$(GO) build -o bin/ ./cmd/...

deps: ## install the packages everything needs (Debian, Ubuntu; as root)
	@missing="$$($(call SOFTROCE,packages) -missing) $$(tests/launchers/run -missing)"; missing=$$(echo $$missing); \
	if [ -z "$$missing" ]; then echo "deps: all packages are there"; exit 0; fi; \
	if ! command -v apt-get >/dev/null; then echo "deps: not a Debian or Ubuntu: install what these packages hold: $$missing" >&2; exit 1; fi; \
	if [ "$$(id -u)" != 0 ]; then echo "deps: not root; run: sudo apt-get install -y --no-install-recommends $$missing" >&2; exit 1; fi; \
	export DEBIAN_FRONTEND=noninteractive; \
	apt-get update -qq && apt-get install -y -qq --no-install-recommends $$missing

# Device tests run where a device is: only the softroce part demands one.
test: ## everything: lint, unit, race, nocgo, fuzz and, in a VM, the device tests
	@start=$$SECONDS; unset MAKELEVEL; \
	for t in lint unit race nocgo fuzz launchers; do \
	  printf '\n==== make %s (%ds)\n' $$t $$((SECONDS-start)); \
	  env -u RMA_REQUIRE_RDMA $(MAKE) --no-print-directory $$t; \
	done; \
	missing=$$($(call SOFTROCE,packages) -missing common qemu build); \
	if [ -n "$$missing" ] && [ "$${RMA_REQUIRE_RDMA:-}" = 1 ] && [ "$$(id -u)" = 0 ]; then $(MAKE) --no-print-directory deps; missing=; fi; \
	if [ -z "$$missing" ] || [ "$${RMA_REQUIRE_RDMA:-}" = 1 ]; then \
	  for t in abi softroce-selftest softroce; do \
	    printf '\n==== make %s (%ds)\n' $$t $$((SECONDS-start)); \
	    $(MAKE) --no-print-directory $$t VM=$(VM); \
	  done; \
	  printf '\n==== make test: all passed in %ds\n' $$((SECONDS-start)); \
	else \
	  printf '\n==== make test: passed in %ds, but NOT RUN: the tests on RDMA devices. Packages are missing; run\n' $$((SECONDS-start)); \
	  printf '     apt-get install -y --no-install-recommends %s\n' "$$missing"; \
	fi

unit: ## the tests of all packages, metrics/, examples/grpc/ and bench/peers/ included, in random order
	$(GO) test -timeout $(LIMIT) -shuffle=on ./...
	cd metrics && $(GO) test -timeout $(LIMIT) -shuffle=on ./...
	cd examples/grpc && $(GO) test -timeout $(LIMIT) -shuffle=on ./...
	cd bench/peers && $(GO) test -timeout $(LIMIT) -shuffle=on ./...

lint: ## gofmt, go vet, and golangci-lint if it is installed
	@bad=$$(git ls-files -z -co --exclude-standard '*.go' | xargs -0 -r gofmt -l); \
	if [ -n "$$bad" ]; then echo "gofmt these:" $$bad >&2; exit 1; fi
	$(GO) vet ./...
	$(GO) mod verify
	cd metrics && $(GO) vet ./... && $(GO) mod tidy -diff
	cd examples/grpc && $(GO) vet ./... && $(GO) mod tidy -diff
	cd bench/peers && $(GO) vet ./... && $(GO) mod tidy -diff
	@if command -v golangci-lint >/dev/null; then golangci-lint run ./... && (cd metrics && golangci-lint run ./...) && (cd bench/peers && golangci-lint run ./...); \
	else echo "lint: golangci-lint is not installed, its checks were not run (gofmt, vet and internal/lint were)"; fi

# A process under the race detector sleeps a second before it exits, and tests
# start many: let it be short.
race: export GORACE := atexit_sleep_ms=20
# shmipc-go closes a session while its reader may still look: its program is left out.
race: ## all tests under the race detector
	@if [ "$$($(GO) env CGO_ENABLED)" = 1 ] && command -v "$$($(GO) env CC)" >/dev/null; then \
	  set -x; $(GO) test -timeout $(LIMIT) -race -shuffle=on $(RACEPKGS); (cd metrics && $(GO) test -timeout $(LIMIT) -race ./...); (cd bench/peers && $(GO) test -timeout $(LIMIT) -race ./play/... ./cmd/rmapeer-net ./cmd/rmapeer-grpc); \
	elif [ "$${RMA_REQUIRE_RDMA:-}" = 1 ]; then echo "race: needs a C compiler: apt-get install -y gcc libc6-dev" >&2; exit 1; \
	else echo "race: NOT RUN: needs a C compiler: apt-get install -y gcc libc6-dev"; fi

nocgo: ## build and test without cgo: shm, tcp and sim must do
	CGO_ENABLED=0 $(GO) build ./...
	CGO_ENABLED=0 $(GO) vet ./...
	CGO_ENABLED=0 $(GO) test -timeout $(LIMIT) -shuffle=on ./...

# Systems beside this one that the module builds for. Links work on linux; elsewhere
# what cannot says so when it is opened.
CROSS ?= linux/amd64 linux/arm64 linux/386 linux/s390x darwin/arm64 freebsd/amd64 windows/amd64

cross: ## build and vet for other systems and processors, tests included
	@for t in $(CROSS); do \
	  echo "cross $$t"; \
	  export CGO_ENABLED=0 GOOS=$${t%/*} GOARCH=$${t#*/}; \
	  $(GO) build ./... && $(GO) vet ./... || { echo "cross: $$t failed" >&2; exit 1; }; \
	done

test32: ## the tests where int and pointers have 32 bits (linux/386, on amd64)
	CGO_ENABLED=0 GOARCH=386 $(GO) test -timeout $(LIMIT) -shuffle=on . ./eager ./fabric/... ./flowctl ./gather ./verbs ./internal/event ./internal/offheap ./internal/progress ./internal/wireup

portable: ## the tests of tcp with the system calls of macOS and FreeBSD
	CGO_ENABLED=0 $(GO) test -timeout $(LIMIT) -shuffle=on -tags rma_portable ./fabric/tcp

# One instrumented test binary a package, not one a target; minimising an input that
# was merely interesting may take longer than the search itself, so it is bounded.
fuzz: ## every fuzz target over its corpus, then FUZZTIME=2000x new inputs each
	@tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; start=$$SECONDS; \
	git grep --untracked -o '^func Fuzz[[:alnum:]_]*' -- '*_test.go' | sed -E 's,^,./,; s,/[^/]*:func , ,' | sort >"$$tmp/targets"; \
	while read -r dir name; do \
	  bin=$$tmp/$${dir//\//_}.test; \
	  [ -e "$$bin" ] || $(GO) test -c -fuzz=. -o "$$bin" "$$dir"; \
	  echo "fuzz $$dir $$name"; \
	  (cd "$$dir" && "$$bin" -test.run='^$$' -test.fuzz="^$$name\$$" -test.fuzztime=$(FUZZTIME) -test.fuzzminimizetime=5x \
	    -test.fuzzcachedir="$$($(GO) env GOCACHE)/fuzz/$${dir#./}"); \
	done <"$$tmp/targets"; \
	echo "fuzz: $$(wc -l <"$$tmp/targets") targets in $$((SECONDS-start))s"

launchers: ## jobs under mpirun (Open MPI, MPICH) and srun, for real
	@missing=$$(tests/launchers/run -missing); \
	if [ -z "$$missing" ] || [ "$${RMA_REQUIRE_LAUNCHERS:-}" = 1 ]; then tests/launchers/run; \
	else echo "launchers: NOT RUN: packages are missing; run"; \
	  echo "  apt-get install -y --no-install-recommends $$missing"; fi

abi: ## verbs' own header against <infiniband/verbs.h> and libibverbs
	RMA_REQUIRE_RDMA=1 $(GO) test -count=1 -run '^Test(ABI|SymbolVersions|SystemLibrary)' ./verbs

softroce: ## device tests on real SoftRoCE (VM=native|qemu|uml; PKGS=... ARGS=...)
	@$(call SOFTROCE,suite) -vm $(VM) $(ARGS) $(PKGS)

softroce-selftest: ## the harness's own promises: exit codes, time-outs, nothing left behind
	@RMA_SOFTROCE_SELFTEST=$(VM) $(GO) test -count=1 -run '^TestHarness' ./tests/softroce

softroce-perf: build ## perftest beside rmabench in one boot (VM=uml for figures; ARGS=...)
	@$(call SOFTROCE,perftest) -vm $(VM) $(ARGS)

bench: build ## latency, bandwidth and rate of every link; report with plots in out/
	@mkdir -p $(OUT)
	bin/rmabench report --out $(OUT)/
	@if ls /sys/class/infiniband/* >/dev/null 2>&1; then exit 0; fi; \
	missing=$$($(call SOFTROCE,packages) -missing common qemu build); \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then $(MAKE) --no-print-directory deps build; missing=; fi; \
	if [ -n "$$missing" ]; then \
	  echo "bench: verbs NOT MEASURED: no RDMA device here, and for a VM that has one packages are missing; run"; \
	  echo "  apt-get install -y --no-install-recommends $$missing"; exit 0; fi; \
	echo "bench: no RDMA device here: measuring verbs in a VM (emulated: compare within it only)"; \
	tests/softroce/run -vm $(VM) -timeout 15m -out $(OUT) -- bin/rmabench report --fabrics verbs --format json --out $(OUT)/verbs.jsonl; \
	bin/rmabench report --fabrics none --add $(OUT)/results.jsonl --add $(OUT)/verbs.jsonl --out $(OUT)/

clean: ## remove bin/, out/ and the harness's cached kernels
	rm -rf bin $(OUT)
	@$(call SOFTROCE,clean)

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
