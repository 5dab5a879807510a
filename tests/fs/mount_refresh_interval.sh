#!/usr/bin/env bash
# --refresh: a mount lists its sources again by itself. New names appear, vanished ones are gone for the
# kernel, too; a listing that fails, or shows less than all, takes no name away, and is logged once; of
# several mounts the smallest interval counts.
. "$(dirname "$0")/../lib.sh"
. "$top_srcdir/tests/fs/hub.sh"
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
equal "without it nothing is planned" "null 0" \
	"$(stats '"\(.mounts[0].next_listing_at) \(.mounts[0].refresh_seconds)"')"
check_not "status says nothing of it" grep -q "again in" <(penstock status "$MNT")
umount_penstock

check "a mount with --refresh" mount_penstock "$ORIGIN/json/" --refresh 1s
equal "shows all" "$all" "$(names)"
equal "status says how often" 1 "$(stats .mounts[0].refresh_seconds)"
at_most "and when it will be" 2 $(($(stats .mounts[0].next_listing_at) - $(date +%s)))
check "in words, too" grep -qE "listed .* ago, again in [0-9]+ s," <(penstock status "$MNT")
check_not "a negative entry is in the kernel" test -e "$MNT/new.tar"
check "as is a name" stat "$MNT/b.tar"
random_file "$T/www/new.tar" 500
check "a new shard appears by itself" wait_until 20 cmp "$MNT/new.tar" "$T/www/new.tar"
rm "$T/www/new.tar" "$T/www/b.tar"
check "what has vanished is gone by itself" wait_until 20 shows \
	"a.tar closed/d.tar closed/deep/e.tar open/c.tar"
check_not "for stat as well" stat "$MNT/b.tar"

# A folder that is closed is no reason to take its names away; others still come and go.
touch "$T/nginx/closed"
random_file "$T/www/b.tar" 500
rm "$T/www/open/c.tar"
check "a listing that was refused one folder shows the others' changes" wait_until 20 shows \
	"a.tar b.tar closed/d.tar closed/deep/e.tar"
equal "and counts the names it kept" 4 "$(stats .mounts[0].files)"
before=$(listed)
wait_until 20 bash -c "(( \$(grep -c '^GET /json/ ' '$T/nginx/access.log') >= $before + 2 ))"
equal "those of the closed folder stay" "a.tar b.tar closed/d.tar closed/deep/e.tar" "$(names)"
equal "which is logged once" 1 "$(logged 'closed/: forbidden')"
rm "$T/nginx/closed" "$T/www/closed/d.tar"
check "once it is open again its changes count" wait_until 20 shows "a.tar b.tar closed/deep/e.tar"

# The origin goes, and comes back.
kill_nginx
failing() { penstock status "$MNT" | grep "listing again failed"; }
check "a listing fails" wait_until 20 failing
sleep 4
equal "that is logged once" 1 "$(logged 'warning: list: .*connect')"
equal "the names stay" "a.tar b.tar closed/deep/e.tar" "$(names)"
random_file "$T/www/late.tar" 500
restart_nginx
check "it is listed again when the origin is back" wait_until 30 shows \
	"a.tar b.tar closed/deep/e.tar late.tar"
equal "which is logged" 1 "$(logged 'listed again, after [0-9]* attempts that failed')"
umount_penstock

# Two mounts: the smallest interval counts for the names that they share.
mount_penstock "$ORIGIN/json/" --refresh 1h
at_least "an hour" 3000 $(($(stats .mounts[0].next_listing_at) - $(date +%s)))
check "another mount with a second" penstock mount "$ORIGIN/json/" "$T/m2" --cache-dir "$CACHE" --refresh 1s
equal "counts for both" 1 "$(stats .mounts[0].refresh_seconds)"
random_file "$T/www/both.tar" 500
check "the first sees what it finds" wait_until 20 cmp "$MNT/both.tar" "$T/www/both.tar"
penstock umount "$T/m2"
equal "until it is unmounted" 3600 "$(stats .mounts[0].refresh_seconds)"
before=$(listed)
sleep 2.5
equal "then nothing is listed for an hour" "$before" "$(listed)"
umount_penstock
check_not "less than a second is refused" mount_penstock "$ORIGIN/json/" --refresh 100ms
check_not "so is what is no time" mount_penstock "$ORIGIN/json/" --refresh often

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
check "by penstock.conf" penstock mount both --config "$T/penstock.conf"
equal "each source" "dir/one.tar list/a.tar" "$(names)"
random_file "$T/dir/two.tar" 100
printf '%s\n' "$ORIGIN/a.tar" "$ORIGIN/late.tar" >"$T/list.new"
mv "$T/list.new" "$T/list.txt"
check "is listed again" wait_until 20 shows "dir/one.tar dir/two.tar list/a.tar list/late.tar"
at_most "one time for both" 2 $(($(stats .mounts[0].next_listing_at) - $(date +%s)))
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
equal "the commit that the branch has" "gone.tar same.tar" "$(names)"
point main b
check "a moved branch is followed" wait_until 20 shows "made.tar same.tar"
umount_penstock
