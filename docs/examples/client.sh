#!/usr/bin/env bash
# A complete Cascade client in bash with curl 7.84 or newer. Usage: client.sh SIM LOG [FILE...]
set -euo pipefail
sim=$1 log=$2
shift 2
work=$(mktemp -d) beats=
trap 'kill $beats 2> /dev/null || true; rm -rf "$work"' EXIT

# call TRIES SECONDS METHOD PATH [CURL OPTION...] prints the answer. Every call is safe to repeat, so it is: after faults of
# the network, 408, 429 and 5xx.
call() {
  local tries=$1 seconds=$2 method=$3 path=$4 body="$work/$BASHPID" attempt status asked=
  shift 4
  for ((attempt = 0; attempt < tries; attempt++)); do
    if ((attempt)); then sleep $(((1 << (attempt < 5 ? attempt : 4)) + RANDOM % 2 + ${asked:-0})); fi
    status=000
    : > "$body"
    read -r status asked < <(curl --silent --max-time "$seconds" -X "$method" -H "Authorization: Bearer $CASCADE_TOKEN" \
      -o "$body" -w '%{http_code} %header{retry-after}\n' "$@" "$CASCADE_URL/api$path") || true
    [[ $asked =~ ^[0-9]{1,3}$ ]] || asked=
    case $status in
      2??) cat "$body" && return ;;
      000 | 408 | 429 | 5??) ;;
      *) break ;;
    esac
  done
  echo "$method $path: $status $(cat "$body" 2> /dev/null)" >&2
  return 1
}

# beat TRIES JSON: a heartbeat, which remembers a cancel.
beat() {
  local ack
  ack=$(call "$1" 10 POST "/sims/$sim/heartbeat" --json "$2")
  if [[ $ack =~ \"cancel\":\ *true ]]; then touch "$work/cancelled"; fi
  echo "$ack"
}

# 1. Alive, and again every few seconds whatever else happens. A beat that waits for repeats would hold up the next one.
beat 10 '{"state": "running"}' > /dev/null
while sleep 5 &> /dev/null; do beat 1 '{"state": "running"}' > /dev/null || true; done &
beats=$!

# 2. The log in chunks, numbered from 0. Python does the quoting. A real client sends what came in a second, at most about 1 MB.
python3 -c '
import json, sys
lines = open(sys.argv[1], errors="replace").read().split("\n")
for seq, start in enumerate(range(0, len(lines), 1000)):
    json.dump({"seq": seq, "lines": lines[start : start + 1000]}, open(f"{sys.argv[2]}/{seq}.chunk", "w"))
' "$log" "$work"
send() { call 10 60 POST "/sims/$sim/logs" --json "@$work/$1.chunk"; }
for ((seq = 0; ; seq++)); do
  if [ -e "$work/cancelled" ]; then break; fi # a real client stops the simulator here
  if [ ! -e "$work/$seq.chunk" ]; then break; fi
  send "$seq"
done

# 3. Output files.
for file in "$@"; do
  call 10 60 PUT "/sims/$sim/files/$(basename "$file")" -H "Content-Type: application/octet-stream" \
    --data-binary "@$file" > /dev/null
done

# 4. What was lost although it was acknowledged.
missing=$(call 10 60 GET "/sims/$sim" | python3 -c '
import json, sys
for first, last in json.load(sys.stdin)["log"]["missing"]:
    print(first, last)
')
while read -r first last; do
  for ((seq = first; seq <= last; seq++)); do
    if [ -e "$work/$seq.chunk" ]; then send "$seq"; fi
  done
done < <(if [ "$missing" ]; then echo "$missing"; fi)

# 5. The end, once, last. Nothing overwrites a cancel: then the answer is `cancelled`.
kill $beats
if [ -e "$work/cancelled" ]; then
  beat 10 '{"state": "failed", "error": "cancelled"}'
else
  beat 10 '{"state": "succeeded", "exit_code": 0}'
fi | tee "$work/last"
echo
grep -q '"succeeded"' "$work/last"
