#!/usr/bin/env bash
# A daemon in a unit of its own: hardened, and separated from the processes that mount and from its keeper.
# Mounts are made where process 1 sees them. systemd runs as process 1 of its own namespaces.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq root unshare nsenter systemctl systemd-analyze systemd-escape mount-namespace
systemd=/lib/systemd/systemd
[[ -x $systemd ]] || skip_all "systemd is not installed"

landlock_is_there() { # as for a daemon that is in no unit
	"$python" -c 'import ctypes, sys; sys.exit(ctypes.CDLL(None).syscall(444, None, 0, 1) < 2)'
}
mkdir -p "$T/www" "$T/units" "$T/empty" "$T/mnt" "$T/cache" "$T/logs"
for i in 1 2 3; do
	random_file "$T/www/$i.bin" 2000000 "$i"
done
start_nginx

sed "s#@bindir@#/usr/bin#" "$top_srcdir/scripts/penstockd@.service.in" >"$T/penstockd@nvme.service"
exposure=$(systemd-analyze security --offline=true --no-pager "$T/penstockd@nvme.service" 2>/dev/null |
	sed -n 's/.*exposure level.*: \([0-9.]*\) .*/\1/p') || true
if [[ $exposure ]]; then
	check "systemd rates the unit's exposure below 4 ($exposure)" awk -v x="$exposure" 'BEGIN {exit !(x < 4)}'
else
	skip "systemd rates the unit's exposure below 4" "this systemd-analyze has no --offline"
fi

# PrivateTmp= is left out: this test's files, with the unit's log, are in /tmp, which it would hide.
unit=penstockd@$(systemd-escape -p "$T/cache").service
pass="PassEnvironment=PS_TEST_DIR TSAN_OPTIONS ASAN_OPTIONS UBSAN_OPTIONS"
options="Environment=\"OPTIONS=--log $T/logs/log\""
sed -e "s#@bindir@#$top_builddir#" -e "s#^PrivateTmp=.*#$pass#" -e "s#^EnvironmentFile=.*#$options#" \
	-e "s#^ReadWritePaths=%f#& $T/logs#" \
	"$top_srcdir/scripts/penstockd@.service.in" >"$T/units/penstockd@.service"
! sanitized "$top_builddir/penstock" ||
	sed -i -e '/^SystemCallFilter/d' -e '/^MemoryDeny/d' "$T/units/penstockd@.service"
cp /lib/systemd/system/{sysinit,basic,shutdown,umount,final,sockets}.target "$T/units/" 2>/dev/null ||
	skip_all "systemd's units are not where Debian has them"
printf '[Unit]\nRequires=basic.target\n' >"$T/units/test.target"
# Copies of other tests' mounts and disks are unmounted here: they would keep the originals alive.
cat >"$T/init.sh" <<INIT
awk -v own="$T" '\$3 ~ /^fuse/ || (\$2 ~ "/penstock-test-" && index(\$2, own) != 1) {print \$2}' /proc/self/mounts |
	xargs -r -n 1 umount -l
umount -R -l /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup &&
	mount -t proc proc /proc && mount -t tmpfs tmpfs /run && mount --bind $T/empty /etc/systemd/system &&
	mount --bind $T/units /lib/systemd/system && mount --make-rshared / || exit 9
container=test exec $systemd --system --unit=test.target --log-target=console --show-status=no
INIT
unshare --pid --fork --mount --cgroup --kill-child --propagation private bash \
	"$T/init.sh" >"$T/systemd.log" 2>&1 &
outer=$!
inside() {
	local pid
	pid=$(<"/proc/$outer/task/$outer/children") && nsenter -t "${pid%% *}" -m -p -C -- "$@"
}
property() { inside systemctl show -P "$1" "$unit" 2>/dev/null; }
wait_until 30 property Id >/dev/null || skip_all \
	"systemd does not run in namespaces here: $(tail -n 1 "$T/systemd.log")"

check "the unit starts without a mount" inside systemctl start "$unit"
equal "it is active" active "$(property ActiveState)"
main=$(property MainPID)
status() { inside penstock status --cache-dir "$T/cache" --json | jq -r "$1"; }
daemon=$(status .pid)
at() { inside sed -n 's/^0:://p' "/proc/$1/cgroup"; }
equal "the unit's process is the keeper" penstock-keeper "$(inside cat "/proc/$main/comm")"
check_not "the daemon is another process" test "$main" = "$daemon"
equal "keeper and daemon have control groups of their own" "keeper daemon $(dirname "$(at "$main")")" \
	"$(basename "$(at "$main")") $(basename "$(at "$daemon")") $(dirname "$(at "$daemon")")"
equal "the daemon is in its sandbox" true "$(status .sandbox.active)"
equal "the unit does not take a part of the sandbox away" "$(landlock_is_there || echo "no landlock")" \
	"$(status .sandbox.reason)"

# The mount is made by another process, in the namespace of process 1.
join() { inside penstock mount "$ORIGIN/" "$T/mnt" --cache-dir "$T/cache"; }
check "a mount joins" join
check "process 1 sees the mount" inside findmnt -t fuse.penstock "$T/mnt"
equal "the unit's daemon serves it" "$daemon" "$(inside jq .pid "$T/mnt/.penstock/stats")"
same() { inside cmp "$T/mnt/$1.bin" "$T/www/$1.bin"; }
check "a file is right" same 1
mount_option() { inside findmnt -N "$daemon" -n -o OPTIONS "$1" | grep -ow -m 1 'r[ow]'; }
if own=$(mount_option /); then
	equal "to the daemon the system is read-only" ro "$own"
	equal "and its cache is not" rw \
		"$(inside findmnt -N "$daemon" -n -o OPTIONS -T "$T/cache" | grep -ow -m 1 'r[ow]')"
else
	skip "to the daemon the system is read-only" "findmnt does not see its namespace"
fi
state() { inside getfattr --absolute-names --only-values -n user.penstock.state "$T/mnt/1.bin"; }
cached() { [[ $(state) == cached ]]; }
check "the file is cached" wait_until 20 cached
check "and right again" same 1
through=$(inside jq .passthrough.active "$T/mnt/.penstock/stats")
if [[ $through == true ]]; then
	at_least "it is passed through" 1 "$(inside jq .passthrough.opens "$T/mnt/.penstock/stats")"
else
	skip "it is passed through" "$(inside jq -r .passthrough.reason "$T/mnt/.penstock/stats")"
fi

# All of the daemon's control group is killed, as for a lack of memory.
release=$(uname -r)
if [[ $(printf '%s\n' 6.10 "${release%%-*}" | sort -V | head -n 1) == 6.10 ]]; then
	sleep 1.1
	inside bash -c "echo 1 >'/sys/fs/cgroup$(at "$daemon")/cgroup.kill'"
	check "the mount serves after a kill of the daemon's control group" same 2
	check_not "another daemon does" test "$daemon" = "$(status .pid)"
	equal "the keeper is the same" "$main 0" "$(property MainPID) $(property NRestarts)"
	daemon=$(status .pid)
	equal "the next daemon is in its group and sandbox" "daemon true" \
		"$(basename "$(at "$daemon")") $(status .sandbox.active)"
	check "a passed-through file is right" same 1
	sleep 1.1
	check "penstock upgrade, from outside of the unit" inside penstock upgrade "$T/mnt"
	equal "the daemon of the upgrade is in its group and sandbox" "daemon true" \
		"$(basename "$(at "$(status .pid)")") $(status .sandbox.active)"
fi

check "the mount is unmounted" inside penstock umount "$T/mnt"
rc=0
inside penstock upgrade --cache-dir "$T/cache" >"$T/out" 2>&1 || rc=$?
equal "without a mount there is nothing to hand over" "1 1" \
	"$rc $(grep -c "no mount that could be handed over" "$T/out")"
equal "the daemon stays, without a mount" "active 0" "$(property ActiveState) $(status '.mounts | length')"
check "a mount joins again" join
check "and serves" same 3
check "the unit stops" inside systemctl stop "$unit"
equal "the unit is inactive without an error" "inactive success" "$(property ActiveState) $(property Result)"
check_not "its mount answers no more" inside timeout 10 cat "$T/mnt/1.bin"
inside umount -l "$T/mnt" || true
kill -KILL "$outer" 2>/dev/null || true
