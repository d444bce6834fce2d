#!/usr/bin/env bash
# Looks for PostgreSQL and PgBouncer, of which the tests start servers of their own. Without them they are skipped and say so.
set -euo pipefail

newest() { # prints the major version of the newest server of this machine, or 0
  { ls -d /usr/lib/postgresql/*/bin/initdb /usr/pgsql-*/bin/initdb /opt/homebrew/opt/postgresql@*/bin/initdb \
    "$(command -v initdb || true)" 2>/dev/null || true; } |
    while read -r initdb; do "$initdb" --version | sed 's/[^0-9]*\([0-9]*\).*/\1/'; done | sort -n | tail -1 | grep . || echo 0
}
if [ "$(newest)" -lt 15 ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "PostgreSQL is missing: installing it from the system's packages, for the tests."
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq postgresql >/dev/null
  else
    echo "The tests of the store on PostgreSQL are skipped: there is no PostgreSQL 15 or newer. Install it with" >&2
    echo "'sudo apt-get install postgresql' (Debian, Ubuntu) or 'brew install postgresql@17' (macOS)." >&2
  fi
fi
if ! PATH="$PATH:/usr/sbin" command -v pgbouncer >/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "PgBouncer is missing: installing it from the system's packages, for the tests."
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends pgbouncer >/dev/null
  else
    echo "The test of the store behind PgBouncer is skipped: there is none. Install it with" >&2
    echo "'sudo apt-get install pgbouncer' (Debian, Ubuntu) or 'brew install pgbouncer' (macOS)." >&2
  fi
fi
