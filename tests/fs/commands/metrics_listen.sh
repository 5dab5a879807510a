#!/usr/bin/env bash
# penstock metrics --listen: a small HTTP server for Prometheus, whose parser of requests has no privileges.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq curl

check_py=$(cd "$(dirname "$0")" && pwd)/metrics_check.py
make_tree "$T/www"
start_nginx
mkdir "$T/mnt2"
mount_penstock "$ORIGIN/" --no-passthrough
check "a mount of another cache" penstock mount "$ORIGIN/" "$T/mnt2" --cache-dir "$T/cache2" --no-passthrough

penstock metrics --listen 0 2>"$T/said" &
server=$!
listens() { grep -q listening "$T/said"; }
check "it prints its address" wait_until 20 listens
url=$(sed -n 's/.* on \(http.*\)/\1/p' "$T/said")
check "the address is 127.0.0.1 by default" grep -Eq '^http://127\.0\.0\.1:[0-9]+/metrics$' <<<"$url"
check "GET /metrics" curl -fsS -D "$T/head" -o "$T/scraped" "$url"
check "the text is a valid scrape" "$python" "$check_py" "$T/scraped"
check "its type is that of Prometheus' text format" grep -qi '^content-type: text/plain; version=0.0.4' "$T/head"
only_ours() { grep -F "\"$T/"; } # other tests mount as well
series() { only_ours | sed 's/ [0-9.]*$//' | sort; }
equal "it has the series of penstock metrics" "$(penstock metrics | series)" "$(series <"$T/scraped")"
if command -v promtool >/dev/null; then
	equal "promtool finds nothing" "" "$(promtool check metrics <"$T/scraped" 2>&1)"
fi
before=$(only_ours <"$T/scraped" | grep -F "\"$CACHE\"" | awk '/^penstock_reads_bytes_total/ {print $2}')
check "the mount is read" read_tree 1m
after=$(curl -fsS "$url" | only_ours | grep -F "\"$CACHE\"" | awk '/^penstock_reads_bytes_total/ {print $2}')
check "each request gets the present numbers" test "${after%.*}" -gt "${before%.*}"

status_of() { curl -sS -o /dev/null -w '%{http_code}' "$@"; }
equal "HEAD" 200 "$(status_of -I "$url")"
equal "another path is not found" 404 "$(status_of "${url%metrics}")"
equal "POST is not allowed" 405 "$(status_of -d x "$url")"
port=${url##*:}
port=${port%/metrics}
equal "bytes that are no request get no metrics" 0 "$("$python" -c '
import os, socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.sendall(os.urandom(1000) + b"\r\n\r\n")
s.shutdown(socket.SHUT_WR)
print(s.makefile("rb").read().count(b"penstock_up"))' "$port")"

child=$(pgrep -o -P $server)
if ((EUID == 0)); then
	equal "the process that parses HTTP is nobody, in no group, without capabilities" "65534 65534 0000000000000000 1" \
		"$(awk '/^Uid/ {u = $2} /^Gid/ {g = $2} /^Groups/ {n = NF - 1} /^CapEff/ {c = $2} /^NoNewPrivs/ {p = $2}
			END {print u, n ? "groups" : g, c, p}' "/proc/$child/status")"
else
	equal "the process that parses HTTP gains no privileges" 1 "$(awk '/^NoNewPrivs/ {print $2}' "/proc/$child/status")"
fi

# Clients that send nothing hold at most 8 connections, and not for long.
"$python" - "$url" <<'PY' &
import socket, sys, time, urllib.parse
at = urllib.parse.urlsplit(sys.argv[1])
held = [socket.create_connection((at.hostname, at.port)) for _ in range(12)]
time.sleep(30)
PY
held=$!
sleep 0.5
check "idle connections keep others out for some seconds only" \
	curl -fsS --retry 20 --retry-delay 1 --retry-all-errors -o "$T/out" "$url"
kill $held
wait $held || true

# A daemon that hangs: the answer comes within 3 s, and eight clients at a time share the wait.
pid2=$(jq .pid "$T/mnt2/.penstock/stats")
kill -STOP "$pid2"
times=$(for i in 1 2 3 4 5 6 7 8; do curl -sS -o "$T/stuck$i" -w '%{time_total}\n' "$url" & done; wait)
up2() { only_ours <"$1" | grep -F "$T/mnt2" | awk '/^penstock_up/ {print $2}'; }
equal "a mount that hangs is down" "0 0" "$(up2 "$T/stuck1") $(up2 "$T/stuck8")"
longest=$(sort -n <<<"$times" | tail -n 1)
equal "eight clients were answered" 8 "$(wc -l <<<"$times")"
check "the longest answer beside the mount that hangs took less than 10 s on this busy machine ($longest s)" \
	test "${longest%.*}" -lt 10
for _ in 1 2 3; do curl -fsS --retry 9 --retry-delay 1 --retry-all-errors -o "$T/out" "$url"; done
kill -CONT "$pid2"
no_zombies() { curl -fsS -o "$T/out" "$url" && [[ $(ps -o stat= --ppid $server) != *Z* ]]; }
check "the processes that asked the mount that hangs do not remain" wait_until 20 no_zombies

for wrong in 65536 70000 127.0.0.1:+80 "127.0.0.1: 80"; do
	rc=0
	timeout 20 penstock metrics --listen "$wrong" >"$T/out" 2>&1 || rc=$?
	equal "'$wrong' has no port" "1 1" "$rc $(grep -c 'not PORT, ADDRESS:PORT or' "$T/out")"
done
rc=0
penstock metrics --listen "${url//[!0-9:]/}" >"$T/out" 2>&1 || rc=$?
equal "a wrong address is an error in one line" "1 1 1" \
	"$rc $(wc -l <"$T/out") $(grep -c 'not PORT, ADDRESS:PORT or \[IPv6\]:PORT' "$T/out")"
rc=0
penstock metrics --listen "$port" >"$T/out" 2>&1 || rc=$?
equal "a port in use is an error in one line" "1 1" "$rc $(grep -c "^penstock metrics: --listen $port: Address already in use" "$T/out")"
rc=0
penstock metrics --listen 0 --output "$T/x" >"$T/out" 2>&1 || rc=$?
equal "--listen with --output is refused" 2 "$rc"

kill $server
rc=0
wait $server || rc=$?
equal "SIGTERM ends it" 143 "$rc"
gone() { ! kill -0 "$child" 2>/dev/null; }
check "its process for HTTP ends with it" wait_until 20 gone

# The process for HTTP dies: the command says so and ends, so that the unit starts it again.
penstock metrics --listen '[::1]:0' --cache-dir "$CACHE" 2>"$T/said2" &
server=$!
listens_too() { grep -q listening "$T/said2"; }
check "it listens on an IPv6 address" wait_until 20 listens_too
url=$(sed -n 's/.* on \(http.*\)/\1/p' "$T/said2")
equal "--cache-dir: the mounts of one daemon" 1 "$(curl -fsSg "$url" | grep -c '^penstock_mount_files{')"
umount_penstock
stopped() { [[ $(curl -gsS -o /dev/null -w '%{http_code}' "$url") = 503 ]]; }
check "without the cache's daemon the answer is 503" wait_until 20 stopped
kill -KILL "$(pgrep -o -P $server)"
rc=0
wait $server || rc=$?
equal "a dead process for HTTP ends the command" 1 "$rc"
check "it says so" grep -q 'the process for HTTP has ended (signal 9)' "$T/said2"
check "the other mount is unmounted" penstock umount "$T/mnt2"
