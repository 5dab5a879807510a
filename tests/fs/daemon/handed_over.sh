#!/usr/bin/env bash
# Without passthrough a loader of root or of the cache's owner reads the data files of complete shards itself,
# not once its grant has expired. What is evicted counts in the quota until the loader closes it.
. "$(dirname "$0")/../../lib.sh"
requires mount loader nginx jq setpriv root

make_shards "$T/www" 3 3000000
shard="shard-000000.tar"
start_nginx
helper() { "$python" "$top_srcdir/tests/fs/daemon/data_file.py" "$@"; }
as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"; }
handed() { stats '.mounts[0].modes.handed_over'; }
read_by_daemon() { stats .reads.bytes; }
samples() { penstock-loader pack --repack "$1"/shard-00000{0..2}.tar -; }
samples "$T/www" >"$T/samples"
same_samples() { samples "$MNT" | cmp - "$T/samples"; }
sum() { sha256sum <"$1" | cut -d ' ' -f 1; }
is_cached() { [[ $(getfattr --absolute-names --only-values -n user.penstock.state "$MNT/$1") == cached ]]; }

mount_penstock "$ORIGIN/json/" --no-passthrough --allow-other --cold-reads direct
equal "a file that is not complete has no data file to hand over" ENODATA "$(helper ask "$MNT/$shard")"
check "cold shards are read through the mount" same_samples
equal "and were not handed over" 0 "$(handed)"
for i in 0 1 2; do
	check "shard $i becomes complete" wait_until 20 is_cached "shard-00000$i.tar"
done
drop_page_cache
before=$(read_by_daemon)
check "complete shards have the same samples" same_samples
equal "all of them were handed over" 3 "$(handed)"
equal "the daemon read nothing for them" "$before" "$(read_by_daemon)"
equal "the share of hits is unknown from now on" null "$(stats .reads.hit_ratio)"

# Who may ask for a data file.
equal "root may ask" ok "$(helper ask "$MNT/$shard")"
chmod 755 "$T"
cp "$top_srcdir/tests/fs/daemon/data_file.py" "$T"
equal "another user may not" EPERM "$(as_nobody "$python" "$T/data_file.py" ask "$MNT/$shard")"
before=$(handed)
equal "another user's loader reads the same samples" "$(sum "$T/samples")" \
	"$(as_nobody "$top_builddir/penstock-loader" pack --repack "$MNT"/shard-00000{0..2}.tar - | sha256sum | head -c 64)"
equal "and is handed nothing" "$before" "$(handed)"
equal "a folder has no data file" ENOTTY "$(helper ask "$MNT")"
equal "nor has a virtual file" ENOTTY "$(helper ask "$MNT/.penstock/stats")"

# Where the cache folder is not visible, or another file has the name, the mount is read.
# shellcheck disable=SC2016 # expanded by the inner shell
hidden() { unshare -m sh -c 'mount -t tmpfs none "$1" && shift && exec "$@"' sh "$CACHE" "$@"; }
if unshare -m --propagation private true 2>/dev/null; then
	equal "a loader that does not see the cache folder reads the same samples" "$(sum "$T/samples")" \
		"$(hidden penstock-loader pack --repack "$MNT"/shard-00000{0..2}.tar - | sha256sum | cut -d ' ' -f 1)"
fi

data_file() { helper where "$MNT/$shard"; }
through_the_mount() { # WHAT: the samples are right, and the daemon read those of one shard
	drop_page_cache
	before=$(read_by_daemon)
	check "$1: the samples are the same" same_samples
	at_least "$1: the shard is read through the mount" $((before + 2900000)) "$(read_by_daemon)"
}
path=$(data_file)
chown 65534 "$path"
through_the_mount "the data file is not the mount's user's"
chown 0 "$path"
mv "$path" "$path.aside"
cp "$T/www/shard-000001.tar" "$path"
through_the_mount "another file has the data file's name"
rm "$path.aside"
fresh() { timeout 20 penstock evict "$MNT" "$shard" && timeout 60 penstock warm -q "$MNT" "$shard"; }
check "the shard is evicted and fetched again" fresh

# Evicted while a reader has it open: the bytes and the room stay until the reader ends.
used() { stats '.cache.used_bytes'; }
mkfifo "$T/fifo"
helper hold "$MNT/$shard" "$T/fifo" >"$T/held" &
holder=$!
held() { [[ -s $T/held ]]; }
check "a reader opens the data file" wait_until 10 held
path=$(head -n 1 "$T/held")
before=$(used)
check "the shard is evicted" timeout 20 penstock evict "$MNT" "$shard"
equal "its bytes are counted as long as it is open" "$before" "$(used)"
echo >"$T/fifo"
wait "$holder"
equal "the reader has the bytes" "$(sum "$T/www/$shard")" "$(tail -n 1 "$T/held")"
freed() { [[ ! -e $path ]] && (($(used) <= before - 3000000)); }
check "once it has ended, the file and its bytes are gone" wait_until 10 freed

# Evictions while a loader reads, again and again.
check "all is cached again" timeout 60 penstock warm "$MNT"
(until [[ -e $T/enough ]]; do
	timeout 20 penstock evict "$MNT" >/dev/null
	timeout 60 penstock warm "$MNT" >/dev/null 2>&1 || true # no room for what the loader holds open
done) &
evictor=$!
again() { for _ in $(seq 20); do same_samples || return 1; done; }
check "samples are the same while shards are evicted and fetched" again
touch "$T/enough"
wait "$evictor"

# A new version of the object.
check "all is cached" timeout 60 penstock warm "$MNT"
rm "$T/fifo" && mkfifo "$T/fifo"
old=$(sum "$T/www/$shard")
helper hold "$MNT/$shard" "$T/fifo" >"$T/held" &
holder=$!
check "a reader opens the old version" wait_until 10 held
make_shards "$T/other" 1 3000000 other
cp "$T/other/$shard" "$T/www/$shard"
touch -d "1 hour ago" "$T/www/$shard"
samples "$T/www" >"$T/samples"
check "the origin is listed again" timeout 20 penstock refresh "$MNT"
check "a loader reads the new version" same_samples
check "all of it is cached" timeout 60 penstock warm "$MNT"
before=$(handed)
check "a loader reads the new version, handed over" same_samples
equal "three shards were handed over" $((before + 3)) "$(handed)"
echo >"$T/fifo"
wait "$holder"
equal "the reader of the old version has its bytes" "$old" "$(tail -n 1 "$T/held")"
umount_penstock

# A grant that is over.
CACHE=$T/cache-granted
mount_penstock "$ORIGIN/listed/" --no-passthrough --header "X-Token: one" --grant-ttl 1s
check "with credentials a shard is cached" timeout 60 penstock warm "$MNT" "$shard"
equal "with a grant it is handed over" ok "$(helper ask "$MNT/$shard")"
(sleep 1.5 && echo) | helper ask-late "$MNT/$shard" >"$T/late"
equal "not once the grant has expired" EACCES "$(head -n 1 "$T/late")"
equal "reads of the open file go on" "$(sum "$T/www/$shard")" "$(tail -n 1 "$T/late")"
equal "an open that renews the grant is handed it again" ok "$(helper ask "$MNT/$shard")"
umount_penstock

# A mount that passes files through needs none of this.
CACHE=$T/cache
mount_penstock "$ORIGIN/"
if [[ $(stats .passthrough.active) == true ]]; then
	check "all is cached" timeout 60 penstock warm "$MNT"
	check "samples are the same, passed through" same_samples
	equal "nothing was handed over" 0 "$(handed)"
fi
