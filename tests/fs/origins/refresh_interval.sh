#!/usr/bin/env bash
# --refresh: a mount lists its sources again at intervals. New names appear, and deleted ones are gone for the
# kernel, too. A listing that fails or is incomplete removes no name and is logged once. If several mounts
# share a source, the smallest interval is used.
. "$(dirname "$0")/../../lib.sh"
. "$top_srcdir/tests/fs/origins/hub_lib.sh"
requires mount nginx jq python3

names() { (cd "${1:-$MNT}" && find . -type f | sed 's,^\./,,' | sort | xargs); }
shows() { [[ $(names "${2:-$MNT}") == "$1" ]]; }
logged() { grep -c "$1" "$T/penstock.log" || true; }
listed() { grep -c "^GET /json/ " "$T/nginx/access.log" || true; }

mkdir -p "$T/www/closed/deep" "$T/www/open" "$T/m2"
for name in a.tar b.tar open/c.tar closed/d.tar closed/deep/e.tar; do random_file "$T/www/$name" 3000 \
	"$name"; done
start_nginx
all="a.tar b.tar closed/d.tar closed/deep/e.tar open/c.tar"
mount_penstock "$ORIGIN/json/"
equal "without --refresh no listing is planned" "null 0" \
	"$(stats '"\(.mounts[0].next_listing_at) \(.mounts[0].refresh_seconds)"')"
check_not "without --refresh status shows no next listing" grep -q "again in" <(penstock status "$MNT")
umount_penstock

check "a mount with --refresh succeeds" mount_penstock "$ORIGIN/json/" --refresh 1s
equal "a mount with --refresh shows all names" "$all" "$(names)"
equal "the statistics have the interval" 1 "$(stats .mounts[0].refresh_seconds)"
at_most "the statistics have the time of the next listing" \
	2 $(($(stats .mounts[0].next_listing_at) - $(date +%s)))
check "status shows the next listing" grep -qE "listed .* ago, again in [0-9]+ s," <(penstock status "$MNT")
check_not "the kernel has cached that a name is missing" test -e "$MNT/new.tar"
check "the kernel has cached a name" stat "$MNT/b.tar"
random_file "$T/www/new.tar" 500
check "a new shard is shown after a while" wait_until 20 cmp "$MNT/new.tar" "$T/www/new.tar"
rm "$T/www/new.tar" "$T/www/b.tar"
check "deleted names are gone after a while" wait_until 20 shows \
	"a.tar closed/d.tar closed/deep/e.tar open/c.tar"
check_not "stat of a deleted name fails" stat "$MNT/b.tar"

# If the origin refuses one folder, its names stay; other folders are still refreshed.
touch "$T/nginx/closed"
random_file "$T/www/b.tar" 500
rm "$T/www/open/c.tar"
check "changes in other folders are shown when one folder is refused" wait_until 20 shows \
	"a.tar b.tar closed/d.tar closed/deep/e.tar"
equal "the kept names are counted" 4 "$(stats .mounts[0].files)"
before=$(listed)
wait_until 20 bash -c "(( \$(grep -c '^GET /json/ ' '$T/nginx/access.log') >= $before + 2 ))"
equal "the names of the refused folder stay" "a.tar b.tar closed/d.tar closed/deep/e.tar" "$(names)"
equal "the refused folder is logged once" 1 "$(logged 'closed/: forbidden')"
rm "$T/nginx/closed" "$T/www/closed/d.tar"
check "changes in that folder are shown once it is allowed again" \
	wait_until 20 shows "a.tar b.tar closed/deep/e.tar"

# The origin goes away and comes back.
kill_nginx
failing() { penstock status "$MNT" | grep "listing again failed"; }
check "status says that a listing failed" wait_until 20 failing
sleep 4
equal "the failed listing is logged once" 1 "$(logged 'warning: list: .*connect')"
equal "the names stay after failed listings" "a.tar b.tar closed/deep/e.tar" "$(names)"
random_file "$T/www/late.tar" 500
restart_nginx
check "new names are shown when the origin is back" wait_until 30 shows \
	"a.tar b.tar closed/deep/e.tar late.tar"
equal "the successful listing is logged" 1 "$(logged 'listed again, after [0-9]* attempts that failed')"
umount_penstock

# Two mounts that share names: the smallest interval is used for both.
mount_penstock "$ORIGIN/json/" --refresh 1h
at_least "the next listing is in about an hour (s)" \
	3000 $(($(stats .mounts[0].next_listing_at) - $(date +%s)))
check "another mount with --refresh 1s succeeds" \
	penstock mount "$ORIGIN/json/" "$T/m2" --cache-dir "$CACHE" --refresh 1s
equal "the smallest interval is used for both" 1 "$(stats .mounts[0].refresh_seconds)"
random_file "$T/www/both.tar" 500
check "the first mount shows a new name" wait_until 20 cmp "$MNT/both.tar" "$T/www/both.tar"
penstock umount "$T/m2"
equal "the larger interval is used once the other mount has ended" 3600 "$(stats .mounts[0].refresh_seconds)"
before=$(listed)
sleep 2.5
equal "no listing follows for a while" "$before" "$(listed)"
umount_penstock
check_not "an interval below a second is refused" mount_penstock "$ORIGIN/json/" --refresh 100ms
check_not "an invalid interval is refused" mount_penstock "$ORIGIN/json/" --refresh often

# penstock.conf, several sources, and a list that is replaced.
mkdir "$T/dir"
random_file "$T/dir/one.tar" 100
echo "$ORIGIN/a.tar" >"$T/list.txt"
cat >"$T/penstock.conf" <<-CONF
	[both]
	source.dir = $T/dir/
	source.list = @$T/list.txt
	mountpoint = $MNT
	cache-dir = $CACHE
	refresh = 1s
CONF
check "a mount with refresh in penstock.conf succeeds" penstock mount both --config "$T/penstock.conf"
equal "both sources are shown" "dir/one.tar list/a.tar" "$(names)"
random_file "$T/dir/two.tar" 100
printf '%s\n' "$ORIGIN/a.tar" "$ORIGIN/late.tar" >"$T/list.new"
mv "$T/list.new" "$T/list.txt"
check "new names of both sources are shown" \
	wait_until 20 shows "dir/one.tar dir/two.tar list/a.tar list/late.tar"
at_most "both sources have one time of the next listing (s)" \
	2 $(($(stats .mounts[0].next_listing_at) - $(date +%s)))
umount_penstock

# A branch of the Hub that moves.
start_hub
old=$(commit a) new=$(commit b)
random_file "$old/same.tar" 9000
random_file "$old/gone.tar" 9000
cp "$old/same.tar" "$new/same.tar"
random_file "$new/made.tar" 5000
point main a
mount_penstock hf://acme/shards --refresh 1s
equal "the branch's commit is shown" "gone.tar same.tar" "$(names)"
point main b
check "a moved branch is followed" wait_until 20 shows "made.tar same.tar"
umount_penstock
