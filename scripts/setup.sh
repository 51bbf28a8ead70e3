# Sourced by scripts/test and scripts/demo: makes .venv and installs the project into it.
# Needs python3 >= 3.11 with pip on PATH, and a package index that pip can reach.

fail() {
  printf 'scripts/%s: %s\n' "${0##*/}" "$1" >&2
  exit 2
}

heading() { printf '\n=== %s ===\n' "$1"; }

# Creates .venv where it is absent or broken.
ensure_venv() {
  # The script, not the module: its first line names a folder, and fails once that was moved.
  if .venv/bin/pip --version >/dev/null 2>&1; then return; fi
  rm -rf .venv
  # A Python without ensurepip still has a pip of its own that can install into a bare environment.
  if ! python3 -m venv .venv >/dev/null 2>&1; then
    rm -rf .venv
    python3 -m venv --without-pip .venv || fail "python3 -m venv does not work here"
    python3 -m pip --python .venv/bin/python install --quiet 'pip>=25.1' ||
      fail "python3 -m pip cannot install into .venv"
  fi
}

# install NAME ARGUMENTS…: pip install ARGUMENTS, unless that was done for this pyproject.toml here.
install() {
  local name=$1 stamp=.venv/installed-$1 wanted
  shift
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    fail "python3 on PATH must be Python 3.11 or newer ($(python3 --version 2>&1 | tail -n 1))"
  wanted="$(cksum <pyproject.toml) $PWD"
  if [[ -f $stamp && "$(<"$stamp")" == "$wanted" ]]; then return; fi
  heading "install ($name)"
  rm -f "$stamp"
  ensure_venv
  # --group came with pip 25.1.
  .venv/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
  .venv/bin/python -m pip install --quiet "$@"
  printf '%s\n' "$wanted" >"$stamp"
}
