#!/usr/bin/env bash
# Make .venv from the lock file, with any Python of 3.12 or newer that is found here. Safe to run again.
#   PYTHON=/path/to/python3.13 tools/setup.sh   to choose the interpreter of a new .venv (`make clean` takes the old one away)
set -euo pipefail
cd "$(dirname "$0")/.."

new_enough() { "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 12))' >/dev/null 2>&1; }

find_python() {
  local candidate
  if [ -n "${PYTHON:-}" ]; then
    new_enough "$PYTHON" && { echo "$PYTHON"; return; }
    echo "setup: PYTHON=$PYTHON does not run, or is no Python of 3.12 or newer with venv" >&2
    exit 1
  fi
  for candidate in python3.13 python3.12 python3.14 python3 python \
    "${HOME:-/nonexistent}"/.pyenv/versions/3.1[2-9]*/bin/python \
    "${HOME:-/nonexistent}"/.local/share/uv/python/cpython-3.1[2-9]*/bin/python \
    /opt/homebrew/bin/python3 /usr/local/bin/python3; do
    if candidate=$(command -v "$candidate" 2>/dev/null) && new_enough "$candidate"; then
      echo "$candidate"
      return
    fi
  done
  {
    echo "setup: no Python of 3.12 or newer (with venv) was found."
    echo "setup: install one (python.org, your package manager, \`pyenv install 3.13\`, or \`uv python install 3.13\`),"
    echo "setup: or name one: PYTHON=/path/to/python3.13 make test"
  } >&2
  exit 1
}

if ! { [ -x .venv/bin/python ] && new_enough .venv/bin/python; }; then
  python=$(find_python)
  echo "setup: .venv from $("$python" --version)"
  rm -rf .venv
  "$python" -m venv .venv
fi

uv_version=$(sed -n '/^name = "uv"$/{n;s/version = "\(.*\)"/\1/p;q;}' uv.lock)
if [ "$(.venv/bin/uv --version 2>/dev/null | cut -d' ' -f2)" != "$uv_version" ]; then
  .venv/bin/python -m pip install --quiet --disable-pip-version-check "uv==$uv_version"
fi

# Trust what the system trusts, where it says so: a company's own CA is often only there.
for bundle in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do
  if [ -s "$bundle" ]; then export UV_SYSTEM_CERTS="${UV_SYSTEM_CERTS:-1}"; fi
done

# uv sets the environment to exactly what uv.lock says; the interpreter is the one found above, never a download.
UV_PYTHON_DOWNLOADS=never UV_PROJECT_ENVIRONMENT=.venv .venv/bin/uv sync --quiet --locked --python .venv/bin/python
touch .venv/.synced
