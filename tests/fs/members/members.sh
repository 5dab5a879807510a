#!/usr/bin/env bash
# --members shows each shard as a folder of its members: the same names, sizes, times and bytes as tar
# extracts. Tables of members and inode numbers stay the same after restarts and kills. Opens and reads of
# what the kernel has cached send no request to the daemon.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq getfattr zstd python3

# shard NAME SEED: a tar of 40 files in two folders, and the same files extracted.
shard() {
	mkdir -p "$T/extracted/$1/class-a" "$T/extracted/$1/class-b"
	for i in {1..20}; do
		random_file "$T/extracted/$1/class-a/$i.jpg" $((i * 7919)) "$2-a$i"
		random_file "$T/extracted/$1/class-b/$i.jpg" $((i * 104729 % 60000)) "$2-b$i"
	done
	tar -C "$T/extracted/$1" -cf "$T/www/$1.tar" --sort=name --mtime=@1700000000 class-a class-b
}
attr() { getfattr --absolute-names --only-values -n "user.penstock.$1" "$2"; }
tree() { (cd "$1" && find . -mindepth 1 -printf '%y %s %T@ %p\n' | sed 's/^d [0-9]* [0-9.]* /d /' | sort); }
members() { stats ".mounts[0].members.$1"; }

mkdir -p "$T/www/sub"
shard one 1
shard two 2
shard sub/three 3
shard packed 4
touch -d @1700000000 "$T"/extracted/*/*/*.jpg "$T"/extracted/*/*/*/*.jpg
zstd -q --rm "$T/www/packed.tar"
echo notes >"$T/www/notes.txt"
mkdir -p "$T/www/taken"
cp "$T/www/one.tar" "$T/www/taken.tar"
echo x >"$T/www/taken/file"
start_nginx
mount_penstock "$ORIGIN/json/" --members

equal "a shard is a folder, named without .tar unless that name is taken; other files are shown as they are" \
	"notes.txt one packed sub taken taken.tar two" "$(cd "$MNT" && echo *)"
equal "at first no shard is known, and the unknown bytes are those of all shards" \
	"0 5 $(($(cat "$T"/www/*.tar "$T"/www/sub/*.tar | wc -c) + $(attr size "$MNT/packed")))" \
	"$(members known) $(members shards) $(members unknown_bytes)"
check "status says what it costs to read the other shards" grep -qE \
	'^  members   0 files in 0 of 5 shards; the other shards .*first access' \
	<(penstock status "$MNT")
check "stat of a shard's folder succeeds" test "$(stat -c %F "$MNT/one")" = directory
equal "stat of a shard's folder makes no table" 0 "$(members known)"
for name in one two packed sub/three; do
	equal "$name has the names, sizes and times of its members" \
		"$(tree "$T/extracted/$name")" "$(tree "$MNT/$name")"
	check "$name has the bytes of its members" diff -r "$T/extracted/$name" "$MNT/$name"
done
check "the shard whose short name is taken has its members" diff -r "$T/extracted/one" "$MNT/taken.tar"
equal "the folder that has the short name is shown" x "$(cat "$MNT/taken/file")"
check_not "a shard is not shown as a file" test -f "$MNT/one.tar"
equal "a file beside the shards is read" notes "$(cat "$MNT/notes.txt")"
equal "all tables are known" "5 0 200" "$(members known) $(members unknown_bytes) $(members files)"
check "a part of a member is read" cmp <(tail -c 1000 "$MNT/one/class-a/20.jpg") \
	<(tail -c 1000 "$T/extracted/one/class-a/20.jpg")
check_not "a file of a shard cannot be written" bash -c "echo >'$MNT/one/class-a/1.jpg'"
check_not "a name that no member has is missing" stat "$MNT/one/class-a/21.jpg"
check_not "a member is not a folder" stat "$MNT/one/class-a/1.jpg/x"

equal "a member's attributes say where it is" \
	"$ORIGIN/json/one.tar class-a/3.jpg $((3 * 7919)) cached" \
	"$(for name in shard key size state; do attr $name "$MNT/one/class-a/3.jpg" && echo; done | xargs)"
check "the attribute offset is the member's offset in the shard" cmp \
	<(tail -c +$(($(attr offset "$MNT/one/class-a/3.jpg") + 1)) "$T/www/one.tar" | head -c $((3 * 7919))) \
	"$T/extracted/one/class-a/3.jpg"
equal "a shard's folder has the attributes of the shard" \
	"$ORIGIN/json/one.tar $(stat -c %s "$T/www/one.tar") cached" \
	"$(attr url "$MNT/one") $(attr size "$MNT/one") $(attr state "$MNT/one")"

# The kernel does not request what it has cached.
cat "$MNT/one/class-a/5.jpg" >/dev/null
before=$(stats .mounts[0].reads.bytes)
opens=$(stats .mounts[0].opens)
for _ in {1..20}; do cat "$MNT/one/class-a/5.jpg" >/dev/null; done
equal "files that were read are opened and read again without a request to the daemon" "$before $opens" \
	"$(stats .mounts[0].reads.bytes) $(stats .mounts[0].opens)"

# .penstock
before=$(stats .mounts[0].reads.bytes)
drop_page_cache
cat "$MNT/two/class-b/7.jpg" >/dev/null
at_least "each read of .penstock/stats shows the present" $((before + 1)) "$(stats .mounts[0].reads.bytes)"
equal ".penstock lists its files" "cache_metrics metrics plan stats" "$(cd "$MNT/.penstock" && echo *)"
check "metrics count the members" grep -q '^penstock_mount_members_files{.*} 200$' "$MNT/.penstock/metrics"
coproc TELL { exec "$python" "$top_srcdir/tests/fs/prefetch/tell_plan.py" "$MNT/.penstock/plan"; }
teller=$TELL_PID
plan='{"penstock_plan": 1, "job": "j", "rank": 0, "epoch": 1, "files": ["one.tar", "sub/three.tar"]}'
printf '%s\n' "$plan" >&"${TELL[1]}"
read -r -t 30 answer <&"${TELL[0]}"
equal "a plan that names shards is accepted" "ok 1" "$answer $(jq .active "$MNT/.penstock/plan")"
kill -KILL "$teller"
wait "$teller" 2>/dev/null || true
check "the plan ends with its descriptor" wait_until 10 \
	bash -c "test \$(jq .active '$MNT/.penstock/plan') = 0"

# Commands work on shards.
check "warm fetches shards" test "$(penstock warm "$MNT" | sed 's/,.*//')" = "7 files"
check "evict drops one shard" test "$(penstock evict "$MNT" one | sed 's/,.*//')" = "1 file evicted"
equal "nothing of the evicted shard is cached" 0 "$(attr cached "$MNT/one")"
check "the evicted shard lists the same names" diff <(tree "$T/extracted/one") <(tree "$MNT/one")
equal "listing the evicted shard fetches nothing" 0 "$(attr cached "$MNT/one")"
drop_page_cache "$MNT/one"
check "the evicted shard's bytes are fetched again" diff -r "$T/extracted/one" "$MNT/one"
check "pin pins a shard" test "$(penstock pin "$MNT" two | sed 's/ pinned.*//')" = "1 file"
equal "the attribute pinned of the shard is yes" yes "$(attr pinned "$MNT/two")"
check "refresh succeeds" penstock refresh "$MNT"

# Restarts and kills.
find "$MNT" -printf '%i %p\n' | sort >"$T/inodes"
umount_penstock
mount_penstock "$ORIGIN/json/" --members
find "$MNT" -printf '%i %p\n' | sort >"$T/inodes2"
check "after a restart all members have the same inode numbers" cmp "$T/inodes" "$T/inodes2"
at_most "known shards are listed without reading them" 5 "$(stats .origin.requests)"
kill_penstock
mount_penstock "$ORIGIN/json/" --members
find "$MNT" -printf '%i %p\n' | sort >"$T/inodes2"
check "after a kill all members have the same inode numbers" cmp "$T/inodes" "$T/inodes2"
check "after a kill members have the right bytes" diff -r "$T/extracted/sub/three" "$MNT/sub/three"
umount_penstock

mount_penstock "$ORIGIN/json/" --members=both
equal "--members=both shows the shards, too" \
	"notes.txt one one.tar packed packed.tar sub taken taken.tar two two.tar" \
	"$(cd "$MNT" && echo *)"
check "--members=both shows shards as files" cmp "$MNT/two.tar" "$T/www/two.tar"
check "--members=both shows the members beside the shards" diff -r "$T/extracted/two" "$MNT/two"
equal "--members=both lists each name once" "" "$(cd "$MNT" && find . | sort | uniq -d)"
