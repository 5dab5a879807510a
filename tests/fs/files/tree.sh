#!/usr/bin/env bash
# The tree of a mount is that of its source: empty directories, directories behind links, times, link counts,
# names with control characters. What cannot be shown is counted.
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../../cloud/cloud.sh"
requires mount nginx jq

www=$T/www
mkdir -p "$www/cls/a" "$www/cls/b" "$www/cls/c" "$www/deep/er/empty" "$www/only/pipe"
echo 1 >"$www/cls/a/1.jpg"
echo 2 >"$www/cls/c/2.jpg"
mkfifo "$www/only/pipe/fifo"
tab=$'a\tb' newline=$'n\nl'
echo tab >"$www/$tab"
mkdir "$www/$newline"
echo in >"$www/$newline/file"
chmod -R a+rX "$www"
start_nginx
# tree [DIR]: directories end in "/".
tree() { (cd "${1:-$MNT}" && find . -mindepth 1 \( -name .penstock -prune \) -o -mindepth 1 \( -type d -printf '%P/\n' -o -printf '%P\n' \) | sort); }
expected="$(sort <<'LIST'
a%09b
cls/
cls/a/
cls/a/1.jpg
cls/b/
cls/c/
cls/c/2.jpg
deep/
deep/er/
deep/er/empty/
n%0Al/
n%0Al/file
only/
only/pipe/
LIST
)"

for source in "file://$www/" "$ORIGIN/" "$ORIGIN/json/"; do
	kind=${source%%:*}
	[[ $source != */json/ ]] || kind=JSON
	CACHE=$T/cache-$kind
	mount_penstock "$source"
	got=$(tree)
	[[ $kind == file ]] || got=$(grep -v '^only/pipe/fifo$' <<<"$got") # nginx lists it as a file
	equal "$kind: the tree is the source's, with empty directories" "$expected" "$got"
	equal "$kind: a name with a tab is read" tab "$(cat "$MNT/a%09b")"
	equal "$kind: a file in a directory with a line end is read" in "$(cat "$MNT/n%0Al/file")"
	check "$kind: an empty directory can be listed" test -z "$(ls -A "$MNT/cls/b")"
	equal "$kind: a directory has one link" "1 1" "$(stat -c %h "$MNT" "$MNT/cls" | xargs)"
	at_least "$kind: a directory has the time of its listing" "$(($(date +%s) - 100))" "$(stat -c %Y "$MNT/cls/b")"
	at_least "$kind: the root has the time of its listing" "$(($(date +%s) - 100))" "$(stat -c %Y "$MNT")"
	equal "$kind: a directory has children of both kinds" 3 "$(find "$MNT/cls" -mindepth 1 -maxdepth 1 | wc -l)"
	umount_penstock
done

# Patterns: an empty directory of the source stays, one that patterns have emptied does not.
CACHE=$T/cache-patterns
mount_penstock "file://$www/" --include '*.jpg'
equal "with patterns only directories that are empty at the source are shown" \
	"cls/ cls/a/ cls/a/1.jpg cls/b/ cls/c/ cls/c/2.jpg deep/ deep/er/ deep/er/empty/" "$(tree | xargs)"
umount_penstock
mount_penstock "file://$www/" --include '*.jpg' --exclude deep
equal "an excluded directory is not shown" "cls/ cls/a/ cls/a/1.jpg cls/b/ cls/c/ cls/c/2.jpg" "$(tree | xargs)"
umount_penstock

# A refresh: directories come and go, and only those whose names change get another time.
CACHE=$T/cache-file
mount_penstock "file://$www/"
before=$(stat -c %Y "$MNT/cls/a") b=$(stat -c %Y "$MNT/cls")
sleep 1.1
rmdir "$www/cls/b"
mkdir "$www/cls/d"
check "a refresh works" penstock refresh "$MNT"
equal "a refresh removes and adds empty directories" "a c d" "$(cd "$MNT/cls" && echo *)"
equal "a directory whose names did not change keeps its time" "$before" "$(stat -c %Y "$MNT/cls/a")"
at_least "a directory whose names changed has a new time" "$((b + 1))" "$(stat -c %Y "$MNT/cls")"
echo 3 >"$www/cls/d/3.jpg"
rm "$www/cls/a/1.jpg"
check "another refresh works" penstock refresh "$MNT"
equal "an empty directory gets a file" 3 "$(cat "$MNT/cls/d/3.jpg")"
check "a directory whose last file is gone stays, empty" test -d "$MNT/cls/a" -a ! -e "$MNT/cls/a/1.jpg"
umount_penstock

# A directory that cannot be listed is not an empty one.
if [[ $EUID == 0 ]]; then
	mkdir -p "$www/closed/sub"
	echo x >"$www/closed/sub/x"
	CACHE=$T/cache-closed
	mount_penstock "$ORIGIN/json/"
	touch "$T/nginx/closed"
	check "a refresh with a directory that is closed" penstock refresh "$MNT"
	check "a directory that cannot be listed keeps its names" test -e "$MNT/closed/sub/x"
	rm "$T/nginx/closed"
	umount_penstock
	rm -r "$www/closed"
fi

# Links to directories.
links=$T/links
mkdir -p "$links/real/in" "$links/cls" "$T/elsewhere"
echo r >"$links/real/in/r.txt"
echo e >"$T/elsewhere/e.txt"
ln -s ../real "$links/cls/linked"
ln -s "$T/elsewhere" "$links/outside"
ln -s .. "$links/real/up"
ln -s nowhere "$links/dangling"
for i in {1..20}; do ln -s ../real/in "$links/cls/many$i"; done
CACHE=$T/cache-links
mount_penstock "file://$links/"
equal "a file behind a link to a directory is read" r "$(cat "$MNT/cls/linked/in/r.txt")"
equal "a file behind a link out of the source is read" e "$(cat "$MNT/outside/e.txt")"
check_not "a link to a directory above it ends there" test -e "$MNT/real/up"
equal "at most 16 links lead to one directory" 16 "$(find "$MNT/cls" -path '*/many*/r.txt' | wc -l)"
# dangling, up, linked/up, 4 of many
equal "what is not shown is counted" 7 "$(stats '.mounts[0].skipped')"
check "status says how many names are not shown" grep -q 'skipped *7 names' <(penstock status "$MNT")
umount_penstock

# Root's daemon follows no link that another user has made to what is not that user's.
if [[ $EUID == 0 ]]; then
	mkdir "$links/theirs"
	echo secret >"$T/elsewhere/secret"
	chmod 600 "$T/elsewhere/secret"
	echo own >"$links/theirs/own"
	chown -R 12345 "$links/theirs"
	ln -s "$T/elsewhere/secret" "$links/theirs/file"
	ln -s "$T/elsewhere" "$links/theirs/dir"
	ln -s own "$links/theirs/mine"
	chown -h 12345 "$links/theirs"/{file,dir,mine}
	# Root's links through those of that user.
	mkdir "$links/chain"
	ln -s ../theirs/dir "$links/chain/dir"
	ln -s ../theirs/dir/secret "$links/chain/file"
	ln -s ../theirs/mine "$links/chain/mine"
	CACHE=$T/cache-owners
	mount_penstock "file://$links/" --revalidate open
	equal "links of another user: only to that user's own files" "mine own" "$(cd "$MNT/theirs" && echo *)"
	equal "root's links through another user's: the same" "mine" "$(cd "$MNT/chain" && echo *)"
	equal "a user's link to an own file is read" own "$(cat "$MNT/theirs/mine")"
	# A file that becomes a link after the listing, and a directory.
	rm "$links/theirs/own" "$links/real/in/r.txt"
	ln -s "$T/elsewhere/secret" "$links/theirs/own"
	chown -h 12345 "$links/theirs/own"
	check_not "a file that has become a link to a secret is not read" grep -q secret "$MNT/theirs/own"
	rm -r "$links/real/in"
	ln -s "$T/elsewhere" "$links/real/in"
	mv "$T/elsewhere/secret" "$T/elsewhere/r.txt"
	chown -h 12345 "$links/real/in"
	check_not "a file below a directory that has become a link is not read" grep -q secret "$MNT/real/in/r.txt"
	chown -h 0 "$links/real/in"
	read_now() { grep -q secret "$MNT/real/in/r.txt"; }
	check "root's own link is followed" wait_until 10 read_now
	umount_penstock
fi

# Buckets: the empty objects that consoles make for folders.
start_cloud
echo "AKIABASE hush/base" >"$T/cloud/keys"
export AWS_ACCESS_KEY_ID=AKIABASE AWS_SECRET_ACCESS_KEY=hush/base AWS_REGION=us-east-1
mkdir -p "$T/cloud/bucket/cls"/{a,b,c}
touch "$T/cloud/folders"
echo 1 >"$T/cloud/bucket/cls/a/1.jpg"
echo 2 >"$T/cloud/bucket/cls/c/2.jpg"
CACHE=$T/cache-s3
mount_penstock s3://bucket/cls/ --endpoint "$CLOUD"
equal "a bucket's folder markers are directories" "a/ a/1.jpg b/ c/ c/2.jpg" "$(tree | xargs)"
umount_penstock

if command -v git >/dev/null; then
	git init -q -b main "$T/work"
	(cd "$T/work" && echo x >x && git add x && git -c user.name=t -c user.email=t@t commit -qm x)
	git clone -q --bare "$T/work" "$www/repo.git"
	(cd "$www/repo.git" && git pack-refs --all)
	CACHE=$T/cache-git
	mount_penstock "$ORIGIN/"
	check "a bare repository whose refs are packed can be cloned" \
		git -c safe.directory='*' clone -q "$MNT/repo.git" "$T/clone"
	umount_penstock
fi

# What cannot be shown is counted for each kind of source, and hides nothing else. skips WHAT NUMBER NAMES OPTION...
CACHE=$T/cache-skips
skips() {
	local what=$1 number=$2 names=$3
	shift 3
	rm -rf "$CACHE"
	mount_penstock "$@"
	equal "$what: the other names are shown" "$names" "$(tree | grep -v '/$' | xargs -d '\n')"
	equal "$what: what is not shown is counted" "$number" "$(stats '.mounts[0].skipped')"
	check "$what: status says so" grep -q "skipped *$number name" <(penstock status "$MNT")
	umount_penstock
}
long=$(printf 'x%.0s' {1..256})
odd=$T/www/odd latin=$'b\xe4d'
mkdir -p "$odd/page"
touch "$odd/good" "$odd/$tab" "$odd/$latin"
skips "a JSON listing with a name that is not UTF-8" 1 "a%09b good" "$ORIGIN/json/odd/" --exclude page
cat >"$odd/page/index.html" <<PAGE
<a href="../">up</a><a href="good">good</a><a href="50%25">50%</a><a href="50%">50%</a><a href="%00">nul</a>
<a href="$long">long</a><a href="other/50%">elsewhere</a>
PAGE
touch "$odd/page/good" "$odd/page/50%"
skips "a page with links that are not names" 3 "50% good" "$ORIGIN/odd/page/"
printf '%s\n' "$ORIGIN/odd/good" "$ORIGIN/odd/a%09b" "$ORIGIN/odd/good" "$ORIGIN/odd/$long" >"$T/list.txt"
skips "a list" 2 "a%09b good" "@$T/list.txt"
sed "s,$ORIGIN,file://$www," "$T/list.txt" >"$T/files.txt"
skips "a list of files" 2 "a%09b good" "@$T/files.txt"

mkdir -p "$T/cloud/bucket/odd"
touch "$T/cloud/bucket/odd/good" "$T/cloud/bucket/odd/$tab"
for key in odd/%00a odd/%00b "odd/$long"; do echo "<Contents><Key>$key</Key><Size>1</Size></Contents>"; done >"$T/cloud/more.xml"
skips "S3" 3 "a%09b good" s3://bucket/odd/ --endpoint "$CLOUD"
touch "$T/cloud/public"
skips "Google's store" 3 "a%09b good" gs://bucket/odd/ --endpoint "$CLOUD" --no-sign-request

mkdir -p "$T/az/blobs/data/odd"
touch "$T/az/blobs/data/odd/good" "$T/az/public"
touch "$T/az/blobs/data/odd/$tab"
echo "<Blob><Name>odd/$long</Name><Properties><Content-Length>1</Content-Length></Properties></Blob>" >"$T/az/more.xml"
"$python" -B "$top_srcdir/tests/fs/origins/az_server.py" "$T/az" >"$T/az_server.log" 2>&1 &
wait_until 30 test -s "$T/az/port" || die "the Azure stand-in starts" "$(cat "$T/az_server.log")"
skips "Azure" 1 "a%09b good" az://acct/data/odd/ --endpoint "http://127.0.0.1:$(cat "$T/az/port")" --no-sign-request

. "$top_srcdir/tests/fs/origins/hub_lib.sh"
start_hub
main=$(commit a)
touch "$main/good" "$main/$tab" "$main/$latin"
point main a
skips "the Hub" 1 "a%09b good" hf://datasets/acme/shards
