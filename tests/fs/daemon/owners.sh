#!/usr/bin/env bash
# Mounts with owners: processes join them, and when the last one ends, however it ends, the mount is
# unmounted.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq

mkdir -p "$T/www" "$T/tmp"
export TMPDIR=$T/tmp PENSTOCK_CACHE_DIR=$CACHE
[[ $(stat -f -c %T "$T") != tmpfs ]] || skip_all "$T is in memory, where the cache of a mount with owners may not be"
for i in 0 1 2; do random_file "$T/www/x-$i.tar" 300000; done
start_nginx
export SOURCE="$ORIGIN/x-{0..2}.tar"
BASE=$T/tmp/penstock-$EUID

# own NAME [mount|fork] ARGUMENT...: starts an owner in the background; where NAME: prints its mountpoint.
declare -A owner
own() {
	rm -f "$T/$1"
	"$python" "$top_srcdir/tests/fs/daemon/owner.py" "$T/$1" "${@:2}" &
	owner[$1]=$!
}
where() {
	wait_until 30 test -s "$T/$1" || true
	head -n 1 "$T/$1"
}
end() {
	kill -"$1" "${owner[$2]}"
	wait "${owner[$2]}" 2>/dev/null || true
}
nmounts() { ps_mounts_below "$T/tmp" | wc -l; }
are_mounted() { (($(nmounts) == $1)); }
status() { penstock status --cache-dir "$CACHE" --json; }
owners() { status | jq -r '[.mounts[].owners] | join(" ")'; }
have_owners() { [[ $(owners) == "$1" ]]; }
reads() { cmp "$1/x-1.tar" "$T/www/x-1.tar"; }

# Eight ranks start at once, where no daemon is yet.
for i in 1 2 3 4 5 6 7 8; do own "rank$i" mount "$SOURCE"; done
for i in 1 2 3 4 5 6 7 8; do where "rank$i" >/dev/null; done
all_places() { for i in 1 2 3 4 5 6 7 8; do where "rank$i"; done | sort -u | wc -l; }
equal "eight owners that start at once have one mountpoint" 1 "$(all_places)"
at=$(where rank1)
check "the mountpoint is in a folder that only the user may read" \
	test "$(stat -c %a "$BASE") $(dirname "$at")" = "700 $BASE"
equal "there is one mount" 1 "$(nmounts)"
equal "the mount has eight owners" 8 "$(owners)"
check "the mount serves its file" reads "$at"
daemon=$(daemon_pid)
for i in 1 2 3 4 5 6 7; do end KILL "rank$i"; done
check "seven killed owners are not counted" wait_until 10 have_owners 1
check "the mount stays for the last one" reads "$at"
exec 7<"$at/x-2.tar"
end KILL rank8
check "the end of the last owner unmounts" wait_until 10 are_mounted 0
check "an open file stays readable" cmp - "$T/www/x-2.tar" <&7
exec 7<&-
check "the daemon ends, too" wait_until 10 test ! -e "/proc/$daemon"

# A forked child is an owner, too.
own parent fork "$SOURCE"
at=$(where parent)
child=$(sed -n 2p "$T/parent")
end KILL parent
sleep 0.3
check "a fork of a dead owner keeps the mount" reads "$at"
kill -KILL "$child"
check "the mount ends when the fork is dead, too" wait_until 10 are_mounted 0

# Owners with other credentials or options.
own one mount "$SOURCE" --header "X-Token: one"
one=$(where one)
own two mount "$SOURCE" --header "X-Token: two"
two=$(where two)
own like_one mount "$SOURCE" --header "X-Token: one"
own refreshed mount "$SOURCE" --header "X-Token: one" --refresh 1h
check_not "other credentials have another mount" test "$one" = "$two"
equal "owners with the same credentials share a mount" "$one" "$(where like_one)"
check_not "owners with other options of the mount have another mount" test "$one" = "$(where refreshed)"
where refreshed >/dev/null
equal "each mount counts its own owners" "1 1 2" "$(owners | tr ' ' '\n' | sort | xargs)"
own sized mount "$SOURCE" --header "X-Token: one" --cache-size 1G
equal "owners with other options of the cache share the mount" "$one" "$(where sized)"
for who in one two like_one refreshed sized; do end KILL "$who"; done
check "all mounts end with their owners" wait_until 10 are_mounted 0

# An owner that ends while another one joins.
failed=0
n=$(long && echo 150 || echo 25)
wait_until 10 no_daemon
for ((i = 0; i < n; i++)); do
	own "a$i" mount "$SOURCE"
	where "a$i" >/dev/null
	own "b$i" mount "$SOURCE"
	sleep "0.0$((RANDOM % 50))"
	end KILL "a$i"
	if ! reads "$(where "b$i")"; then
		failed=$((failed + 1))
		sed 's/^/# /' "$T/b$i"
	fi
	((i % 3)) || end KILL "b$i" # the others stay, so that some joins find a mount with owners
	if ((i % 3 == 2)); then
		end KILL "b$i"
		end KILL "b$((i - 1))"
	fi
done
equal "owners that join while the last one ends have a mount" 0 "$failed"
for ((i = 0; i < n; i++)); do kill -KILL "${owner[b$i]}" 2>/dev/null || true; done
check "no mount is left after many owners" wait_until 10 are_mounted 0
at_most "few folders are used for many mounts" 12 "$(find "$BASE" -mindepth 1 -maxdepth 1 | wc -l)"

# A mount that is unmounted by hand.
own by_hand mount "$SOURCE"
at=$(where by_hand)
check "a mount with an owner can be unmounted by hand" penstock umount "$at"
check "the owner is notified of the unmount" wait_until 10 grep -qx ended "$T/by_hand"
own again mount "$SOURCE"
check "the next mount serves its file" reads "$(where again)"
equal "the next mount has the same path" "$at" "$(where again)"

# A daemon that is killed.
kill_daemon
check "an owner is notified when its daemon is killed" wait_until 10 grep -qx ended "$T/again"
check_not "the killed daemon leaves a dead mount" reads "$at"
own next mount "$SOURCE"
equal "the next mount replaces the dead mount" "$at" "$(where next)"
check "the mount in place of the dead one serves its file" reads "$at"
kill -TERM "$(daemon_pid)"
check "a daemon that gets SIGTERM notifies its owners" wait_until 10 grep -qx ended "$T/next"
for who in by_hand again next; do end KILL "$who"; done
own last mount "$SOURCE"
where last >/dev/null
kill_daemon
kill -KILL "${owner[last]}"
own after mount "$SOURCE"
check "after daemon and owner were killed the next one mounts" reads "$(where after)"
end KILL after
check "the mount after a killed daemon ends with its owner" wait_until 10 are_mounted 0

# Owners that die before there is a mount. The proxy holds requests back until $T/open is there.
"$python" - "$T/proxy.port" "$T/open" "${ORIGIN##*:}" <<'PY' &
import os, socket, sys, threading, time
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(64)
open(sys.argv[1], "w").write(str(s.getsockname()[1]))
def pump(a, b):
    try:
        while data := a.recv(65536): b.sendall(data)
        b.shutdown(socket.SHUT_WR)
    except OSError: pass # the other side has hung up
def serve(c):
    while not os.path.exists(sys.argv[2]): time.sleep(0.02)
    o = socket.create_connection(("127.0.0.1", int(sys.argv[3])))
    threading.Thread(target=pump, args=(c, o), daemon=True).start(); pump(o, c)
while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
PY
proxy=$!
wait_until 10 test -s "$T/proxy.port"
held="http://127.0.0.1:$(<"$T/proxy.port")/"
listings() {
	local pid
	pid=$(cat "$CACHE/lock")
	[[ $(cat "/proc/$pid/task/"*/comm | grep -c '^dataset$') == "$1" ]]
}
wait_until 10 no_daemon
own first mount "$held"
check "the first mount waits for its listing" wait_until 20 listings 1
end KILL first
check "a mount that waits for its listing is cancelled with its owner" wait_until 10 no_daemon
own other mount "$SOURCE"
where other >/dev/null
own maker mount "$held"
check "another mount waits for its listing" wait_until 20 listings 1
own waiting mount "$held"
sleep 0.5
check_not "a second owner waits for the first one's mount" test -e "$T/waiting" -o -e "$T/maker"
end KILL maker
sleep 0.3
touch "$T/open"
check "the second owner gets a mount when the first one is killed" reads "$(where waiting)"
equal "the mount of the second owner has one owner" 1 "$(owners | cut -d ' ' -f 2)"
for who in other waiting; do end KILL "$who"; done
check "all mounts end with their owners" wait_until 10 are_mounted 0
kill "$proxy"

# Several owners of a source that cannot be mounted: the origin is asked once, and answers after a second.
"$python" - "$T/refusing.port" "$T/asked" <<'PY' &
import http.server, sys, time
class Refuses(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        with open(sys.argv[2], "a") as f: f.write(self.path + "\n")
        time.sleep(1)
        self.send_error(403)
    do_HEAD = do_GET
    def log_message(self, *a): pass
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refuses)
open(sys.argv[1], "w").write(str(s.server_port))
s.serve_forever()
PY
refusing=$!
wait_until 10 test -s "$T/refusing.port"
own other mount "$SOURCE"
where other >/dev/null
for i in 1 2 3 4; do own "refused$i" mount "http://127.0.0.1:$(<"$T/refusing.port")/x/"; done
for i in 1 2 3 4; do where "refused$i"; done >"$T/refusals"
equal "all owners that wait for a mount get its error" 4 "$(grep -c "HTTP 403: forbidden" "$T/refusals")"
equal "the origin was asked once" 1 "$(wc -l <"$T/asked")"
kill "$refusing"
end KILL other

# Wrong arguments.
refused() {
	local out rc=0
	out=$(penstock mount "${@:2}" 2>&1) || rc=$?
	[[ $rc == [12] && $out == *"$1"* ]] || { echo "$rc: $out" && return 1; }
}
exec 9</dev/null
check "--owner with a descriptor that is not a socket is refused" \
	refused "not one end of a socketpair" --owner 9 "$SOURCE"
exec 9<&-
check "--owner with a closed descriptor is refused" refused "not one end of a socketpair" --owner 99 "$SOURCE"
check "--owner without a source is refused" refused "too few arguments" --owner 9
check "--owner with -f is refused" refused "cannot be combined with" --owner 9 -f "$SOURCE"
chmod 777 "$BASE"
own unsafe mount "$SOURCE"
check "a base folder that others may write to is refused" \
	grep -q "other users may write to it" <(where unsafe)
chmod 700 "$BASE"

# The cache's share of the disk.
own sized mount "$SOURCE"
where sized >/dev/null
free=$(df -B1 --output=avail "$CACHE" | tail -n 1)
at_most "the cache's limit is a fifth of the free space" "$((free / 5 + free / 100 + 33554432))" \
	"$(status | jq '.cache.limit_bytes')"
end KILL sized
check "the daemon ends with its owner" wait_until 10 no_daemon

((EUID == 0)) || exit 0
mkdir "$T/ram"
if mount -t tmpfs none "$T/ram"; then
	PENSTOCK_CACHE_DIR=$T/ram/cache own memory mount "$SOURCE"
	check "a cache in memory is refused" \
		grep -q "would be in memory (tmpfs); name a folder on a local disk" <(where memory)
	umount "$T/ram"
fi

# An owner in another mount namespace has its own mount, which ends with the owner.
if unshare -m --propagation private true 2>/dev/null; then
	own out mount "$SOURCE"
	at=$(where out)
	rm -f "$T/in"
	unshare -m --propagation private "$python" "$top_srcdir/tests/fs/daemon/owner.py" "$T/in" mount "$SOURCE" &
	inside=$!
	check "an owner in another namespace has a mount" test -n "$(where in)"
	equal "the owner in another namespace has another mount" "1 1" "$(owners)"
	kill -KILL "$inside"
	check "the mount in the other namespace ends with its owner" wait_until 10 have_owners 1
	check "the mount outside still serves" reads "$at"
	end KILL out
	check "the mount outside ends with its owner" wait_until 10 are_mounted 0
fi

# Another user of the node.
command -v setpriv >/dev/null || exit 0
chmod 755 "$T"
chmod 1777 "$T/tmp"
mkdir -m 777 "$T/nobody"
as_nobody() {
	setpriv --reuid=65534 --regid=65534 --clear-groups -- \
		env HOME="$T/nobody" PENSTOCK_CACHE_DIR="$T/nobody/cache" "$@"
}
own mine mount "$SOURCE"
at=$(where mine)
mkdir "$T/tmp/penstock-65534"
as_nobody "$python" "$top_srcdir/tests/fs/daemon/owner.py" "$T/nobody/theirs" mount "$SOURCE" || true
check "a folder that another user made first is refused" grep -q "belongs to another user" "$T/nobody/theirs"
rmdir "$T/tmp/penstock-65534"
if [[ -w /dev/fuse ]] && command -v fusermount3 >/dev/null && [[ $(stat -c %a /dev/fuse) == 666 ]]; then
	rm -f "$T/nobody/theirs"
	as_nobody "$python" "$top_srcdir/tests/fs/daemon/owner.py" "$T/nobody/theirs" mount "$SOURCE" &
	theirs=$!
	wait_until 30 test -s "$T/nobody/theirs" || true
	equal "another user has another mount" "$T/tmp/penstock-65534" \
		"$(dirname "$(head -n 1 "$T/nobody/theirs")")"
	check_not "another user cannot list our mount" as_nobody ls "$at"
	kill -KILL "$(pgrep -P "$theirs" || echo "$theirs")"
	check "another user's mount ends with its owner" wait_until 10 are_mounted 1
fi
end KILL mine
check "the last mount ends with its owner" wait_until 10 are_mounted 0
