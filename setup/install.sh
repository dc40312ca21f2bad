#!/usr/bin/env bash
# Makes .venv hold exactly what requirements.lock says; `setup/install.sh spark` finds Java and fetches Spark's jars too.
# `setup/install.sh user` installs of it what commands, UI and servers need, without the tools of tests and rare extras.
#
# Small runs on one machine need no Spark (docs/operate/engines.md), and the first session of Spark fetches jars that are missing;
# set up beforehand, Spark starts some seconds sooner, with an archive of its classes.
#
# Needs Python 3.11+ alone: uv comes from the PATH, else from the pinned wheel in setup/uv.lock. Running it again is
# free while nothing changed; killing it at any moment is harmless, the next run goes on. On failure it says in one
# line what is missing and how to get it, and exits with status 2. Indexes and mirrors are those of pip's and uv's own
# settings; HEADRACE_PYTHON names another Python, HEADRACE_JARS and HEADRACE_IVY_SETTINGS see spark_jobs/lake/session/jars.py.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly OLDEST_UV=0.8.0 HEARTBEAT_SECONDS=20 NEEDED_GIB=9
readonly USER_EXTRAS=(explore html platform torch)
readonly CERTIFICATES=/etc/ssl/certs/ca-certificates.crt
readonly VENV=.venv TOOLS=.uv LOG=.uv/set-up.log
readonly STAMP=.venv/headrace-set-up USER_STAMP=.venv/headrace-user-set-up SPARK_STAMP=.venv/headrace-spark UNFINISHED=.venv/headrace-unfinished

say() { echo "set-up: $*"; }
fail() { echo "set-up: $*" >&2; exit 2; }

fingerprint() { { cat pyproject.toml requirements.lock setup/install.sh setup/uv.lock && pwd -P; } | sha256sum; }

spark_fingerprint() { { fingerprint && cat spark_jobs/lake/session/jars.lock; } | sha256sum; }

up_to_date() { [ -x "$VENV/bin/python" ] && [ "$(cat "$STAMP" 2>/dev/null)" = "$(fingerprint)" ]; }

user_up_to_date() { up_to_date || { [ -x "$VENV/bin/python" ] && [ "$(cat "$USER_STAMP" 2>/dev/null)" = "$(fingerprint)" ]; }; }

spark_up_to_date() { [ "$(cat "$SPARK_STAMP" 2>/dev/null)" = "$(spark_fingerprint)" ]; }

# Runs a command with its output in the log, a line now and then while it lasts, and its error in one line.
quietly() {
  local what=$1 status=0 pulse
  shift
  exec {pulse}> >(report_while_open "$what" 9>&-)
  "$@" >"$LOG" 2>&1 {pulse}>&- || status=$?
  exec {pulse}>&-
  [ "$status" -eq 0 ] || fail "$what failed: $(last_error)$(disk_hint) (all of it in $LOG)"
}

# Ends when standard input is closed, by whatever end of this script.
report_while_open() {
  local begin=$SECONDS status
  while true; do
    status=0
    read -r -t "$HEARTBEAT_SECONDS" || status=$?
    [ "$status" -gt 128 ] || return 0 # more than 128: nothing to read in that time
    say "  $1, $((SECONDS - begin)) s so far"
  done
}

last_error() {
  { grep -iE '^ *(error|e:|caused by)' "$LOG" || tail -n 1 "$LOG"; } | tail -n 1 | sed 's/^ *//' | cut -c1-240
}

disk_hint() {
  local free_gib
  free_gib=$(df -Pk . | awk 'NR == 2 {print int($4 / 1048576)}')
  [ "$free_gib" -ge "$NEEDED_GIB" ] || echo "; the disk has $free_gib GiB left and an installation takes about $NEEDED_GIB"
}

find_python() {
  local candidate
  for candidate in ${HEADRACE_PYTHON:+"$HEADRACE_PYTHON"} python3 python3.13 python3.12 python3.11 python3.14; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null; then
      "$candidate" -c 'import sys; print(sys.executable)'
      return
    fi
  done
  fail "needs Python 3.11 to 3.14, found $(python3 --version 2>/dev/null || echo none); get one with:" \
    "apt-get install python3.11 (or name one: HEADRACE_PYTHON=/path/to/python make ...)"
}

new_enough_uv() {
  local version
  version=$("$1" --version 2>/dev/null | cut -d' ' -f2)
  [ -n "$version" ] && [ "$(printf '%s\n' "$OLDEST_UV" "$version" | sort -V | head -n 1)" = "$OLDEST_UV" ]
}

# Leaves the path of a usable uv in $uv.
find_uv() {
  for uv in "$(command -v uv || true)" "$TOOLS/venv/bin/uv" "$TOOLS/site/bin/uv"; do
    if [ -n "$uv" ] && new_enough_uv "$uv"; then return; fi
  done
  if ! has_venv && ! "$python" -m pip --version >/dev/null 2>&1; then install_venv_module; fi
  say "fetching $(cut -d' ' -f1 setup/uv.lock | head -n 1)"
  if has_venv; then
    rm -rf "$TOOLS/venv"
    "$python" -m venv "$TOOLS/venv" >"$LOG" 2>&1 || fail "python -m venv failed: $(last_error)"
    uv=$TOOLS/venv/bin/uv
    quietly "fetching uv" "$TOOLS/venv/bin/python" -m pip install --quiet --no-deps --require-hashes -r setup/uv.lock
  else
    rm -rf "$TOOLS/site"
    uv=$TOOLS/site/bin/uv
    quietly "fetching uv" "$python" -m pip install --quiet --no-deps --require-hashes --target "$TOOLS/site" -r setup/uv.lock
  fi
}

has_venv() { "$python" -c 'import ensurepip, venv' 2>/dev/null; } # Debian ships venv without ensurepip

install_venv_module() {
  local package as_root
  package=python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv
  if [ "$(id -u)" -eq 0 ]; then as_root=(); elif sudo -n true 2>/dev/null; then as_root=(sudo -n); else
    fail "neither uv nor pip nor the venv module is here; get one with: sudo apt-get install $package"
  fi
  command -v apt-get >/dev/null || fail "neither uv nor pip nor the venv module is here; get $package from your distribution"
  say "installing $package"
  quietly "apt-get update" "${as_root[@]}" apt-get update
  quietly "apt-get install $package" "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$package"
}

# uv reads neither pip's index nor, by itself, the certificates that a company adds to the system's.
adopt_network_settings() {
  local index
  if [ -z "${SSL_CERT_FILE:-}" ] && [ -s "$CERTIFICATES" ]; then export SSL_CERT_FILE=$CERTIFICATES; fi
  if [ -n "${SSL_CERT_FILE:-}" ]; then export PIP_CERT=${PIP_CERT:-$SSL_CERT_FILE}; fi
  if [ -z "${UV_DEFAULT_INDEX:-}${UV_INDEX_URL:-}" ]; then
    index=${PIP_INDEX_URL:-$("$python" -m pip config get global.index-url 2>/dev/null || true)}
    if [ -n "$index" ]; then export UV_DEFAULT_INDEX=$index; fi
  fi
  export PIP_DISABLE_PIP_VERSION_CHECK=1 UV_NO_PROGRESS=1
}

# The scripts of a folder that was moved or copied name the Python of where it was made.
mend_scripts() {
  local old new from to script
  old=$(sed -n "s/^VIRTUAL_ENV='\(.*\)'$/\1/p" "$VENV/bin/activate" 2>/dev/null || true)
  new=$(pwd -P)/$VENV
  if [ -z "$old" ] || [ "$old" = "$new" ]; then return; fi
  case $new in *[[:space:]]*) rm -rf "$VENV"; return ;; esac # a script's first line cannot name such a path
  say "this folder was moved: the scripts of $VENV are told so"
  from=$(sed 's/[][\.*^$|]/\\&/g' <<<"$old") to=$(sed 's/[\&|]/\\&/g' <<<"$new")
  grep -rlIF "$old" "$VENV/bin" | while read -r script; do sed -i "s|$from|$to|g" "$script"; done
}

install_packages() {
  local pip=("$uv" pip install --python "$VENV/bin/python" --build-constraints requirements.lock)
  # A package that was cut off half-way can look installed, so what was not finished is made anew, out of uv's cache.
  if [ -e "$UNFINISHED" ] || ! "$VENV/bin/python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null; then
    rm -rf "$VENV"
    quietly "making $VENV" "$uv" venv --no-python-downloads --python "$python" "$VENV"
  fi
  touch "$UNFINISHED"
  if [ "$1" = user ]; then
    say "installing what users need: 1.1 GB beside torch, which has 4.6 GB with CUDA"
    # Versions and hashes are those of the lock; an extra brings what it needs alone. Python compiles what is imported,
    # a third of it: the whole takes a quarter of the time and .36 GB.
    quietly "installing packages" "${pip[@]}" --require-hashes -r pyproject.toml \
      "${USER_EXTRAS[@]/#/--extra=}" --constraint requirements.lock
    rm -rf "$VENV"/lib/python*/site-packages/pyspark/{data,examples,jars} # .45 GB that Sail does without
  else
    say "installing the packages of requirements.lock, 8.6 GB of which half is torch with CUDA"
    quietly "installing packages" "${pip[@]}" --compile-bytecode --require-hashes -r requirements.lock $(spark_anew)
  fi
  quietly "installing headrace" "${pip[@]}" --no-deps --editable .
  rm "$UNFINISHED"
}

# What a user's installation left out of PySpark comes back with a developer's, which make setup-spark makes too.
spark_anew() {
  local pyspark
  for pyspark in "$VENV"/lib/python*/site-packages/pyspark; do
    if [ -d "$pyspark" ] && [ ! -d "$pyspark/jars" ]; then echo --reinstall-package pyspark; fi
  done
}

# Waits until no other set-up works in this directory.
alone() {
  mkdir -p "$TOOLS"
  exec 9>"$TOOLS/lock"
  if command -v flock >/dev/null && ! flock --nonblock 9; then
    say "waiting for another set-up in this directory"
    flock 9
  fi
}

stamp() {
  "$1" >"$2.new"
  mv "$2.new" "$2"
  say "ready after $SECONDS s"
}

set_up() {
  python=$(find_python)
  adopt_network_settings
  find_uv
  say "$("$python" --version), $("$uv" --version | cut -d' ' -f1,2)"
  mend_scripts
  install_packages "$1"
  say "compiling kernels, about half a minute"
  quietly "compiling kernels" "$VENV/bin/python" -m spark_jobs.rehearsal
  quietly "compiling kernels" "$VENV/bin/python" -c 'from blender_service.server.server import compile_kernels; compile_kernels()'
  if [ "$1" = user ]; then stamp fingerprint "$USER_STAMP"; else stamp fingerprint "$STAMP"; fi
}

set_up_spark() {
  "$VENV/bin/python" -m spark_jobs.lake.session.java || exit 2
  "$VENV/bin/python" -m spark_jobs.lake.session.jars || exit 2
  say "archiving the classes of Spark, under a minute"
  quietly "archiving classes" archive_classes
  stamp spark_fingerprint "$SPARK_STAMP"
}

# Without the archive all works, only later, so a Java that cannot make one ends no set-up.
archive_classes() { "$VENV/bin/python" -m spark_jobs.lake.session.class_archive || true; }

case $* in '' | user | spark) ;; *) fail "setup/install.sh $*: write user, spark, or nothing for all packages" ;; esac
if [ "${1:-}" = user ]; then
  user_up_to_date || { alone; user_up_to_date || set_up user; }
  exit
fi
up_to_date || { alone; up_to_date || set_up all; }
[ "${1:-}" != spark ] || spark_up_to_date || { alone; spark_up_to_date || set_up_spark; }
