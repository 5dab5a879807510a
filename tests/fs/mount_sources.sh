#!/usr/bin/env bash
# Several sources in one mount: a folder each, nothing mixed, credentials for their own host alone.
. "$(dirname "$0")/../lib.sh"
requires mount nginx jq getfattr

make_tree "$T/www"
mkdir -p "$T/other/deep" "$MNT"
random_file "$T/other/deep/f.bin" 2500000
cp "$T/other/deep/f.bin" "$T/other/g.bin"
start_nginx
check "three sources are mounted" penstock mount "web=$ORIGIN/" "part=$ORIGIN/sub/" "disk=$T/other/" "$MNT" \
	--cache-dir "$CACHE" --log "$T/penstock.log"
equal "each has a folder" "disk part web" "$(cd "$MNT" && echo *)"
check "one is whole" read_tree 1m "$MNT/web"
check "so is a second" cmp "$MNT/part/deep/7654321.bin" "$T/www/sub/deep/7654321.bin"
check "and a third" diff -r "$MNT/disk" "$T/other"
equal "no two files have one number" 0 "$(find "$MNT" -printf '%i\n' | sort | uniq -d | wc -l)"
equal "readdir and stat agree on the numbers" "" \
	"$("$python" -c 'import os, sys
for d, _, _ in os.walk(sys.argv[1]):
    for e in os.scandir(d):
        if e.inode() != os.stat(e.path, follow_symlinks=False).st_ino: print(e.path)' "$MNT")"
equal "the folder of folders is one" "directory 555" "$(stat -c '%F %a' "$MNT" | xargs)"
check_not "a name that is no source's is not there" test -e "$MNT/nothing"
check_not "nor one across" test -e "$MNT/disk/sub"
equal "a file's URL is its source's" "$ORIGIN/sub/deep/1.bin" \
	"$(getfattr --only-values -n user.penstock.url "$MNT/part/deep/1.bin")"
equal "the top folder has no attributes" "" "$(getfattr -d "$MNT" 2>/dev/null)"
equal "the mount tells of each source" "web part disk" "$(stats '.mounts[0].sources[].name' | xargs)"
equal "and of the sum of files" "$(find "$MNT" -type f | wc -l)" "$(stats '.mounts[0].files')"
equal "the kernel is told all of them" 1 "$(grep -c "web=$ORIGIN/.*disk=file://$T/other/" /proc/self/mountinfo)"
check "warm goes through all" penstock warm "$MNT" -q
equal "and everything is there" cached "$(getfattr --only-values -n user.penstock.state "$MNT/disk/deep/f.bin")"
check "statfs answers" df "$MNT"
check "it ends" umount_penstock

refused() { # WHAT PATTERN ARGUMENT...
	local what=$1 pattern=$2 rc=0
	shift 2
	timeout 20 penstock mount "$@" "$MNT" --cache-dir "$CACHE" >"$T/out" 2>&1 || rc=$?
	equal "$what" "2 1 1" "$rc $(wc -l <"$T/out") $(grep -cE -- "$pattern" "$T/out")"
}
refused "two of one name" "two sources are named 'a'" "a=$ORIGIN/" "a=$T/other/"
refused "a name that hides" "not a name for a folder" ".penstock=$ORIGIN/" "a=$T/other/"
refused "one without a name" "need names" "a=$ORIGIN/" "$T/other/"
refused "credentials that would go to two hosts" "every host" "a=$ORIGIN/" "b=$ORIGIN_TLS/" --header "X-Token: secret"
refused "a source that makes no sense" "neither a URL" "a=$ORIGIN/" b=nonsense
rc=0
penstock mount "a=$ORIGIN/" "b=$ORIGIN/nothing/" "$MNT" --cache-dir "$CACHE" >"$T/out" 2>&1 || rc=$?
equal "of one that is not there its name is told" "1 1" "$rc $(grep -c "b: .*404" "$T/out")"
check_not "nothing is mounted" is_mounted
check "credentials for one host may be given" penstock mount "a=$ORIGIN/token/" "b=$ORIGIN/token/sub/" "$MNT" \
	--cache-dir "$CACHE" --header "X-Token: secret"
check "and serve both" cmp "$MNT/a/sub/deep/1048577.bin" "$MNT/b/deep/1048577.bin"
check "a name may be given to one" penstock umount "$MNT"
check "which has its folder, too" penstock mount "only=$T/other/" "$MNT" --cache-dir "$CACHE"
check "and its files there" cmp "$MNT/only/g.bin" "$T/other/g.bin"
check "it ends, too" umount_penstock
