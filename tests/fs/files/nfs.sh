#!/usr/bin/env bash
# A dataset copied to a directory that nodes share by NFS (scripts/tier/copy): one node writes, another mounts
# it. The server and both clients run in user-mode Linux, a kernel that runs as a process, since NFS is not in
# all kernels.
PS_TEST_TIMEOUT=${PS_TEST_TIMEOUT:-300}
. "$(dirname "$0")/../../lib.sh"
requires mount root linux.uml modprobe rpc.nfsd rpc.mountd exportfs mount.nfs ip

make_shards "$T/www" 3 6000000
make_shards "$T/new" 3 6000000 7
mkdir -p "$T"/{a,b,mnt,root/lib}
ln -s /usr/lib/uml/modules "$T/root/lib/modules"
cat >"$T/init" <<-END
	#!/bin/bash
	# Process 1. Writes what it finds to $T/facts: NAME VALUE
	export PATH=$top_builddir:/usr/sbin:/usr/bin:/sbin:/bin HOME=$T LC_ALL=C PS_TEST_DIR=$T T=$T
	exec >"$T/init.log" 2>&1
	mount -t proc proc /proc
	mount -t sysfs sysfs /sys
	mount -t devtmpfs devtmpfs /dev
	mount -t tmpfs tmpfs /run
	. "$T/work"
	sync
	/usr/bin/python3 -c 'import ctypes; ctypes.CDLL(None).reboot(0x4321fedc)'
END
cat >"$T/work" <<'END'
fact() { echo "$1" "${@:2}" >>"$T/facts"; }
sums() { (cd "$1" && timeout 60 sha256sum -- *.tar | sort -k2 | sha256sum | cut -c 1-64); }
server() { rpc.nfsd --no-nfs-version 3 --no-udp "$1"; } # THREADS
modprobe -d "$T/root" -a nfsd nfsv4 fuse
ip link set lo up
mount -t tmpfs tmpfs /var/lib/nfs
mkdir -p /var/lib/nfs/{rpc_pipefs,v4recovery,sm,sm.bak}
touch /var/lib/nfs/{etab,rmtab}
mount -t tmpfs tmpfs /srv
mount -t nfsd nfsd /proc/fs/nfsd
echo 10 >/proc/fs/nfsd/nfsv4leasetime
# a newer kernel takes 10 at least
echo 1 >/proc/fs/nfsd/nfsv4gracetime || echo 10 >/proc/fs/nfsd/nfsv4gracetime
exportfs -i -o rw,no_root_squash,fsid=0,no_subtree_check 127.0.0.1:/srv
rpc.mountd --no-nfs-version 3 --no-udp
server 4
for node in a b; do
	mount -t nfs4 -o nosharecache,vers=4.2,actimeo=3 127.0.0.1:/ "$T/$node" && fact mounted "$node"
done

timeout 60 "$TIER/copy" "$T/www" "$T/a/train" && fact copied "$(sums "$T/a/train")"
fact other_node "$(sums "$T/b/train")"
timeout 60 penstock mount "$T/b/train" "$T/mnt" --cache-dir "$T/cache" --log "$T/penstock.log" &&
	fact penstock mounted
fact first "$(sums "$T/mnt")"
fact again "$(sums "$T/mnt")"

# A shard is replaced by another node while it is read here.
cp "$T/new/shard-000001.tar" "$T/www/shard-000001.tar"
new=$(sha256sum <"$T/www/shard-000001.tar" | cut -c 1-64)
{
	head -c 100000 >"$T/begin"
	timeout 60 "$TIER/copy" "$T/www" "$T/a/train" >"$T/copied"
	cat >"$T/rest"
} <"$T/mnt/shard-000001.tar"
fact replaced "$(cat "$T/copied")"
fact while_read "$(cat "$T/begin" "$T/rest" | sha256sum | cut -c 1-64)"
sleep 4 # actimeo
timeout 60 penstock refresh "$T/mnt"
for _ in {1..60}; do
	seen=$({ sha256sum <"$T/mnt/shard-000001.tar"; } 2>/dev/null | cut -c 1-64)
	[[ $seen != "$new" ]] || break
	sleep 0.5
done
fact refreshed "$seen"

# The server is down: what is cached is read; what is not waits until it is back.
sums "$T/mnt" >"$T/read"
echo 3 >/proc/sys/vm/drop_caches
server 0
fact down "$(sums "$T/mnt")"
server 4
timeout 60 penstock evict "$T/mnt"
echo 3 >/proc/sys/vm/drop_caches
server 0
(sleep 3 && server 4) &
fact back "$(sums "$T/mnt")"
wait $!
timeout 60 penstock umount "$T/mnt" && fact penstock unmounted
END
sed -i "1i TIER=$top_srcdir/scripts/tier" "$T/work"
chmod +x "$T/init"
sums() { (cd "$1" && sha256sum -- *.tar | sort -k2 | sha256sum | cut -c 1-64); }
one() { sha256sum <"$1" | cut -c 1-64; }
old=$(sums "$T/www") old_shard=$(one "$T/www/shard-000001.tar") new_shard=$(one "$T/new/shard-000001.tar")
: >"$T/facts"
timeout -k 5 250 linux.uml mem=512M root=none rootfstype=hostfs rootflags=/ rw init="$T/init" \
	con=null con0=null,fd:1 quiet >"$T/uml.log" 2>&1 </dev/null || true
grep -q . "$T/facts" || skip_all "user-mode Linux does not run here: $(tail -n 1 "$T/uml.log")"
fact() { sed -n "s/^$1 //p" "$T/facts"; }

equal "two clients mount the directory" "a b" "$(fact mounted | xargs)"
equal "a dataset is copied to it" "$old" "$(fact copied)"
equal "another node's NFS has it" "$old" "$(fact other_node)"
equal "penstock mounts it there" mounted "$(fact penstock | head -n 1)"
equal "with its bytes" "$old" "$(fact first)"
equal "and again, from the cache" "$old" "$(fact again)"
equal "a shard is replaced by another node" "$T/a/train/shard-000001.tar" "$(fact replaced)"
equal "a reader that had begun before gets the whole old shard" "$old_shard" "$(fact while_read)"
equal "penstock refresh finds the new shard" "$new_shard" "$(fact refreshed)"
equal "while the server is down, what is cached is read" "$(sums "$T/www")" "$(fact down)"
equal "what is not cached waits for the server" "$(sums "$T/www")" "$(fact back)"
equal "it unmounts" unmounted "$(fact penstock | tail -n 1)"
