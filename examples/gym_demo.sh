#!/usr/bin/env bash
# A real NeMo Gym run behind a tap: the shipped example with one tool, a stub provider, five rows, twice each.
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD
bin=$here/.venv/bin
GYMTAP_GYM_WORK=$(mktemp -d "${TMPDIR:-/tmp}/gymtap-gym.XXXXXX")
export GYMTAP_GYM_WORK
capture=$GYMTAP_GYM_WORK/capture

coproc provider { exec "$bin/python" examples/stub_provider.py; }
stub=$provider_PID
trap 'kill "$stub" 2>/dev/null || true' EXIT
read -r url <&"${provider[0]}"

echo "Gym starts its servers, which takes 15 to 30 seconds; its log is $GYMTAP_GYM_WORK/gym.log" >&2
status=0
"$bin/gymtap" run --capture "$capture" -- examples/gym.sh eval run \
  --config "$here/examples/gym_single_tool_call.yaml" --split validation --num-repeats 2 --concurrency 10 \
  --model stub-model --model-url "$url" --model-api-key EMPTY --output "$GYMTAP_GYM_WORK/rollouts.jsonl" \
  >"$GYMTAP_GYM_WORK/gym.log" 2>&1 || status=$?
grep '^gymtap: ' "$GYMTAP_GYM_WORK/gym.log" >&2 || true
[ "$status" = 0 ] || { tail -n 20 "$GYMTAP_GYM_WORK/gym.log" >&2; exit "$status"; }

"$bin/gymtap" rows "$capture"
"$bin/gymtap" tree 0.0 --capture "$capture"
echo "look around: .venv/bin/gymtap tui $capture" >&2
