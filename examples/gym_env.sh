#!/usr/bin/env bash
# Make NeMo Gym 0.7.0 an environment of its own, where there is none yet; prints its path.
#   GYMTAP_GYM_VENV   use this environment instead, and change nothing in it
#   GYMTAP_PYTHON313  the Python 3.13 to make it with; found or fetched by uv where unset
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -n "${GYMTAP_GYM_VENV:-}" ]; then
  [ -x "$GYMTAP_GYM_VENV/bin/gym" ] || { echo "GYMTAP_GYM_VENV: no NeMo Gym in $GYMTAP_GYM_VENV" >&2; exit 1; }
  echo "$GYMTAP_GYM_VENV"; exit 0
fi
venv=$HOME/.cache/gymtap/gym/venv
done_mark=$venv/.complete-$(cksum <examples/gym_requirements.txt | cut -d' ' -f1)
[ -e "$done_mark" ] && { echo "$venv"; exit 0; }

uv=.venv/bin/uv
[ -x "$uv" ] || uv=uv

works() { [ -n "$1" ] && [ "$("$1" -c 'import sys; print(*sys.version_info[:2])' 2>/dev/null)" = "3 13" ]; }
python=${GYMTAP_PYTHON313:-}
if ! works "$python"; then
  for python in "$HOME"/.pyenv/versions/3.13*/bin/python "$(command -v python3.13 || true)" "$(command -v python3 || true)" ""; do
    works "$python" && break
  done
fi
if ! works "$python"; then
  echo "fetching Python 3.13" >&2
  "$uv" python install --quiet 3.13
  python=$("$uv" python find --managed-python 3.13)
fi

echo "installing NeMo Gym 0.7.0 into $venv (about 1 GB, once)" >&2
rm -rf "$venv"
"$uv" venv --quiet --python "$python" "$venv"
# It asks for Python 3.13.14 or newer, and runs on every 3.13.
"$uv" pip install --quiet --compile-bytecode --python "$venv/bin/python" --python-version 3.13.14 --no-deps -r examples/gym_requirements.txt
[ -x "$venv/bin/gym" ] || { echo "the installation of NeMo Gym did not give a gym command" >&2; exit 1; }
touch "$done_mark"
echo "$venv"
