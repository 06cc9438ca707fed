# Two commands do all: make bench, make test. See make help.
GO ?= go
export GOFLAGS := -buildvcs=false $(GOFLAGS)

.DEFAULT_GOAL := help
.PHONY: build test help

build: ## build bin/
	$(GO) build ./...

test: ## all tests
	$(GO) test ./...

help: ## this list
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
