#!/usr/bin/env bash
# A job for CI, on a machine without a GPU: does the model still fit its devices, is every op
# covered, and does it need no more than the plan in the repository?
#
#     examples/ci_gate.sh MODEL plan.json [BATCH_SIZE]
#
# Ends with 7 if a gate trips; verdict, plan and comparison with the old plan are Markdown, for the
# pull request.  The search is limited in work, so that a busy machine finds the same plan; the time
# limit is far beyond what that takes.
set -euo pipefail
model=$1 baseline=$2 batch=${3:-32}
devices=(--devices 2xT4 --batch-size "$batch")
placer=(python -m placer)

status=0
"${placer[@]}" place "$model" "${devices[@]}" --work-limit 20 --time-limit 300 -o new-plan.json --force -q \
  --fail-above 'GPU:*=13GiB' --baseline "$baseline" --fail-above +5% --fail-on unmodelled,fallback \
  --format markdown > summary.md || status=$?
"${placer[@]}" diff "$baseline" new-plan.json --format markdown >> summary.md
exit "$status"
