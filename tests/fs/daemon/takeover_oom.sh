#!/usr/bin/env bash
# A control group runs out of memory: the kernel kills the daemon and not its keeper, which starts the next
# one. Readers see a pause.
PS_TEST_TIMEOUT=${PS_TEST_TIMEOUT:-150}
. "$(dirname "$0")/../../lib.sh"
requires mount nginx root
! sanitized "$top_builddir/penstock" || skip_all "a sanitizer's memory is not the daemon's"
release=$(uname -r)
release=${release%%-*}
[[ $(printf '%s\n' 6.10 "$release" | sort -V | head -n 1) == 6.10 ]] || skip_all "needs Linux 6.10 or later"

# A group with a limit: of cgroup v2, or of v1's memory controller.
group='' limit='' swap=''
for hierarchy in /sys/fs/cgroup /sys/fs/cgroup/unified; do
	if [[ -w $hierarchy/cgroup.subtree_control ]] && grep -qw memory "$hierarchy/cgroup.controllers" 2>/dev/null; then
		echo +memory >"$hierarchy/cgroup.subtree_control" 2>/dev/null || true
		group=$hierarchy/penstock-oom-$$ limit=memory.max swap=memory.swap.max
	fi
done
[[ $group || ! -w /sys/fs/cgroup/memory/cgroup.procs ]] ||
	group=/sys/fs/cgroup/memory/penstock-oom-$$ limit=memory.limit_in_bytes
{ [[ $group ]] && mkdir "$group" 2>/dev/null; } || skip_all "no control group with a memory limit can be made"
if [[ ! -w $group/$limit ]]; then
	rmdir "$group"
	skip_all "the control group has no memory limit"
fi

mkdir -p "$T/www"
for i in 1 2 3 4; do random_file "$T/www/$i.bin" 5000000 "$i"; done
start_nginx
# The kernel is to choose the daemon, which is larger than the keeper, and not who takes the memory.
(
	echo 1000 >/proc/self/oom_score_adj
	mount_penstock "$ORIGIN/limit/" --memory 32M
)
pid=$(stats .pid)
keeper=$(awk '/^PPid:/ {print $2}' "/proc/$pid/status")
echo "$keeper" >"$group/cgroup.procs"
echo "$pid" >"$group/cgroup.procs"
echo 64M >"$group/$limit"
[[ ! $swap || ! -e $group/$swap ]] || echo 0 >"$group/$swap"
exec 7<"$MNT/4.bin"

# Readers that read three files over and over: first from the origin at 20 MB/s, then from the cache.
cat >"$T/reader.py" <<'PY'
import os, sys
mnt, www, stop = sys.argv[1:]
n = 0
while not os.path.exists(stop) or n < 3:
    name = f"{n % 3 + 1}.bin"
    with open(f"{mnt}/{name}", "rb") as f, open(f"{www}/{name}", "rb") as right:
        if f.read() != right.read():
            sys.exit(f"wrong bytes of {name}")
    n += 1
PY
readers=()
for _ in 1 2 3 4; do
	"$python" "$T/reader.py" "$MNT" "$T/www" "$T/stop" 2>>"$T/readers.out" &
	readers+=($!)
done

# eat PID: a process of the group takes memory until the daemon PID is killed.
eat() {
	"$python" - "$group/cgroup.procs" "$1" <<'PY'
import os, sys
procs, victim = sys.argv[1], sys.argv[2]
open(procs, "w").write(str(os.getpid()))
def dead():
    try:
        return open(f"/proc/{victim}/stat").read().rsplit(") ", 1)[1][0] in "ZX"
    except (OSError, IndexError):
        return True
eaten = []
while not dead():
    if len(eaten) > 1024:
        sys.exit("the daemon was not killed")
    eaten.append(bytearray(b"x" * (256 << 10)))
PY
}
next_pid() { [[ $(stats .pid 2>/dev/null) != "$1" ]]; }
for round in 1 2; do
	pid=$(stats .pid)
	check "memory runs out ($round)" eat "$pid"
	check "the next daemon answers ($round)" wait_until 20 next_pid "$pid"
	equal "the keeper is the same ($round)" "$keeper" "$(awk '/^PPid:/ {print $2}' "/proc/$(stats .pid)/status")"
	sleep 1.1
done
touch "$T/stop"
rc=0
for reader in "${readers[@]}"; do wait "$reader" || rc=$?; done
equal "the readers saw no error and no wrong byte" "0 " "$rc $(cat "$T/readers.out")"
check "a file that was open all the time is right" cmp "$T/www/4.bin" - <&7
exec 7<&-
check "the log has the reason" grep -q "keeper: the daemon was killed by signal 9" "$T/penstock.log"
umount_penstock
check "no process of the mount is left in the group" wait_until 20 rmdir "$group"
