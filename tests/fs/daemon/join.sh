#!/usr/bin/env bash
# Which processes may join a daemon, from where, and what is left of mounts that are given up.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq root unshare setpriv mount-namespace

mkdir -p "$T/www" "$MNT"
random_file "$T/www/f.bin" 3000000
start_nginx
mkdir "$T"/m{1..9}
join() {
	timeout 30 penstock mount "$@" --cache-dir "$CACHE"
}
no_mounts() {
	[[ $(penstock status --cache-dir "$CACHE" --json | jq '.mounts | length') == "$1" ]]
}
mount_penstock "$ORIGIN/"
pid=$(stats .pid)
equal "only the owner may use the control socket" "600 700" "$(stat -c %a "$CACHE/control" "$CACHE" | xargs)"

# Another mount namespace.
cat >"$T/inside.sh" <<'SH'
set -e
penstock mount "$ORIGIN/" "$T/m1" --cache-dir "$CACHE"
cmp "$T/m1/f.bin" "$T/www/f.bin"
echo "$$" >"$T/inside.pid"
while [[ -e $T/hold ]]; do sleep 0.05; done
[[ ! -e $T/umount ]] || penstock umount "$T/m1"
SH
export ORIGIN T CACHE
for way in umount leave; do
	touch "$T/hold"
	rm -f "$T/inside.pid"
	[[ $way == leave ]] || touch "$T/umount"
	unshare -m --propagation private bash "$T/inside.sh" >"$T/inside.out" 2>&1 &
	inside=$!
	check "a process in another mount namespace mounts and reads ($way)" \
		wait_until 20 test -s "$T/inside.pid"
	check_not "a mount in another mount namespace is not visible outside ($way)" is_mounted "$T/m1"
	equal "the same daemon serves and lists that mount ($way)" "$pid 2 $T/m1" \
		"$(penstock status --cache-dir "$CACHE" --json | jq -r '"\(.pid) \(.mounts | length) \(.mounts[1].mountpoint)"')"
	check "status lists the mount in another mount namespace ($way)" \
		grep -qF "$T/m1" <(penstock status --cache-dir "$CACHE")
	rm "$T/hold"
	rc=0
	wait "$inside" || rc=$?
	equal "the process in another mount namespace succeeds ($way)" 0 "$rc"
	check "the mount is gone when the namespace ends ($way)" wait_until 20 no_mounts 1
	rm -f "$T/umount"
done

# A source that is another folder to the daemon.
mkdir "$T/source"
rc=0
unshare -m --propagation private bash -c \
	"mount --bind '$T/www' '$T/source' && penstock mount '$T/source/' '$T/m2' --cache-dir '$CACHE'" \
	>"$T/out" 2>&1 || rc=$?
equal "a source that is another folder for the daemon is refused" "1 1" \
	"$rc $(grep -c "another mount namespace" "$T/out")"

# Another user.
chmod 755 "$T"
as_nobody() {
	setpriv --reuid=65534 --regid=65534 --clear-groups -- timeout 30 env HOME=/nonexistent penstock "$@"
}
chown 65534 "$T/m2"
rc=0
as_nobody mount "$ORIGIN/" "$T/m2" --cache-dir "$CACHE" >"$T/out" 2>&1 || rc=$?
equal "another user's mount is refused with the reason" \
	"1 1" "$rc $(grep -c "belongs to another user" "$T/out")"
chmod 755 "$CACHE"
chmod 777 "$CACHE/control"
rc=0
as_nobody mount "$ORIGIN/" "$T/m2" --cache-dir "$CACHE" >"$T/out" 2>&1 || rc=$?
equal "the daemon checks the process's user, not the socket's mode" "1 1" \
	"$rc $(grep -c "served for another user" "$T/out")"
chmod 700 "$CACHE"
chmod 600 "$CACHE/control"

# A joining process uses its own credentials and sees its own names.
rc=0
join "$ORIGIN/token/f.bin" "$T/m2" >"$T/out" 2>&1 || rc=$?
equal "a mount without credentials fails" 1 "$rc"
check "a mount with the right header succeeds" join "$ORIGIN/token/f.bin" "$T/m2" --header "X-Token: secret"
check "the mount with the right header reads its file" cmp "$T/m2/f.bin" "$T/www/f.bin"
rc=0
join "$ORIGIN/token/f.bin" "$T/m3" --header "X-Token: other" >"$T/out" 2>&1 || rc=$?
equal "a mount with another header fails" 1 "$rc"
PENSTOCK_USER_PASSWORD=user:pass:word check "a password in the environment of the joining process is used" \
	join \
	"$ORIGIN/basic/" "$T/m3"
check_not "no secret is in the log" grep -q "pass:word\|X-Token" "$T/penstock.log"
for m in m2 m3; do penstock umount "$T/$m"; done

# Mounts that are given up.
"$python" - "$T/hole.port" <<'PY' &
import socket, sys, time
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(64)
open(sys.argv[1], "w").write(str(s.getsockname()[1]))
kept = []
while True: kept.append(s.accept())
PY
hole=$!
wait_until 10 test -s "$T/hole.port" || die "there is a server that never answers"
listings() {
	[[ $(cat "/proc/$pid/task/"*/comm | grep -c '^dataset$') == "$1" ]]
}
check "nothing is being listed" wait_until 20 listings 0
for signal in KILL INT; do
	"$python" -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
os.execvp(sys.argv[1], sys.argv[1:])' penstock mount "http://127.0.0.1:$(<"$T/hole.port")/x/" "$T/m4" --cache-dir "$CACHE" \
		>"$T/out" 2>&1 &
	joiner=$!
	check "a mount waits for its listing ($signal)" wait_until 20 listings 1
	kill -"$signal" "$joiner"
	wait "$joiner" 2>/dev/null || true
	check "the listing ends when the mount is given up ($signal)" wait_until 10 listings 0
done
kill -KILL "$hole"
wait "$hole" 2>/dev/null || true
"$python" - "$CACHE/control" <<'PY'
import os, socket, struct, sys
def pairs(*p): return b"".join(k.encode() + b"\0" + v.encode() + b"\0" for k, v in p)
def connect():
    s = socket.socket(socket.AF_UNIX); s.settimeout(30); s.connect(sys.argv[1]); return s
def send(s, body, protocol=2, fds=()):
    s.sendmsg([b"penstock" + struct.pack("=II", protocol, len(body)) + body],
              [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("%di" % len(fds), *fds))] if fds else [])
def answer(s):
    data = b""
    while len(data) < 16 or len(data) < 16 + struct.unpack("=I", data[12:16])[0]:
        more = s.recv(65536)
        if not more: return "closed"
        data += more
    return data[16:].replace(b"\0", b" ").decode(errors="replace")
mount = [("do", "mount"), ("mountpoint", "/nowhere"), ("name", ""), ("source", os.environ["ORIGIN"] + "/")]
def prepared():
    s = connect(); send(s, pairs(*mount)); a = answer(s); assert "prepared" in a, a; return s
s = connect(); send(s, b"", protocol=99); a = answer(s); assert "does not speak protocol 99" in a, a
s = connect(); s.sendall(b"GET / HTTP/1.1\r\n\r\n"); a = answer(s); assert "error" in a, a
s = connect(); send(s, b"\xff" * 1000); a = answer(s); assert "error" in a, a
s = connect(); send(s, pairs(("do", "dance"))); a = answer(s); assert "unknown" in a, a
s = connect(); s.sendall(b"penstock" + struct.pack("=II", 1, 1 << 31)); a = answer(s); assert "error" in a, a
s = connect(); s.sendall(b"penst"); s.close()
for bad in (mount[:2], [("do", "mount")] + mount[2:], mount + [("option", "no-such=1")], mount + [("option", "uid")],
            mount + [("name", "../x"), ("source", "/")], mount[:1] + [("mountpoint", "relative")] + mount[2:],
            mount[:3] + [("source", "nonsense")]):
    s = connect(); send(s, pairs(*bad)); a = answer(s); assert "error" in a, (bad, a)
s = prepared(); s.close()                                     # gone before it mounted
s = prepared(); send(s, pairs(("do", "mounted"), ("mount", "0:1 9"))); a = answer(s); assert "error" in a, a
r, w = os.pipe()
s = prepared(); send(s, pairs(("do", "mounted"), ("mount", "0:1 9")), fds=[r])  # no descriptor of a mount
a = answer(s); assert "error" in a or "serving" in a, a; s.close()
fuse = os.open("/dev/fuse", os.O_RDWR)
s = prepared(); send(s, pairs(("do", "mounted"), ("mount", "0:1 9")), fds=[fuse]); a = answer(s); s.close()
s = prepared(); send(s, pairs(("do", "mounted"), ("mount", "0:1 9")), fds=[r, w, r, w, r, w]); s.close()
PY
pass "invalid messages at the control socket are answered by errors"
check "no mount is left of the invalid messages" wait_until 20 no_mounts 1
fds() {
	(($(find "/proc/$pid/fd" -mindepth 1 | wc -l) <= $1))
}
check "no descriptor is left of the invalid messages" wait_until 10 fds 90

# Daemons of other versions.
"$python" - "$T" <<'PY' &
import os, socket, struct, sys
os.mkdir(sys.argv[1] + "/new", 0o700)
s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1] + "/new/control"); s.listen(1)
c, _ = s.accept(); c.recv(65536); c.sendall(b"penstock" + struct.pack("=II", 7, 0)); c.recv(65536)
PY
other=$!
wait_until 10 test -S "$T/new/control" || die "there is a daemon of another version"
rc=0
timeout 30 penstock mount "$ORIGIN/" "$T/m5" --cache-dir "$T/new" >"$T/out" 2>&1 || rc=$?
equal "a daemon of another version is not joined" "1 1" \
	"$rc $(grep -c "another version (protocol 7" "$T/out")"
wait "$other" || true

# A daemon that cannot be joined: its socket has been moved away.
mv "$CACHE/control" "$T/control"
penstock mount "$ORIGIN/" "$T/m9" --cache-dir "$CACHE" >"$T/out.m9" 2>&1 &
moved=$!

# The cache's path is longer than a socket's address may be; all mounts begin at once, as systemd does for
# fstab.
long=$T/$(printf 'x%.0s' {1..120})
mounting=()
for i in {1..6}; do
	timeout 60 penstock mount "$ORIGIN/" "$T/m$i" --cache-dir "$long" \
		--log "$T/long.log" >"$T/out.$i" 2>&1 &
	mounting+=($!)
done
failed=0
for p in "${mounting[@]}"; do wait "$p" || failed=$((failed + 1)); done
equal "six mounts that begin together succeed" 0 "$failed"
equal "one daemon serves all six" 6 "$(penstock status --cache-dir "$long" --json | jq '.mounts | length')"
for i in {1..6}; do
	check "mount $i is unmounted" penstock umount "$T/m$i"
done
rc=0
wait "$moved" || rc=$?
equal "a mount on the cache of a daemon without a socket fails and names the process" "1 1" \
	"$rc $(grep -c "$CACHE: in use by process $pid; .* (it serves $MNT)" "$T/out.m9")"
mv "$T/control" "$CACHE/control"
check "the first mount is unmounted" penstock umount "$MNT"
check "the second cache is not in use" penstock verify --cache-dir "$long"
check "the first cache is not in use" penstock verify --cache-dir "$CACHE"
