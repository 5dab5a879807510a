#!/usr/bin/env bash
# penstock refresh lists a mount's sources again: new names appear and deleted ones disappear at once,
# whatever the kernel has cached. A listing that fails removes no name; open files can still be read. A second
# mount of a source lists it again, too.
. "$(dirname "$0")/../../lib.sh"
. "$top_srcdir/tests/fs/origins/hub_lib.sh"
requires mount nginx jq python3

refresh() { timeout 60 penstock refresh "$MNT" | sed '/contains no versions/d'; }
hints() { timeout 60 penstock refresh "$MNT" | grep -c -- "contains no versions.*--revalidate" || true; }
names() { (cd "$1" && find . -type f | sed 's,^\./,,' | sort | xargs); }

mkdir -p "$T/www/sub" "$T/www/past/deep"
random_file "$T/www/stays.tar" 3000000
random_file "$T/www/goes.tar" 9000000
random_file "$T/www/changes.tar" 5000
random_file "$T/www/sub/x.tar" 5000
random_file "$T/www/past/deep/y.tar" 5000
cp -r "$T/www" "$T/first"
start_nginx
mount_penstock "$ORIGIN/json/" --allow_other # that listing has versions
check "the kernel has cached all names" stat "$MNT/goes.tar" "$MNT/changes.tar" "$MNT/past/deep/y.tar"
check_not "the kernel has cached that a name is missing" test -e "$MNT/new.tar"
exec 5<"$MNT/goes.tar" 6<"$MNT/changes.tar"
head -c 100000 <&5 >"$T/part"
rm -r "$T/www/goes.tar" "$T/www/past"
random_file "$T/www/new.tar" 6000
random_file "$T/www/sub/new.tar" 6000
random_file "$T/www/changes.tar" 7000 other
equal "before a refresh, the mount shows the old names" \
	"changes.tar goes.tar past/deep/y.tar stays.tar sub/x.tar" "$(names "$MNT")"
touch "$T/negative"
check_not "the kernel has cached that a name in a folder is missing" test -e "$MNT/sub/new.tar"
equal "refresh reports the listed, new and deleted files" "5 files listed, 2 new, 2 gone" "$(refresh)"
check "a new name is shown at once" cmp "$MNT/new.tar" "$T/www/new.tar"
check "a new name in a folder is shown at once" cmp "$MNT/sub/new.tar" "$T/www/sub/new.tar"
check_not "a deleted name is gone at once, also for stat" stat "$MNT/goes.tar"
check_not "a deleted folder is gone with all its files" stat "$MNT/past/deep/y.tar"
equal "ls shows the new names" "changes.tar new.tar stays.tar sub" "$(cd "$MNT" && echo *)"
equal "a new version has its size at once" 7000 "$(stat -c %s "$MNT/changes.tar")"
check "a new version has its bytes at once" cmp "$MNT/changes.tar" "$T/www/changes.tar"
equal "an open file whose name was deleted keeps its size" 9000000 "$(stat -L -c %s /proc/self/fd/5)"
equal "an open file of an older version keeps its size" 5000 "$(stat -L -c %s /proc/self/fd/6)"
check "an open file of an older version gives old bytes or an error" \
	"$python" - "$T/first/changes.tar" <<'PY'
import os, sys
try: got = os.pread(6, 100000, 0)
except OSError: sys.exit(0)
sys.exit(got != open(sys.argv[1], "rb").read())
PY
exec 5<&- 6<&-
equal "another refresh finds no change" "5 files listed, 0 new, 0 gone" "$(refresh)"
equal "refresh says how changed contents are seen" 1 "$(hints)"
at_most "the statistics have the time of the listing" 5 $(($(date +%s) - $(stats .mounts[0].listed_at)))

# A file that is open and cached can be read to its end after its name was deleted.
random_file "$T/www/goes.tar" 9000000
cp "$T/www/goes.tar" "$T/goes.tar"
refresh >/dev/null
cat "$MNT/goes.tar" >/dev/null
exec 5<"$MNT/goes.tar"
head -c 100000 <&5 >"$T/part"
rm "$T/www/goes.tar"
refresh >/dev/null
check_not "the name of the open file is gone" test -e "$MNT/goes.tar"
cat <&5 >>"$T/part"
exec 5<&-
check "the open file was read to its end" cmp "$T/part" "$T/goes.tar"

# Which users may refresh.
if ((EUID == 0)) && command -v setpriv >/dev/null; then
	rc=0
	chmod 711 "$T"
	setpriv --reuid=12345 --regid=12345 --clear-groups -- timeout 60 env HOME=/nonexistent penstock refresh "$MNT" \
		>"$T/out" 2>&1 || rc=$?
	equal "another user may not refresh" \
		"1 1" "$rc $(grep -c "only root and the owner of the mount may do this" "$T/out")"
fi

# Many refreshes at once share listings. Without the origin a refresh fails and removes no name.
: >"$T/nginx/access.log"
refreshing=()
for _ in {1..20}; do
	refresh >>"$T/out" &
	refreshing+=($!)
done
failed=0
for p in "${refreshing[@]}"; do wait "$p" || failed=$((failed + 1)); done
equal "twenty refreshes at once succeed" 0 "$failed"
kill_nginx
rm "$T/www/new.tar"
rc=0
refresh >"$T/out" 2>&1 || rc=$?
equal "refresh without the origin fails" 1 "$rc"
check "the error has the reason" grep -qE "no name was removed: .*(refused|connect)" "$T/out"
check "status says that the listing failed" grep -q "listing again failed" <(penstock status "$MNT")
equal "the names are kept after a failed listing" \
	"changes.tar new.tar stays.tar sub/new.tar sub/x.tar" "$(names "$MNT")"
restart_nginx
equal "refresh succeeds once the origin is back" "4 files listed, 0 new, 1 gone" "$(refresh)"
check_not "status no longer says that the listing failed" \
	grep -q "listing again failed" <(penstock status "$MNT")
mv "$T/www" "$T/away"
mkdir "$T/www"
check_not "an empty listing is a failure" refresh
equal "the names are kept after an empty listing" \
	"changes.tar stays.tar sub/new.tar sub/x.tar" "$(names "$MNT")"
rmdir "$T/www"
mv "$T/away" "$T/www"

# A second mount of the same source.
random_file "$T/www/later.tar" 100
mkdir "$T/m2"
check_not "the first mount does not show a new name" test -e "$MNT/later.tar"
check "a second mount succeeds" penstock mount "$ORIGIN/json/" "$T/m2" --cache-dir "$CACHE"
check "the second mount shows the new name" cmp "$T/m2/later.tar" "$T/www/later.tar"
check "the first mount then shows the new name" cmp "$MNT/later.tar" "$T/www/later.tar"
rm "$T/www/later.tar"
refresh >/dev/null
check_not "a name that refresh finds deleted is gone from the first mount" test -e "$MNT/later.tar"
check_not "a name that refresh finds deleted is gone from the second mount" test -e "$T/m2/later.tar"
penstock umount "$T/m2"

# Unmounting and SIGTERM while the mount is refreshed again and again and its folders are read.
for way in umount signal; do
	((${#refreshing[@]} == 0)) || refreshing=()
	is_mounted || mount_penstock "$ORIGIN/json/"
	daemon=$(stats .pid)
	for i in 1 2; do
		while is_mounted; do refresh; done >>"$T/out" 2>&1 &
		refreshing+=($!)
		while is_mounted; do find "$MNT" -name none-of-these -o -path "*/nothing$i/x"; done >>"$T/out" 2>&1 &
		refreshing+=($!)
	done
	for i in {1..5}; do
		random_file "$T/www/more-$i.tar" 10
		sleep 0.1
		rm "$T/www/more-$i.tar"
	done
	if [[ $way == umount ]]; then penstock umount --lazy "$MNT"; else kill "$daemon"; fi
	wait "${refreshing[@]}" 2>/dev/null || true
	check "a daemon that is told to stop ($way) while names are refreshed ends" \
		wait_until 30 bash -c "! kill -0 $daemon 2>/dev/null"
done

# Other kinds of sources.
mkdir "$T/dir"
random_file "$T/dir/a.bin" 100
mount_penstock "$T/dir/"
random_file "$T/dir/b.bin" 100
check_not "a folder: a new file is not shown before the refresh" test -e "$MNT/b.bin"
equal "a folder: refresh reports the new file" "2 files listed, 1 new, 0 gone" "$(refresh)"
equal "a folder: refresh gives no hint about contents" 0 "$(hints)"
check "a folder: the new file is read" cmp "$MNT/b.bin" "$T/dir/b.bin"
umount_penstock
echo "$ORIGIN/stays.tar" >"$T/list.txt"
mount_penstock "@$T/list.txt"
printf '%s\n' "$ORIGIN/stays.tar" "$ORIGIN/changes.tar" >"$T/list.new"
mv "$T/list.new" "$T/list.txt"
equal "a list: refresh reports the new line" "2 files listed, 1 new, 0 gone" "$(refresh)"
check "a list: the added file is read" cmp "$MNT/changes.tar" "$T/www/changes.tar"
echo "$ORIGIN/changes.tar" >"$T/list.txt"
equal "a list: refresh reports the removed line" "1 file listed, 0 new, 1 gone" "$(refresh)"
rm "$T/list.txt"
check_not "a list: refresh without the list fails" refresh
equal "a list: the names stay when the list is missing" changes.tar "$(names "$MNT")"
umount_penstock

mkdir "$T/dir2"
random_file "$T/dir2/c.bin" 100
timeout 60 penstock mount one="$T/dir/" two="$T/dir2/" "$MNT" --cache-dir "$CACHE" --log "$T/penstock.log"
random_file "$T/dir/d.bin" 100
random_file "$T/dir2/e.bin" 100
equal "refresh lists all sources of a mount" "5 files listed, 2 new, 0 gone" "$(refresh)"
check "the new file of the second source is read" cmp "$MNT/two/e.bin" "$T/dir2/e.bin"
umount_penstock

# The Hub: a branch that moves.
start_hub
old=$(commit a) new=$(commit b)
random_file "$old/same.tar" 9000
random_file "$old/gone.tar" 9000
cp "$old/same.tar" "$new/same.tar"
random_file "$new/made.tar" 5000
point main a
mount_penstock hf://acme/shards
cat "$MNT/same.tar" >/dev/null
point main b
check "another mount shows the new commit" penstock mount hf://acme/shards "$T/m2" --cache-dir "$CACHE"
equal "another mount shows the new commit's files" "made.tar same.tar" "$(names "$T/m2")"
equal "the first mount shows them as well" "made.tar same.tar" "$(names "$MNT")"
penstock umount "$T/m2"
point main a
equal "refresh follows the branch" "2 files listed, 1 new, 1 gone" "$(refresh)"
check "a file of the branch's commit is read" cmp "$MNT/gone.tar" "$old/gone.tar"
umount_penstock
