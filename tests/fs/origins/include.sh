#!/usr/bin/env bash
# --include and --exclude choose files by their paths, the same way for every kind of source.
. "$(dirname "$0")/../../lib.sh"
. "$top_srcdir/tests/fs/origins/hub_lib.sh"
. "$top_srcdir/tests/cloud/cloud.sh"
requires mount nginx jq python3

names() { (cd "${1:-$MNT}" && find . -type f | sed 's,^\./,,' | sort | xargs); }
files="a-0.tar a-1.tar a-2.tar extra/a-0.tar extra/deep/b.tar extra/x.json sub/b.tar sub/notes.txt"
fill() { # DIR
	local name
	mkdir -p "$1/extra/deep" "$1/sub"
	for name in $files; do random_file "$1/$name" 300 "$name"; done
}
# Tests the patterns on a source that has $files.
chosen() { # WHAT SOURCE OPTION...
	local what=$1 source=$2
	shift 2
	tries=$((tries + 1))
	CACHE=$T/cache-$tries
	check "$what: a mount with --include" \
		mount_penstock "$source" --include '*.tar' --include '*.json' "$@"
	equal "$what: files that match a pattern are shown, in any folder" \
		"a-0.tar a-1.tar a-2.tar extra/a-0.tar extra/deep/b.tar extra/x.json sub/b.tar" "$(names)"
	umount_penstock
	origin_forget
	check "$what: a mount with --exclude" \
		mount_penstock "$source" --exclude 'extra/*' --exclude 'notes.txt' "$@"
	equal "$what: files that match no pattern are shown" "a-0.tar a-1.tar a-2.tar sub/b.tar" "$(names)"
	[[ $what != http* ]] || equal "$what: an excluded folder is not listed" 0 \
		"$(grep -c '/extra/ ' "$T/nginx/access.log" || true)"
	umount_penstock
	check "$what: a mount with --include and --exclude" \
		mount_penstock "$source" --include 'a-{0,1}.tar' --include 'sub/*' \
		--exclude '*/notes.*' --exclude 'extra/a*' "$@"
	equal "$what: --exclude overrides --include" "a-0.tar a-1.tar sub/b.tar" "$(names)"
	check "$what: a shown file is read" grep -q . "$MNT/a-1.tar"
	umount_penstock
	check_not "$what: patterns that leave no file are an error" \
		mount_penstock "$source" --include 'none-*' "$@"
	check "$what: the log says that no file is left" \
		grep -q "no files found there that --include and --exclude would show" \
		"$T/penstock.log"
}
tries=0

fill "$T/www"
fill "$T/dir"
start_nginx
chosen "http listing" "$ORIGIN/json/"
chosen "a folder" "$T/dir/"
for name in $files; do echo "$ORIGIN/$name"; done >"$T/list.txt"
chosen "a manifest" "@$T/list.txt"
cp "$T/list.txt" "$T/www/list.txt"
chosen "a fetched manifest" "$ORIGIN/list.txt"

CACHE=$T/cache-braces
check "braces: a mount with --exclude" \
	mount_penstock "$ORIGIN/{a-{0..2}.tar,sub/b.tar}" --exclude '*-1.tar' --missing fail
equal "braces: files that match no pattern are shown" "a-0.tar a-2.tar sub/b.tar" "$(names)"
umount_penstock
start_hub
fill "$(commit a)"
point main a
chosen "the Hub" hf://acme/shards
start_cloud
fill "$T/cloud/bucket"
printf 'KEYONE hush/one session/one\n' >"$T/cloud/keys"
export AWS_ACCESS_KEY_ID=KEYONE AWS_SECRET_ACCESS_KEY=hush/one AWS_SESSION_TOKEN=session/one
chosen "s3" s3://bucket --endpoint "$CLOUD"
unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN
touch "$T/cloud/public"
chosen "gs" gs://bucket --endpoint "$CLOUD" --no-sign-request

# Patterns match the origin's names: a compressed shard is chosen by its compressed name.
CACHE=$T/cache
command -v gzip >/dev/null && gzip -nc "$T/dir/a-0.tar" >"$T/dir/z.tar.gz"
check "a mount of a compressed shard by a pattern" mount_penstock "$T/dir/" --include '*.tar.gz'
equal "a compressed shard is chosen by its compressed name" z.tar "$(names)"
umount_penstock

# A pattern that matches a folder matches all files below it.
CACHE=$T/cache-folders
for pattern in extra extra/ 'ex*a'; do
	origin_forget
	check "a mount with --exclude $pattern" \
		mount_penstock "$ORIGIN/json/" --exclude "$pattern" --exclude deeper
	equal "--exclude $pattern hides all files below the folder" \
		"a-0.tar a-1.tar a-2.tar list.txt sub/b.tar sub/notes.txt" "$(names)"
	equal "--exclude $pattern: the folder is not listed" \
		0 "$(grep -c '/extra/ ' "$T/nginx/access.log" || true)"
	umount_penstock
done
mount_penstock "$T/dir/" --exclude deep --include extra 2>"$T/err"
equal "folders below folders can be excluded, and folders included" "extra/a-0.tar extra/x.json" "$(names)"
equal "patterns that match give no warning" "" "$(cat "$T/err")"
umount_penstock

# Patterns that match nothing are reported, and status has the patterns.
rm -f "$T/penstock.log"
mount_penstock "$T/dir/" --include '*.tar' --include 'a-0.tar' --exclude 'trian' --exclude extra 2>"$T/err"
equal "mount warns of a pattern that matches nothing" \
	"penstock mount: warning: matches no file of the source: --exclude 'trian'" "$(cat "$T/err")"
equal "the log warns of a pattern that matches nothing" \
	1 "$(grep -c "matches no file of the source: --exclude 'trian'" "$T/penstock.log")"
equal "status shows the patterns" \
	"  patterns  --include '*.tar', --include 'a-0.tar', --exclude 'trian' (matches nothing), --exclude 'extra'" \
	"$(penstock status "$MNT" | grep '^  patterns')"
equal "status --json has the patterns" '[["*.tar","a-0.tar"],["trian","extra"],["trian"]]' \
	"$(stats '.mounts[0] | [.include, .exclude, .unmatched] | tojson')"
umount_penstock
mount_penstock "$T/dir/"
equal "status of a mount without patterns shows none" \
	0 "$(penstock status "$MNT" | grep -c '^  patterns' || true)"
umount_penstock

# Indexes are shown with their shards.
cp -r "$T/dir" "$T/indexed"
for name in SHARDS.psc a-0.tar.psx a-1.tar.psx extra/SHARDS.psc extra/a-0.tar.psx extra/x.json.psx \
	sub/SHARDS.psc; do
	echo "$name" >"$T/indexed/$name"
done
mount_penstock "$T/indexed/" --include '*.tar' --exclude 'a-1.tar' --exclude extra/deep
equal "indexes beside shown shards are shown" \
	"SHARDS.psc a-0.tar a-0.tar.psx a-2.tar extra/SHARDS.psc extra/a-0.tar extra/a-0.tar.psx sub/SHARDS.psc sub/b.tar" "$(names)"
umount_penstock
mount_penstock "$T/indexed/" --include 'extra/*.tar' --exclude '*.psx'
equal "catalogues are shown only beside shown shards, and indexes can be excluded" \
	"extra/SHARDS.psc extra/a-0.tar extra/deep/b.tar" "$(names)"
umount_penstock
check_not "a dataset of catalogues alone is refused" mount_penstock "$T/indexed/" --include 'none-*'

# A refresh keeps the patterns. Two mounts of one source with different patterns have their own names and
# share the bytes.
mkdir "$T/m2"
origin_forget
mount_penstock "$ORIGIN/json/" --include 'a-*.tar' --exclude 'extra/*'
check "a mount with other patterns on the same source" \
	penstock mount "$ORIGIN/json/" "$T/m2" --cache-dir "$CACHE" \
	--include 'a-0.tar'
equal "the mount with other patterns has its own names" "a-0.tar extra/a-0.tar" "$(names "$T/m2")"
cat "$MNT/a-0.tar" >/dev/null
check "both mounts have the same bytes" cmp "$T/m2/a-0.tar" "$T/www/a-0.tar"
equal "the bytes were fetched once" 1 "$(grep -c '^GET /json/a-0.tar 206 300' "$T/nginx/access.log")"
random_file "$T/www/a-3.tar" 300
random_file "$T/www/other.tar" 300
equal "a refresh keeps to the patterns" "4 files listed, 1 new, 0 gone" \
	"$(penstock refresh "$MNT" | head -n 1)"
equal "the patterns apply to new files" "a-0.tar a-1.tar a-2.tar a-3.tar" "$(names)"
penstock umount "$T/m2"
umount_penstock

# Patterns in penstock.conf, of the mount and of one source; patterns of warm.
cat >"$T/penstock.conf" <<-CONF
	[two]
	source.web = $ORIGIN/json/
	source.dir = $T/dir/
	mountpoint = $MNT
	cache-dir = $CACHE
	include = *.tar
	include = *.json
	exclude = extra/*
	dir.exclude = a-1.tar
	dir.exclude = sub/*
CONF
check "a mount with patterns of penstock.conf" penstock mount two --config "$T/penstock.conf"
equal "patterns of the mount and of one source are applied" \
	"dir/a-0.tar dir/a-2.tar web/a-0.tar web/a-1.tar web/a-2.tar web/a-3.tar web/other.tar web/sub/b.tar" "$(names)"
equal "status shows the patterns of each source" 2 \
	"$(penstock status "$MNT" | grep -cE "^  patterns  (web|dir) --include '\*.tar'")"
umount_penstock
check "warm takes patterns" penstock warm "$T/dir/" --cache-dir "$T/cache-warm" --include 'a-*' \
	--exclude 'extra/*'
equal "warm fetches only files that match" \
	3 "$(penstock verify --cache-dir "$T/cache-warm" --json | jq .objects)"
for bad in '' /abs 'x{a' ; do
	check_not "a pattern that cannot match is refused: '$bad'" mount_penstock "$T/dir/" --include "$bad"
done
