#!/usr/bin/env bash
# Makes .venv from the lock file and looks for Java. Does nothing when both are already right.
set -euo pipefail
cd "$(dirname "$0")/.."

python="${PYTHON:-python3}"
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  echo "Tidegauge needs Python 3.11 or newer; '$python' is $("$python" --version 2>&1 || echo missing)." >&2
  echo "Install one, or name it: make PYTHON=/path/to/python3.12 ..." >&2
  exit 1
fi

java_major() { # prints the major version of the java that Spark would use, or 0
  local java="java"
  [ -n "${JAVA_HOME:-}" ] && java="$JAVA_HOME/bin/java"
  "$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -1 | grep . || echo 0
}
if [ "$(java_major)" -lt 17 ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "Java 17 is missing: installing it from the system's packages."
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq openjdk-17-jre-headless >/dev/null ||
      DEBIAN_FRONTEND=noninteractive apt-get install -y -qq default-jre-headless >/dev/null
  fi
  if [ "$(java_major)" -lt 17 ]; then
    echo "Tidegauge needs Java 17 or newer for Spark; found: $(java_major)." >&2
    echo "Install it: 'sudo apt-get install openjdk-17-jre-headless' (Debian, Ubuntu), 'brew install openjdk@17' (macOS)," >&2
    echo "or set JAVA_HOME to one that is there." >&2
    exit 1
  fi
fi

# Tests of rotated logs run the real program where it is there.
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && ! command -v logrotate >/dev/null && [ ! -x /usr/sbin/logrotate ]; then
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq logrotate >/dev/null 2>&1 || true
fi

stamp=".venv/.installed" begun=".venv/.installing"
wanted="$(cat requirements/dev.lock pyproject.toml | sha256sum | cut -d' ' -f1)"
if [ "$(cat "$stamp" 2>/dev/null || true)" != "$wanted" ]; then
  if [ -e "$begun" ] || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    "$python" -m venv --clear .venv # there is none, or an installation was interrupted: nothing in it is relied on
  fi
  touch "$begun"
  echo "Installing what the lock file names into .venv (about a minute, once)."
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
  echo "$wanted" >"$stamp"
  rm "$begun"
fi
