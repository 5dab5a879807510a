#!/usr/bin/env bash
# Mounts of other users, which may be any program: one that never answers does not hang the commands that look
# at all mounts, and texts with control characters do not reach the terminal. A user's commands speak of that
# user's mounts.
. "$(dirname "$0")/../../lib.sh"
requires mount root unshare setpriv fusermount3 jq mount-namespace
[[ -u $(readlink -f "$(command -v fusermount3)") ]] || skip_all "fusermount3 is not set-uid"

# The test has a mount namespace with a device that the users may open.
[[ ${1-} == inside ]] || exec unshare -m --propagation private bash "$0" inside
forget_others_mounts
mkdir "$T/dev"
mount -t tmpfs none "$T/dev"
device() { mknod -m 666 "$T/dev/fuse" c 10 229 && mount --bind "$T/dev/fuse" /dev/fuse && : <>/dev/fuse; }
device 2>"$T/device.out" || skip_all "no device file can be made here"

alice=65534 mallory=$(id -u daemon) # fusermount3 wants users of /etc/passwd
mkdir -p "$T/www" "$T/alice/m" "$T/stuck" "$T/lies"
random_file "$T/www/f.bin" 100000
chmod -R a+rX "$T"
chown -R "$alice" "$T/alice"
chown "$mallory" "$T/stuck" "$T/lies"
as() {
	setpriv --reuid="$1" --regid="$1" --clear-groups -- timeout 60 \
		env -u XDG_CACHE_HOME -u XDG_CONFIG_HOME -u PENSTOCK_CACHE_DIR -u PENSTOCK_CONFIG \
		HOME="$T/alice" "${@:2}"
}
pose() {
	setpriv --reuid="$mallory" --regid="$mallory" --clear-groups -- \
		"$top_builddir/tests/fs/cli/posing_mount" "$1" "subtype=penstock" "$2" &
	check "another user's program poses as penstock" wait_until 20 is_mounted "$1"
}
# Children are named after the mount that they ask.
# shellcheck disable=SC2009 # pgrep does not know states
stuck_children() { ps -eo stat=,comm= | grep -c "^D.* penstock-$number\$"; }

# A mount that never answers ---------------------------------------------------------------------------------

pose "$T/stuck" hang
number=$(printf %x \
	"$(awk -v where="$T/stuck" '$5 == where {sub(".*:", "", $3); print $3}' /proc/self/mountinfo)")
# ends WHAT COMMAND...: in a pipe; 124: only the time limit ends it
ends() {
	local rc=0 took
	# shellcheck disable=SC2016 # for the inner shell
	took=$(milliseconds bash -c 'timeout -s KILL 20 "$@" 2>&1 | timeout 10 cat >"$0"' "$T/out" "${@:2}") || rc=$?
	equal "$1 in a pipe returns" 0 "$rc"
	at_most "$1 in a pipe returns within 3 s (ms)" 3000 "$took"
}
ends status penstock status
equal "status has one line for the stuck mount" 1 "$(wc -l <"$T/out")"
check "the line says what to do" \
	grep -q "^penstock status: $T/stuck: its daemon does not answer.* penstock umount --force" "$T/out"
ends "status --check" penstock status --check
ends metrics penstock metrics
check "metrics count it as down" grep -qF "penstock_up{mount=\"$T/stuck\"} 0" "$T/out"
at_most "later calls leave no further process that cannot be killed" 1 "$(stuck_children)"
mkdir "$T/cwd"
rc=0
(cd "$T/cwd" && timeout -s KILL 60 penstock report - 2>"$T/err" | timeout 50 cat >"$T/report.tar.gz") ||
	rc=$?
equal "report in a pipe returns" 0 "$rc"
check "the report has the other parts" grep -q status.json <(tar tzf "$T/report.tar.gz")

# A user's own mounts ----------------------------------------------------------------------------------------

equal "a user without mounts is told so" "no penstock mounts of this user" "$(as $alice penstock status 2>&1)"
check "a user mounts" as $alice penstock mount "$T/www/" "$T/alice/m"
rc=0
as $alice penstock status >"$T/out" 2>&1 || rc=$?
equal "a user's status ends well" 0 "$rc"
check "it shows the user's mount" grep -q "^$T/alice/m  file://$T/www/" "$T/out"
check_not "it does not speak of another user's" grep -q "$T/stuck" "$T/out"
equal "a user's --check is about the user's mounts" "0 penstock ok: 1 mount" \
	"$(rc=0; as $alice penstock status --check >"$T/out" 2>&1 || rc=$?; echo "$rc $(cat "$T/out")")"
equal "so is --json" "$T/alice/m" \
	"$(as $alice penstock status --json 2>&1 | jq -r '.daemons[] | .mountpoint // .mounts[0].mountpoint')"
as $alice penstock metrics >"$T/out" 2>&1
check "a user's metrics have the user's mount" grep -qF "penstock_up{mount=\"$T/alice/m\"} 1" "$T/out"
check_not "and no other" grep -q "$T/stuck" "$T/out"
as $alice penstock pin --list >"$T/out" 2>&1 || true
check_not "a user's list of pinned files does not speak of others' mounts" grep -q "$T/stuck" "$T/out"
mount_penstock "$T/www/" --allow_other
check "a user's status shows what root has mounted for all" grep -q "^$MNT " <(as $alice penstock status)
check "root's status shows the user's mount" grep -q "^$T/alice/m " <(penstock status 2>/dev/null)
check "a user's mount that is asked for by name is shown" penstock status "$T/alice/m"
check "the user unmounts" as $alice penstock umount "$T/alice/m"
check "root unmounts the stuck mount" timeout 20 penstock umount --force "$T/stuck"
ended() { [[ $(stuck_children) == 0 ]]; }
check "the processes that hung end with it" wait_until 10 ended

# Texts with control characters ------------------------------------------------------------------------------

esc=$'\e' bell=$'\a'
title="${esc}]0;owned${bell}${esc}[31m"
jq -n --arg title "$title" '($title + "a\nb\u009b2J\u007f") as $t | {
	version: $t, pid: 2, cache: {dir: $t, disk_error: $t, used_bytes: 1, limit_bytes: 2},
	origin: {last_error: $t, last_error_at: now | floor,
		latency_seconds: {buckets: {($t): 1}, count: 1, sum: 1}},
	plans: {ranks: [{job: $t, age_seconds: 1}]}, sandbox: {active: false, reason: $t},
	mounts: [{mountpoint: $t, source: $t, listing_error: $t, missing: 1, missing_names: [$t],
		include: [$t], passthrough: {reason: $t}, tier: {tiers: [{state: "aside", url: $t, last_error: $t}]}},
		{mountpoint: $t}]}' >"$T/stats.json"
chmod a+r "$T/stats.json"
pose "$T/lies" "$T/stats.json"
# Bytes that a terminal may obey, in any of its encodings.
controls() { LC_ALL=C grep -aPc '[\x00-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f]' "$1" || true; }
for command in "status" "status $T/lies" "status --check" "status --json" "metrics" "warm $T/lies" \
	"pin --list $T/lies" "upgrade $T/lies" "umount $T/lies"; do
	# shellcheck disable=SC2086
	timeout 30 penstock $command >"$T/out" 2>&1 || true
	equal "penstock $command prints no control characters of another user's mount" 0 "$(controls "$T/out")"
	check "penstock $command prints something" test -s "$T/out" -o "${command%% *}" = umount
	[[ $command != "status $T/lies" ]] || cp "$T/out" "$T/status.out"
done
check "they are shown escaped" grep -qF '\x1b]0;owned\x07\x1b[31ma\nb\x9b2J\x7f' "$T/status.out"
equal "a line break in a text makes no line of its own" 0 "$(grep -c '^b' "$T/status.out" || true)"
# A mountpoint with control characters, which mountinfo has raw.
where="$T/${esc}[2Jx-▁é漢"
mkdir "$where"
penstock mount "$T/www/" "$where" --cache-dir "$CACHE"
penstock status >"$T/out" 2>&1
equal "the path of a mount is printed without control characters" 0 "$(controls "$T/out")"
check "and its other characters unchanged" grep -qF "$T/\\x1b[2Jx-▁é漢  file://" "$T/out"
(cd "$T/cwd" && penstock report "$T/report2.tar.gz" >"$T/out" 2>&1)
mkdir "$T/r"
tar xzf "$T/report2.tar.gz" -C "$T/r"
cat "$T"/r/*/* >"$T/all"
equal "the report has no control characters" 0 "$(controls "$T/all")"
penstock umount "$where"
