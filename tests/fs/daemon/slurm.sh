#!/usr/bin/env bash
# penstock-slurm as slurmd runs it, with the environment that Slurm 22.05 gives: what jobs see, whose rights
# and credentials are used, what drains a node, and that nothing is left. (tests/packages/slurm.sh has Slurm.)
. "$(dirname "$0")/../../lib.sh"
requires mount root nginx getfattr unshare setpriv fusermount3 jq mount-namespace
[[ -u $(readlink -f "$(command -v fusermount3)") ]] || skip_all "fusermount3 is not set-uid"

# The test has a mount namespace with two users and a device that they may open.
[[ ${1-} == inside ]] || exec unshare -m --propagation private bash "$0" inside
forget_others_mounts
mkdir "$T/dev" "$T/etc"
mount -t tmpfs none "$T/dev"
mount -t tmpfs none /run
device() { mknod -m 666 "$T/dev/fuse" c 10 229 && mount --bind "$T/dev/fuse" /dev/fuse && : <>/dev/fuse; }
device 2>"$T/device.out" || skip_all "no device file can be made here"
chmod 755 "$T"
# /etc is a copy with two more users.
cp -a /etc "$T/copy" && mount --bind "$T/copy" /etc
printf '%s\n' "alice:x:64101:64101::$T/alice:/bin/sh" "bob:x:64102:64102::$T/bob:/bin/sh" >>/etc/passwd
echo '[other]' >"$T/etc/penstock.conf"
ln -sf "$T/etc/penstock.conf" /etc/penstock.conf
install -d -o 64101 -g 64101 "$T/alice" "$T/alice/.config"
install -d -o 64102 -g 64102 "$T/bob"
make_shards "$T/www/a" 3 2000000
make_shards "$T/www/b" 2 300000 7
start_nginx

program=$top_srcdir/scripts/penstock-slurm
export PENSTOCK_SLURM_CONF=$T/etc/penstock-slurm.conf
jobs=$T/run/jobs
settings() { printf '%s\n' "mounts = $jobs" "$@" >"$PENSTOCK_SLURM_CONF"; }
mine=("sources = yes" "cache-dir = $T/caches" "options = --cache-size 1G --memory 64M --log $T/mounts.log"
	"mount-time = 20s" "warm-time = 20s")
touch "$T/mounts.log" && chmod 666 "$T/mounts.log"
settings "${mine[@]}"

# context CONTEXT JOB UID COMMENT [NAME=VALUE...]: runs the program as slurmd does.
context() {
	env -i PATH="$PATH" SLURM_SCRIPT_CONTEXT="$1" SLURM_JOB_ID="$2" SLURM_JOB_UID="$3" SLURM_JOB_GID=0 \
		SLURM_JOB_COMMENT="$4" PENSTOCK_SLURM_CONF="$PENSTOCK_SLURM_CONF" "${@:5}" \
		timeout 60 "$program" 7>&- >>"$T/slurmd.log" 2>&1
}
alice=64101 bob=64102
prolog() { context prolog_slurmd "$@"; }
epilog() { context epilog_slurmd "$@"; }
as() { setpriv --reuid="$1" --regid="$1" --clear-groups -- "${@:2}"; }
same() { as "$1" diff -r "$2" "$3" -x .penstock; }
mounts_of_jobs() { grep -c " $jobs/.* fuse.penstock" /proc/self/mountinfo || true; }
# daemons UID: prints the process IDs of that user's penstock processes, without zombies.
daemons() { pgrep -r R,S,D -x -u "$1" penstock || true; }
nothing_left() { # JOB
	[[ ! -e $jobs/$1 && ! $(daemons $alice) && ! $(daemons $bob) ]] && (($(mounts_of_jobs) == 0))
}
# task JOB: what the task prolog prints.
task() { as $alice env SLURM_SCRIPT_CONTEXT=prolog_task SLURM_JOB_ID="$1" "$program"; }
clean() { env PATH="$T/bin:$PATH" "$program" clean n1; }
# ends JOB UID: the epilog, after which nothing may be left.
ends() {
	check "the epilog succeeds (job $1)" epilog "$1" "$2" ''
	check "the epilog leaves no folder, mount or daemon (job $1)" nothing_left "$1"
}
errors() { as "${2-$alice}" cat "$jobs/$1/ERRORS"; }

# Jobs that ask for nothing
mv "$PENSTOCK_SLURM_CONF" "$T/aside"
check "a job without a comment needs nothing" prolog 1 $alice ''
check "a job with another comment needs nothing" prolog 1 $alice 'a note; see https://x/ penstock'
check_not "such a job gets no folder" test -e "$jobs"
check "an epilog without a prolog succeeds" epilog 1 $alice ''
check "without the site's file the job is let run" prolog 1 $alice "penstock:a=$ORIGIN/a/"
mv "$T/aside" "$PENSTOCK_SLURM_CONF"
check "its user reads why nothing is mounted" \
	grep -F "penstock-slurm.conf: it is not there" /run/penstock/jobs/1/ERRORS

# A job's life
check "the prolog mounts a source" prolog 11 $alice "a note penstock:a=$ORIGIN/a/ penstock:b=$ORIGIN/b/"
check "the job reads the right bytes" same $alice "$T/www/a" "$jobs/11/a"
check "the job reads the right bytes of its second source" same $alice "$T/www/b" "$jobs/11/b"
check_not "another user cannot look into it" as $bob ls "$jobs/11/a"
check_not "the job has no ERRORS" test -e "$jobs/11/ERRORS"
equal "the user's cache is the user's alone" "700 $alice" "$(stat -c '%a %u' "$T/caches/$alice")"
pid=$(daemons $alice)
equal "one daemon serves the user" 1 "$(wc -w <<<"$pid")"
session() { ps -o sid= -p "$1" | tr -d ' '; }
check_not "the daemon has left the prolog's session" test "$(session "$pid")" = "$(session $$)"
equal "the task prolog names the folder" "export PENSTOCK_MOUNTS=$jobs/11" \
	"$(task 11)"
ids() { awk -v below="$jobs/$1/" 'index($5, below) == 1 {print $1, $3}' /proc/self/mountinfo; }
before=$(ids 11)
check "a second prolog succeeds" prolog 11 $alice "penstock:a=$ORIGIN/a/ penstock:b=$ORIGIN/b/"
equal "a second prolog leaves mounts as they are" "$before" "$(ids 11)"
origin_forget
check "a second job of the user begins" prolog 12 $alice "penstock:x=$ORIGIN/a/"
check "the second job reads the right bytes" same $alice "$T/www/a" "$jobs/12/x"
equal "the second job fetches nothing again" 0 "$(origin_bytes /a/shard)"
equal "both jobs have one daemon" "$pid" "$(daemons $alice)"
check "the first job ends" epilog 11 $alice ''
check_not "the first job's folder is gone" test -e "$jobs/11"
check "the second job still reads" same $alice "$T/www/a" "$jobs/12/x"
check "the epilog succeeds twice" epilog 11 $alice ''
check "the epilog of one job leaves the other's mount" same $alice "$T/www/a" "$jobs/12/x"
ends 12 $alice

# Requeued with another comment, without an epilog
check "a job begins" prolog 13 $alice "penstock:a=$ORIGIN/a/ penstock:b=$ORIGIN/b/"
check "the same job begins again with another comment" prolog 13 $alice "penstock:a=$ORIGIN/b/"
check "a changed word is mounted again" same $alice "$T/www/b" "$jobs/13/a"
equal "a word that is gone is unmounted" 1 "$(mounts_of_jobs)"
ends 13 $alice

# Mistakes of users
bad() { # WHAT WORD TEXT
	check "$1: the prolog succeeds, the node is not drained" prolog 20 $alice "$2"
	check "$1: the user reads why" grep -F -- "$3" <(errors 20)
	check_not "$1: other users cannot read why" as $bob cat "$jobs/20/ERRORS"
	equal "$1: nothing is mounted" 0 "$(mounts_of_jobs)"
	epilog 20 $alice ''
}
bad "a source that is not there" "penstock:a=$ORIGIN/none/" "404"
bad "an origin that does not listen" "penstock:a=http://127.0.0.1:9/" "127.0.0.1:9"
bad "no source" "penstock:a=nonsense" "nonsense"
bad "a name that leads elsewhere" "penstock:../../etc=$ORIGIN/a/" "not NAME"
bad "the name of the file of errors" "penstock:ERRORS=$ORIGIN/a/" "not NAME"
bad "an option in place of a source" "penstock:a=--help" "no source"
bad "an unknown name" "penstock:nothing" "nothing"
bad "a relative file" "penstock:a@x.conf" "absolute path"
check "the other words of such a job are mounted" prolog 21 $alice "penstock:a=nonsense penstock:b=$ORIGIN/b/"
check "what could be mounted is read" same $alice "$T/www/b" "$jobs/21/b"
check_not "what could not be mounted is not there" test -e "$jobs/21/a"
check "the job's output has the reason" grep -F "print penstock: penstock:a=nonsense" <(task 21)
ends 21 $alice
settings
check "a site that allows nothing lets the job run" prolog 22 $alice "penstock:a=$ORIGIN/a/"
check "the user reads that the site allows no sources" grep -F "allows no others" <(errors 22)
ends 22 $alice

# Files of others are not read with root's rights
settings "${mine[@]}"
printf '[a]\nsource = %s/a/\n' "$ORIGIN" >"$T/etc/root.conf"
echo "shard-000000.tar TOPSECRET" >"$T/etc/root.list"
chmod 600 "$T/etc/root.conf" "$T/etc/root.list"
bad "a configuration that the user may not read" "penstock:a@$T/etc/root.conf" "root.conf"
check "a list that the user may not read does not drain the node" prolog 23 $alice \
	"penstock:a=$ORIGIN/a/ penstock-plan:a=$T/etc/root.list"
check_not "nothing of that list is shown" grep -r TOPSECRET "$jobs/23/ERRORS" "$T/slurmd.log"
check "the user reads that it cannot be read" grep -F "root.list" <(errors 23)
ends 23 $alice
mkdir -m 700 "$T/private" && cp "$T/www/b/"* "$T/private/"
bad "a local source that the user may not read" "penstock:a=$T/private/" "ermission denied"

# Credentials: each job has those of its own files
echo "X-Token: secret" >"$T/alice/good"
echo "X-Token: wrong" >"$T/alice/bad"
for token in good bad; do
	printf '[a]\nsource = %s/token/a/\nheader = @%s\n' "$ORIGIN" "$T/alice/$token" \
		>"$T/alice/$token.conf"
done
printf '[mine]\nsource = %s/b/\n' "$ORIGIN" >"$T/alice/.config/penstock.conf"
chown -R alice "$T/alice" && chmod 600 "$T"/alice/{good,bad}*
check "a job with its own token begins" prolog 31 $alice "penstock:a@$T/alice/good.conf"
check "a job with its own token reads" same $alice "$T/www/a" "$jobs/31/a"
check "a job of the same user with another token begins" prolog 32 $alice "penstock:a@$T/alice/bad.conf"
check_not "the second job cannot read what was cached with the first job's token" \
	as $alice cat "$jobs/32/a/shard-000000.tar"
check "the user's own penstock.conf has names" prolog 33 $alice "penstock:mine"
check "such a name is read" same $alice "$T/www/b" "$jobs/33/mine"
epilog 31 $alice '' && epilog 32 $alice ''
ends 33 $alice
check "a job begins while root's environment has a password" prolog 34 $alice "penstock:a=$ORIGIN/basic/a/" \
	PENSTOCK_USER_PASSWORD=user:pass:word HOME="$T/alice"
check "root's environment is not used for a job" grep -F 401 <(errors 34)
ends 34 $alice

# The site's mounts
printf '%s\n' '[shared]' "source = $ORIGIN/basic/a/" "user-file = $T/etc/password" "cache-dir = $T/site" \
	'cache-size = 1G' "log = $T/site.log" >"$T/etc/penstock.conf"
echo user:pass:word >"$T/etc/password"
chmod 600 "$T/etc/password"
settings "names = shared"
check "a site's name is mounted where users may mount no sources" prolog 41 $alice "penstock:shared"
check "the job reads it" same $alice "$T/www/a" "$jobs/41/shared"
check "another user's job has it, too" prolog 42 $bob "penstock:shared"
origin_forget
check "the other user's job reads it" same $bob "$T/www/a" "$jobs/42/shared"
equal "the site's cache is shared by users" 0 "$(origin_bytes /basic/a/shard)"
equal "no daemon is a user's" "" "$(daemons $alice)$(daemons $bob)"
settings "names = other" "${mine[@]}"
epilog 41 $alice ''
ends 42 $bob
# (That name is now one of /etc/penstock.conf that the site does not mount for jobs.)
bad "a name that is not for jobs" "penstock:shared" "there is no [shared]"
check "root's daemon has ended" wait_until 10 no_daemon

# Fetching for a limited time
settings "${mine[@]}"
cached() { # DIR: the states of its shards
	# shellcheck disable=SC2016 # for the inner shell
	as $alice sh -c 'cd "$0" && getfattr -n user.penstock.state ./*.tar' "$1" |
		sed -n 's/.*state="\(.*\)"/\1/p' | xargs
}
check "a job warms what matches" prolog 51 $alice "penstock:b=$ORIGIN/json/b/ penstock-warm:b=*1.tar"
equal "what matches is cached when the job begins" "remote cached" "$(cached "$jobs/51/b")"
check "a second prolog warms the rest" prolog 51 $alice "penstock:b=$ORIGIN/json/b/ penstock-warm:b"
equal "all is cached" "cached cached" "$(cached "$jobs/51/b")"
ends 51 $alice
rm -rf "$T/caches"
printf '%s\n' '# the order of epoch 0' shard-000002.tar shard-000000.tar >"$T/alice/plan"
check "a job warms by its plan" prolog 52 $alice "penstock:a=$ORIGIN/a/ penstock-plan:a=$T/alice/plan"
equal "what the plan lists is cached" "cached remote cached" "$(cached "$jobs/52/a")"
check_not "there are no ERRORS" test -e "$jobs/52/ERRORS"
ends 52 $alice
rm -rf "$T/caches"
settings "${mine[@]}" "warm-time = 2s"
begin=$SECONDS
check "a slow origin does not hold up the job" prolog 53 $alice "penstock:a=$ORIGIN/slow/a/ penstock-warm:a"
at_most "the prolog ends soon after warm-time" 10 $((SECONDS - begin))
check "the job has the mount all the same" as $alice head -c 1000 "$jobs/53/a/shard-000000.tar"
check_not "fetching too little is no error" test -e "$jobs/53/ERRORS"
ends 53 $alice

# An origin that hangs, a prolog that is killed
settings "${mine[@]}" "mount-time = 3s"
hang() { # SIGNAL
	local master workers
	master=$(cat "$T/nginx/nginx.pid")
	read -ra workers <"/proc/$master/task/$master/children" || true
	kill -"$1" "$master" "${workers[@]}"
}
hang STOP
begin=$SECONDS
check "an origin that hangs does not drain the node" prolog 61 $alice "penstock:a=$ORIGIN/json/a/"
at_most "the prolog ends soon after mount-time" 12 $((SECONDS - begin))
check "the user reads that it took too long" grep -F "mount-time" <(errors 61)
check "the epilog succeeds while the origin hangs" epilog 61 $alice ''
settings "${mine[@]}"
# shellcheck disable=SC2016 # for the inner shell
setsid bash -c 'echo $$ >"$0"; exec env "$@"' "$T/prolog.pid" -i PATH="$PATH" \
	SLURM_SCRIPT_CONTEXT=prolog_slurmd SLURM_JOB_ID=62 SLURM_JOB_UID=$alice \
	SLURM_JOB_COMMENT="penstock:a=$ORIGIN/json/a/" \
	PENSTOCK_SLURM_CONF="$PENSTOCK_SLURM_CONF" "$program" >>"$T/slurmd.log" 2>&1 &
check "a prolog waits for its origin" wait_until 10 pgrep -u $alice -x penstock
kill -KILL -- "-$(cat "$T/prolog.pid")"
check "the epilog after a killed prolog succeeds" epilog 62 $alice ''
hang CONT
sleep 1
check "nothing is left of a killed prolog, also when the origin answers" nothing_left 62

# What jobs leave
check "a job begins" prolog 71 $alice "penstock:a=$ORIGIN/a/"
# shellcheck disable=SC2016 # for the inner shell
as $alice sh -c 'cd "$0/71/a" && exec 3<shard-000000.tar && exec sleep 1000' "$jobs" &
has_open() { [[ $(readlink "/proc/$(pgrep -x -u $alice sleep)/fd/3") == "$jobs/71/a/"* ]]; }
check "a process that outlives its job uses the mount" wait_until 10 has_open
ends 71 $alice
kill -KILL "$(pgrep -x -u $alice sleep)"
check "a job begins" prolog 72 $alice "penstock:a=$ORIGIN/a/"
kill_daemon "$(daemons $alice)"
check_not "a killed daemon does not answer" as $alice ls "$jobs/72/a"
ends 72 $alice
mkdir "$T/alice/.aws"
printf '[default]\ncredential_process = %s\n' "$T/alice/stays" >"$T/alice/.aws/config"
printf '#!/bin/sh\nsetsid -f sleep 7.3e3 >/dev/null 2>&1 </dev/null\nexit 1\n' >"$T/alice/stays"
chmod 755 "$T/alice/stays" && chown -R alice "$T/alice"
if [[ -w /sys/fs/cgroup/cgroup.procs || -w /sys/fs/cgroup/unified/cgroup.procs ]]; then
	bad "a user's command that gives no credentials" "penstock:a=s3://bucket/x/" "redential"
	check_not "the epilog ends what that command left" pgrep -r R,S,D -u $alice -f 7.3e3
else
	skip "the epilog ends what a user's command left" "no control groups of version 2 can be made"
fi
mkdir -p "$T/bin"
printf '#!/bin/sh\necho 75\n' >"$T/bin/squeue"
chmod 755 "$T/bin/squeue"
prolog 74 $alice "penstock:a=$ORIGIN/a/"
prolog 75 $alice "penstock:b=$ORIGIN/b/"
check "clean succeeds" clean
check_not "clean removes what Slurm does not have any more" test -e "$jobs/74"
check "clean leaves what Slurm has" same $alice "$T/www/b" "$jobs/75/b"
printf '#!/bin/sh\nexit 1\n' >"$T/bin/squeue"
check_not "without an answer of squeue, clean fails" clean
check "and removes nothing" same $alice "$T/www/b" "$jobs/75/b"
ends 75 $alice

# What drains a node
exits() { # WHAT STATUS COMMAND...
	local rc=0
	"${@:3}" || rc=$?
	equal "$1" "$2" "$rc"
}
mkdir "$T/few" && ln -s /usr/bin/* "$T/few/" && rm -f "$T/few/penstock"
exits "a node without penstock is drained" 1 \
	context prolog_slurmd 81 $alice "penstock:a=$ORIGIN/a/" PATH="$T/few"
exits "a job that asks for nothing runs there" 0 context prolog_slurmd 81 $alice "" PATH="$T/few"
touch "$T/cache-file"
settings "sources = yes" "cache-dir = $T/cache-file"
exits "a node whose cache cannot be made is drained" 1 prolog 82 $alice "penstock:a=$ORIGIN/a/"
epilog 82 $alice ''
mount --bind "$T/cache-file" /dev/fuse
exits "a node without /dev/fuse is drained" 1 prolog 83 $alice "penstock:a=$ORIGIN/a/"
umount /dev/fuse
exits "an epilog without SLURM_JOB_ID says so" 1 context epilog_slurmd '' $alice ''

# The site's file
settings "${mine[@]}"
check "a right file is right" "$program" check
settings "sources = maybe" "nonsense" "warm-time = soon" "colour = red" "sources = yes" "# a comment" ""
"$program" check >"$T/check.out" 2>&1 && fail "a wrong file is reported"
for line in 2 3 4 5; do
	check "line $line is reported" grep -F "penstock-slurm.conf:$line:" "$T/check.out"
done
check "a missing cache-dir is reported" grep -F "needs a cache-dir" "$T/check.out"
settings "${mine[@]}"
for mode in 664 646; do
	chmod $mode "$PENSTOCK_SLURM_CONF"
	check_not "a file of mode $mode is wrong" "$program" check
	check "the job is let run" prolog 84 $alice "penstock:a=$ORIGIN/a/"
	check "its user reads that others may write the file" grep -F "only root may own or write it" \
		/run/penstock/jobs/84/ERRORS
	check_not "nothing is mounted for it" test -e "$jobs/84/a"
	check "the epilog succeeds" epilog 84 $alice ''
done
