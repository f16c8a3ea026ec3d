#!/usr/bin/env bash
# A complete Cascade client in bash with curl 7.82 or newer. Usage: client.sh SIM LOG [FILE...]
set -euo pipefail
sim=$1 log=$2
shift 2

# Every call is safe to repeat, so curl repeats it after faults of the network, 429 and 5xx.
call() {
  local method=$1 path=$2
  shift 2
  curl --silent --show-error --fail-with-body --retry 10 --retry-all-errors --max-time 60 -X "$method" \
    -H "Authorization: Bearer $CASCADE_TOKEN" "$@" "$CASCADE_URL/api$path"
}

# 1. Alive, and again every few seconds whatever else happens.
call POST "/sims/$sim/heartbeat" --json '{"state": "running"}' > /dev/null
while sleep 5; do call POST "/sims/$sim/heartbeat" --json '{"state": "running"}' > /dev/null; done &
beats=$!
trap 'kill $beats 2> /dev/null || true' EXIT

# 2. The log in chunks, numbered from 0. Python does the quoting.
seq=0
while IFS= read -r chunk; do
  call POST "/sims/$sim/logs" --json "{\"seq\": $seq, \"lines\": $chunk}"
  seq=$((seq + 1))
done < <(python3 -c '
import json, sys
lines = open(sys.argv[1], errors="replace").read().split("\n")
for start in range(0, len(lines), 200):
    print(json.dumps(lines[start : start + 200]))
' "$log")

# 3. Output files.
for file in "$@"; do
  call PUT "/sims/$sim/files/$(basename "$file")" -H "Content-Type: application/octet-stream" --data-binary "@$file" > /dev/null
done

# 4. The end, once.
call POST "/sims/$sim/heartbeat" --json '{"state": "succeeded", "exit_code": 0}'
echo
