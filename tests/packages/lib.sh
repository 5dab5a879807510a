# shellcheck shell=bash
# What the tests of packages share. Each begins with
#
#     . "${0%/*}/lib.sh"
#     disposable scripts/deb
#     in_cgroup2 "$@"         # some
#
# runs in a root of scripts/bare-root, reports with check and ends with verdict. $work is a folder of its own,
# which verdict removes.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
passed=0 failed=0

# disposable SCRIPT [PARENT]: makes $work, below PARENT [/tmp]; ends the test outside of a root to throw away.
disposable() {
	[[ -d /share ]] || {
		echo "${0##*/}: run this by $1 --test: it installs and removes packages" >&2
		exit 2
	}
	work=$(mktemp -d "${2:-/tmp}/penstock-XXXXXX")
	chmod 755 "$work"
}

# in_cgroup2 ARGUMENT...: runs the test with control groups of version 2, whatever this machine has.
in_cgroup2() {
	[[ ! ${PENSTOCK_CGROUP2-} ]] || return 0
	rmdir "$work"
	# shellcheck disable=SC2016 # for the inner shell
	exec unshare --mount --cgroup bash -euc '
		umount -R -l /sys/fs/cgroup
		mount -t cgroup2 cgroup2 /sys/fs/cgroup
		PENSTOCK_CGROUP2=1 exec "$@"
	' bash "$0" "$@"
}

# check WHAT COMMAND...
check() {
	local what=$1
	shift
	if "$@" >"$work/out" 2>&1; then
		passed=$((passed + 1)) && echo "ok - $what"
	else
		failed=$((failed + 1)) && echo "not ok - $what: $*" && sed 's/^/# /' "$work/out"
	fi
}
not() { ! "$@"; }
same() { [[ $1 == "$2" ]]; }
# wait_until SECONDS COMMAND...
wait_until() {
	local end=$((SECONDS + $1))
	shift
	until "$@" >"$work/last" 2>&1; do
		((SECONDS < end)) || { cat "$work/last" && return 1; }
		sleep 0.2
	done
}
apt() {
	apt-get -q -y --no-install-recommends -o Dpkg::Use-Pty=0 -o Acquire::Retries=3 "$@" \
		>"$work/apt" 2>&1 || { cat "$work/apt" && return 1; }
}
# mounts: prints the number of mounts.
mounts() { findmnt -lno TARGET -t fuse.penstock | wc -l; }

# start_nginx PORT: serves $work/served on loopback.
start_nginx() {
	cat >"$work/nginx.conf" <<-END
		pid $work/nginx.pid;
		error_log $work/error.log;
		events {}
		http {
			access_log off;
			server { listen 127.0.0.1:$1; root $work/served; autoindex on; }
		}
	END
	nginx -c "$work/nginx.conf"
}
stop_nginx() { nginx -c "$work/nginx.conf" -s quit; }

verdict() {
	rm -rf --one-file-system "$work"
	echo "$passed passed, $failed failed"
	((failed == 0))
}
