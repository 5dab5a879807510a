#!/usr/bin/env bash
# What pods of Kubernetes see of a mount, in mount namespaces with the propagation that a container runtime
# sets: the daemon's pod has the node's folder "shared" (Bidirectional), readers "slave" (HostToContainer).
# Secrets are files as kubelet makes them: links to a folder that is replaced atomically.
. "$(dirname "$0")/../../lib.sh"
requires mount root nginx unshare nsenter mount-namespace

# The node: a mount namespace of its own, in which the folder is shared.
[[ ${1-} == inside ]] || exec unshare -m --propagation private bash "$0" inside
forget_others_mounts
make_shards "$T/www/a" 2 300000
start_nginx
mkdir "$T/node" "$T/cache"
mount --bind "$T/node" "$T/node"
mount --make-shared "$T/node"

# pod NAME slave|unchanged: starts a process with a mount namespace that has the node's folder at $T/NAME.
declare -A pods
pod() {
	mkdir "$T/$1"
	# shellcheck disable=SC2016 # for the inner shell
	unshare -m --propagation "$2" sh -euc '
		mount --rbind "$0/node" "$0/$1"
		touch "$0/$1.ready"
		exec sleep 1000' "$T" "$1" >"$T/$1.out" 2>&1 &
	pods[$1]=$!
	wait_until 10 test -e "$T/$1.ready" || die "the pod $1 starts" "$(cat "$T/$1.out")"
}
in_pod() { nsenter -t "${pods[$1]}" -m -- "${@:2}"; }

# secret VERSION TEXT: as kubelet writes a secret's volume.
secret() {
	mkdir -p "$T/secret/..$1"
	echo "$2" >"$T/secret/..$1/header"
	chmod 400 "$T/secret/..$1/header"
	ln -sfn "..$1" "$T/secret/..data.new"
	mv -T "$T/secret/..data.new" "$T/secret/..data"
	ln -sfn ..data/header "$T/secret/header"
}
secret 1 "X-Token: secret"

pod reader slave
pod daemon unchanged
check_not "the reader sees no mount yet" in_pod reader test -e "$T/reader/data/.penstock"
serve() {
	# shellcheck disable=SC2016 # for the inner shell
	in_pod daemon sh -c 'mkdir -p "$2" 2>/dev/null; exec penstock mount -f "$@"' sh "$ORIGIN/token/a/" \
		"$T/daemon/data" --cache-dir "$T/cache" --header "@$T/secret/header" --allow_other \
		--log "$T/penstock.log" &
	server=$!
}
serve
reads() { in_pod "$1" diff -r "$T/www/a" "$T/$1/data" -x .penstock; }
check "a reader that started first sees the mount" wait_until 20 reads reader
check "the secret of a volume is read" reads reader
check "the node sees the mount" test -e "$T/node/data/.penstock/stats"
pod late slave
check "a reader that started later sees it, too" reads late
pod bound slave
in_pod bound sh -c "mkdir -p '$T/only' && mount --rbind '$T/bound/data' '$T/only'"
check "a pod that binds the mountpoint itself reads" in_pod bound test -e "$T/only/.penstock/stats"
in_pod reader umount "$T/reader/data"
check "what a reader unmounts stays for the others" reads late

# The daemon's pod is killed as a whole, and starts again.
pid=$(pgrep -f "penstock mount -f $ORIGIN/token/a/ $T/daemon/data" -n)
kill_daemon "$pid"
wait "$server" 2>/dev/null || true
check_not "without a daemon nothing is read" reads late
check_not "status fails, for a probe" in_pod daemon penstock status "$T/daemon/data"
serve
check "the next daemon removes the dead mount and mounts again" wait_until 20 reads late
check "the reader that had unmounted sees it" wait_until 20 reads reader
check_not "a pod that binds the mountpoint itself does not" in_pod bound cat "$T/only/.penstock/stats"
check "status succeeds, for a probe" in_pod daemon penstock status "$T/daemon/data"
check "status --check says that all is well" in_pod daemon penstock status --check "$T/daemon/data"

# A rotated secret
secret 2 "X-Token: secret"
rm -rf "$T/secret/..1"
check "a replaced secret is found at its name" in_pod daemon penstock refresh "$T/daemon/data"

# The daemon's pod ends.
kill -TERM "$(pgrep -f "penstock mount -f $ORIGIN/token/a/ $T/daemon/data" -n)"
rc=0
wait "$server" || rc=$?
equal "the daemon ends well on SIGTERM" 0 "$rc"
check_not "the node has no mount any more" grep " $T/node/data fuse" /proc/self/mountinfo
check_not "the late reader has none" in_pod late grep " $T/late/data fuse" /proc/self/mountinfo
kill "${pods[@]}"
