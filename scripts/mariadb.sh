#!/usr/bin/env bash
# Looks for MariaDB, of which `make long` starts servers of its own. Without it these tests are skipped and say so.
set -euo pipefail

if ! PATH="$PATH:/usr/sbin:/opt/homebrew/bin" command -v mariadbd >/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "MariaDB is missing: installing it from the system's packages, for the tests."
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends mariadb-server >/dev/null
  else
    echo "The tests of MySqlSource are skipped: there is no MariaDB. Install it with" >&2
    echo "'sudo apt-get install mariadb-server' (Debian, Ubuntu) or 'brew install mariadb' (macOS)." >&2
  fi
fi
