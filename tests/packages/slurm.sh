#!/usr/bin/env bash
# tests/packages/slurm.sh DIR: installs the packages in DIR and Slurm on this system, runs slurmctld, two
# slurmd in namespaces that stand for nodes, and jobs of two users with penstock-slurm. Run it only in a
# disposable root: scripts/deb --test makes one.
. "${0%/*}/lib.sh"
disposable scripts/deb
in_cgroup2 "$@"
packages=$1

# Nothing is started by the packages.
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
apt update
apt install slurmctld slurmd slurm-client munge nginx-light fuse3 procps util-linux "$packages"/*.deb
skip() {
	echo "SKIPPED: slurm.sh: $*"
	exit 77
}
slurmd -N x -C >"$work/out" 2>&1 || skip "slurmd cannot be several nodes: $(tail -n 1 "$work/out")"

useradd -m alice
useradd -m bob
mkdir "$work/in" "$work/served" "$work/run" /nvme
chmod 1777 "$work/run"
for i in {0..23}; do
	head -c 100000 /dev/urandom >"$work/in/$i.bin"
	echo "$i" >"$work/in/$i.cls"
done
penstock-loader pack "$work/in" "$work/served/x-%06d.tar" --max-count 4 >"$work/out"
(cd "$work/served" && sha256sum -- *.tar) >"$work/sums"
cat >"$work/nginx.conf" <<-END
	pid $work/nginx.pid;
	error_log $work/error.log;
	worker_processes 1;
	events {}
	http {
		access_log $work/access.log;
		server {
			listen 127.0.0.1:8769;
			root $work/served;
			autoindex on;
			location /slow/ { alias $work/served/; autoindex on; limit_rate 50k; }
			location /alice/ {
				alias $work/served/; autoindex on;
				if (\$http_authorization != "Bearer alice") { return 403; }
			}
		}
	}
END
nginx -c "$work/nginx.conf"
origin=http://127.0.0.1:8769
stop_origin() { kill -"$1" "$(cat "$work/nginx.pid")" "$(pgrep -P "$(cat "$work/nginx.pid")")"; } # SIGNAL

# Slurm ------------------------------------------------------------------------------------------------------

mkdir -p "$work/munge" "$work/state" /etc/slurm
head -c 1024 /dev/urandom >"$work/munge/key"
chmod 400 "$work/munge/key"
munged --force --socket="$work/munge/socket" --key-file="$work/munge/key" --pid-file="$work/munge/pid" \
	--log-file="$work/munge/log" --seed-file="$work/munge/seed" 2>"$work/out"
cat >/etc/slurm/slurm.conf <<-END
	ClusterName=test
	SlurmctldHost=localhost(127.0.0.1)
	SlurmctldPort=26817
	SlurmUser=root
	SlurmdUser=root
	AuthInfo=socket=$work/munge/socket
	StateSaveLocation=$work/state
	SlurmdSpoolDir=$work/spool.%n
	SlurmctldPidFile=$work/slurmctld.pid
	SlurmdPidFile=$work/slurmd.%n.pid
	SlurmctldLogFile=$work/slurmctld.log
	SlurmdLogFile=$work/slurmd.%n.log
	ProctrackType=proctrack/linuxproc
	TaskPlugin=task/none
	MpiDefault=none
	SelectType=select/cons_tres
	SelectTypeParameters=CR_CPU
	SlurmdParameters=config_overrides
	ReturnToService=2
	KillWait=2
	BatchStartTimeout=25
	SlurmdTimeout=15
	PrologFlags=Alloc
	Prolog=/usr/bin/penstock-slurm
	Epilog=/usr/bin/penstock-slurm
	TaskProlog=/usr/bin/penstock-slurm
	NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port=27001 CPUs=4
	NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port=27002 CPUs=4
	PartitionName=all Nodes=n1,n2 Default=YES
END
# (Slurm's own use of control groups is not needed, and refuses a mixture of versions.)
echo "CgroupPlugin=cgroup/v1" >/etc/slurm/cgroup.conf
cat >/etc/penstock-slurm.conf <<-END
	names = shared
	sources = yes
	cache-dir = /nvme/users
	options = --cache-size 1G --memory 64M
	mount-time = 10s
	warm-time = 10s
END
cat >/etc/penstock.conf <<-END
	[shared]
	source = $origin/
	cache-dir = /nvme/site
	cache-size = 1G
END

# A node has its own /run/penstock, disk, processes and control groups. Its process 1 starts slurmd again, as
# systemd does; killing process 1 is a power cut.
declare -A node_pid
node() { # NAME
	mkdir -p "/sys/fs/cgroup/$1" "$work/nvme.$1" /run/penstock
	# shellcheck disable=SC2016 # for the inner shell
	(
		echo "$BASHPID" >"/sys/fs/cgroup/$1/cgroup.procs"
		exec unshare --mount --cgroup --pid --fork --kill-child --propagation private bash -uc '
			mount -t proc proc /proc
			umount -l /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup
			mount -t tmpfs tmpfs /run/penstock
			mount --bind "$2/nvme.$1" /nvme
			mount -t tmpfs tmpfs /mnt
			mknod -m 666 /mnt/fuse c 10 229 && mount --bind /mnt/fuse /dev/fuse
			reboot=-b
			while :; do
				slurmd -D -N "$1" $reboot
				reboot=
				sleep 0.5
			done
		' bash "$1" "$work"
	) >>"$work/node.$1.log" 2>&1 &
	node_pid[$1]=$!
}
inside() { # NODE COMMAND...
	nsenter -t "$(pgrep -P "${node_pid[$1]}" -x bash)" -m -p -C -- "${@:2}"
}
power_cut() { # NODE
	kill -KILL "$(pgrep -P "${node_pid[$1]}" -x bash)"
	wait "${node_pid[$1]}" 2>/dev/null || true
}
slurmctld
node n1
node n2
state() { sinfo -h -n "$1" -o %t; }
is_state() { [[ $(state "$1") == "$2" ]]; }
ready() { is_state n1 idle && is_state n2 idle; }
check "two nodes are idle" wait_until 60 ready
ready || {
	tail -n 5 "$work"/slurm*.log
	exit 1
}

as() { runuser -u "$1" -- "${@:2}"; } # USER COMMAND...
# submit USER COMMENT SCRIPT [OPTION...]: sets job.
submit() {
	job=$(cd "$work/run" &&
		as "$1" sbatch --parsable -o "$work/run/%j.out" -w n1 --comment="$2" "${@:4}" --wrap "$3")
}
ended() { [[ ! $(squeue -h -j "${1-$job}" 2>/dev/null) ]]; }
result() { scontrol -o show job "${1-$job}" | grep -oE 'JobState=[A-Z]+|ExitCode=[0-9:]+' | paste -sd ' '; }
begun() { grep -x begun "$work/run/$job.out"; } # its script runs, after the prolog
# completed [JOB]: it ends, and ends well.
completed() {
	wait_until 60 ended "$@" || return 1
	[[ $(result "$@") != "JobState=COMPLETED ExitCode=0:0" ]] || return 0
	result "$@" && cat "$work/run/${1-$job}".* && return 1
}
# clean NODE: nothing of any job is left there, and it takes jobs.
no_trace() {
	inside "$1" bash -c '! grep fuse.penstock /proc/mounts && ! pgrep -l -x penstock &&
		! ls /run/penstock/jobs | grep .'
}
clean() {
	if wait_until 30 no_trace "$1" && wait_until 30 is_state "$1" idle; then return; fi
	inside "$1" ps -ef
	state "$1"
	return 1
}
sums="sha256sum -c --quiet $work/sums"
said() { grep -F -- "$1" "$work/run/${2-$job}.out"; }

# A job's life -----------------------------------------------------------------------------------------------

# shellcheck disable=SC2016 # for the jobs' shells
{
	submit alice "a note penstock:x=$origin/" 'cd $PENSTOCK_MOUNTS/x && pwd -P && '"$sums"
	check "a job reads what it names in its comment" completed
	check "the job has PENSTOCK_MOUNTS" said "/run/penstock/jobs/$job/x"
	check "nothing is left after the job" clean n1
	submit alice "" 'ls /run/penstock/jobs/$SLURM_JOB_ID; echo "<$PENSTOCK_MOUNTS>"'
	check "a job without a comment runs" completed
	check "it has no mounts" said "<>"
	submit alice "penstock:shared penstock-warm:shared" 'cd $PENSTOCK_MOUNTS/shared && '"$sums"
	check "a job reads a mount of the site" completed
	check "nothing is left of the site's mount" clean n1

	# On two nodes, with srun
	as alice srun -N 2 -n 2 --comment="penstock:x=$origin/" \
		sh -c 'cd $PENSTOCK_MOUNTS/x && '"$sums"' && echo $SLURMD_NODENAME' >"$work/srun" 2>&1 || true
	check "a job of two nodes reads on both" same "n1 n2" "$(sort "$work/srun" | paste -sd ' ')"
	check "nothing is left on its first node" clean n1
	check "nothing is left on its second node" clean n2
	as alice salloc -w n1 --comment="penstock:x=$origin/" \
		sh -c 'sleep 1; srun sh -c "cd \$PENSTOCK_MOUNTS/x && '"$sums"' && echo read"' \
		>"$work/salloc" 2>&1 || true
	check "a step of an allocation reads" grep -x read "$work/salloc"
	check "nothing is left of the allocation" clean n1

	# Two jobs of one user, and one of another's
	wait_for='until [ -e '"$work/run/go"' ]; do sleep 0.1; done;'
	submit alice "penstock:x=$origin/" "$wait_for"' cd $PENSTOCK_MOUNTS/x && '"$sums"
	first=$job
	submit alice "penstock:y=$origin/" 'cd $PENSTOCK_MOUNTS/y && '"$sums"'; exit 3'
	second=$job
	submit bob "penstock:x=$origin/" \
		"$wait_for"' cd $PENSTOCK_MOUNTS/x && '"$sums && ! ls /run/penstock/jobs/$first/x"
	third=$job
	check "the second job of a user ends" wait_until 60 ended "$second"
	check "it read, and failed by its own exit code" \
		same "JobState=FAILED ExitCode=3:0" "$(result "$second")"
	check "the other jobs' mounts are still there" wait_until 20 \
		same 2 "$(inside n1 grep -c fuse.penstock /proc/mounts)"
	check "each user has one daemon" same 2 "$(inside n1 pgrep -c -x penstock -r S,R,D)"
	touch "$work/run/go"
	check "the first job reads after the second one's epilog" completed "$first"
	check "another user's job reads at the same time, and not the first one's mount" completed "$third"
	check "nothing is left after both" clean n1
	rm "$work/run/go"

	# Credentials
	printf '[x]\nsource = %s/alice/\nheader = @/home/alice/token\n' "$origin" >/home/alice/run.conf
	echo "Authorization: Bearer alice" >/home/alice/token
	chown alice /home/alice/{run.conf,token} && chmod 600 /home/alice/{run.conf,token}
	submit alice "penstock:x@/home/alice/run.conf" 'cd $PENSTOCK_MOUNTS/x && '"$sums"
	check "a job reads with the token in its user's file" completed
	submit bob "penstock:x@/home/alice/run.conf" 'ls $PENSTOCK_MOUNTS/x/x-000000.tar'
	check "another user's job ends" wait_until 60 ended
	check "another user's job does not have the mount" same "JobState=FAILED ExitCode=2:0" "$(result)"
	check "and its output has the reason" \
		said "penstock: penstock:x@/home/alice/run.conf: penstock mount: /home/alice/run.conf: Perm"
	check "a user's mistake does not drain the node" clean n1

	# Cancelled, requeued
	submit alice "penstock:x=$origin/slow/" 'echo begun; cd $PENSTOCK_MOUNTS/x && cat *.tar >/dev/null'
	check "a job that reads is running" wait_until 30 begun
	sleep 1
	scancel "$job"
	check "it is cancelled" wait_until 30 ended
	check "nothing is left of the cancelled job" clean n1
	stop_origin STOP
	submit alice "penstock:x=$origin/hangs/" 'ls $PENSTOCK_MOUNTS/x'
	in_prolog() { inside n1 pgrep -f "penstock mount $origin/hangs/"; }
	check "a prolog waits for an origin that does not answer" wait_until 30 in_prolog
	scancel "$job"
	check "its job is cancelled" wait_until 30 ended
	stop_origin CONT
	check "nothing is left of a job that was cancelled during its prolog" clean n1
	submit alice "penstock:x=$origin/" 'cd $PENSTOCK_MOUNTS/x && '"$sums"' || exit
		if [ ${SLURM_RESTART_COUNT-0} = 0 ]; then touch '"$work/run"'/again; sleep 100; fi' --requeue
	first_run() { [[ -e $work/run/again ]]; }
	check "a job reads in its first run" wait_until 30 first_run
	scontrol requeue "$job"
	scontrol update "jobid=$job" starttime=now
	again() { scontrol update "jobid=$job" starttime=now 2>/dev/null; ended; }
	check "the requeued job ends" wait_until 100 again
	check "the requeued job reads in its second run" completed
	check "nothing is left of the requeued job" clean n1

	# slurmd ends, power cuts
	submit alice "penstock:x=$origin/" "echo begun; $wait_for"' cd $PENSTOCK_MOUNTS/x && '"$sums"
	check "a job waits" wait_until 30 begun
	inside n1 pkill -KILL -x slurmd
	sleep 2
	touch "$work/run/go"
	check "a job reads though slurmd was killed and started again" completed
	check "nothing is left after it" clean n1
	rm "$work/run/go"
	stop_origin STOP
	submit alice "penstock:x=$origin/hangs/" "true"
	check "another job's prolog waits" wait_until 30 in_prolog
	inside n1 pkill -KILL -x slurmd
	stop_origin CONT
	check "Slurm gives up the job whose prolog ended with slurmd" wait_until 120 again
	check "nothing is left of it" clean n1
	submit alice "penstock:x=$origin/" \
		"echo begun; $wait_for"' cd $PENSTOCK_MOUNTS/x && '"$sums" --requeue
	check "another job waits" wait_until 30 begun
	power_cut n1
	check "after the power cut the job's daemon is gone" wait_until 10 not pgrep -u alice -x penstock
	node n1
	touch "$work/run/go"
	check "after a reboot the job runs again, or has failed" wait_until 100 again
	check "nothing is left on the rebooted node" clean n1
	submit alice "penstock:x=$origin/" 'cd $PENSTOCK_MOUNTS/x && '"$sums"
	check "the rebooted node runs jobs" completed
	check "nothing is left there" clean n1

	# What drains
	mv /etc/penstock-slurm.conf "$work/site.conf"
	sed "s|/nvme/users|/dev/null|" "$work/site.conf" >/etc/penstock-slurm.conf
	submit alice "penstock:x=$origin/" 'ls $PENSTOCK_MOUNTS/x'
	drained() { [[ $(state n1) == drain* ]]; }
	check "a node that cannot make a cache is drained" wait_until 30 drained
	requeued() { [[ $(squeue -h -j "$job" -o %t) == PD ]]; }
	check "its job waits for another node" wait_until 30 requeued
	no_jobs() { inside n1 bash -c '! ls /run/penstock/jobs | grep .'; }
	check "the epilog leaves nothing of the prolog that failed" wait_until 30 no_jobs
	mv "$work/site.conf" /etc/penstock-slurm.conf
	scontrol update nodename=n1 state=resume
	scontrol release "$job"
	check "it runs when the node is right again" wait_until 100 again
	check "it reads then" completed
	check "nothing is left of it" clean n1

	# An array makes indexes: docs/guides/slurm.md
	mkdir "$work/run/shards" && cp "$work/served"/*.tar "$work/run/shards/"
	chown -R alice "$work/run/shards"
	(
		awk '/^```/ {on = 0} on; /^```sh index.sh/ {on = 1}' /penstock/docs/guides/slurm.md
	) >"$work/run/index.sh"
	sed -i "s|/lustre/train|$work/run/shards|" "$work/run/index.sh"
	job=$(cd "$work/run" && as alice sbatch --parsable -o "$work/run/%A_%a.out" index.sh)
	check "the array of the guide ends" wait_until 100 ended
	check "its parts joined are right" as alice penstock-loader index --verify "$work/run/shards"
	mkdir "$work/alone" && cp "$work/served"/*.tar "$work/alone/"
	penstock-loader index --catalogue "$work/alone" >"$work/out"
	check "its parts joined are byte for byte those of one run" \
		diff -r "$work/run/shards" "$work/alone" -x '.SHARDS.psc.lock'
}
check "clean asks Slurm which jobs live" inside n1 penstock-slurm clean n1

scontrol shutdown || true
for name in n1 n2; do power_cut "$name"; done
wait_until 20 not pgrep -x slurmctld || true
kill "$(cat "$work/munge/pid")"
stop_nginx
verdict
