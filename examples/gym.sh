#!/usr/bin/env bash
# `gym` from the environment of gym_env.sh; every server that it starts runs in that same environment, so that
# nothing is installed and no network is needed. Relative paths are those of GYMTAP_GYM_WORK (a directory).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
venv=$("$here/gym_env.sh")
work=${GYMTAP_GYM_WORK:?a directory to run in}
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

# Gym looks for <uv_venv_dir>/<type>/<name>/.venv, and with skip_venv_if_present installs nothing where it is.
if [ ! -e "$work/venvs" ]; then
  for kind in resources_servers responses_api_agents responses_api_models environment_servers; do
    for server in "$site/$kind"/*/ "$work/$kind"/*/; do
      [ -d "$server" ] || continue
      mkdir -p "$work/venvs/$kind/$(basename "$server")"
      ln -s "$venv" "$work/venvs/$kind/$(basename "$server")/.venv"
    done
  done
fi

# Ray gives its own processes 30 seconds to start, which a busy machine may exceed.
export RAY_raylet_start_wait_time_s=${RAY_raylet_start_wait_time_s:-120}
export RAY_agent_register_timeout_ms=${RAY_agent_register_timeout_ms:-120000}

cd "$work"
export PATH=$venv/bin:$PATH VIRTUAL_ENV=$venv
case "$*" in
  *--no-serve*) exec gym "$@" ;;  # it starts no servers
  *) exec gym "$@" "++uv_venv_dir=$work/venvs" ++skip_venv_if_present=true ;;
esac
