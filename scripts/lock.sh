#!/usr/bin/env bash
# Writes requirements/dev.lock: every package of the project, its extras and its development tools, with hashes and
# without the address of an index. Needs uv.
set -euo pipefail
cd "$(dirname "$0")/.."
uv pip compile pyproject.toml --all-extras --group dev --constraint requirements/constraints.txt \
  --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header \
  --custom-compile-command "make lock" --output-file requirements/dev.lock "$@"
