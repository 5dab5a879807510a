#!/usr/bin/env bash
# The installed unit under systemd: a killed daemon is started again and serves, readers of passed-through
# files can read on meanwhile, and stopping the unit unmounts. systemd runs as process 1 of its own
# namespaces.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx root unshare nsenter systemctl mount-namespace
systemd=/lib/systemd/systemd
[[ -x $systemd ]] || skip_all "systemd is not installed"

mkdir -p "$T/www" "$T/units" "$T/empty" "$T/mnt"
for i in 1 2; do
	random_file "$T/www/$i.bin" 20000000 "$i"
done
start_nginx
sed -e "s#@bindir@#$top_builddir#" -e "s#^EnvironmentFile=.*#EnvironmentFile=$T/%i.conf\nPassEnvironment=PS_TEST_DIR TSAN_OPTIONS ASAN_OPTIONS UBSAN_OPTIONS#" \
	"$top_srcdir/scripts/penstock@.service.in" >"$T/units/penstock@.service"
cp /lib/systemd/system/{sysinit,basic,shutdown,umount,final,sockets}.target \
	/lib/systemd/system/systemd-journald{.service,.socket,-dev-log.socket} "$T/units/" 2>/dev/null ||
	skip_all "systemd's units are not where Debian has them"
printf '[Unit]\nRequires=penstock@t.service\n' >"$T/units/test.target"
cat >"$T/t.conf" <<CONF
SOURCE=$ORIGIN/
MOUNTPOINT=$T/mnt
OPTIONS=--cache-dir $T/cache --log $T/penstock.log
CONF
# Copies of other tests' mounts are unmounted here: they would keep the originals alive.
cat >"$T/init.sh" <<INIT
awk '\$3 ~ /^fuse/ {print \$2}' /proc/self/mounts | xargs -r -n 1 umount -l
mount -t proc proc /proc && mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/journald.conf.d &&
	printf '[Journal]\nStorage=volatile\n' >/run/systemd/journald.conf.d/t.conf &&
	mount --bind $T/empty /etc/systemd/system &&
	mount --bind $T/units /lib/systemd/system || exit 9
container=test exec $systemd --system --unit=test.target --log-target=console --show-status=no
INIT
unshare --pid --fork --mount --cgroup --kill-child --propagation private bash \
	"$T/init.sh" >"$T/systemd.log" 2>&1 &
outer=$!
inside() {
	local pid
	pid=$(<"/proc/$outer/task/$outer/children") && nsenter -t "${pid%% *}" -m -p -C -- "$@"
}
unit() { inside systemctl show -P "$1" penstock@t.service 2>/dev/null; }
wait_until 30 unit Id >/dev/null || skip_all \
	"systemd does not run in namespaces here: $(tail -n 1 "$T/systemd.log")"

active() { [[ $(unit ActiveState) == active && $(unit NRestarts) == "$1" ]]; }
check "the unit becomes active" wait_until 60 active 0
check "the unit's mount serves its file" inside cmp "$T/mnt/1.bin" "$T/www/1.bin"
through=$(inside cat "$T/mnt/.penstock/stats" | jq .passthrough.active)
state() { inside getfattr --absolute-names --only-values -n user.penstock.state "$T/mnt/1.bin"; }
cached() { [[ $(state) == cached ]]; }
check "the file is cached" wait_until 30 cached
inside bash -c "exec 7<'$T/mnt/1.bin' && touch '$T/opened' && until [[ -e '$T/read' ]]; do sleep 0.1; done && sha256sum <&7 >'$T/sum'" &
reader=$!
wait_until 30 test -e "$T/opened" || die "a file can be opened"

inside bash -c "kill -KILL $(unit MainPID)"
check "the killed unit is started again" wait_until 60 active 1
check "the restarted unit serves its file" inside cmp "$T/mnt/2.bin" "$T/www/2.bin"
touch "$T/read"
if [[ $through == true ]]; then
	wait "$reader" || true
	equal "a reader of the dead mount has read on" "$(sha256sum <"$T/www/1.bin")" "$(cat "$T/sum")"
else
	skip "a reader of the dead mount has read on" "there is no passthrough here"
fi
# A unit whose mount is in the daemon of another one.
mkdir "$T/mnt2"
sed "s#^MOUNTPOINT=.*#MOUNTPOINT=$T/mnt2#" "$T/t.conf" >"$T/u.conf"
other() { inside systemctl show -P "$1" penstock@u.service 2>/dev/null; }
pid=$(unit MainPID)
check "a second unit joins the first one's daemon" inside systemctl start penstock@u.service
check "the second unit serves its file" inside cmp "$T/mnt2/2.bin" "$T/www/2.bin"
inside bash -c "kill -KILL $(other MainPID)"
again() { [[ $(other ActiveState) == active && $(other NRestarts) == 1 ]]; }
check "the killed second unit is started again" wait_until 60 again
check "the restarted second unit serves its file" inside cmp "$T/mnt2/2.bin" "$T/www/2.bin"
equal "the first unit has its old process" "$pid" "$(unit MainPID)"
check "the second unit stops" inside systemctl stop penstock@u.service
check_not "the second unit's mount is gone" inside mountpoint -q "$T/mnt2"
check "the first unit still serves its file" inside cmp "$T/mnt/2.bin" "$T/www/2.bin"

check "the first unit stops" inside systemctl stop penstock@t.service
equal "the first unit is inactive without an error" "inactive success" "$(unit ActiveState) $(unit Result)"
check_not "the first unit's mount is gone" inside mountpoint -q "$T/mnt"

sed -i 's/--log [^ ]*//' "$T/t.conf"
inside systemctl start systemd-journald.service penstock@t.service || true
if inside test -S /run/systemd/journal/socket; then
	inside systemctl stop penstock@t.service
	logged() {
		inside journalctl -q -o cat -u penstock@t PRIORITY=6 PENSTOCK_CALL=mount \
			PENSTOCK_OBJECT="$T/mnt" | grep -x "mount: $T/mnt: unmounted"
	}
	check "the unit's log is in the journal, with priorities and fields" wait_until 20 logged
else
	skip "the unit's log is in the journal" "journald does not run here"
fi
kill -KILL "$outer" 2>/dev/null || true
