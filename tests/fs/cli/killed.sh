#!/usr/bin/env bash
# Processes that are killed while the origin hangs end at once: readers in any mode, and the mount command
# itself, which then leaves no mount that appears later.
. "$(dirname "$0")/../../lib.sh"
requires mount

# An origin that lists one file and answers HEAD, but never a GET of the file; below /silent/ not even HEAD.
cat >"$T/origin.py" <<'PY'
import socket, sys, threading, time
def serve(c):
    data = b""
    while True:
        while b"\r\n\r\n" not in data:
            more = c.recv(4096)
            if not more:
                return
            data += more
        head, data = data.split(b"\r\n\r\n", 1)
        method, path = head.split()[:2]
        if path == b"/" and method == b"GET":
            body = (b'<html><head><title>Index of /</title></head><body><pre><a href="../">../</a>\n'
                    b'<a href="f.bin">f.bin</a>  21-Nov-2020 00:53  9000000\n</pre></body></html>')
            c.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        elif method == b"HEAD" and not path.startswith(b"/silent/"):
            c.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\nETag: "x"\r\nAccept-Ranges: bytes\r\n\r\n')
        else:
            time.sleep(1000)
s = socket.socket()
s.bind(("127.0.0.1", 0))
s.listen(100)
print(s.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
PY
"$python" "$T/origin.py" >"$T/port" &
wait_until 10 test -s "$T/port" || die "an origin starts"
ORIGIN=http://127.0.0.1:$(cat "$T/port")

# killed WHAT COMMAND...: kills the command while it waits.
killed() {
	local what=$1 pid start
	shift
	"$@" >/dev/null 2>&1 &
	pid=$!
	sleep 0.7
	kill -0 "$pid" || die "$what waits"
	start=$EPOCHREALTIME
	kill -KILL "$pid"
	wait "$pid" 2>/dev/null || true
	at_most "$what ends soon after SIGKILL (ms)" 2000 $(((${EPOCHREALTIME/./} - ${start/./}) / 1000))
}

mount_penstock "$ORIGIN/" --timeout 60s
killed "a buffered read" dd "if=$MNT/f.bin" of=/dev/null bs=1M
killed "an O_DIRECT read" dd "if=$MNT/f.bin" of=/dev/null bs=1M iflag=direct
killed "a mapped read" "$python" -c 'import mmap, sys
f = open(sys.argv[1], "rb")
m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
m[5000000]' "$MNT/f.bin"
check "umount works after the killed reads" timeout 30 penstock umount "$MNT"

killed "the mount command" penstock mount "$ORIGIN/silent/f.bin" "$MNT" --cache-dir "$T/cache2" \
	--log "$T/penstock.log"
no_daemon() {
	! daemon_pid >/dev/null
}
check "the daemon of the killed mount command ends" wait_until 5 no_daemon
check_not "the killed mount command has mounted nothing" is_mounted

# A daemon that was killed leaves a mount that no command can use; each says what to do.
mkdir -p "$T/src"
random_file "$T/src/f.bin" 1000
CACHE=$T/cache3
mount_penstock "$T/src/"
kill_daemon
check "the killed daemon ends" wait_until 30 no_daemon
for command in status warm pin unpin evict; do
	timeout -k 5 60 penstock "$command" "$MNT" >"$T/out" 2>&1 && rc=0 || rc=$?
	equal "$command of a dead mount fails" 1 "$rc"
	check "$command says how to remove a dead mount" grep \
		-q "its daemon has died.* penstock umount" "$T/out"
done
check "umount removes the dead mount" umount_penstock
check_not "the dead mount is gone" is_mounted
